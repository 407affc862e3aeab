"""Last values on the command line."""

from __future__ import annotations

import json

import pytest

import jsonbus
from jsonbus.cli import signals
from jsonbus.cli.lib.input_lines import LineReader
from jsonbus.cli.lib.message_printer import MessagePrinter
from jsonbus.cli.lib.output import Output
from jsonbus.cli.lib.values import MESSAGE_KEYS, message_to_json
from jsonbus.core.message import Origin, make_message
from tests.cli.running import Run, json_lines


def make(value: object, *, is_retained: bool) -> jsonbus.Message:
    origin = Origin("id", "hall", 1, 1.5, 2.5, is_retained)
    return make_message("door", value, 7, origin)


@pytest.fixture
def late(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, object, bool]]:
    """What somebody gets who subscribes while `pub` stays; then comes Ctrl-C."""
    got: list[tuple[str, object, bool]] = []

    def stay() -> None:
        with jsonbus.Bus() as bus:
            subscription = bus.subscribe("**")
            message = subscription.get(timeout=30)
            got.append((message.topic, message.value, message.retained))
        raise KeyboardInterrupt

    monkeypatch.setattr(signals, "stay", stay)
    return got


@pytest.mark.slow
def test_what_is_retained_is_given_while_the_command_stays(
    run: Run, late: list[tuple[str, object, bool]]
) -> None:
    result = run("pub", "--retain", "--stay", "--name", "hall", "door", '"open"')
    assert (result.exit_code, result.stdout) == (0, "")
    assert late == [("door", "open", True)]
    assert result.stderr == "hall retains 1 value; Ctrl-C ends\n"


@pytest.mark.slow
def test_the_flag_holds_for_every_line_and_null_ends_it(
    run: Run, late: list[tuple[str, object, bool]]
) -> None:
    pairs = [("bell", 1), ("door", "open"), ("door", "closed"), ("bell", None)]
    lines = "".join(json.dumps({"topic": t, "value": v}) + "\n" for t, v in pairs)
    result = run("pub", "--retain", "--stay", input=lines)
    assert result.exit_code == 0
    assert late == [("door", "closed", True)]
    assert "retains 1 value;" in result.stderr


@pytest.mark.slow
def test_without_staying_the_value_ends_with_the_command(run: Run, bus: jsonbus.Bus) -> None:
    result = run("pub", "--retain", "door", "1")
    assert (result.exit_code, result.stdout) == (0, "")
    told = "1 retained value ends with this command: add --stay to retain until Ctrl-C\n"
    assert result.stderr == told
    subscription = bus.subscribe("door")
    with pytest.raises(TimeoutError):
        subscription.get(timeout=0)


@pytest.mark.slow
def test_that_null_ends_nothing_that_another_node_retains_is_told(
    run: Run, bus: jsonbus.Bus
) -> None:
    bus.publish("door", "open", retain=True)
    result = run("pub", "--retain", "door", "null")
    assert result.exit_code == 0
    told = "null ended nothing under door: only the node that retains a value can end it\n"
    assert result.stderr == told
    assert bus.stats()["values_retained"] == 1


def test_a_retained_value_that_was_ended_needs_no_word(run: Run) -> None:
    result = run("pub", "--retain", "door", input="1\nnull\n")
    assert (result.exit_code, "retained" in result.stderr) == (0, False)
    assert "null ended nothing" not in result.stderr


@pytest.mark.slow
def test_once_ends_after_one_message_and_prints_what_is_retained(
    run: Run, bus: jsonbus.Bus
) -> None:
    assert bus.wait_until_sure(timeout=30)
    bus.publish("door", "open", retain=True)
    (printed,) = json_lines(run("sub", "--once", "door").stdout)
    assert tuple(printed) == (*MESSAGE_KEYS, "retained")
    assert (printed["value"], printed["retained"]) == ("open", True)


def test_once_and_a_count_are_wrong_usage(run: Run) -> None:
    result = run("sub", "--once", "--count", "2", "door")
    assert result.exit_code == 2
    assert "--once is --count 1" in result.stderr


def test_only_a_retained_message_says_so_and_both_go_back_out() -> None:
    reader = LineReader("other")
    for is_retained in (False, True):
        line = message_to_json(make("open", is_retained=is_retained))
        assert ("retained" in json.loads(line)) is is_retained
        assert reader._read(line) == ("door", "open")


def test_people_see_a_mark(bus: jsonbus.Bus) -> None:
    output = Output()
    output.is_terminal = True
    listener = MessagePrinter(bus, ["door"], output)
    assert listener._line(make(1, is_retained=True)).endswith("door 1 hall (retained)")
    assert listener._line(make(1, is_retained=False)).endswith("door 1 hall")


def test_what_was_asked_for_in_vain_is_told_at_the_end(
    bus: jsonbus.Bus, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    stats = {**bus.stats(), "messages_given_up": 1234}
    monkeypatch.setattr(bus, "stats", lambda: stats)
    MessagePrinter(bus, ["door"], Output()).run(timeout_s=0)
    assert "1,234 messages of reliable topics could not be repaired" in capsys.readouterr().err
