"""The watches of one bus: who is told what happens, and how much of it was dropped.

Apart from watch.py, which few programs import: most have no watch, but every bus has this.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractContextManager
from typing import Any, Protocol

from jsonbus.core.events import Event

#: What stats() shows: the events that watches of nodes and of gaps dropped.
COUNTERS = ("node_events_dropped", "gap_events_dropped")


class Told(Protocol):
    """What a loop needs of a watch."""

    @property
    def dropped(self) -> int: ...

    @property
    def counter(self) -> str: ...

    def put(self, events: Iterable[Event]) -> None:
        """What the node told. Lock held."""

    def rouse(self) -> None:
        """Have the handler run, if there is something for it and nobody sees to it yet."""

    def end(self) -> None:
        """Drop what is pending."""

    def cut_off(self) -> None:
        """This is a forked child."""


class Watches:
    """All that one bus has. `lock` is its loop's; in an event loop, one that does nothing.

    Methods take it themselves unless they say that it is held.
    """

    def __init__(self, lock: AbstractContextManager[Any]) -> None:
        self._lock = lock
        self._all: tuple[Told, ...] = ()  # never changed, only replaced
        self._dropped = dict.fromkeys(COUNTERS, 0)  # of watches that were closed

    def add(self, watch: Told) -> None:
        """Tell it from now on. Lock held."""
        self._all = (*self._all, watch)

    def put(self, events: Iterable[Event]) -> None:
        """What the node told. Lock held."""
        for watch in self._all:
            watch.put(events)

    def rouse(self) -> None:
        """Have handlers run, after `put`; without the lock."""
        for watch in self._all:
            watch.rouse()

    def end(self, watch: Told) -> None:
        """Tell it no more; nothing if that has ended."""
        with self._lock:
            is_first = watch in self._all
            self._all = tuple(each for each in self._all if each is not watch)
        if is_first:
            self._end(watch)

    def end_all(self) -> None:
        with self._lock:
            watches, self._all = self._all, ()
        for watch in watches:
            self._end(watch)

    def cut_off(self) -> None:
        """This is a forked child: the lock may be held by a thread that is not here."""
        for watch in self._all:
            watch.cut_off()

    def figures(self) -> dict[str, int]:
        """What stats() shows. Lock held."""
        figures = self._dropped.copy()
        for watch in self._all:
            figures[watch.counter] += watch.dropped
        return figures

    def _end(self, watch: Told) -> None:
        watch.end()
        with self._lock:
            self._dropped[watch.counter] += watch.dropped
