from __future__ import annotations

from pathlib import Path

import pytest

import jsonbus
from jsonbus.cli.lib.output import Output
from tests.cli.running import Run, json_lines, meanwhile
from tests.helpers import wait_until

TOPIC_KEYS = (
    "topic value is_value_kept size messages rate bytes bytes_per_s publishers subscribers loss"
    " late duplicates last_at node sequence retained"
).split()


class Traffic:
    """A node that publishes for another until it is told to stop."""

    def __init__(self, bus: jsonbus.Bus) -> None:
        self.is_over = False
        self._bus = bus

    def run(self) -> None:
        with jsonbus.Bus(name="another") as another:
            another.subscribe("a/*", lambda message: None)
            assert self._bus.wait_for_subscribers("a/x", timeout=30)
            while not self.is_over:
                self._bus.publish("a/x", {"n": 1})
                self._bus.publish("a/large", "x" * 5_000)
                self._bus.publish("unwanted", 1)
                self._bus.flush()


@pytest.fixture
def traffic(bus: jsonbus.Bus) -> Traffic:
    return Traffic(bus)


def run_beside(run: Run, traffic: Traffic, *args: str) -> str:
    def look_until_something_came() -> bool:
        nonlocal printed
        result = run("top", *args)
        assert result.exit_code == 0
        printed = result.stdout
        return "a/x" in printed and "a/large" in printed

    printed = ""
    with meanwhile(traffic.run):
        try:
            assert wait_until(look_until_something_came)
        finally:
            traffic.is_over = True
    return printed


@pytest.mark.slow
def test_one_picture_has_topics_nodes_and_totals(
    run: Run, bus: jsonbus.Bus, traffic: Traffic
) -> None:
    printed = run_beside(run, traffic, "--once", "--duration", "0.5")
    (picture,) = json_lines(printed)
    assert list(picture) == ["at", "sealed", "overview", "topics", "nodes"]
    assert picture["sealed"] is None
    topics = {each["topic"]: each for each in picture["topics"]}
    assert topics.keys() == {"a/x", "a/large"}
    x = topics["a/x"]
    assert list(x) == TOPIC_KEYS
    assert (x["value"], x["publishers"], x["subscribers"]) == ({"n": 1}, ["other"], ["another"])
    assert x["rate"] > 0 and x["bytes_per_s"] > 0 and x["loss"] == 0
    assert (topics["a/large"]["value"], topics["a/large"]["is_value_kept"]) == (None, False)
    assert topics["a/large"]["size"] == 5_002
    nodes = {each["name"]: each for each in picture["nodes"]}
    assert nodes["other"]["totals"]["suppressed"] > 0
    assert nodes["another"]["patterns"] == ["a/*"]
    overview = picture["overview"]
    assert (overview["nodes"], overview["topics"]) == (3, 2)
    assert 0 < overview["suppressed_share"] < 1


@pytest.mark.slow
def test_a_pipe_gets_a_picture_per_interval(run: Run, bus: jsonbus.Bus, traffic: Traffic) -> None:
    printed = run_beside(run, traffic, "a/*", "--interval", "0.2", "--duration", "0.7")
    assert 2 <= len(json_lines(printed)) <= 3


@pytest.mark.slow
def test_topics_come_in_the_order_that_is_asked_for(
    run: Run, bus: jsonbus.Bus, traffic: Traffic
) -> None:
    printed = run_beside(run, traffic, "--once", "--duration", "0.3", "--sort", "bytes")
    assert [each["topic"] for each in json_lines(printed)[0]["topics"]] == ["a/large", "a/x"]


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Standard output is taken for a terminal that can do nothing but print."""
    make = Output.__init__

    def make_terminal(output: Output) -> None:
        make(output)
        output.is_terminal = True

    monkeypatch.setattr(Output, "__init__", make_terminal)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("TERM", "dumb")


@pytest.mark.slow
@pytest.mark.usefixtures("terminal")
@pytest.mark.parametrize("arguments", [("--once",), ("--interval", "0.2")])
def test_people_get_tables_without_escape_sequences(
    run: Run, bus: jsonbus.Bus, traffic: Traffic, arguments: tuple[str, ...]
) -> None:
    lines = run_beside(run, traffic, *arguments, "--duration", "0.5").splitlines()
    assert lines[0].startswith("jsonbus 239.255.24.16:")
    assert any(line.startswith("TOPIC") for line in lines)
    assert any(line.startswith("NODE") for line in lines)
    assert all(len(line) <= 80 and "\x1b" not in line for line in lines)


@pytest.mark.slow
@pytest.mark.usefixtures("terminal")
def test_json_may_be_asked_for_on_a_terminal(run: Run, bus: jsonbus.Bus) -> None:
    result = run("top", "--once", "--json", "--duration", "0.01")
    assert json_lines(result.stdout)[0]["topics"] == []


@pytest.mark.slow
@pytest.mark.usefixtures("terminal")
def test_a_sealed_bus_is_called_that(run: Run, tmp_path: Path) -> None:
    keys = str(tmp_path / "plant.key")
    assert run("keygen", keys, "--bus", "plant").exit_code == 0
    look = ("top", "--once", "--duration", "0.01", "--key-file", keys)
    assert "(sealed: plant)" in run(*look).stdout.splitlines()[0]
    assert json_lines(run(*look, "--json").stdout)[0]["sealed"] == "plant"


@pytest.mark.slow
def test_an_empty_bus_is_a_picture_too_and_the_reason_is_told(run: Run) -> None:
    result = run("top", "--once", "--duration", "2")
    assert result.exit_code == 0
    (picture,) = json_lines(result.stdout)
    assert (picture["topics"], picture["overview"]["nodes"]) == ([], 1)
    assert "nothing flows" in result.stderr


@pytest.mark.slow
def test_subscribing_shows_what_nobody_else_wants_and_what_is_retained(
    run: Run, bus: jsonbus.Bus
) -> None:
    assert bus.wait_until_sure(timeout=30)
    bus.publish("kept", "value", retain=True)
    result = run("top", "--once", "--subscribe", "--duration", "1")
    (topic,) = json_lines(result.stdout)[0]["topics"]
    assert (topic["topic"], topic["value"], topic["retained"]) == ("kept", "value", True)
    assert topic["messages"] == 0
