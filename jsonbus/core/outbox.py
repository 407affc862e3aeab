"""What waits to be sent: messages that may share a datagram, and datagrams that are ready.

Messages get their numbers in the order in which they are added, datagrams their counters in the
order in which they are made, and both leave in that order. A control datagram therefore first packs
the messages that wait, so that a goodbye never overtakes the last message.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from jsonbus.core.wire_encode import (
    BATCH_OVERHEAD_BYTES,
    LIST_OVERHEAD_BYTES,
    Stamp,
    encode_batch,
    encode_message,
)


class Outbox:
    """Packs messages into datagrams of at most `datagram_bytes_max`, as long as they fit."""

    __slots__ = (
        "_bytes",
        "_ready",
        "_ready_bytes",
        "_room",
        "_stamp",
        "_unbatched_until",
        "_waiting",
        "datagrams_sent",
        "messages_sent",
        "next_message",
        "wall_offset_s",
    )

    def __init__(
        self, stamp: Stamp, datagram_bytes_max: int, wall_offset_s: float, *, batching: bool
    ) -> None:
        self._stamp = stamp
        self._room = datagram_bytes_max - BATCH_OVERHEAD_BYTES + stamp.id_bytes_saved
        self._waiting: list[tuple[bytes, bytes]] = []
        self._bytes = 0  # of the waiting messages, separators included
        self._ready: list[bytes] = []
        self._ready_bytes = 0
        self.next_message = 1
        self._unbatched_until = -math.inf if batching else math.inf
        self.wall_offset_s = wall_offset_s
        self.datagrams_sent = 0
        self.messages_sent = 0

    def __bool__(self) -> bool:
        return bool(self._waiting or self._ready)

    @property
    def has_full_datagram(self) -> bool:
        """Whether a datagram is ready that nothing can be added to."""
        return bool(self._ready)

    @property
    def size_bytes(self) -> int:
        return self._bytes + self._ready_bytes

    def list_room_bytes(self, datagram_bytes_max: int) -> int:
        """What the entries of a list may take in one datagram of this node."""
        return datagram_bytes_max - LIST_OVERHEAD_BYTES + self._stamp.id_bytes_saved

    def put_message(self, topic_json: bytes, payload: bytes, now: float) -> int:
        """Add a message; its number."""
        size = len(topic_json) + len(payload) + 4  # brackets, comma, comma
        if self._bytes + size > self._room or now < self._unbatched_until:
            self._pack(now)
        self._waiting.append((topic_json, payload))
        self._bytes += size
        number = self.next_message
        self.next_message = number + 1
        if self._bytes + size > self._room:
            self._pack(now)  # another one like this would not fit: nothing to wait for
        return number

    def put_control(self, encode: Callable[..., bytes], now: float, **fields: Any) -> None:
        """Add a datagram that holds no message."""
        self._pack(now)
        self._add(encode(self._stamp, self.next_message, self._sent_us(now), **fields))

    def send_unbatched(self, until: float) -> None:
        """A plain peer is here: one message per datagram until then, so that it gets them."""
        self._unbatched_until = max(self._unbatched_until, until)

    def take(self, now: float) -> list[bytes]:
        """All datagrams, in the order in which they should be sent."""
        self._pack(now)
        datagrams = self._ready
        self._ready = []
        self._ready_bytes = 0
        self.datagrams_sent += len(datagrams)
        return datagrams

    def _pack(self, now: float) -> None:
        waiting = self._waiting
        if not waiting:
            return
        count = len(waiting)
        first = self.next_message - count
        if count == 1:
            topic_json, payload = waiting[0]
            datagram = encode_message(self._stamp, topic_json, payload, first, self._sent_us(now))
        else:
            pairs = [b"[%b,%b]" % pair for pair in waiting]
            datagram = encode_batch(self._stamp, pairs, first, self._sent_us(now))
        self._add(datagram)
        self.messages_sent += count
        self._waiting = []
        self._bytes = 0

    def _add(self, datagram: bytes) -> None:
        self._ready.append(datagram)
        self._ready_bytes += len(datagram)

    def _sent_us(self, now: float) -> int:
        return int((now + self.wall_offset_s) * 1_000_000)
