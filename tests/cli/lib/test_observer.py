from __future__ import annotations

import pytest

import jsonbus
from jsonbus.cli.lib.observer import open_observer
from jsonbus.config import BusSettings
from tests.cli.running import Run, json_lines
from tests.helpers import wait_until

COMMANDS = ("top", "hz", "bw")


@pytest.mark.slow
def test_an_observer_asks_for_nothing(bus: jsonbus.Bus) -> None:
    with open_observer({"name": "observer"}, ["a"], lambda messages: None, is_subscribing=False):
        assert wait_until(lambda: "observer" in [each.name for each in bus.nodes()])
        assert not bus.has_subscribers("a")
        bus.wait_until_sure()
        assert not bus.publish("a", 1)


def test_who_subscribes_for_real_gets_what_nobody_else_wants(bus: jsonbus.Bus) -> None:
    came: list[jsonbus.Message] = []
    with open_observer({}, ["a"], came.extend, is_subscribing=True):
        assert bus.wait_for_subscribers("a", timeout=30)
        bus.publish("a", 1)
        assert wait_until(lambda: came)


@pytest.mark.parametrize("command", COMMANDS)
def test_mode_basic_is_refused_where_it_would_change_the_bus(run: Run, command: str) -> None:
    result = run(command, "--mode", "basic", "--duration", "0.1")
    assert result.exit_code == 2
    assert "mode basic makes all others send everything" in result.stderr


def test_on_a_basic_bus_an_observer_is_not_basic(
    bus: jsonbus.Bus, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JSONBUS_MODE", "basic")
    came: list[jsonbus.Message] = []
    with (
        jsonbus.Bus(name="basic") as basic,
        open_observer({}, ["a"], came.extend, is_subscribing=False) as observer,
    ):
        assert (basic.config.mode, observer.bus.config.mode) == ("basic", "delayed")
        assert wait_until(lambda: basic.publish("a", 1) and came)


def test_with_subscribe_mode_basic_is_as_anywhere(bus: jsonbus.Bus) -> None:
    settings: BusSettings = {"mode": "basic"}
    with open_observer(settings, (), lambda messages: None, is_subscribing=True) as observer:
        assert observer.bus.config.mode == "basic"


@pytest.mark.parametrize("command", COMMANDS)
def test_what_is_no_pattern_is_wrong_usage(run: Run, command: str) -> None:
    result = run(command, "a//b")
    assert result.exit_code == 2
    assert "Error: " in result.stderr


def test_nodes_are_asked_for_their_totals(bus: jsonbus.Bus) -> None:
    with open_observer({}, (), lambda messages: None, is_subscribing=False) as observer:

        def has_told() -> bool:
            nodes = observer.nodes()
            return all(each.totals is not None for each in nodes) and len(nodes) > 1

        assert wait_until(has_told)


@pytest.mark.parametrize("command", ["hz", "bw"])
def test_that_nothing_flows_is_told_with_what_to_do(run: Run, command: str) -> None:
    result = run(command, "a", "b/*", "--duration", "0.05")
    assert (result.exit_code, result.stdout) == (3, "")
    assert "nothing flows that matches a, b/*" in result.stderr
    assert "--subscribe asks for it" in result.stderr
    assert "0 messages within 0.05 s" in result.stderr
    result = run(command, "a", "--duration", "0.05", "--subscribe")
    assert "nothing flows that matches a: nobody publishes\n" in result.stderr


@pytest.mark.slow
@pytest.mark.parametrize("command", COMMANDS)
def test_results_are_json_in_a_pipe(run: Run, bus: jsonbus.Bus, command: str) -> None:
    result = run(command, "--duration", "0.2", "--interval", "0.1")
    assert all(isinstance(each, dict) for each in json_lines(result.stdout))
