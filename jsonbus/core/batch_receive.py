"""Batches: from the messages of one datagram to the inboxes of the subscriptions.

`receive` is the hot path: its loop is the only code that runs once per message. Reliable and
retained messages carry marks, after topic and value, and take `_receive_marked`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from jsonbus.core.limits import REPAIR_SIZE_BYTES
from jsonbus.core.message import Message, Origin, make_message
from jsonbus.core.outbox import Outbox
from jsonbus.core.reliable.reliable import IN_TURN, Reliable
from jsonbus.core.roster import Arrivals, Peer
from jsonbus.core.routing.router import Inbox, Route, Router
from jsonbus.core.values.retained import RETAINED_IN_SLICES, RetainedDelivery
from jsonbus.core.wire.frames import PLAIN_PREFIX

_NO_TOPIC = object()


class Batches:
    """Sorts messages into inboxes. `outbox` knows the wall clock."""

    __slots__ = (
        "_arrivals",
        "_counters",
        "_deliveries",
        "_retained",
        "_outbox",
        "_reliable",
        "_router",
    )

    def __init__(
        self,
        router: Router,
        arrivals: Arrivals,
        outbox: Outbox,
        reliable: Reliable,
        retained: RetainedDelivery,
    ) -> None:
        self._router = router
        self._deliveries = router.deliveries
        self._arrivals = arrivals
        self._counters = arrivals.counters
        self._outbox = outbox
        self._reliable = reliable
        self._retained = retained

    def receive(
        self,
        items: list[Any],
        first: int,
        sent_us: int,
        peer: Peer,
        now: float,
        size_bytes: int = REPAIR_SIZE_BYTES,
    ) -> None:
        """Deliver messages first, first + 1, … of a peer; the loop is all that each one costs."""
        counters = self._counters
        counters.messages_received += len(items)
        routes = self._router.current
        received_at = now + self._outbox.wall_offset_s
        origin = Origin(peer.node, peer.name, peer.incarnation, sent_us / 1_000_000, received_at)
        if items and type(items[0]) is list and len(items[0]) > 2:
            self._receive_marked_batch(items, first, origin, peer, now, size_bytes)
            return
        last: Any = _NO_TOPIC  # of the message before: its route need not be looked up again
        add: Callable[[Message], None] | None = None  # to its one inbox, if it has just one
        inboxes: tuple[Inbox, ...] = ()
        taken, unwanted, marked = len(items), 0, 0
        for sequence, item in enumerate(items, first):
            try:
                topic, value = item
                route = routes[topic] if topic != last else None
            except (KeyError, TypeError, ValueError):
                # A topic not met since subscriptions changed, one that is reliable, or no message.
                route = self._find_route(item, peer)
                if route is None:
                    taken = sequence - first
                    break
                value = item[1]
                if len(item) > 2:
                    self._receive_marked(route, item, sequence, origin, peer, size_bytes, now)
                    marked += 1
                    last = _NO_TOPIC
                    continue
            else:
                if type(item) is not list:  # a string or an object may be unpacked as well
                    self._find_route(item, peer)
                    taken = sequence - first
                    break
            if route is not None:
                last, inboxes = route.topic, route.inboxes
                add = None if route.only is None else self._deliveries.open(route.only)
            if add is None and not inboxes:
                unwanted += 1
                continue
            message = Message()
            message.topic = last
            message.value = value
            message.sequence = sequence
            message.origin = origin
            if add is not None:
                add(message)
            else:
                self._deliveries.add_to_all(inboxes, message)
        counters.messages_delivered += taken - unwanted - marked
        counters.messages_unwanted += unwanted
        counters.messages_malformed += len(items) - taken

    def receive_plain(self, topic: Any, value: Any, sender: tuple[str, int], now: float) -> None:
        """Deliver a message of a node or sensor that knows only `topic` and `payload`."""
        counters = self._counters
        counters.messages_received += 1
        route = self._router.find(topic)
        if route is None:
            counters.messages_malformed += 1
            self._arrivals.reject("bad_topic", sender, f"{topic!r:.80}")
        elif not route.inboxes:
            counters.messages_unwanted += 1
        else:
            counters.messages_delivered += 1
            wall = now + self._outbox.wall_offset_s
            node = f"{PLAIN_PREFIX}{sender[0]}:{sender[1]}"
            message = make_message(topic, value, None, Origin(node, node, 0, wall, wall))
            self._deliveries.add_to_all(route.inboxes, message)

    def _receive_marked_batch(
        self,
        items: list[Any],
        first: int,
        origin: Origin,
        peer: Peer,
        now: float,
        size_bytes: int,
    ) -> None:
        """Deliver a batch that begins with a marked message: most likely all of them are marked."""
        routes, counters = self._router.current, self._counters
        for sequence, item in enumerate(items, first):
            try:
                route: Route | None = routes[item[0]]
            except (KeyError, TypeError, IndexError):
                route = None
            if route is None or type(item) is not list or len(item) < 2:
                route = self._find_route(item, peer)
                if route is None:
                    counters.messages_malformed += first + len(items) - sequence
                    return
            self._receive_marked(route, item, sequence, origin, peer, size_bytes, now)

    def _receive_marked(
        self,
        route: Route,
        item: list[Any],
        sequence: int,
        origin: Origin,
        peer: Peer,
        size_bytes: int,
        now: float,
    ) -> None:
        """Take a message that is reliable or retained, or a retained value that came in slices."""
        if not route.inboxes:
            self._counters.messages_unwanted += 1
            return
        message = make_message(route.topic, item[1], sequence, origin)
        stream_sequence = item[2] if len(item) > 2 else None
        mark = item[3] if len(item) > 3 else None
        if mark == RETAINED_IN_SLICES:
            self._retained.receive_large(item, peer, now)
            return
        if mark == 1 and route.subscribers:
            self._retained.note(message)
        # Passive subscribers get no repairs and no ordering.
        if route.subscribers and type(stream_sequence) is int and stream_sequence > 0:
            outcome = self._reliable.receive(peer, route, message, stream_sequence, size_bytes, now)
            if outcome is not IN_TURN:
                self._arrivals.needs_attention = True  # it may have set a timer
        else:
            self._counters.messages_delivered += 1
            self._deliveries.add_to_all(route.inboxes, message)

    def _find_route(self, item: Any, peer: Peer) -> Route | None:
        """Return the route of an item of a batch; None, and a rejection, if it is no message."""
        if type(item) is not list or len(item) < 2:
            cause, detail = "bad_fields", "an item of a batch is no message"
        else:
            route = self._router.find(item[0])
            if route is not None:
                return route
            cause, detail = "bad_topic", f"{item[0]!r:.80}"
        self._arrivals.reject(cause, peer.address, detail)
        return None
