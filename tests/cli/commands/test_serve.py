from __future__ import annotations

import pytest

from jsonbus.cli.commands.serve import CommandFailed, Shell
from tests.cli.running import Run, meanwhile
from tests.helpers import wait_until


@pytest.mark.parametrize(
    ("shell_command", "value", "reply"),
    [
        ("cat", {"a": "é"}, {"a": "é"}),
        ("echo '{\"a\": 1}'", None, {"a": 1}),
        ("echo hello, world", None, "hello, world"),
        ("true", None, ""),
        ("exec <&-; echo 5", "not read", 5),
    ],
)
def test_what_the_command_prints_is_the_reply(
    shell_command: str, value: object, reply: object
) -> None:
    assert Shell(shell_command, 60).answer(value) == reply


@pytest.mark.parametrize(
    ("shell_command", "reason"),
    [
        ("echo first >&2; echo out of paper >&2; exit 7", "ended with 7: out of paper"),
        ("exit 3", "ended with 3$"),
        ("kill -9 $$", "ended with -9$"),
    ],
)
def test_a_command_that_fails_gives_the_reason(shell_command: str, reason: str) -> None:
    with pytest.raises(CommandFailed, match=reason):
        Shell(shell_command, 60).answer(None)


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
        assert wait_until(lambda: shell._running)
        shell.close()
    assert failures == ["the command ended with -9"]


@pytest.mark.parametrize(
    "arguments",
    [
        ("t", "--value", "1", "--exec", "cat"),
        ("t", "--value", "{"),
        ("t", "--timeout", "0"),
        ("a/*",),
        (),
    ],
)
def test_what_cannot_be_served_is_wrong_usage(run: Run, arguments: tuple[str, ...]) -> None:
    assert run("serve", *arguments).exit_code == 2
