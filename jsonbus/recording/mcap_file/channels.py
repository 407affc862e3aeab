"""Converts between a channel's metadata and its messages."""

from __future__ import annotations

from mcap.records import Channel

import jsonbus

from ..records import Losses, loads, make_message, parse_line

VERSION = "1"
MORE_TOPIC = "jsonbus.recording/more"

NANO = 1_000_000_000

#: topic; node, name, incarnation, is_retained; upper sequence; whether it is wrapped.
Key = tuple[str, str, str, int, bool, int | None, bool]


def to_metadata(key: Key) -> dict[str, str]:
    _, node, name, incarnation, is_retained, high, is_wrapped = key
    facts = {"jsonbus": VERSION, "node": node, "name": name, "incarnation": str(incarnation)}
    if high is not None:
        facts["sequence_high"] = str(high)
    if is_retained:
        facts["retained"] = "true"
    if is_wrapped:
        facts["wrapped"] = "true"
    return facts


def to_nanoseconds(at: float) -> int:
    """Return nanoseconds, exact, so that division gives the same float back.

    `at * 1e9` would be wrong by up to 128 ns, half the distance of two floats of today.
    """
    seconds = int(at)
    return max(0, seconds * NANO + round((at - seconds) * NANO))


class ChannelReader:
    """Makes messages from a channel's records."""

    def __init__(self, channel: Channel) -> None:
        facts = channel.metadata if channel.metadata.get("jsonbus") == VERSION else {}
        self.topic = channel.topic
        self.encoding = channel.message_encoding
        self.is_json = channel.message_encoding == "json"
        self._node = facts.get("node", "")
        self._name = facts.get("name", self._node)
        self._incarnation = int(facts.get("incarnation", "0"))
        self._is_retained = facts.get("retained") == "true"
        high = facts.get("sequence_high", None if facts else "0")
        self._high = None if high is None else int(high) << 32
        self._is_wrapped = facts.get("wrapped") == "true"
        self._is_whole = facts.get("whole") == "true"

    def read(
        self, data: memoryview, sequence: int, log_time: int, publish_time: int
    ) -> jsonbus.Message:
        """Make a message; raises ValueError."""
        if self._is_whole:
            message = parse_line(bytes(data))
            if isinstance(message, Losses):
                raise ValueError("it is no message")
            return message
        value = loads(data)
        if self._is_wrapped:
            if type(value) is not dict or "value" not in value:
                raise ValueError('it is no object {"value": …}')
            value = value["value"]
        origin = jsonbus.Origin(
            self._node,
            self._name,
            self._incarnation,
            publish_time / NANO,
            log_time / NANO,
            self._is_retained,
        )
        number = None if self._high is None else self._high | sequence
        return make_message(self.topic, value, number, origin)
