"""All streams by key and by node, bounded: by number, and by how long nothing was heard of them.

A message must not pay for that. So streams are not kept in the order in which they were heard; they
are looked at one after the other, each once in a while, and go if nothing was heard since the last
look. The same when room must be made: forged streams, heard once, go before those in use.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import Generic, TypeVar

from jsonbus.core.limits import STREAM_IDLE_S, STREAMS_MAX
from jsonbus.core.reliable.stream import Key, Stream, Waiting

T = TypeVar("T")

_CHANCES = 16  # streams in use that are passed over when one must make room


class StreamTable(Generic[T]):
    """`settle` is called for a stream before it is dropped."""

    __slots__ = ("_by_node", "_settle", "streams", "waiting")

    def __init__(self, settle: Callable[[Stream[T]], None]) -> None:
        self._settle = settle
        #: The one looked at longest ago first.
        self.streams: OrderedDict[Key, Stream[T]] = OrderedDict()
        self._by_node: dict[str, dict[Key, Stream[T]]] = {}
        self.waiting = Waiting()

    def begin(self, key: Key, next_sequence: int, now: float) -> Stream[T]:
        if len(self.streams) >= STREAMS_MAX:
            self._make_room(now)
        stream: Stream[T] = Stream(key, next_sequence, self.waiting, now)
        self.streams[key] = stream
        self._by_node.setdefault(key[0], {})[key] = stream
        return stream

    def of_node(self, node: str) -> Iterable[Stream[T]]:
        return self._by_node.get(node, {}).values()

    def drop(self, stream: Stream[T]) -> None:
        self._settle(stream)
        del self.streams[stream.key]
        of_node = self._by_node[stream.key[0]]
        del of_node[stream.key]
        if not of_node:
            del self._by_node[stream.key[0]]

    def expire(self, now: float) -> None:
        while self.streams:
            stream = next(iter(self.streams.values()))
            if stream.checked_at + STREAM_IDLE_S > now:
                break
            self._check(stream, now)

    def _make_room(self, now: float) -> None:
        for _ in range(_CHANCES):
            if self._check(next(iter(self.streams.values())), now):
                return
        self.drop(next(iter(self.streams.values())))

    def _check(self, stream: Stream[T], now: float) -> bool:
        """Drop a stream, unless it was heard since it was looked at last."""
        if stream.heard_at <= stream.checked_at:
            self.drop(stream)
            return True
        stream.checked_at = now
        self.streams.move_to_end(stream.key)
        return False
