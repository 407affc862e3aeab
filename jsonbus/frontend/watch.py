"""Watches: handlers of `on_node` and `on_gap`, as far as they are the same with threads and tasks.

The subject of a watch is nodes or gaps. A watch starts with the current state of its subject, where
there is one; the events that the node reports from then on follow. Both happen in one step, so
nothing is missed and nothing comes twice. The number of events that wait for a handler is bounded;
dropped ones are counted.

`lock` is the lock of the loop (threads) or one that does nothing (tasks). Methods take it
themselves unless they say that it is held.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Generic, Literal, NamedTuple, TypeVar

from jsonbus.core.events import Event, GapFound, NodeJoined, NodeLeft
from jsonbus.core.mailbox import Mailbox
from jsonbus.core.message import Message
from jsonbus.core.node import Node
from jsonbus.frontend.limits import EVENTS_MAX

if TYPE_CHECKING:
    from jsonbus.frontend.loop import BaseLoop

E = TypeVar("E")

EventHandler = Callable[[E], Any]


@dataclass(frozen=True, slots=True)
class NodeEvent:
    """A node joined or left the bus; what a handler of `on_node` gets."""

    #: "left" if the node said goodbye, "expired" if it was silent for too long.
    kind: Literal["joined", "left", "expired"]
    #: The id of the node.
    node: str
    name: str
    #: The name of its machine; None unless the node itself has announced it.
    host: str | None
    #: The version of its software; None unless the node itself has announced it.
    version: str | None
    #: When this was noticed, in seconds since 1970.
    at: float


@dataclass(frozen=True, slots=True)
class GapEvent:
    """Messages of a reliable topic are lost for good; what a handler of `on_gap` gets.

    They were requested again in vain, or a subscription of this bus had no room for them: `reason`
    tells. Subscriptions go on with the messages that follow. `first`
    and `last` are sequences of the topic: they count, from 1, what this node published reliably to
    it. They are not `Message.sequence`, which counts all messages of a node.
    """

    #: The id of the publisher.
    node: str
    name: str
    topic: str
    first: int
    last: int
    #: When they were given up, in seconds since 1970.
    at: float
    #: "lost" if they never arrived; "dropped" if the reader of a subscription was too slow.
    reason: Literal["lost", "dropped"] = "lost"

    @property
    def count(self) -> int:
        """How many messages are missing."""
        return self.last - self.first + 1


def gaps_of(dropped: Iterable[Message]) -> list[GapEvent]:
    """Return the gaps that dropped messages leave, each as long as it can be."""
    gaps: list[GapEvent] = []
    ends: dict[tuple[str, int, str], int] = {}  # of each stream, the index of its last gap
    for message in dropped:
        position = message.position
        if position is None:
            continue
        stream = (message.node, message.incarnation, message.topic)
        index = ends.get(stream)
        if index is not None and gaps[index].last + 1 == position:
            gaps[index] = replace(gaps[index], last=position)
            continue
        ends[stream] = len(gaps)
        where = (message.node, message.name, message.topic)
        gaps.append(GapEvent(*where, position, position, time.time(), "dropped"))
    return gaps


class Subject(NamedTuple, Generic[E]):
    """What a watch is about; `E` is what its handler gets."""

    #: For the log.
    name: str
    #: The key of dropped events in stats().
    counter: str
    #: Returns the current state as events, given the node, its time, and the time of day.
    begin: Callable[[Node, float, float], list[E]]
    #: Converts an event of the core, given the time of day; None if it is not of this subject.
    read: Callable[[Event, float], E | None]


def _begin_nodes(node: Node, now: float, at: float) -> list[NodeEvent]:
    return [
        NodeEvent("joined", info.node, info.name, info.host, info.version, at)
        for info in node.view.nodes(now)
        if not info.is_self
    ]


def _read_node(event: Event, at: float) -> NodeEvent | None:
    match event:
        case NodeJoined(node, name, about):
            return NodeEvent("joined", node, name, about.host, about.version, at)
        case NodeLeft(node, name, reason, about):
            kind: Literal["left", "expired"] = "left" if reason == "left" else "expired"
            return NodeEvent(kind, node, name, about.host, about.version, at)
        case _:
            return None


def _begin_gaps(node: Node, now: float, at: float) -> list[GapEvent]:
    return []  # earlier gaps are in the counters


def _read_gap(event: Event, at: float) -> GapEvent | None:
    if type(event) is not GapFound:
        return None
    return GapEvent(event.node, event.name, event.topic, event.first, event.last, at)


NODES = Subject("nodes", "node_events_dropped", _begin_nodes, _read_node)
GAPS = Subject("gaps", "gap_events_dropped", _begin_gaps, _read_gap)


class BaseWatch(Generic[E]):
    """The events that wait for one handler; the base of `Watch` in both front ends."""

    def __init__(
        self,
        subject: Subject[E],
        handler: EventHandler[E],
        loop: BaseLoop[Any, Any],
        bus: object,
    ) -> None:
        self._subject = subject
        self._handler = handler
        self._loop = loop
        self._bus = bus  # kept alive by its watches, as by its subscriptions
        self._lock = loop.lock
        self._log = loop.log
        self._mailbox: Mailbox[E] = Mailbox(EVENTS_MAX)
        self._is_scheduled = False
        self._is_closed = False

    @property
    def pending(self) -> int:
        """How many events wait for the handler."""
        return self._mailbox.pending

    @property
    def dropped(self) -> int:
        """How many events were lost here because there was no room."""
        return self._mailbox.dropped

    @property
    def is_closed(self) -> bool:
        """Whether the handler gets no more events."""
        return self._is_closed

    @property
    def counter(self) -> str:
        """The key of dropped events in stats()."""
        return self._subject.counter

    def close(self) -> None:
        """Stop calling the handler. Pending events are forgotten. Idempotent.

        A call of the handler that has begun is not interrupted.
        """
        self._loop.end_watch(self)

    def __call__(self, event: E) -> Any:
        """Call the handler, so that its name is still of use where `on_node` decorates it."""
        return self._handler(event)

    def __repr__(self) -> str:
        state = "closed" if self._is_closed else f"{self.pending} pending"
        return f"<{type(self).__name__} of {self._subject.name}, {state}>"

    # What follows is for the loop and the workers.

    def begin(self, node: Node, now: float) -> None:
        """Start with the current state. Lock held."""
        events = self._subject.begin(node, now, time.time())
        self._mailbox = Mailbox(len(events) + EVENTS_MAX)
        self._mailbox.put_many(events)

    def put(self, events: Iterable[Event]) -> None:
        """Add the events of this subject. Lock held."""
        read, at = self._subject.read, time.time()
        found = [each for event in events if (each := read(event, at)) is not None]
        if found:
            self.add(found)

    def add(self, found: list[E]) -> None:
        """Add events of this subject. Lock held."""
        if self._mailbox.room < len(found):
            self._log.warn_program_once(
                self._subject.counter,
                "a handler of %s is too slow: the oldest events are dropped",
                self._subject.name,
            )
        self._mailbox.put_many(found)

    def schedule(self) -> None:
        """Have a worker run the handler, if events wait and no worker has them yet."""
        with self._lock:
            if self._is_scheduled or self._is_closed or not self._mailbox.pending:
                return
            self._is_scheduled = True
        self._loop.workers.schedule(self)

    def end(self) -> None:
        """Forget pending events and take no more."""
        with self._lock:
            self._is_closed = True
            self._mailbox.clear()

    def cut_off(self) -> None:
        """Close in a forked child. A thread that does not exist here may hold the lock."""
        self._is_closed = True

    def _fail(self, event: E) -> None:
        self._log.fail("the handler of %s failed on %r", self._subject.name, event)


class Watches:
    """All watches of one bus."""

    def __init__(self, lock: AbstractContextManager[Any]) -> None:
        self._lock = lock
        self._all: tuple[BaseWatch[Any], ...] = ()  # replaced, never changed
        # Events that closed watches had dropped.
        self._dropped = {NODES.counter: 0, GAPS.counter: 0}

    def add(self, watch: BaseWatch[Any]) -> None:
        """Give it events from now on. Lock held."""
        self._all = (*self._all, watch)

    def put(self, events: Iterable[Event]) -> None:
        """Give the node's events to all watches. Lock held."""
        for watch in self._all:
            watch.put(events)

    @property
    def want_gaps(self) -> bool:
        """Whether there is a handler of gaps."""
        return any(watch.counter == GAPS.counter for watch in self._all)

    def put_gaps(self, gaps: list[GapEvent]) -> None:
        """Give gaps that a subscription made to the watches of gaps. Lock not held."""
        with self._lock:
            for watch in self._all:
                if watch.counter == GAPS.counter:
                    watch.add(gaps)
        self.schedule()

    def schedule(self) -> None:
        """Have handlers run, after `put`. Lock not held."""
        for watch in self._all:
            watch.schedule()

    def end(self, watch: BaseWatch[Any]) -> None:
        """Give it no more events. Idempotent."""
        with self._lock:
            if watch not in self._all:
                return
            self._all = tuple(each for each in self._all if each is not watch)
        self._end(watch)

    def end_all(self) -> None:
        with self._lock:
            watches, self._all = self._all, ()
        for watch in watches:
            self._end(watch)

    def cut_off(self) -> None:
        """Close all in a forked child. A thread that does not exist here may hold the lock."""
        for watch in self._all:
            watch.cut_off()

    def figures(self) -> dict[str, int]:
        """Return the entries of stats(). Lock held."""
        figures = self._dropped.copy()
        for watch in self._all:
            figures[watch.counter] += watch.dropped
        return figures

    def _end(self, watch: BaseWatch[Any]) -> None:
        watch.end()
        with self._lock:
            self._dropped[watch.counter] += watch.dropped
