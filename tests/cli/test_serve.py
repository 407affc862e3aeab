from __future__ import annotations

import time
from collections.abc import Callable

import pytest
from click.testing import Result

import jsonbus
from jsonbus.cli.serve import CommandFailed, Shell
from jsonbus.errors import NobodyServesError, RequestFailedError
from tests.cli.running import Run, meanwhile


def ask(bus: jsonbus.Bus, topic: str, value: object) -> object:
    """Ask as soon as somebody serves it."""
    deadline = time.monotonic() + 30
    while True:
        try:
            return bus.request(topic, value, timeout=30)
        except NobodyServesError:
            assert time.monotonic() < deadline
            time.sleep(0.01)


@pytest.fixture
def replies(run: Run, bus: jsonbus.Bus) -> Callable[..., tuple[list[object], Result]]:
    """Serve with these arguments until the values are answered."""

    def serve(arguments: list[str], values: list[object]) -> tuple[list[object], Result]:
        got: list[object] = []
        with meanwhile(lambda: got.extend(ask(bus, "t", each) for each in values)):
            result = run("serve", "t", "--count", str(len(values)), *arguments)
        return got, result

    return serve


def test_the_reply_is_the_value_itself_unless_told_otherwise(replies) -> None:
    got, result = replies([], [{"a": [1]}, None])
    assert got == [{"a": [1]}, None]
    assert (result.exit_code, result.stdout) == (0, "")
    assert "serves t" in result.stderr


def test_the_reply_may_be_fixed(replies) -> None:
    assert replies(["--value", '"1.4.2"'], [1, 2])[0] == ["1.4.2", "1.4.2"]
    assert replies(["--value", "null"], [1])[0] == [None]


def test_the_reply_may_come_from_a_command(replies) -> None:
    got, _ = replies(["--exec", "cat"], [{"a": "é"}, [1, 2]])
    assert got == [{"a": "é"}, [1, 2]]


def test_a_command_that_prints_no_json_replies_with_text(replies) -> None:
    assert replies(["--exec", "echo hello, world"], [None])[0] == ["hello, world"]


def test_a_command_that_fails_fails_the_request(run: Run, bus: jsonbus.Bus) -> None:
    def expect_failure() -> None:
        with pytest.raises(RequestFailedError, match="the command ended with 7: out of paper"):
            ask(bus, "t", None)

    with meanwhile(expect_failure):
        result = run("serve", "t", "--count", "1", "--exec", "echo out of paper >&2; exit 7")
    assert result.exit_code == 0
    assert "out of paper" in result.stderr
    assert "Traceback" not in result.stderr


def test_a_command_that_takes_too_long_is_ended_with_all_it_started() -> None:
    shell = Shell("sleep 1000 & sleep 1000", 0.05)
    with pytest.raises(CommandFailed, match="took longer than 0.05 s"):
        shell.answer(None)


def test_closing_ends_the_commands_that_run() -> None:
    shell = Shell("sleep 1000", 1000)
    failures: list[str] = []

    def wait_for_the_command() -> None:
        try:
            shell.answer(None)
        except CommandFailed as error:
            failures.append(str(error))

    with meanwhile(wait_for_the_command):
        while not shell._running:
            time.sleep(0.001)
        shell.close()
    assert failures == ["the command ended with -9"]


@pytest.mark.parametrize(
    "arguments",
    [
        ("t", "--value", "1", "--exec", "cat"),
        ("t", "--value", "{"),
        ("t", "--count", "0"),
        ("t", "--timeout", "0"),
        ("a/*",),
        (),
    ],
)
def test_what_cannot_be_served_is_wrong_usage(run: Run, arguments: tuple[str, ...]) -> None:
    assert run("serve", *arguments).exit_code == 2
