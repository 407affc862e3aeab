from __future__ import annotations

import io
import os
import queue
import signal

import click
import pytest
from rich.console import Console

from jsonbus.demo import process as demo_process
from jsonbus.demo.process import end_processes
from jsonbus.demo.sharing_report import Part, Report, Tally, TopicReport, add_up
from jsonbus.demo.sharing_stage import SENSORS, SUBSCRIBER, Inbox, NodeProcess, Scene, Stage
from jsonbus.demo.sharing_view import LiveView, conclusions, draw
from tests.helpers import find_free_port, wait_until


class SilentView:
    """Remembers what it was told."""

    def __init__(self) -> None:
        self.told: list[str] = []
        self.shown = 0

    def show(self, scene: Scene) -> None:
        self.shown += 1

    def tell(self, scene: Scene, text: str) -> None:
        self.told.append(text)


def sensor_part(**changes: object) -> Part:
    fields = {"name": "attic", "group": "239.255.24.16", "port": find_free_port(), "mode": "basic"}
    return Part(**{**fields, "publishes": {"attic/temp": 21.0}, **changes})  # type: ignore[arg-type]


def tally(mode: str, **changes: object) -> Tally:
    fields = {
        "published": 100, "sent": 20, "delivered": 19, "lost": 1, "shares": 2, "unwanted": 60,
        "first_value_ms": 12.3,
    }  # fmt: skip
    return Tally(mode, **{**fields, **changes})  # type: ignore[arg-type]


def lines_of(renderable: object, width: int) -> list[str]:
    console = Console(file=io.StringIO(), width=width, force_terminal=False)
    console.print(renderable)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue().splitlines()


def test_parts_and_reports_survive_their_way_as_a_line() -> None:
    part = sensor_part(subscribes=("*/temp", "door"), is_master=True)
    assert Part.from_line(part.to_line()) == part
    report = Report(
        topics={"attic/temp": TopicReport(20.5, 7, 3, "sent", (SUBSCRIBER,))},
        seen={"bath/temp": 22.0},
        delivered=4,
        first_value_ms=8.5,
        lost=1,
        unwanted=2,
        shares=3,
    )
    assert Report.from_line(report.to_line()) == report


@pytest.mark.parametrize("line", ["", "Traceback (most recent call last):", "{}", "[1]", "7"])
def test_a_line_that_is_no_report_is_refused(line: str) -> None:
    with pytest.raises(ValueError):
        Report.from_line(line)


def test_a_tally_adds_up_sensors_and_subscribers() -> None:
    sensor = Report(
        topics={"a/temp": TopicReport(1.0, 10, 4), "a/light": TopicReport(1.0, 10, 0)}, unwanted=5
    )
    first, second = Report(delivered=3, lost=1, shares=1), Report(delivered=2, first_value_ms=9.0)
    together = add_up("delayed", [first.plus(second), sensor, sensor])
    assert together == Tally("delayed", 40, 8, 5, 1, 1, 10, 9.0)
    assert together.suppressed == 32


def test_a_process_reports_and_ends_when_asked() -> None:
    inbox: Inbox = queue.SimpleQueue()
    process = NodeProcess(sensor_part(), inbox)
    try:
        sender, report = inbox.get(timeout=60)
        assert sender is process
        assert report.topics.keys() == {"attic/temp"}
    finally:
        end_processes([process])
    assert process.has_ended
    while not inbox.empty():
        _, report = inbox.get()
    assert report.topics["attic/temp"].published == report.topics["attic/temp"].sent > 0


def test_a_process_that_does_not_react_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo_process, "ASKED_S", 0.1)
    monkeypatch.setattr(demo_process, "TERMINATED_S", 0.1)
    process = NodeProcess(sensor_part(), queue.SimpleQueue())
    os.kill(process.pid, signal.SIGSTOP)
    end_processes([process])
    assert process.complaint == f"exit code -{signal.SIGKILL.value}"


def test_the_last_words_of_a_process_that_fails_are_kept() -> None:
    process = NodeProcess(sensor_part(port=0), queue.SimpleQueue())
    assert wait_until(lambda: process.has_ended)
    end_processes([process])
    assert "port must be a whole number" in process.complaint


@pytest.mark.parametrize("mode", ["basic", "delayed"])
def test_a_stage_shows_what_is_sent_and_what_is_suppressed(mode: str) -> None:
    view = SilentView()
    with Stage(mode, 1.0, view) as stage:
        stage.run()
        processes = list(stage.scene.processes.values())
        assert {each.name for each in processes} == {*SENSORS, SUBSCRIBER}
    assert all(each.has_ended for each in processes)
    counted = stage.scene.tally()
    assert counted.delivered > 0
    assert counted.first_value_ms is not None
    assert counted.sent + counted.suppressed == counted.published
    assert (counted.suppressed == 0) == (mode == "basic")
    assert view.shown > 0
    assert any("first value" in text for text in view.told)
    for width in (80, 120):
        screen = lines_of(draw(stage.scene), width)
        assert len(screen) <= 23, "it has to fit a small terminal"
        text = "\n".join(screen)
        assert "…" not in text
        assert "kitchen/temp" in text and "suppressed" in text and "has said goodbye" in text


def test_a_stage_whose_process_fails_tells_which(monkeypatch: pytest.MonkeyPatch) -> None:
    stage = Stage("basic", 1.0, SilentView())
    with pytest.raises(click.ClickException, match="bath failed: exit code -9"), stage:
        stage._start("bath")
        os.kill(stage.scene.processes["bath"].pid, signal.SIGKILL)
        stage._wait_for(lambda: False, "never")


def test_the_live_table_follows_the_scene() -> None:
    view = LiveView(Console(file=io.StringIO(), width=80, height=30, force_terminal=True))
    scene = Scene("master", "239.255.24.16:1", 1.0)
    view.introduce()
    view.begin(scene)
    view.tell(scene, "")
    scene.reports["bath"] = Report(topics={"bath/temp": TopicReport(20.0, 1234, 0)})
    view.show(scene)
    view.end(scene)
    view.summarize([tally("basic"), tally("delayed", first_value_ms=None)])
    assert isinstance(view.console.file, io.StringIO)
    text = view.console.file.getvalue()
    assert "1,234" in text
    assert "woke a node for nothing" in text


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
