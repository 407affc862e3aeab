from __future__ import annotations

import logging
import re

import click
import pytest

from jsonbus.cli.command import BusCommand, NodeCommand, SharedOption, ValueCommand, note
from jsonbus.config import BusSettings, load
from tests.cli.running import Run, make_runner


def settings_of(*args: str, env: dict[str, str] | None = None) -> BusSettings:
    """What a command with these arguments opens its bus with."""
    seen: list[BusSettings] = []

    @click.command(cls=BusCommand)
    def command(settings: BusSettings) -> None:
        seen.append(settings)

    result = make_runner().invoke(command, args, env=env)
    assert result.exit_code == 0, result.output
    return seen[0]


def test_options_that_are_not_given_are_left_to_the_configuration() -> None:
    assert settings_of() == {}


def test_every_option_becomes_the_setting_of_its_name() -> None:
    assert settings_of(
        "--group", "224.5.5.5", "--port", "5000", "--interface", "lo", "--interface", "10.0.0.7",
        "--ttl", "0", "--mode", "delayed", "--subs-share-delay", "0", "--name", "desk", "--classic",
        "--rate-limit", "10M",
    ) == {
        "group": "224.5.5.5", "port": 5000, "interface": ("lo", "10.0.0.7"), "ttl": 0,
        "mode": "delayed", "subs_share_delay": 0.0, "name": "desk", "classic": True,
        "rate_limit": "10M",
    }  # fmt: skip
    assert settings_of("--master") == {"master": True}


def test_every_shared_option_is_a_setting_of_the_bus() -> None:
    names = {param.name for param in BusCommand("x").params if isinstance(param, SharedOption)}
    assert names - {"verbose", "quiet"} <= BusSettings.__optional_keys__


def test_settings_from_options_beat_those_of_the_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("JSONBUS_TTL", "9")
    assert load(**settings_of()).ttl == 9
    assert load(**settings_of("--ttl", "0")).ttl == 0
    monkeypatch.setenv("JSONBUS_RATE_LIMIT", "1M")
    assert load(**settings_of()).rate_limit == 1_000_000
    assert load(**settings_of("--rate-limit", "2.5k")).rate_limit == 2_500


@pytest.mark.parametrize("command", ["sub", "pub", "node"])
@pytest.mark.parametrize(
    "options",
    [
        ("--master", "--mode", "basic"),
        ("--master", "--subs-share-delay", "5"),
        ("--subs-share-delay", "5", "--mode", "master"),
        ("--port", "0"),
        ("--group", "10.0.0.1"),
        ("--ttl", "many"),
        ("--mode", "loud"),
        ("--rate-limit", "fast"),
        ("--rate-limit", "10"),
    ],
)
def test_options_that_cannot_be_are_wrong_usage(
    run: Run, command: str, options: tuple[str, ...]
) -> None:
    topic = [] if command == "node" else ["x"]
    result = run(command, *topic, *options)
    assert result.exit_code == 2
    assert result.stderr.splitlines()[-1].startswith("Error: ")


def test_an_environment_variable_that_cannot_be_is_wrong_usage(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JSONBUS_TTL", "many")
    result = run("nodes")
    assert result.exit_code == 2
    assert "JSONBUS_TTL" in result.stderr


def test_an_interface_that_is_not_there_is_a_failure(run: Run) -> None:
    result = run("nodes", "--interface", "nosuch0")
    assert result.exit_code == 1
    assert "nosuch0" in result.stderr
    assert len(result.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        (["x", "-5"], ("x", "-5", None)),
        (["x", "-5", "--count", "2"], ("x", "-5", 2)),
        (["--count", "2", "x", "-1.5e3"], ("x", "-1.5e3", 2)),
        (["-v", "x", "-5"], ("x", "-5", None)),
        (["x", "--", "-5"], ("x", "-5", None)),
        (["x", "-.5"], ("x", "-.5", None)),
        (["x", "-Infinity"], ("x", "-Infinity", None)),  # to be refused as what it is
    ],
)
def test_a_negative_number_is_a_value(args: list[str], expected: tuple[object, ...]) -> None:
    seen = []

    @click.command(cls=ValueCommand)
    @click.argument("topic")
    @click.argument("value")
    @click.option("--count", type=int)
    def command(settings: BusSettings, topic: str, value: str, count: int | None) -> None:
        seen.append((topic, value, count))

    assert make_runner().invoke(command, args).exit_code == 0
    assert seen == [expected]


@pytest.mark.parametrize("option", ["--conut", "-5"])
def test_what_looks_like_an_option_and_is_none_is_wrong_usage(option: str) -> None:
    @click.command(cls=BusCommand)
    @click.argument("topic")
    def command(settings: BusSettings, topic: str) -> None:
        raise AssertionError

    result = make_runner().invoke(command, ["x", option])
    assert result.exit_code == 2


@pytest.mark.parametrize(
    ("cls", "args", "level"),
    [
        (BusCommand, [], logging.WARNING),
        (BusCommand, ["-v"], logging.INFO),
        (BusCommand, ["-vv"], logging.DEBUG),
        (BusCommand, ["-vvvv"], logging.DEBUG),
        (BusCommand, ["-q"], logging.ERROR),
        (BusCommand, ["-qq"], logging.ERROR),
        (NodeCommand, [], logging.INFO),
        (NodeCommand, ["-q"], logging.ERROR),
    ],
)
def test_verbose_and_quiet_set_what_is_logged(
    cls: type[BusCommand], args: list[str], level: int
) -> None:
    log = logging.getLogger("jsonbus")
    seen = []

    @click.command(cls=cls)
    def command(settings: BusSettings) -> None:
        seen.append(log.level)

    before = (log.level, list(log.handlers))
    assert make_runner().invoke(command, args).exit_code == 0
    assert seen == [level]
    assert (log.level, log.handlers) == before


def test_the_log_goes_to_standard_error_without_tracebacks_unless_debugging() -> None:
    @click.command(cls=BusCommand)
    def command(settings: BusSettings) -> None:
        try:
            raise ValueError("too blue")
        except ValueError:
            logging.getLogger("jsonbus.test").exception("handler failed")

    result = make_runner().invoke(command, [])
    assert result.stdout == ""
    assert "error: handler failed" in result.stderr
    assert "ValueError: too blue" in result.stderr
    assert "Traceback" not in result.stderr
    assert "Traceback" in make_runner().invoke(command, ["-vv"]).stderr


def test_notes_are_for_those_who_did_not_ask_for_quiet() -> None:
    @click.command(cls=BusCommand)
    def command(settings: BusSettings) -> None:
        note("something happened")

    assert make_runner().invoke(command, []).stderr == "something happened\n"
    assert make_runner().invoke(command, ["-q"]).stderr == ""
    assert make_runner().invoke(command, env={"JSONBUS_QUIET": "1"}).stderr == ""


def test_the_help_shows_the_bus_options_apart(run: Run) -> None:
    text = run("sub", "--help").stdout
    own, _, shared = text.partition("\nBus options, explained by jsonbus help bus:\n")
    assert "  -c, --count N " in own
    assert "--interface" not in own
    names = shared.partition("\n\n")[0]
    assert "  Network  --interface, --group, --port, --ttl, --classic\n" in names
    told = set(re.findall(r"-[-a-z]+", names))
    assert told == {
        name
        for param in BusCommand("x").params
        if isinstance(param, SharedOption)
        for name in param.opts
    }


@pytest.mark.parametrize("word", ["it is open", "it"])
def test_a_value_of_several_words_needs_quotes(run: Run, word: str) -> None:
    result = run("pub", "--text", "door", *word.split(), "today")
    assert result.exit_code == 2
    assert "VALUE is one argument: put quotes around it" in result.stderr
