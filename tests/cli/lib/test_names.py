from __future__ import annotations

from collections.abc import Iterator

import click

from jsonbus.cli.group import COMMANDS, load_command
from jsonbus.cli.lib.names import PATTERN, TOPIC, Name
from tests.cli.running import Run


def names_of(command: click.Command) -> Iterator[click.Parameter]:
    """The parameters of a command that are topics or patterns, by what people read."""
    for inner in getattr(command, "commands", {}).values():
        yield from names_of(inner)
    for param in command.params:
        if param.name in ("topic", "patterns", "topic_prefix"):
            yield param


def test_every_topic_and_pattern_of_every_command_is_looked_at() -> None:
    types = {
        (name, param.name): param.type
        for name in COMMANDS
        for param in names_of(load_command(name))
    }
    wanting = "sub node top hz bw record replay bridge".split()
    naming = "pub explain request serve".split()
    assert {name for name, _ in types} == {*wanting, *naming}
    for (command, name), kind in types.items():
        assert isinstance(kind, Name), (command, name)
        assert (kind is PATTERN) == (name == "patterns")


def test_the_hint_is_told_and_forbids_nothing(run: Run) -> None:
    result = run("sub", "sensors/+/x", "c#", "--timeout", "0")
    assert result.exit_code == 3
    told = [line for line in result.stderr.splitlines() if "wildcard" in line]
    assert len(told) == 1 and told[0].endswith("Do you mean 'sensors/*/x'?")


def test_a_name_that_is_no_pattern_of_ours_is_explained_before_it_is_refused(run: Run) -> None:
    result = run("node", "--sub", "sensors.*.x")
    assert result.exit_code == 2
    assert "Do you mean 'sensors/*/x'?" in result.stderr


def test_a_publisher_is_told_that_a_topic_has_no_wildcards(run: Run) -> None:
    result = run("pub", "sensors/#", "1")
    assert result.exit_code == 0
    assert result.stderr.startswith("'sensors/#' is one topic.")
    assert "'sensors/**'" in result.stderr


def test_the_hint_is_not_for_those_who_asked_for_quiet(run: Run) -> None:
    assert run("explain", "-q", "sensors/#").stderr == ""


def test_hints_show_no_control_characters() -> None:
    assert "\x1b" not in (TOPIC.hint("\x1b[2J/#") or "")
