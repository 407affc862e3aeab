"""The demo with Spark, as far as it goes without Spark: verdict, script, screen and sensor."""

from __future__ import annotations

import io
import sys
from dataclasses import replace
from typing import Any

import pytest
from rich.console import Console

from jsonbus.demo.pipeline_scene import (
    SENSORS,
    TOPIC_PREFIX,
    Alert,
    Counts,
    PipelineScene,
    Rate,
    verify,
)
from jsonbus.demo.pipeline_show import conclusions, summarize
from jsonbus.demo.script import Script
from jsonbus.demo.sensor import CATCH_UP_S, NOISE, WAVE, Part, Readings, Report, TopicReport
from jsonbus.demo.view import View

EQUAL = Counts(
    published=1000, anomalies=4, too_late=3, recorded=1000, parquet_rows=1000,
    parquet_messages=1000, dropped=3, alerts_published=4, alerts_seen=4, in_windows=997,
)  # fmt: skip


def query(rows: int, **changes: Any) -> dict[str, Any]:
    figures = {
        "batches": 7, "rows": rows, "output_rows": 4, "dropped_rows": 3, "batch_ms": 1234,
        "watermark": 1_700_000_000.0,
    }  # fmt: skip
    return {**figures, **changes}


def busy_scene() -> PipelineScene:
    """Everything has something to tell."""
    scene = PipelineScene(60.0, phase="running", elapsed_s=83.0, shown_s=30.0)
    scene.bridge_address = "127.0.0.1:45678"
    scene.bridge = {"recorder": {"rows_recorded": 1_234_000}, "log": {"bytes": 123_456_789}}
    for name in SENSORS:
        topic = TopicReport(21.5, 246_800, 246_800)
        scene.reports[name] = Report(topics={TOPIC_PREFIX + name: topic}, anomalies=1)
        for minute in range(3):
            start = f"2026-01-31T12:0{minute}:00.000Z"
            window = {"start": start, "count": 500, "mean": 21.0, "min": -19.5, "max": 125.0}
            scene.note_window(name, window)
        scene.note_alert(name, Alert(0.0, f"alerts/sensors/{name}", 125.0, 21.0, 1.5))
        scene.events.append((70.0, f"{name} sends a reading a minute late: its window is closed"))
    scene.queries = {name: query(1_200_000) for name in ("raw", "windows", "alerts")}
    return scene


def lines_of(renderable: object, width: int) -> list[str]:
    console = Console(file=io.StringIO(), width=width, force_terminal=False)
    console.print(renderable)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue().splitlines()


def test_equal_counts_pass() -> None:
    assert all(check.holds for check in verify(EQUAL))


@pytest.mark.parametrize(
    ("changes", "noticed"),
    [
        ({"recorded": 999}, "published by the sensors"),
        ({"parquet_rows": 1001}, "recorded by the bridge"),
        ({"parquet_messages": 999}, "rows in Parquet"),
        ({"in_windows": 996}, "published by the sensors"),
        ({"dropped": 2, "in_windows": 998}, "sent too late"),
        ({"alerts_published": 5, "alerts_seen": 5}, "anomalies of the sensors"),
        ({"alerts_seen": 3}, "alerts by Spark"),
    ],
)
def test_a_wrong_count_is_noticed(changes: dict[str, int], noticed: str) -> None:
    wrong = [check for check in verify(replace(EQUAL, **changes)) if not check.holds]
    assert noticed in [check.what for check in wrong]


@pytest.mark.parametrize(
    "field", ["recorded", "parquet_rows", "parquet_messages", "dropped", "alerts_published"]
)
def test_a_station_that_could_not_be_asked_is_no_equal_count(field: str) -> None:
    assert not all(check.holds for check in verify(replace(EQUAL, **{field: None})))


def test_two_stations_that_know_nothing_do_not_agree() -> None:
    unknown = replace(EQUAL, recorded=None, parquet_rows=None, parquet_messages=None)
    assert [check.holds for check in verify(unknown)][:3] == [False, False, False]


def test_the_conclusion_says_that_counts_are_wrong() -> None:
    scene = busy_scene()
    assert "equal: of 1,234,000 readings" in conclusions(scene, verify(EQUAL))[0]
    wrong = verify(replace(EQUAL, alerts_seen=3))
    assert conclusions(scene, wrong) == ["WRONG: 1 of 7 pairs of counts differ."]


def test_a_scene_counts_windows_by_their_last_state_and_forgets_old_ones() -> None:
    scene = PipelineScene(1.0)
    for count in (1, 5, 7):
        scene.note_window("attic", {"start": "2026-01-31T12:00:00.000Z", "count": count})
    assert scene.counts.in_windows == 7
    for number in range(1000):
        scene.note_window("attic", {"start": f"2026-02-01T{number:06}", "count": 2})
    assert scene.counts.in_windows == 2007
    assert len(scene.windows["attic"]) < 1000


def test_a_rate_is_that_of_the_last_seconds() -> None:
    rate = Rate()
    assert rate.per_s == 0
    for second in range(20):
        rate.note(second * (100 if second < 10 else 100 + second), now=float(second))
    assert rate.per_s > 100


@pytest.mark.parametrize("width", [80, 120])
def test_the_screen_fits_a_small_terminal(width: int) -> None:
    for scene in (PipelineScene(60.0), busy_scene()):
        for height, lines_max in ((24, 24), (40, 40)):
            screen = lines_of(scene.draw(height), width)
            assert len(screen) <= lines_max - 2, "the introduction stays above it"
            assert max(map(len, screen)) <= width
            text = "\n".join(screen)
            assert "kitchen" in text and "Parquet" in text
    shown = "\n".join(lines_of(busy_scene().draw(24), width))
    for figure in ("1,234,000", "1,200,000", "246,800", "125.00", "3 too late", "4 alerts"):
        assert figure in shown


@pytest.mark.parametrize("is_terminal", [True, False])
def test_a_screen_and_plain_lines_show_everything_and_the_verdict(is_terminal: bool) -> None:
    file = io.StringIO()
    console = Console(file=file, width=100, height=24, force_terminal=is_terminal)
    view = View(console)
    scene = busy_scene()
    view.show(scene)
    view.log(scene, f"on the bus: {scene.alerts[-1]}")
    view.tell(scene, "attic has a spike")
    view.end(scene)
    summarize(scene, verify(replace(EQUAL, alerts_seen=3)), view)
    text = file.getvalue()
    for part in ("alerts/sensors/cellar", "attic has a spike", "1,234,000", "≠", "WRONG"):
        assert part in text
    assert ("\x1b" in text) == is_terminal


def test_the_script_asks_for_everything_and_waits_until_it_is_done() -> None:
    scene = PipelineScene(2.0)
    scene.queries = {"windows": query(0, watermark=1_700_000_000.0)}
    wishes: list[dict[str, Any]] = []
    script = Script(scene, lambda sensor, wish: wishes.append(wish), lambda text: None)
    for step in range(40):
        scene.shown_s = step * 0.05
        assert not script.advance()
    kinds = [wish["wish"] for wish in wishes]
    assert {"spike", "break", "late"} == set(kinds)
    closed = [wish["at"] for wish in wishes if "at" in wish]
    assert len(closed) == scene.too_late > 1
    assert len({at // 10 for at in closed}) == len(closed), "each in a window of its own"
    assert max(closed) < 1_700_000_000 - 30
    assert kinds.count("late") == scene.too_late + scene.late_in_time
    scene.shown_s = 2.0
    assert not script.advance(), "the sensors have not done it yet"
    scene.reports["attic"] = Report(anomalies=len(wishes) - 1, late=1)
    assert script.advance()


def test_readings_come_at_their_rate_and_judge_only_by_whole_windows() -> None:
    part = Part(name="attic", group="", port=0, publishes={"sensors/attic": 20.0}, per_s=10.0)
    readings = Readings(part, "sensors/attic")
    taken = [each for tenth in range(301) for each in readings.take(1000.0 + tenth / 10)]
    assert len(taken) in (300, 301)
    assert max(abs(value - 20.0) for _, value in taken) <= WAVE + 3 * NOISE + 0.01
    assert readings.can_be_judged(1030.0)
    assert not readings.can_be_judged(1005.0), "there was nothing before"
    after_pause = list(readings.take(1100.0))
    assert len(after_pause) <= 10 * CATCH_UP_S + 1
    assert not readings.can_be_judged(1100.0), "a pause is no window to judge by"


def test_without_spark_one_sentence_says_what_to_do(run, monkeypatch) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.setitem(sys.modules, "pyspark", None)
    result = run("demo")
    assert result.exit_code == 1
    (sentence,) = result.stderr.splitlines()
    assert "pyspark" in sentence and "jsonbus[spark]" in sentence and "--bus" in sentence
