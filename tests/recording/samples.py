"""Messages to record, and how to compare them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import jsonbus
from jsonbus.recording import open_recording
from jsonbus.recording.formats import FORMATS
from jsonbus.recording.records import make_message

#: The parameter of a test that holds for all formats.
for_each_format = pytest.mark.parametrize("suffix", FORMATS)

BEGAN_AT = 1_794_844_270.889451

VALUES: list[Any] = [{"temp": 21.5}, None, True, -7, 1.5e-7, "é ☃ \n", [1, {"a": []}], {}]


def make_messages(count: int, topic: str = "sensors/kitchen") -> list[jsonbus.Message]:
    """Messages of three publishers, one of them a plain sender, a millisecond after each other."""
    messages = []
    for number in range(count):
        who = number % 3
        origin = jsonbus.Origin(
            f"node{who}",
            f"name {who}",
            0 if who == 2 else 1_794_844_270_000 + who,
            BEGAN_AT + number / 1000 - 0.000_7,
            BEGAN_AT + number / 1000,
            number % 5 == 4,
        )
        sequence = None if who == 2 else number + (who << 40)
        value = VALUES[number % len(VALUES)]
        messages.append(make_message(f"{topic}/{number % 4}", value, sequence, origin))
    return messages


def make_message_at(at: float, value: Any = None, topic: str = "a") -> jsonbus.Message:
    return make_message(topic, value, 1, jsonbus.Origin("n", "name", 1, at, at))


def facts(message: jsonbus.Message) -> tuple[object, ...]:
    """All that a message has."""
    return (
        message.topic,
        message.value,
        message.sequence,
        message.node,
        message.name,
        message.incarnation,
        message.sent_at,
        message.received_at,
        message.retained,
    )


def read_all(*paths: Path) -> list[tuple[object, ...]]:
    return [facts(each) for each in open_recording(*paths)]
