from __future__ import annotations

import time

import pytest

import jsonbus
from jsonbus.cli.lib import message_printer as listening
from jsonbus.cli.lib.values import MESSAGE_KEYS
from tests.cli.running import Run, json_lines, meanwhile


def publish_when_wanted(bus: jsonbus.Bus, *pairs: tuple[str, object]) -> None:
    for topic, _ in pairs:
        assert bus.wait_for_subscribers(topic, timeout=30)
    for topic, value in pairs:
        bus.publish(topic, value)


def test_messages_are_printed_as_json_lines(run: Run, bus: jsonbus.Bus) -> None:
    before = time.time()
    with meanwhile(lambda: publish_when_wanted(bus, ("a", {"é": 1}), ("a", None))):
        result = run("sub", "--count", "2", "a")
    assert result.exit_code == 0
    first, second = json_lines(result.stdout)
    assert tuple(first) == MESSAGE_KEYS
    assert (first["topic"], first["value"]) == ("a", {"é": 1})
    assert first["node"] == bus.id
    assert first["name"] in ("other", bus.id)  # a joiner may hear a message before a name
    assert second["sequence"] == first["sequence"] + 1
    assert before - 1 <= first["sent_at"] <= first["received_at"] + 1 <= time.time() + 2


def test_values_alone_are_printed_on_request(run: Run, bus: jsonbus.Bus) -> None:
    with meanwhile(lambda: publish_when_wanted(bus, ("a", [1, "x"]), ("a", "y"))):
        result = run("sub", "--value", "--count", "2", "a")
    assert result.stdout == '[1,"x"]\n"y"\n'


def test_several_patterns_print_a_message_once(run: Run, bus: jsonbus.Bus) -> None:
    pairs = [("a/b", each) for each in range(50)] + [("c", 50)]
    with meanwhile(lambda: publish_when_wanted(bus, *pairs)):
        result = run("sub", "--value", "--count", "51", "a/*", "a/**", "*/b", "a/b", "a/b", "c")
    assert sorted(json_lines(result.stdout)) == list(range(51))


@pytest.fixture
def time_ends_with_the_first_message(monkeypatch: pytest.MonkeyPatch) -> None:
    ahead_s = 0.0
    make_line = listening.MessagePrinter._line

    def make_last_line(listener: listening.MessagePrinter, message: jsonbus.Message) -> str:
        nonlocal ahead_s
        ahead_s = 1000.0
        return make_line(listener, message)

    monkeypatch.setattr(listening.MessagePrinter, "_line", make_last_line)
    monkeypatch.setattr(listening, "monotonic", lambda: time.monotonic() + ahead_s)


@pytest.mark.usefixtures("time_ends_with_the_first_message")
def test_the_end_of_the_time_is_a_success_if_something_came(run: Run, bus: jsonbus.Bus) -> None:
    with meanwhile(lambda: publish_when_wanted(bus, ("a", 1))):
        result = run("sub", "--timeout", "100", "--value", "a")
    assert (result.exit_code, result.stdout) == (0, "1\n")


def test_the_end_of_the_time_without_a_message_is_a_timeout(run: Run) -> None:
    result = run("sub", "--timeout", "0.01", "a")
    assert (result.exit_code, result.stdout) == (3, "")
    assert "0 messages within 0.01 s" in result.stderr


@pytest.mark.usefixtures("time_ends_with_the_first_message")
def test_too_few_messages_are_a_timeout(run: Run, bus: jsonbus.Bus) -> None:
    with meanwhile(lambda: publish_when_wanted(bus, ("a", 1))):
        result = run("sub", "--timeout", "100", "--count", "2", "--value", "a")
    assert (result.exit_code, result.stdout) == (3, "1\n")


@pytest.mark.parametrize("arguments", [(), ("a//b",), ("--count", "0", "a"), ("a*",)])
def test_what_cannot_be_subscribed_to_is_wrong_usage(run: Run, arguments: tuple[str, ...]) -> None:
    result = run("sub", *arguments)
    assert result.exit_code == 2
    assert "Error: " in result.stderr


def test_what_a_slow_output_drops_is_told_at_the_end(
    run: Run, bus: jsonbus.Bus, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listening, "MAILBOX_MESSAGES_MAX", 10)
    monkeypatch.setattr(listening, "INBOX_MESSAGES_MAX", 1)
    is_flooded = False
    take = listening.Inbox.take

    def take_late(inbox: listening.Inbox, timeout_s: float) -> list[jsonbus.Message]:
        if not is_flooded:
            time.sleep(0.01)
            return []
        return take(inbox, timeout_s)

    monkeypatch.setattr(listening.Inbox, "take", take_late)

    def flood() -> None:
        nonlocal is_flooded
        assert bus.wait_for_subscribers("a", timeout=30)
        for each in range(2_000):
            bus.publish("a", each)
        bus.flush()
        is_flooded = True

    with meanwhile(flood):
        result = run("sub", "--count", "5", "a")
    assert result.exit_code == 0
    assert len(json_lines(result.stdout)) == 5
    assert "messages were dropped: the output was slower than the bus" in result.stderr
