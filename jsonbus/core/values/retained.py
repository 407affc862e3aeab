"""Retained values: the last value of a topic, for subscribers that come later.

Theory of operation. The publisher keeps the value, with its number and instant. When a node appears
that wants the topic and did not before, the value is sent to it after a random delay: many nodes
that appear at once are mostly served together, by one datagram that names them all. A new value
cancels that, since everybody gets it anyway. To make up for lost datagrams, the value is sent
GIVE_TIMES times, and taken once.

The nodes of subscribers keep the retained values that they got as well, for subscriptions that are
made later in the same node: those change nothing that a publisher could see.

Both sides are bounded. A publisher gets an error when its store is full; a subscriber's cache is
only a convenience, from which the oldest value goes first.
"""

from __future__ import annotations

import math
import random
from collections import OrderedDict
from collections.abc import Callable, Iterable
from copy import copy
from itertools import groupby
from typing import Any, NamedTuple

from jsonbus.core.limits import (
    GIVE_DELAY_MAX_S,
    GIVE_NODES_MAX,
    GIVE_REPEAT_S,
    GIVE_TIMES,
    RETAINED_BYTES_MAX,
    RETAINED_SEEN_MAX,
    RETAINED_TOPICS_MAX,
)
from jsonbus.core.message import Message, Origin, make_message
from jsonbus.core.outbox import Outbox, group_items
from jsonbus.core.roster import Peer
from jsonbus.core.routing.matching import is_pattern, matches
from jsonbus.core.routing.router import Inbox, Router
from jsonbus.core.settings import NodeSettings
from jsonbus.core.wire.codec import dumps, loads
from jsonbus.core.wire.encode import encode_retained
from jsonbus.core.wire.frames import Entry, RetainedFrame
from jsonbus.core.wire.names import INTEGER_MAX
from jsonbus.errors import LocalError

_Due = tuple[str, "RetainedValue", tuple[str, ...]]  # topic, value, nodes

#: Whether a topic is wanted.
Wants = Callable[[str], bool]

#: The fourth item of a retained value that is sent in slices to nodes that came late.
RETAINED_IN_SLICES = 2


class RetainedValue(NamedTuple):
    """A retained value, as it was published."""

    payload: bytes
    number: int  # 0: nobody wanted it then, so it was not sent as a message
    sent_us: int


class _Delivery:
    """A value that is about to be sent to nodes that came late."""

    __slots__ = ("at", "times", "to")

    def __init__(self, at: float) -> None:
        self.at = at
        self.times = 0
        self.to: set[str] = set()


class RetainedDelivery:
    """Connects store and cache with the node: which nodes get which values, and what comes in."""

    def __init__(
        self, settings: NodeSettings, rng: random.Random, outbox: Outbox, router: Router
    ) -> None:
        self._settings = settings
        self._outbox = outbox
        self._router = router
        self._deliveries = router.deliveries
        self.store = RetainedStore(rng)
        self.cache = RetainedCache()

    # --- Sending ---------------------------------------------------------------------------------

    def entry_changed(self, old: Entry | None, new: Entry | None, now: float) -> None:
        """Another node is new, gone, or wants something else."""
        if new is None or not new.is_alive:
            if old is not None:
                self.store.node_left(old.node)
                self.cache.forget_node(old.node)
            return
        if not len(self.store) or new.is_plain:
            return  # plain peers repeat their lists, and would get values for ever
        before: tuple[str, ...] = ()
        if old is not None and old.incarnation == new.incarnation:
            before = old.patterns
        if before != new.patterns:
            self.store.interest_grew(new.node, _matcher(new.patterns), _matcher(before), now)

    def named(self, node: str, patterns: tuple[str, ...], now: float) -> None:
        """A node has subscribed to patterns that its entry covered before."""
        if len(self.store):
            self.store.interest_grew(node, _matcher(patterns), _matcher(()), now)

    def timer_at(self) -> float:
        return self.store.timer_at()

    def handle_timer(self, due: float, now: float) -> None:
        if self.store.timer_at() > due:
            return
        due_values = sorted(self.store.take_due(due, now), key=lambda each: each[2])
        for to, group in groupby(due_values, key=lambda each: each[2]):
            each = list(group)
            for start in range(0, len(to), GIVE_NODES_MAX):
                self._send(each, to[start : start + GIVE_NODES_MAX], now)

    def _send(self, due_values: Iterable[_Due], to: tuple[str, ...], now: float) -> None:
        """Send as many values in a datagram as fit."""
        room = self._outbox.room_bytes - len(dumps(to))
        items: list[bytes] = []
        for topic, kept, _ in due_values:
            name = dumps(topic)
            item = b"[%b,%b,%d,%d]" % (name, kept.payload, kept.number, kept.sent_us)
            if len(item) <= room:
                items.append(item)
            else:
                mark = (RETAINED_IN_SLICES, kept.number, kept.sent_us, dumps(to))
                text = b"[%b,%b,null,%d,%d,%d,%b]" % (name, kept.payload, *mark)
                self._outbox.put_text(text, now)
        for group in group_items(items, len, room):
            control = encode_retained(group, to)
            self._outbox.put_control(control, now, counts_as_heartbeat=False)

    # --- Receiving -------------------------------------------------------------------------------

    def receive(self, frame: RetainedFrame, peer: Peer, now: float) -> None:
        if self._settings.node in frame.to:
            for item in frame.items:
                if type(item) is list and len(item) >= 4:
                    self._take(item[0], item[1], item[2], item[3], peer, now)

    def receive_large(self, item: list[Any], peer: Peer, now: float) -> None:
        """Take a value that came in slices: `[topic,value,null,2,number,sent_us,to]`."""
        if len(item) >= 7 and type(item[6]) is list and self._settings.node in item[6]:
            self._take(item[0], item[1], item[4], item[5], peer, now)

    def subscribed(self, patterns: tuple[str, ...], inbox: Inbox, now: float) -> None:
        """Deliver to a new subscription of this node what is here already."""
        if self.cache.is_empty and not len(self.store):
            return
        wants = _matcher(patterns)
        for message in self.cache.matching(wants):
            self._deliveries.add(inbox, message)
        others = self._router.local.subscribers_of
        self.cache.expect_again(lambda topic: wants(topic) and others(topic) == (inbox,))
        settings = self._settings
        for topic, kept in self.store.matching(wants):
            wall = now + self._outbox.wall_offset_s
            own = (settings.node, settings.name, settings.incarnation)
            origin = Origin(*own, kept.sent_us / 1_000_000, wall, is_retained=True)
            message = make_message(topic, loads(kept.payload), kept.number or None, origin)
            self._deliveries.add(inbox, message)

    def _take(
        self, topic: Any, value: Any, number: Any, sent_us: Any, peer: Peer, now: float
    ) -> None:
        route = self._router.find(topic)
        if route is None:
            return
        if not route.subscribers:
            self._router.refuse_misplaced(route.topic)
            return
        if not _is_count(number) or not _is_count(sent_us):
            return
        wall = now + self._outbox.wall_offset_s
        origin = Origin(peer.node, peer.name, peer.incarnation, sent_us / 1_000_000, wall)
        message = make_message(route.topic, value, number or None, origin)
        if self.cache.is_new(message, sent_us):
            self.cache.note(message)
            self._deliveries.add_to_all(route.subscribers, as_retained(message))


class RetainedStore:
    """The publisher's side: own retained values, and the nodes that are to get them."""

    __slots__ = ("_due", "_kept", "_rng", "given", "size_bytes")

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._kept: dict[str, RetainedValue] = {}
        self._due: dict[str, _Delivery] = {}
        self.size_bytes = 0
        #: How often a value was sent, to however many nodes.
        self.given = 0

    def __len__(self) -> int:
        return len(self._kept)

    def matching(self, wants: Wants) -> Iterable[tuple[str, RetainedValue]]:
        """Return the values of these topics."""
        return [(topic, kept) for topic, kept in self._kept.items() if wants(topic)]

    def check_room(self, topic: str, size_bytes: int) -> None:
        """Raise LocalError if a value of that size cannot be kept."""
        before = self._kept.get(topic)
        others = self.size_bytes - (len(before.payload) if before else 0)
        if before is None and len(self._kept) >= RETAINED_TOPICS_MAX:
            raise LocalError(
                f"{len(self._kept):,} topics have a retained value, no more are allowed: "
                "end some by publishing None with retain"
            )
        if others + size_bytes > RETAINED_BYTES_MAX:
            raise LocalError(
                f"retained values take {others:,} bytes, {size_bytes:,} more would exceed "
                f"{RETAINED_BYTES_MAX:,}: end some by publishing None with retain"
            )

    def keep(self, topic: str, kept: RetainedValue) -> None:
        """Keep a new value. Everybody gets it, so the former one need not be sent any more."""
        self.end(topic)
        self._kept[topic] = kept
        self.size_bytes += len(kept.payload)

    def end(self, topic: str) -> None:
        kept = self._kept.pop(topic, None)
        if kept is not None:
            self.size_bytes -= len(kept.payload)
        self._due.pop(topic, None)

    def interest_grew(self, node: str, wants: Wants, wanted: Wants, now: float) -> None:
        """A node wants topics that it did not want before."""
        for topic in self._kept:
            if wants(topic) and not wanted(topic):
                delivery = self._due.get(topic)
                if delivery is None:
                    at = now + self._rng.random() * GIVE_DELAY_MAX_S
                    delivery = self._due[topic] = _Delivery(at)
                delivery.times = 0
                delivery.to.add(node)

    def node_left(self, node: str) -> None:
        for topic in [topic for topic, delivery in self._due.items() if node in delivery.to]:
            self._due[topic].to.discard(node)
            if not self._due[topic].to:
                del self._due[topic]

    def timer_at(self) -> float:
        return min((delivery.at for delivery in self._due.values()), default=math.inf)

    def take_due(self, due: float, now: float) -> list[tuple[str, RetainedValue, tuple[str, ...]]]:
        """Return what to send now, and to which nodes."""
        taken = []
        for topic, delivery in list(self._due.items()):
            if delivery.at > due:
                continue
            taken.append((topic, self._kept[topic], tuple(sorted(delivery.to))))
            delivery.times += 1
            delivery.at = now + GIVE_REPEAT_S
            if delivery.times >= GIVE_TIMES:
                del self._due[topic]
        self.given += len(taken)
        return taken


class RetainedCache:
    """The subscriber's side: retained values that have come, by topic."""

    __slots__ = ("_messages", "_seen")

    def __init__(self) -> None:
        self._messages: OrderedDict[str, Message] = OrderedDict()
        #: When the last value that came here was published, in µs: a retained value of that or an
        #: earlier time is a repeat. Outlasts the value itself.
        self._seen: dict[tuple[str, int, str], int] = {}

    @property
    def is_empty(self) -> bool:
        return not self._seen and not self._messages

    def note(self, message: Message) -> None:
        """Remember a message that its publisher retains; also None, which ends that.

        Messages published before may still come, as repairs or as retained values.
        """
        self._see(message, round(message.sent_at * 1_000_000))
        self._messages[message.topic] = message
        self._messages.move_to_end(message.topic)
        if len(self._messages) > RETAINED_TOPICS_MAX:
            self._messages.popitem(last=False)

    def note_late(self, message: Message) -> None:
        """Remember a repaired message, unless its node published a later one on the topic."""
        before = self._messages.get(message.topic)
        if (
            before is None
            or (before.node, before.incarnation) != (message.node, message.incarnation)
            or (before.sequence or 0) <= (message.sequence or 0)
        ):
            self.note(message)

    def is_new(self, message: Message, sent_us: int) -> bool:
        """Whether this value has not come before; from now on it has."""
        key = (message.node, message.incarnation, message.topic)
        if self._seen.get(key, -1) >= sent_us:
            return False
        self._see(message, sent_us)
        return True

    def expect_again(self, wants: Wants) -> None:
        """Take values of these topics again, if they are not in the cache: nobody here had them."""
        for key in [key for key in self._seen if wants(key[2]) and key[2] not in self._messages]:
            del self._seen[key]

    def _see(self, message: Message, sent_us: int) -> None:
        key = (message.node, message.incarnation, message.topic)
        self._seen[key] = max(sent_us, self._seen.get(key, 0))
        if len(self._seen) > RETAINED_SEEN_MAX:
            del self._seen[next(iter(self._seen))]

    def forget_node(self, node: str) -> None:
        for topic in [t for t, message in self._messages.items() if message.node == node]:
            del self._messages[topic]

    def matching(self, wants: Wants) -> Iterable[Message]:
        """Yield the values of these topics, flagged as retained."""
        for topic, message in self._messages.items():
            if message.value is not None and wants(topic):
                yield as_retained(message)


def as_retained(message: Message) -> Message:
    origin = copy(message.origin)
    origin.is_retained = True
    return make_message(message.topic, message.value, message.sequence, origin)


def _matcher(patterns: tuple[str, ...]) -> Wants:
    topics = frozenset(patterns)
    wide = [pattern for pattern in patterns if is_pattern(pattern)]
    return lambda topic: topic in topics or any(matches(pattern, topic) for pattern in wide)


def _is_count(value: Any) -> bool:
    return type(value) is int and 0 <= value <= INTEGER_MAX
