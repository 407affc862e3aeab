"""Handlers of nodes that join, leave or expire: the part that is the same with threads and tasks.

A watch begins with the nodes that are known, reported as joined; whatever the node tells from then
on comes after them. Both happen in one step, so no node is missed and none is reported twice. What
waits for the handler is bounded, and counted where it is dropped.

No lock and no waiting here. A method with a leading underscore is called under the loop's lock
(threads) or in the event loop (tasks).
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from jsonbus.core.events import Event, NodeJoined, NodeLeft
from jsonbus.core.mailbox import Mailbox
from jsonbus.core.views import NodeInfo
from jsonbus.frontend.events import BusLog

JOINED, LEFT, EXPIRED = "joined", "left", "expired"

#: Events that may wait for a handler, besides those of the nodes that were known when it was set:
#: as many as the largest bus that was simulated has nodes.
NODE_EVENTS_MAX = 10_000


@dataclass(frozen=True, slots=True)
class NodeEvent:
    """A node came or went."""

    kind: str  # joined; left: it said goodbye; expired: it was silent for too long
    node: str  # its id
    name: str
    host: str | None  # what its machine is called; None unless the node itself has told
    version: str | None  # of its software; likewise
    at: float  # when this was noticed, seconds since 1970


class Watch:
    """The events of one handler; the base of `NodeWatch` in both front ends."""

    def __init__(self, handler: Any, log: BusLog) -> None:
        self._handler = handler
        self._log = log
        self._mailbox: Mailbox[NodeEvent] = Mailbox(NODE_EVENTS_MAX)
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

    def __call__(self, event: NodeEvent) -> Any:
        """What the handler does: its name stays of use where this decorates it."""
        return self._handler(event)

    def __repr__(self) -> str:
        state = "closed" if self._is_closed else f"{self.pending} pending"
        return f"<{type(self).__name__} {state}>"

    def _begin(self, known: Iterable[NodeInfo]) -> None:
        """Report the nodes that are here, but for this one."""
        at = time.time()
        events = [
            NodeEvent(JOINED, info.node, info.name, info.host, info.version, at)
            for info in known
            if not info.is_self
        ]
        self._mailbox = Mailbox(len(events) + NODE_EVENTS_MAX)
        self._mailbox.put_many(events)

    def _put(self, events: Iterable[Event]) -> None:
        """Add those that are about nodes."""
        at = time.time()
        found = [each for event in events if (each := _make_event(event, at)) is not None]
        if not found:
            return
        if self._mailbox.room < len(found):
            self._log.warn_once(
                "node events", "a handler of nodes is too slow: the oldest events are dropped"
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

    def _fail(self, event: NodeEvent) -> None:
        self._log.fail("the handler of nodes failed on %r %s", event.name, event.kind)


def _make_event(event: Event, at: float) -> NodeEvent | None:
    match event:
        case NodeJoined(node, name, about):
            return NodeEvent(JOINED, node, name, about.host, about.version, at)
        case NodeLeft(node, name, reason, about):
            kind = LEFT if reason == "left" else EXPIRED
            return NodeEvent(kind, node, name, about.host, about.version, at)
        case _:
            return None
