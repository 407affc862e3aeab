"""Handlers of what happens on the bus: the part that is the same with threads and tasks.

What a watch is about is its subject: nodes (presence.py) or gaps (gaps.py). It begins with what is
the case already, where the subject has that; whatever the node tells from then on comes after.
Both happen in one step, so nothing is missed and nothing is told twice. What waits for the handler
is bounded, and counted where it is dropped.

No lock and no waiting here. A method with a leading underscore is called under the loop's lock
(threads) or in the event loop (tasks).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Any, Generic, NamedTuple, TypeVar

from jsonbus.core.events import Event
from jsonbus.core.mailbox import Mailbox
from jsonbus.core.node import Node
from jsonbus.frontend.events import BusLog

#: Events that may wait for a handler, besides those that it began with: as many as the largest bus
#: that was simulated has nodes.
EVENTS_MAX = 10_000

E = TypeVar("E")


class Subject(NamedTuple, Generic[E]):
    """What a watch is about; `E` is what its handler is given."""

    name: str  # in the log
    counter: str  # of events that were dropped, in stats()
    #: What is the case already; given the node, its time, and the time of day.
    begin: Callable[[Node, float, float], list[E]]
    #: What an event of the core is to the handler, given the time of day; None: nothing.
    read: Callable[[Event, float], E | None]


class BaseWatch(Generic[E]):
    """The events of one handler; the base of `Watch` in both front ends."""

    def __init__(self, subject: Subject[E], handler: Any, log: BusLog) -> None:
        self._subject = subject
        self._handler = handler
        self._log = log
        self._mailbox: Mailbox[E] = Mailbox(EVENTS_MAX)
        self._discarded = 0  # pending when it was closed
        self._is_scheduled = False
        self._is_closed = False

    @property
    def pending(self) -> int:
        """How many events wait for the handler."""
        return self._mailbox.pending

    @property
    def dropped(self) -> int:
        """How many events were lost here: no room, or pending at the close."""
        return self._mailbox.dropped + self._discarded

    @property
    def is_closed(self) -> bool:
        """Whether the handler gets no more events."""
        return self._is_closed

    @property
    def counter(self) -> str:
        """What stats() calls the events that were dropped."""
        return self._subject.counter

    def __call__(self, event: E) -> Any:
        """What the handler does: its name stays of use where this decorates it."""
        return self._handler(event)

    def __repr__(self) -> str:
        state = "closed" if self._is_closed else f"{self.pending} pending"
        return f"<{type(self).__name__} of {self._subject.name}, {state}>"

    def _begin(self, node: Node, now: float) -> None:
        events = self._subject.begin(node, now, time.time())
        self._mailbox = Mailbox(len(events) + EVENTS_MAX)
        self._mailbox.put_many(events)

    def _put(self, events: Iterable[Event]) -> None:
        """Add those that it is about."""
        read, at = self._subject.read, time.time()
        found = [each for event in events if (each := read(event, at)) is not None]
        if not found:
            return
        if self._mailbox.room < len(found):
            self._log.warn_once(
                self._subject.counter,
                "a handler of %s is too slow: the oldest events are dropped",
                self._subject.name,
            )
        self._mailbox.put_many(found)

    def _is_due(self) -> bool:
        """Whether somebody has to see to the handler; then nobody else has to."""
        if self._is_scheduled or self._is_closed or not self._mailbox.pending:
            return False
        self._is_scheduled = True
        return True

    def _end(self) -> None:
        """No more events; the pending ones are dropped."""
        self._is_closed = True
        self._discarded += self._mailbox.clear()

    def _fail(self, event: E) -> None:
        self._log.fail("the handler of %s failed on %r", self._subject.name, event)
