"""Converts a message to a line of JSON and back.

The line is what `jsonbus sub` prints into a pipe, plus the publisher's incarnation, which names the
message for ever. A line whose only key is LOSSES_KEY is not a message: it says how many messages
are missing up to there. Readers that want only messages may skip it.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any, Protocol

import orjson

import jsonbus
from jsonbus.errors import PayloadError

LOSSES_KEY = "jsonbus.losses"


class Bad(Protocol):
    """Called with the place and the reason of what cannot be read."""

    def __call__(self, place: str, reason: str, *, is_told: bool = True) -> None: ...


@dataclass(frozen=True, slots=True)
class Losses:
    """What the recording node did not get, counted since it began to record."""

    at: float  # when this was counted, seconds since 1970
    lost: int  # lost on the way, of all topics: a lost message does not say what its topic was
    given_up: int  # of them, those of reliable topics that could not be repaired
    dropped: int  # dropped here, because the disk was too slow
    #: Datagrams that found the receive buffer full. Their messages are in `lost` only if another
    #: one of the same publisher followed, and may have been repaired: so this is reported
    #: separately.
    kernel_drops: int = 0

    @property
    def counts(self) -> tuple[int, ...]:
        return self.lost, self.given_up, self.dropped, self.kernel_drops

    def tell(self) -> str:
        """Describe them in words; empty if there is nothing to report."""
        parts = []
        if self.lost:
            parts.append(f"{self.lost:,} messages lost on the way")
        if self.given_up:
            parts.append(f"{self.given_up:,} of reliable topics asked for in vain")
        if self.dropped:
            parts.append(f"{self.dropped:,} messages dropped since the disk was slow")
        if self.kernel_drops:
            parts.append(f"{self.kernel_drops:,} datagrams found the receive buffer full")
        return ", ".join(parts)


def dumps(value: Any) -> bytes:
    """Return a value as compact JSON; raises PayloadError if it has none."""
    try:
        return orjson.dumps(value)
    except TypeError as error:
        raise PayloadError(f"the value cannot be written as JSON: {error}") from error


def message_to_line(message: jsonbus.Message) -> bytes:
    """Return the line of a message, with its newline; raises PayloadError if its value is not
    JSON.
    """
    origin = message.origin
    # The keys in the order of `jsonbus sub`. Written out, because it runs for every message.
    line = {
        "topic": message.topic,
        "value": message.value,
        "node": origin.node,
        "name": origin.name,
        "incarnation": origin.incarnation,
        "sequence": message.sequence,
        "sent_at": origin.sent_at,
        "received_at": origin.received_at,
    }
    if origin.is_retained:
        line["retained"] = True
    try:
        return orjson.dumps(line, option=orjson.OPT_APPEND_NEWLINE)
    except TypeError:
        # Most likely a value with the most levels that can be written: the line has one more.
        line["value"] = orjson.Fragment(dumps(message.value))
        return orjson.dumps(line, option=orjson.OPT_APPEND_NEWLINE)


def wrap(value: Any) -> bytes:
    """Return {"value": …} as JSON; raises PayloadError."""
    return b'{"value":' + dumps(value) + b"}"


def losses_to_line(losses: Losses) -> bytes:
    return orjson.dumps({LOSSES_KEY: asdict(losses)}, option=orjson.OPT_APPEND_NEWLINE)


def parse_line(line: bytes) -> jsonbus.Message | Losses:
    """Parse a line into a message or losses; raises ValueError with the reason.

    Only topic, value and received_at are required: lines of `jsonbus sub` have no incarnation, and
    those that people write have little else.
    """
    fields = loads(line)
    if type(fields) is not dict:
        raise ValueError("it is no object")
    if fields.keys() == {LOSSES_KEY}:
        return read_losses(fields[LOSSES_KEY])
    if "value" not in fields:
        raise ValueError("it has no value")
    received_at = _read_time(fields, "received_at")
    node = _read_text(fields, "node", "")
    origin = jsonbus.Origin(
        node,
        _read_text(fields, "name", node),
        _read_count(fields, "incarnation") or 0,
        received_at if fields.get("sent_at") is None else _read_time(fields, "sent_at"),
        received_at,
        fields.get("retained") is True,
    )
    return make_message(
        _read_text(fields, "topic"), fields["value"], _read_count(fields, "sequence"), origin
    )


def loads(text: bytes | memoryview) -> Any:
    """Return the value of a JSON text; raises ValueError."""
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise ValueError(f"it is not JSON: {error}") from None


def read_losses(fields: Any) -> Losses:
    """Parse losses as they were written, or as the metadata of an MCAP file has them, as texts."""
    try:
        return Losses(
            float(fields["at"]),
            *(int(fields[each]) for each in ("lost", "given_up", "dropped", "kernel_drops")),
        )
    except (KeyError, TypeError, ValueError):
        raise ValueError("it tells of losses, but not of how many") from None


def make_message(
    topic: str, value: Any, sequence: int | None, origin: jsonbus.Origin
) -> jsonbus.Message:
    message = jsonbus.Message()
    message.topic = topic
    message.value = value
    message.sequence = sequence
    message.origin = origin
    return message


def _read_text(fields: dict[str, Any], key: str, default: str | None = None) -> str:
    text = fields.get(key, default)
    if type(text) is not str:
        raise ValueError(f"its {key} is no text" if key in fields else f"it has no {key}")
    return text


def _read_time(fields: dict[str, Any], key: str) -> float:
    time: Any = fields.get(key)
    if type(time) not in (int, float) or not math.isfinite(time):
        raise ValueError(f"its {key} is no time" if key in fields else f"it has no {key}")
    return float(time)


def _read_count(fields: dict[str, Any], key: str) -> int | None:
    count = fields.get(key)
    if count is not None and type(count) is not int:
        raise ValueError(f"its {key} is no whole number")
    return count
