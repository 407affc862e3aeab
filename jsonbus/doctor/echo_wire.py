"""Encode echoes and their answers, each as a datagram of the size that the caller wants.

No node sends them, only `jsonbus doctor`. core/wire/format.py describes them.
"""

from __future__ import annotations

from typing import Any

from ..core.wire import codec
from ..core.wire.encode_messages import Stamp
from ..core.wire.names import ECHO, ECHOED, KEY_HEARD, KEY_NAME, KEY_PING, KEY_TO


def encode_echo(
    stamp: Stamp, first_message: int, sent_us: int, *, echo_id: int, size_bytes: int
) -> bytes:
    """Encode an echo: exactly `size_bytes` long, or longer if it cannot be so short."""
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
    """Encode the answer to an echo of node `to`; `size_bytes` as in `encode_echo`."""
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
