from __future__ import annotations

import io
import json
import os
import queue
import signal

import pytest
from rich.console import Console

from jsonbus.demo import processes as demo_processes
from jsonbus.demo.bus_show import (
    COUNTS,
    SENSORS,
    SUBSCRIBER,
    BusScene,
    BusStage,
    Tally,
    add_up,
    conclusions,
    summarize,
)
from jsonbus.demo.processes import Child, DemoError, end_processes
from jsonbus.demo.sensor import Part, Report, TopicReport, to_line
from jsonbus.demo.view import View
from tests.helpers import find_free_port, wait_until


def make_view(*, is_terminal: bool = False) -> tuple[View, io.StringIO]:
    file = io.StringIO()
    return View(Console(file=file, width=100, height=30, force_terminal=is_terminal)), file


def never() -> None:
    """No interrupt."""


def start(part: Part) -> tuple[Child, queue.SimpleQueue[Report]]:
    reports: queue.SimpleQueue[Report] = queue.SimpleQueue()

    def hear(line: str) -> bool:
        try:
            reports.put(Report.from_line(line))
        except ValueError:
            return False
        return True

    return Child(part.name, ["jsonbus.demo.sensor", to_line(part)], hear), reports


def sensor_part(**changes: object) -> Part:
    fields = {"name": "attic", "group": "239.255.24.16", "port": find_free_port(), "mode": "basic"}
    return Part(**{**fields, "publishes": {"attic/temp": 21.0}, **changes})  # type: ignore[arg-type]


def tally(mode: str, first_value_ms: float | None = 12.3, **changes: int) -> Tally:
    counts = {
        "published": 100, "sent": 20, "suppressed": 80, "delivered": 19, "lost": 1, "shares": 2,
        "unwanted": 60,
    }  # fmt: skip
    return Tally(mode, {**counts, **changes}, first_value_ms)


def lines_of(renderable: object, width: int) -> list[str]:
    console = Console(file=io.StringIO(), width=width, force_terminal=False)
    console.print(renderable)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue().splitlines()


def test_parts_and_reports_survive_their_way_as_a_line() -> None:
    part = sensor_part(subscribes="*/temp", is_master=True)
    assert Part(**json.loads(to_line(part))) == part
    report = Report(
        topics={"attic/temp": TopicReport(20.5, 7, 3, "sent", [SUBSCRIBER])},
        seen={"bath/temp": 22.0},
        delivered=4,
        first_value_ms=8.5,
        anomalies=5,
        late=6,
        has_stopped=True,
        lost=1,
        unwanted=2,
        shares=3,
    )
    assert Report.from_line(to_line(report)) == report


@pytest.mark.parametrize("line", ["", "Traceback (most recent call last):", "{}", "[1]", "7"])
def test_a_line_that_is_no_report_is_refused(line: str) -> None:
    with pytest.raises(ValueError):
        Report.from_line(line)


def test_a_tally_adds_up_sensors_and_subscribers() -> None:
    sensor = Report(
        topics={"a/temp": TopicReport(1.0, 10, 4), "a/light": TopicReport(1.0, 10, 0)}, unwanted=5
    )
    first, second = Report(delivered=3, lost=1, shares=1), Report(delivered=2, first_value_ms=9.0)
    together = add_up("delayed", [first, second, sensor, sensor])
    assert together == Tally(
        "delayed", dict(zip(COUNTS, (40, 8, 32, 5, 1, 1, 10), strict=True)), 9.0
    )


def test_a_process_reports_and_ends_when_asked() -> None:
    process, reports = start(sensor_part())
    try:
        report = reports.get(timeout=60)
        assert report.topics.keys() == {"attic/temp"}
        while not report.sent:
            report = reports.get(timeout=60)
    finally:
        end_processes([process])
    assert process.exit_code == 0
    while not reports.empty():
        report = reports.get()
    assert report.topics["attic/temp"].published == report.topics["attic/temp"].sent > 0


def test_a_process_that_does_not_react_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo_processes, "ASKED_S", 0.1)
    monkeypatch.setattr(demo_processes, "TERMINATED_S", 0.1)
    process, _ = start(sensor_part())
    os.kill(process.pid, signal.SIGSTOP)
    end_processes([process])
    assert process.complaint == f"exit code -{signal.SIGKILL.value}"


def test_the_last_words_of_a_process_that_fails_are_kept() -> None:
    process, _ = start(sensor_part(port=0))
    assert wait_until(lambda: process.exit_code is not None)
    end_processes([process])
    assert "port must be a whole number" in process.complaint


@pytest.mark.parametrize("mode", ["basic", "delayed"])
def test_a_stage_shows_what_is_sent_and_what_is_suppressed(mode: str) -> None:
    view, shown = make_view()
    with BusStage(BusScene(1.0, mode=mode), view, never) as stage:
        stage.run()
        processes = list(stage.children.values())
        assert {each.name for each in processes} == set(SENSORS)
        assert stage.scene.pids.keys() == {*SENSORS, SUBSCRIBER}
    assert all(each.exit_code == 0 for each in processes)
    counted = stage.scene.tally().counts
    assert counted["delivered"] > 0
    assert stage.scene.tally().first_value_ms is not None
    assert counted["sent"] + counted["suppressed"] == counted["published"]
    assert (counted["suppressed"] == 0) == (mode == "basic")
    assert "first value" in shown.getvalue()
    for width in (80, 120):
        screen = lines_of(stage.scene.draw(24), width)
        assert len(screen) <= 23, "it has to fit a small terminal"
        text = "\n".join(screen)
        assert "…" not in text
        assert "kitchen/temp" in text and "suppressed" in text and "has said goodbye" in text


def test_a_stage_whose_process_fails_says_which() -> None:
    with pytest.raises(DemoError, match="bath failed: exit code -9"):
        with BusStage(BusScene(1.0), make_view()[0], never) as stage:
            stage.start_node("bath")
            os.kill(stage.children["bath"].pid, signal.SIGKILL)
            stage.wait_for(lambda: False, "never")


@pytest.mark.parametrize("is_terminal", [True, False])
def test_the_view_follows_the_scene(is_terminal: bool) -> None:
    view, shown = make_view(is_terminal=is_terminal)
    scene = BusScene(1.0, mode="master", address="239.255.24.16:1")
    view.show(scene)
    view.tell(scene, "something happened")
    scene.reports["bath"] = Report(topics={"bath/temp": TopicReport(20.0, 1234, 0)})
    view.show(scene)
    view.end(scene)
    summarize([tally("basic"), tally("delayed", first_value_ms=None)], view)
    for text in ("1,234", "something happened", "woke a node for nothing"):
        assert text in shown.getvalue()


def test_the_conclusion_compares_basic_with_a_mode_that_suppresses() -> None:
    lines = conclusions([tally("basic", sent=100, unwanted=400), tally("master"), tally("delayed")])
    assert "basic" in lines[0] and "100 %" in lines[0] and "400" in lines[0]
    assert "delayed" in lines[1] and "20 %" in lines[1]
    assert "12 ms" in lines[2]
    assert conclusions([]) == []


def test_a_short_demo_ends_with_a_summary(run) -> None:  # type: ignore[no-untyped-def]
    result = run("demo", "--bus", "--seconds", "1", "--mode", "delayed")
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    headings = next(line for line in lines if line.startswith("mode  ")).split()
    figures = next(line for line in lines if line.startswith("delayed  ")).split()
    assert headings[:5] == ["mode", "published", "sent", "suppressed", "delivered"]
    published, sent, suppressed, delivered = (int(each.replace(",", "")) for each in figures[1:5])
    assert published == sent + suppressed
    assert suppressed > 0
    assert delivered > 0


@pytest.mark.parametrize(
    "options",
    [
        ("--bus", "--forever", "--mode", "basic", "--mode", "master"),
        ("--bus", "--seconds", "0"),
        ("--bus", "--mode", "loud"),
        ("--bus", "--port", "2416"),
        ("--bus", "--rate", "100"),
        ("--mode", "basic"),
        ("--keep", "tests"),
    ],
)
def test_options_of_the_demo_that_cannot_be_are_wrong_usage(  # type: ignore[no-untyped-def]
    run, options: tuple[str, ...]
) -> None:
    result = run("demo", *options)
    assert result.exit_code == 2
    assert result.stderr.splitlines()[-1].startswith("Error: ")
