"""Encode echoes and their answers, each as a datagram of the size that the caller wants.

No node sends them, only `jsonbus doctor`. core/wire/format.py describes them.
"""

from __future__ import annotations

from typing import Any

from ..core.wire.encode import Control
from ..core.wire.encode_messages import Stamp
from ..core.wire.names import ECHO, ECHOED, KEY_HEARD, KEY_NAME, KEY_PING, KEY_TO


def encode_echo(
    stamp: Stamp, first_message: int, sent_us: int, *, echo_id: int, size_bytes: int
) -> bytes:
    """Encode an echo: exactly `size_bytes` long, or longer if it cannot be so short."""
    datagram = Control(ECHO, {KEY_PING: echo_id}, b'""').encode(stamp, first_message, sent_us)
    return _lengthen(datagram, size_bytes)


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
    size_bytes: int = 0,
) -> bytes:
    """Encode the answer to an echo of node `to`; `size_bytes` as in `encode_echo`."""
    fields: dict[str, Any] = {KEY_PING: echo_id, KEY_TO: to, KEY_HEARD: [heard, repeated]}
    if name:
        fields[KEY_NAME] = name
    datagram = Control(ECHOED, fields, b'""').encode(stamp, first_message, sent_us)
    return _lengthen(datagram, size_bytes)


def _lengthen(datagram: bytes, size_bytes: int) -> bytes:
    """Fill the empty payload with dots."""
    start, _, end = datagram.partition(b'""')
    return start + b'"' + b"." * (size_bytes - len(datagram)) + b'"' + end
