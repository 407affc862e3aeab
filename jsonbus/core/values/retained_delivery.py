"""Retained values among nodes: who is given which, and what becomes of it here.

retained.py says how the two sides keep them; this brings both together with the rest of a node.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from itertools import groupby
from typing import Any

from jsonbus.core.limits import GIVE_NODES_MAX
from jsonbus.core.message import Message, Origin, make_message
from jsonbus.core.outbox import Outbox
from jsonbus.core.roster import Peer
from jsonbus.core.routing.router import Inbox, Router
from jsonbus.core.routing.topics import matches
from jsonbus.core.settings import NodeSettings
from jsonbus.core.values.retained import Kept, RetainedCache, RetainedStore, as_retained
from jsonbus.core.wire.codec import dumps, loads
from jsonbus.core.wire.encode import encode_retained
from jsonbus.core.wire.frames import Entry, RetainedFrame
from jsonbus.core.wire.limits import INTEGER_MAX

_Gift = tuple[str, Kept, tuple[str, ...]]  # topic, value, nodes

#: What a slice's item has fourth if it is a retained value that is given.
GIFT = 2


class Giving:
    """See the head of this file."""

    def __init__(
        self,
        settings: NodeSettings,
        rng: random.Random,
        *,
        outbox: Outbox,
        router: Router,
    ) -> None:
        self._settings = settings
        self._outbox = outbox
        self._router = router
        self._deliveries = router.deliveries
        self.store = RetainedStore(rng)
        self._cache = RetainedCache()

    # --- Giving ----------------------------------------------------------------------------------

    def entry_changed(self, old: Entry | None, new: Entry | None, now: float) -> None:
        """Another node wants something else, is new, or is gone."""
        if new is None or not new.is_alive:
            if old is not None:
                self.store.node_left(old.node)
                self._cache.forget_node(old.node)
            return
        if not len(self.store) or new.is_plain:
            return  # plain peers repeat their lists, and would be given values for ever
        before: tuple[str, ...] = ()
        if old is not None and old.incarnation == new.incarnation:
            before = old.patterns
        if before != new.patterns:
            self.store.interest_grew(new.node, _matcher(new.patterns), _matcher(before), now)

    def timer_at(self) -> float:
        return self.store.timer_at()

    def handle_timer(self, due: float, now: float) -> None:
        if self.store.timer_at() > due:
            return
        gifts = sorted(self.store.take_due(due, now), key=lambda gift: gift[2])
        for to, group in groupby(gifts, key=lambda gift: gift[2]):
            each = list(group)
            for start in range(0, len(to), GIVE_NODES_MAX):
                self._give(each, to[start : start + GIVE_NODES_MAX], now)

    def _give(self, gifts: Iterable[_Gift], to: tuple[str, ...], now: float) -> None:
        """As many values to a datagram as fit."""
        items: list[bytes] = []
        room = self._outbox.repair_room_bytes - len(dumps(to))
        size = 0
        for topic, kept, _ in gifts:
            name = dumps(topic)
            item = b"[%b,%b,%d,%d]" % (name, kept.payload, kept.number, kept.sent_us)
            if len(item) > room:
                mark = (GIFT, kept.number, kept.sent_us, dumps(to))
                text = b"[%b,%b,null,%d,%d,%d,%b]" % (name, kept.payload, *mark)
                self._outbox.put_text(text, now)
                continue
            if items and size + len(item) > room:
                self._outbox.put_aside(encode_retained, now, items=b",".join(items), to=to)
                items, size = [], 0
            items.append(item)
            size += len(item) + 1
        if items:
            self._outbox.put_aside(encode_retained, now, items=b",".join(items), to=to)

    # --- Being given -----------------------------------------------------------------------------

    def receive(self, frame: RetainedFrame, peer: Peer, now: float) -> None:
        if self._settings.node in frame.to:
            for item in frame.items:
                if type(item) is list and len(item) >= 4:
                    self._take(item[0], item[1], item[2], item[3], peer, now)

    def receive_large(self, item: list[Any], peer: Peer, now: float) -> None:
        """One that came in slices: `[topic,value,null,2,number,sent_us,to]`."""
        if len(item) >= 7 and type(item[6]) is list and self._settings.node in item[6]:
            self._take(item[0], item[1], item[4], item[5], peer, now)

    def note(self, message: Message) -> None:
        """A fresh message that its publisher retains came to somebody here."""
        self._cache.note(message)

    def note_late(self, message: Message, is_retained: bool) -> None:
        """The same for one that was missed and sent again: a newer one may have come before it."""
        if is_retained and not self._cache.has_newer(message):
            self._cache.note(message)

    def subscribed(self, patterns: tuple[str, ...], inbox: Inbox, now: float) -> None:
        """A subscription of this node: give it what is here already."""
        wants = _matcher(patterns)
        for message in self._cache.matching(wants):
            self._deliveries.add(inbox, message)
        others = self._router.local.subscribers_of
        self._cache.await_anew(lambda topic: wants(topic) and others(topic) == (inbox,))
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
        if route is None or not route.subscribers:
            return
        if not _is_count(number) or not _is_count(sent_us):
            return
        wall = now + self._outbox.wall_offset_s
        origin = Origin(peer.node, peer.name, peer.incarnation, sent_us / 1_000_000, wall)
        message = make_message(route.topic, value, number or None, origin)
        if self._cache.is_new(message, sent_us):
            self._cache.note(message)
            self._deliveries.add_to_all(route.subscribers, as_retained(message))


def _matcher(patterns: tuple[str, ...]) -> Callable[[str], bool]:
    return lambda topic: any(matches(pattern, topic) for pattern in patterns)


def _is_count(value: Any) -> bool:
    return type(value) is int and 0 <= value <= INTEGER_MAX
