from __future__ import annotations

import threading

import pytest

import jsonbus
from tests.cli.running import Run


def test_the_reply_is_printed(run: Run, bus: jsonbus.Bus) -> None:
    bus.serve("add", lambda message: {"sum": message.value["a"] + message.value["b"]})
    result = run("request", "--timeout", "30", "add", '{"a": 1, "b": 2}')
    assert (result.exit_code, result.output) == (0, '{"sum":3}\n')


@pytest.mark.parametrize(
    ("arguments", "input", "asked"),
    [
        (("echo",), None, "null"),
        (("echo", "-7"), None, "-7"),
        (("echo", "-"), '{"a":\n1}\n', '{"a":1}'),
        (("--text", "echo", "5"), None, '"5"'),
    ],
)
def test_the_value_may_come_in_several_ways(
    run: Run, bus: jsonbus.Bus, arguments: tuple[str, ...], input: str | None, asked: str
) -> None:
    bus.serve("echo", lambda message: message.value)
    result = run("request", "--timeout", "30", *arguments, input=input)
    assert (result.exit_code, result.stdout) == (0, asked + "\n")


@pytest.mark.slow
def test_a_topic_that_nobody_serves_is_a_failure(run: Run, bus: jsonbus.Bus) -> None:
    result = run("request", "--timeout", "30", "add")
    assert (result.exit_code, result.stdout) == (1, "")
    assert "nobody serves 'add'" in result.stderr


def test_a_service_that_fails_is_a_failure(run: Run, bus: jsonbus.Bus) -> None:
    bus.serve("half", lambda message: message.value / 2)
    result = run("request", "--timeout", "30", "half", '"x"')
    assert (result.exit_code, result.stdout) == (1, "")
    assert "failed to serve 'half'" in result.stderr


def test_a_reply_that_does_not_come_in_time_is_a_timeout(run: Run, bus: jsonbus.Bus) -> None:
    may_end = threading.Event()
    bus.serve("slow", lambda message: may_end.wait(30))
    try:
        result = run("request", "--timeout", "0.5", "slow")
    finally:
        may_end.set()
    assert (result.exit_code, result.stdout) == (3, "")
    assert "no reply to 'slow' within 0.5 s" in result.stderr


@pytest.mark.parametrize("arguments", [(), ("a//b",), ("add", "{"), ("add", "1", "2")])
def test_what_cannot_be_asked_is_wrong_usage(run: Run, arguments: tuple[str, ...]) -> None:
    assert run("request", *arguments).exit_code == 2
