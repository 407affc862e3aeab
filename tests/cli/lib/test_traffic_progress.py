from __future__ import annotations

import io

import pytest
from rich.console import Console

from jsonbus.cli.lib.traffic_progress import Figures, TrafficProgress, show_seconds


def shown(bar: TrafficProgress) -> str:
    console = Console(file=io.StringIO(), width=100)
    console.print(bar.render())
    assert isinstance(console.file, io.StringIO)
    return " ".join(console.file.getvalue().split())


def test_figures_stand_in_one_line() -> None:
    figures = Figures(12_345, 3_400_000, 0.5, ["0:07"], ["3 lost [bold]"])
    line = shown(TrafficProgress("recording", lambda: figures))
    assert line.startswith("recording ━")
    assert line.endswith(" 12,345 messages 0/s 3.4 MB 0:07 3 lost [bold]")


def test_what_nobody_knows_is_not_shown() -> None:
    line = shown(TrafficProgress("replaying", Figures))
    assert line.endswith("━ 0 messages 0/s")


def test_the_rate_is_that_of_the_last_seconds() -> None:
    figures = Figures()
    bar = TrafficProgress("recording", lambda: figures)
    shown(bar)
    figures.messages = 10**9
    assert " 0/s" not in shown(bar)


def test_nothing_is_shown_where_nobody_looks(capsys: pytest.CaptureFixture[str]) -> None:
    with TrafficProgress("recording", Figures):
        pass
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(("seconds", "text"), [(0.9, "0:00"), (62, "1:02"), (3_723.5, "1:02:03")])
def test_seconds_are_shown_as_a_clock_does(seconds: float, text: str) -> None:
    assert show_seconds(seconds) == text
