from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import Result

import jsonbus
from jsonbus import errors
from jsonbus.cli.exit_codes import FAILED, INTERRUPTED, TIMED_OUT, WRONG_USAGE
from jsonbus.cli.group import COMMANDS, CommandGroup, cli, load_command
from tests.cli.running import make_runner

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help_that_begins_as_the_list_says(name: str) -> None:
    result = make_runner().invoke(cli, [name, "--help"], prog_name="jsonbus")
    assert result.exit_code == 0
    assert result.stdout.startswith(f"Usage: jsonbus {name} ")
    assert (load_command(name).help or "").startswith(COMMANDS[name])


def test_the_help_of_the_program_imports_no_command_and_no_bus() -> None:
    code = (
        "import sys\n"
        "from jsonbus.cli.group import cli, COMMANDS\n"
        "cli.main(['--help'], standalone_mode=False)\n"
        "modules = [f'jsonbus.cli.{folder}.{each}' for each in COMMANDS"
        " for folder in ('commands', 'manual')]\n"
        "print('imported:', [each for each in (*modules, 'jsonbus.sync', 'rich', 'asyncio')"
        " if each in sys.modules])\n"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60
    )
    assert result.stdout.splitlines()[-1] == "imported: []"
    for name, text in COMMANDS.items():
        assert any(name in line and text in line for line in result.stdout.splitlines())


@pytest.mark.parametrize("option", ["-v", "--mode", "--interface"])
def test_an_option_of_the_bus_before_the_command_is_told_its_place(option: str) -> None:
    result = make_runner().invoke(cli, [option, "sub", "x"])
    assert result.exit_code == WRONG_USAGE
    assert f"{option} belongs behind the command" in result.stderr


def test_an_option_that_no_command_has_is_just_unknown() -> None:
    result = make_runner().invoke(cli, ["--nosuch", "sub", "x"])
    assert result.exit_code == WRONG_USAGE
    assert "o such option" in result.stderr and "behind" not in result.stderr


def test_the_version_is_told() -> None:
    result = make_runner().invoke(cli, ["--version"])
    assert result.stdout == f"jsonbus {jsonbus.__version__}\n"


def test_an_unknown_command_is_wrong_usage() -> None:
    result = make_runner().invoke(cli, ["frobnicate"])
    assert result.exit_code == WRONG_USAGE
    assert result.stderr.endswith("Error: No such command 'frobnicate'.\n")


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("publish", "pub"),
        ("sbu", "sub"),
        ("rec", "record"),
        ("node-s", "node"),
        ("gatway", "gateway"),
        ("version", "--version"),
    ],
)
def test_a_command_that_is_misspelt_gets_a_suggestion(typed: str, meant: str) -> None:
    result = make_runner().invoke(cli, [typed, "x"])
    assert result.exit_code == WRONG_USAGE
    assert result.stderr.endswith(f"Error: No such command {typed!r}. Did you mean {meant}?\n")


@pytest.mark.parametrize(
    ("error", "exit_code"),
    [
        (errors.ConfigError("told"), WRONG_USAGE),
        (errors.InvalidTopicError("a//b", "told"), WRONG_USAGE),
        (errors.PayloadError("told"), WRONG_USAGE),
        (errors.TransportError("told"), FAILED),
        (errors.NobodyServesError("told"), FAILED),
        (errors.RequestFailedError("t", "n", "told"), FAILED),
        (errors.RequestTimeoutError("told", 1.0), TIMED_OUT),
    ],
)
def test_an_error_becomes_one_line_and_an_exit_code(error: Exception, exit_code: int) -> None:
    result = _run_raising(error)
    assert result.exit_code == exit_code
    assert result.stdout == ""
    assert len(result.stderr.splitlines()) == 1
    assert "told" in result.stderr


def test_ctrl_c_ends_without_a_word() -> None:
    result = _run_raising(KeyboardInterrupt())
    assert (result.exit_code, result.output) == (INTERRUPTED, "")


def test_a_closed_pipe_ends_without_a_word() -> None:
    result = _run_raising(BrokenPipeError())
    assert (result.exit_code, result.output) == (0, "")


def test_a_bug_is_not_hidden() -> None:
    assert isinstance(_run_raising(ZeroDivisionError()).exception, ZeroDivisionError)


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_shells_can_complete_commands_and_options(shell: str) -> None:
    result = make_runner().invoke(
        cli, prog_name="jsonbus", env={"_JSONBUS_COMPLETE": f"{shell}_source"}
    )
    assert "_JSONBUS_COMPLETE" in result.stdout
    words = {"COMP_WORDS": "jsonbus pub --co", "COMP_CWORD": "2" if shell != "fish" else "--co"}
    result = make_runner().invoke(
        cli, prog_name="jsonbus", env={"_JSONBUS_COMPLETE": f"{shell}_complete", **words}
    )
    assert "--count" in result.stdout


def _run_raising(error: BaseException) -> Result:
    group = CommandGroup("raising")

    def fail() -> None:
        raise error

    command = click.Command("fail", callback=fail)
    group.get_command = lambda ctx, name: command
    return make_runner().invoke(group, ["fail"])
