"""Sends a list in parts of whole entries, each mergeable alone, a burst at a time.

Every part carries the digest that the whole list had when sending began: who has merged them all
has that list. The last part carries the sums too, so that a settled receiver who still differs
knows where.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from jsonbus.core.limits import LIST_BURST_DATAGRAMS, LIST_BURST_PAUSE_S
from jsonbus.core.outbox import Outbox
from jsonbus.core.wire.encode import SUMS_SIZE_BYTES, encode_list, entry_size_bytes
from jsonbus.core.wire.frames import Digest, Entry

Part = list[tuple[Entry, float]]  # entries with their age in seconds


class ListSender:
    """One list on its way out; a new one takes the place of the one before."""

    __slots__ = ("_covers", "_digest", "_next", "_outbox", "_parts", "_room", "_sums", "timer_at")

    def __init__(self, outbox: Outbox, datagram_bytes_max: int) -> None:
        self._outbox = outbox
        self._room = outbox.list_room_bytes(datagram_bytes_max)
        self._parts: list[Part] = []
        self._next = 0
        self._digest = Digest(0, 0)
        self._sums: int | None = None
        self._covers = 0
        self.timer_at = math.inf

    @property
    def is_sending(self) -> bool:
        return self.timer_at != math.inf

    def start(
        self,
        entries: Iterable[tuple[Entry, float]],
        *,
        digest: Digest,
        sums: int | None,
        covers: int,
        now: float,
    ) -> None:
        self._parts = cut_list(entries, self._room, with_sums=sums is not None)
        self._next = 0
        self._digest, self._sums, self._covers = digest, sums, covers
        self.send_burst(now)

    def stop(self) -> None:
        self._parts = []
        self.timer_at = math.inf

    def send_burst(self, now: float) -> None:
        count = len(self._parts)
        end = min(self._next + LIST_BURST_DATAGRAMS, count)
        for index in range(self._next, end):
            self._outbox.put_control(
                encode_list,
                now,
                entries=self._parts[index],
                digest=self._digest,
                sums=self._sums if index == count - 1 else None,
                covers=self._covers,
                part=(index, count),
                settled=True,  # nobody else answers
            )
        self._next = end
        if end == count:
            self.stop()
        else:
            self.timer_at = now + LIST_BURST_PAUSE_S


def cut_list(
    entries: Iterable[tuple[Entry, float]], room_bytes: int, *, with_sums: bool
) -> list[Part]:
    """Parts of whole entries that fit; the last has room for the sums, or holds nothing else.

    An entry that is too large for any part has one of its own, and IP has to cut it.
    """
    parts: list[Part] = [[]]
    room = room_bytes
    for entry, age_s in entries:
        size = entry_size_bytes(entry)
        if size > room and parts[-1]:
            parts.append([])
            room = room_bytes
        parts[-1].append((entry, age_s))
        room -= size
    if with_sums and room < SUMS_SIZE_BYTES and parts[-1]:
        parts.append([])
    return parts
