from __future__ import annotations

from collections.abc import Iterator

import click
import pytest

from jsonbus.cli.command import SharedOption
from jsonbus.cli.group import COMMANDS, load_command


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


@pytest.mark.parametrize("text", ["nan", "inf", "-1"])
@pytest.mark.parametrize("name", FIGURES)
def test_a_figure_is_a_finite_number_above_zero(name: str, text: str) -> None:
    with pytest.raises(click.BadParameter):
        FIGURES[name].type.convert(text, FIGURES[name], None)
