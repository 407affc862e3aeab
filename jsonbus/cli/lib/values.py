"""Reads JSON as people type it, and writes it as commands print it."""

from __future__ import annotations

import dataclasses
import json
import math
import re
from collections.abc import Callable
from typing import Any

import click

import jsonbus

#: The keys of a message that `sub` prints; `pub` recognizes such objects by them.
MESSAGE_KEYS = ("topic", "value", "node", "name", "sequence", "sent_at", "received_at")

#: Only in a retained message, with the value true.
RETAINED_KEY = "retained"

#: Further keys that a message may have: the second is in recordings.
FURTHER_KEYS = frozenset({RETAINED_KEY, "incarnation"})

#: The only key of a line in a recording that is not a message but counts lost ones.
LOSSES_KEY = "jsonbus.losses"

#: The only key of a line of `sub --gaps` that is not a message but tells a gap.
GAP_KEY = "jsonbus.gap"

# Text from the network must not control the terminal: control characters that JSON does not escape,
# and characters that reverse the direction of text.
_UNPRINTABLE = re.compile("[\x00-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def parse_json(text: str) -> Any:
    """Return the value of a JSON text. Raises ValueError with one sentence that says why not.

    Stricter than Python: NaN and Infinity are not JSON, and a number too large for a float would
    become one of them.
    """
    try:
        return _decode(text)
    except json.JSONDecodeError as error:
        reason = f": {error.msg} (column {error.colno})"
    except RecursionError:
        reason = ": nested too deeply"
    except _NotFinite as error:
        reason = f", which has only finite numbers: {error}"
    raise ValueError(f"{shorten(text) or 'an empty value'} is not JSON{reason}")


def parse_argument(text: str, *, is_text: bool | None = None, name: str = "VALUE") -> Any:
    """Return the value of an argument. Raises a usage error that shows how to write it.

    `is_text` is the option --text of the command; None if it has none.
    """
    if is_text:
        return text
    try:
        return parse_json(text)
    except ValueError as error:
        way = "with" if is_text is None else "with --text, or with"
        raise click.BadParameter(
            f"{error}. Write a text {way} quotes inside quotes: '\"hello\"'", param_hint=name
        ) from None


def to_json(value: object) -> str:
    """Return one line of compact JSON."""
    return _encode(value)


def to_readable_json(value: object) -> str:
    """Return JSON over several lines, safe for a terminal."""
    text = json.dumps(value, ensure_ascii=False, indent=2)
    return "\n".join(printable(line) for line in text.split("\n"))


def message_to_json(message: jsonbus.Message) -> str:
    """Return the line that `sub` prints into a pipe, and that `pub` understands."""
    # Written out, because it runs for every message: a loop takes half as long again.
    printed = {
        "topic": message.topic,
        "value": message.value,
        "node": message.node,
        "name": message.name,
        "sequence": message.sequence,
        "sent_at": message.sent_at,
        "received_at": message.received_at,
    }
    if message.retained:
        printed[RETAINED_KEY] = True
    return _encode(printed)


def gap_to_json(gap: jsonbus.GapEvent) -> str:
    """Return the line that `sub --gaps` prints into a pipe, and that `pub` passes over."""
    return _encode({GAP_KEY: {**dataclasses.asdict(gap), "count": gap.count}})


def is_printed_message(value: dict[str, Any]) -> bool:
    """Return True if `message_to_json` or a recording wrote this object."""
    keys = value.keys()
    return keys - FURTHER_KEYS == set(MESSAGE_KEYS) and isinstance(value["topic"], str)


def printable(text: str) -> str:
    """Return the text with everything escaped that could control a terminal."""
    return _UNPRINTABLE.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def shorten(text: str, length_max: int = 60) -> str:
    """Return the text, printable and cut, for use in a message to people."""
    text = printable(text)
    return text if len(text) <= length_max else text[: length_max - 1] + "…"


class _NotFinite(ValueError):
    """A number that JSON cannot have; the text says what to do."""


def _refuse_constant(name: str) -> float:
    raise _NotFinite("use null")


def _read_float(text: str) -> float:
    number = float(text)
    if math.isinf(number):
        raise _NotFinite(f"{shorten(text)} is too large")
    return number


_decode: Callable[[str], Any] = json.JSONDecoder(
    parse_constant=_refuse_constant, parse_float=_read_float
).decode
_encode: Callable[[object], str] = json.JSONEncoder(
    ensure_ascii=False, separators=(",", ":"), check_circular=False
).encode
