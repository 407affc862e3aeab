from __future__ import annotations

from collections.abc import Iterator

import click
import pytest

from jsonbus.cli.command import SharedOption
from jsonbus.cli.group import COMMANDS, load_command
from tests.cli.running import Run


def figures_of(name: str, command: click.Command) -> Iterator[tuple[str, click.Parameter]]:
    for inner, each in getattr(command, "commands", {}).items():
        yield from figures_of(f"{name} {inner}", each)
    for param in command.params:
        if isinstance(param.type, click.types.FloatParamType) and not isinstance(
            param, SharedOption
        ):
            yield f"{name} {param.name}", param


FIGURES = dict(each for name in COMMANDS for each in figures_of(name, load_command(name)))


def test_the_figures_of_commands_were_found() -> None:
    assert {"doctor timeout", "sub timeout", "channel open timeout", "pub rate"} <= FIGURES.keys()


@pytest.mark.parametrize(
    ("option", "told"),
    [
        ("--count=nine", "'nine' is not a valid whole number"),
        ("--timeout=nine", "'nine' is not a valid number"),
    ],
)
def test_a_figure_that_is_none_is_told_in_words(run: Run, option: str, told: str) -> None:
    result = run("sub", "x", option)
    assert result.exit_code == 2
    assert told in result.stderr


def test_a_variable_that_is_no_figure_is_told_in_words(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JSONBUS_QUIET", "yes")
    result = run("nodes")
    assert result.exit_code == 2
    assert "'yes' is not a valid whole number" in result.stderr


@pytest.mark.parametrize("text", ["nan", "inf", "-1"])
@pytest.mark.parametrize("name", FIGURES)
def test_a_figure_is_a_finite_number_above_zero(name: str, text: str) -> None:
    with pytest.raises(click.BadParameter):
        FIGURES[name].type.convert(text, FIGURES[name], None)
