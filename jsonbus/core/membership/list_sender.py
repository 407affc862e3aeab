"""Lists in parts: cuts a list into parts that fit a datagram each, and sends them in bursts.

A part holds whole entries and can be merged alone. All parts carry the digest that the whole list
had when sending began: a node that has merged all of them has that list. The last part carries the
bucket sums as well, so that a settled receiver which still differs knows where.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from itertools import islice

from jsonbus.core.limits import LIST_BURST_DATAGRAMS, LIST_BURST_PAUSE_S
from jsonbus.core.outbox import Outbox
from jsonbus.core.wire.encode import SUMS_SIZE_BYTES, Control, encode_list, entry_size_bytes
from jsonbus.core.wire.frames import ABOUT_UNKNOWN, About, Digest, Entry

Part = list[tuple[Entry, float]]  # entries with their age in seconds


class ListSender:
    """Sends one list, a burst at a time; a new list replaces the one before."""

    __slots__ = ("_outbox", "_parts", "timer_at")

    def __init__(self, outbox: Outbox) -> None:
        self._outbox = outbox
        self._parts: Iterator[Control] = iter(())
        self.timer_at = math.inf

    @property
    def is_sending(self) -> bool:
        return self.timer_at != math.inf

    def start(self, parts: Iterator[Control], now: float) -> None:
        self._parts = parts
        self.send_burst(now)

    def stop(self) -> None:
        self._parts = iter(())
        self.timer_at = math.inf

    def send_burst(self, now: float) -> None:
        burst = list(islice(self._parts, LIST_BURST_DATAGRAMS))
        for part in burst:
            self._outbox.put_control(part, now)
        # After a full burst there may be more, even if only a look at the end shows that not.
        is_full = len(burst) == LIST_BURST_DATAGRAMS
        self.timer_at = now + LIST_BURST_PAUSE_S if is_full else math.inf


def encode_parts(
    entries: Iterable[tuple[Entry, float]],
    room_bytes: int,
    *,
    digest: Digest,
    sums: int | None,
    covers: int | None,
    settled: bool,
    receive_buffer_bytes: int | None = None,
    about: About = ABOUT_UNKNOWN,
) -> Iterator[Control]:
    """Cut the list as it is now, and yield its datagrams, each encoded when it is due."""
    parts = cut_list(entries, room_bytes, with_sums=sums is not None)
    last = len(parts) - 1
    return (
        encode_list(
            entries=part,
            digest=digest,
            sums=sums if index == last else None,
            covers=covers,
            part=(index, len(parts)),
            settled=settled,
            receive_buffer_bytes=receive_buffer_bytes,
            about=about if index == 0 else ABOUT_UNKNOWN,
        )
        for index, part in enumerate(parts)
    )


def cut_list(
    entries: Iterable[tuple[Entry, float]], room_bytes: int, *, with_sums: bool
) -> list[Part]:
    """Return parts of whole entries that fit; the last has room for the sums, or holds only them.

    An entry too large for any part gets a part to itself, which IP has to fragment.
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
