"""Requests for repairs, put together until they are sent: as many to a datagram as fit."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from jsonbus.core.limits import NAK_RANGES_MAX

Range = tuple[int, int]  # first and last sequence


class Nak(NamedTuple):
    """One datagram's worth: what this node misses of another one's topics."""

    node: str
    incarnation: int
    topics: list[tuple[str, list[Range]]]


class NakPacker:
    """Takes what is missing, stream by stream; gives NAKs of at most `bytes_max` of JSON.

    One range of one topic is a NAK however long the topic is.
    """

    __slots__ = ("_bytes_max", "_naks", "_open")

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._naks: list[Nak] = []
        #: Per publisher its latest NAK, with the ranges and bytes that it takes.
        self._open: dict[tuple[str, int], tuple[Nak, int, int]] = {}

    def __len__(self) -> int:
        return len(self._naks)

    def add(self, key: tuple[str, int, str], ranges: Iterable[Range]) -> None:
        node, incarnation, topic = key
        topic_bytes = 2 * len(topic.encode()) + 8  # should all of it be escaped: ["…",[]],
        nak, count, size = self._open.get(key[:2]) or self._begin(node, incarnation)
        listed: list[Range] | None = None
        for first, last in ranges:
            range_bytes = len(f"[{first},{last}],")
            needed = range_bytes + (topic_bytes if listed is None else 0)
            if count and (count >= NAK_RANGES_MAX or size + needed > self._bytes_max):
                nak, count, size = self._begin(node, incarnation)
                listed = None
                needed = range_bytes + topic_bytes
            if listed is None:
                listed = []
                nak.topics.append((topic, listed))
            listed.append((first, last))
            count += 1
            size += needed
        self._open[key[:2]] = (nak, count, size)

    def take(self) -> list[Nak]:
        naks = self._naks
        self._naks = []
        self._open.clear()
        return naks

    def _begin(self, node: str, incarnation: int) -> tuple[Nak, int, int]:
        nak = Nak(node, incarnation, [])
        self._naks.append(nak)
        return nak, 0, 0
