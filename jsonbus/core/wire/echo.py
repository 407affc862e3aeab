"""Echoes and their answers to datagram bytes, each of a size that is asked for.

Apart from encode.py, since no node sends them: `jsonbus doctor` does.
"""

from __future__ import annotations

from typing import Any

from jsonbus.core.wire import codec
from jsonbus.core.wire.encode_messages import Stamp
from jsonbus.core.wire.names import ECHO, ECHOED, KEY_HEARD, KEY_NAME, KEY_PING, KEY_TO


def encode_echo(
    stamp: Stamp, first_message: int, sent_us: int, *, echo_id: int, size_bytes: int
) -> bytes:
    """Who answers this? Exactly `size_bytes` long, or longer if it cannot be so short."""
    return _encode(stamp, first_message, sent_us, ECHO, {KEY_PING: echo_id}, size_bytes)


def encode_echoed(
    stamp: Stamp,
    first_message: int,
    sent_us: int,
    *,
    to: str,
    echo_id: int,
    heard: int,
    repeated: int,
    name: str = "",
    size_bytes: int,
) -> bytes:
    """I heard the echo of node `to`. As long as `encode_echo` makes it."""
    fields: dict[str, Any] = {KEY_PING: echo_id, KEY_TO: to, KEY_HEARD: [heard, repeated]}
    if name:
        fields[KEY_NAME] = name
    return _encode(stamp, first_message, sent_us, ECHOED, fields, size_bytes)


def _encode(
    stamp: Stamp,
    first_message: int,
    sent_us: int,
    topic: str,
    fields: dict[str, Any],
    size_bytes: int,
) -> bytes:
    fields_json = codec.dumps(fields)[1:]
    start = b'{"topic":"%b","payload":"' % topic.encode()
    end = b'"%b,%b}' % (stamp.tail(first_message, sent_us), fields_json)
    return start + b"." * (size_bytes - len(start) - len(end)) + end
