from __future__ import annotations

import subprocess

import pytest

from jsonbus.cli.command import BusCommand, SharedOption
from jsonbus.cli.group import COMMANDS, cli
from jsonbus.cli.manual.pages import BUS
from tests.cli.running import make_runner, run_command
from tests.helpers import need_program


@pytest.mark.parametrize("words", [(), ("pub",), ("channel",), ("channel", "open"), ("help",)])
def test_help_prints_what_the_option_prints(words: tuple[str, ...]) -> None:
    assert run_command("help", *words).stdout == run_command(*words, "--help").stdout


def test_the_options_of_the_bus_are_explained_once_for_all() -> None:
    text = run_command("help", "bus").stdout
    for param in BusCommand("x").params:
        if isinstance(param, SharedOption):
            assert all(f" {name}" in text for name in param.opts)
            assert param.help is not None
            assert param.help.split()[0] in text


def test_all_help_is_one_page() -> None:
    text = run_command("help", "--all").stdout
    titles = [f"jsonbus {name}" for name in COMMANDS] + ["jsonbus channel open", "jsonbus help bus"]
    for title in titles:
        assert text.count(f"\n{title}\n{'=' * len(title)}\n") == 1, title
    assert run_command("sub", "--help").stdout in text


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("chanel",), "No such command 'chanel'. Did you mean channel"),
        (("channel", "opne"), "No such command 'opne'. Did you mean open?"),
        (("pub", "x"), "No such command 'x'."),
        (("bus", "x"), "No such command 'bus'.\n"),
        (("pub", "--all"), "one of them"),
    ],
)
def test_a_page_that_is_not_there_is_wrong_usage(words: tuple[str, ...], told: str) -> None:
    result = run_command("help", *words)
    assert (result.exit_code, result.stdout) == (2, "")
    assert told in result.stderr


def test_man_shows_every_page_as_it_is() -> None:
    need_program("groff")
    page = run_command("help", "--man").stdout
    groff = ["groff", "-man", "-Tutf8", "-k", "-ww", "-P-c", "-P-b", "-P-u"]
    shown = subprocess.run(groff, input=page, capture_output=True, text=True, timeout=60)
    assert (shown.returncode, shown.stderr) == (0, "")
    lines = {line.strip() for line in shown.stdout.splitlines()}
    for name in COMMANDS:
        for line in run_command("help", name).stdout.splitlines():
            assert line.strip() in lines, (name, line)


@pytest.mark.parametrize("width", [60, 80, 120])
@pytest.mark.parametrize("name", [*COMMANDS, BUS])
def test_help_fits_the_terminal(name: str, width: int) -> None:
    # Examples keep their lines: they are to be pasted.
    result = make_runner().invoke(cli, ["help", name], prog_name="jsonbus", terminal_width=width)
    told = result.stdout.partition("Examples:")[0]
    assert max(map(len, told.splitlines())) <= width
