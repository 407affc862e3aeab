"""The long way of a publish: a value goes to the outbox, to the join queue, or nowhere.

It leaves prefixes for the short way (fast_publish.py), which most messages of a flood take.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from jsonbus.core.counters import Counters
from jsonbus.core.fast_publish import FastPublish
from jsonbus.core.limits import HOLD_BYTES_MAX, HOLD_MESSAGES_MAX
from jsonbus.core.membership.joining import DOUBTING, JOINING, SURE
from jsonbus.core.message import Origin, make_message
from jsonbus.core.outbox import Outbox
from jsonbus.core.reliable.reliable import Reliable
from jsonbus.core.routing.router import Inbox, Route, Router
from jsonbus.core.settings import NodeSettings
from jsonbus.core.values.retained import RetainedStore, RetainedValue
from jsonbus.core.wire import codec
from jsonbus.errors import ClosedError, PayloadTooLargeError

Held = tuple[str, bytes, bool, bool]  # topic, payload, whether to be reliable, and retained


class Publisher:
    """Decides by route and state what becomes of a message."""

    def __init__(
        self,
        settings: NodeSettings,
        *,
        router: Router,
        outbox: Outbox,
        fast_publish: FastPublish,
        counters: Counters,
        reliable: Reliable,
        retained: RetainedStore,
    ) -> None:
        self._settings = settings
        self._router = router
        self._outbox = outbox
        self._fast_publish = fast_publish
        self._deliveries = router.deliveries
        self._counters = counters
        self._reliable = reliable
        self._retained = retained
        self._queue = JoinQueue()
        self._state = JOINING
        # Nothing is withheld or held: mode basic, or doubt.
        self._sends_everything = settings.mode == "basic"
        self._is_closed = False

    @property
    def held(self) -> int:
        return len(self._queue)

    def publish(
        self,
        topic: str,
        value: Any,
        now: float,
        *,
        is_reliable: bool = False,
        is_retained: bool = False,
    ) -> bool:
        """See Node.publish."""
        try:
            route = self._router.current[topic]
        except (KeyError, TypeError):
            route = self._router.route(topic)
        if not (route.is_wanted_elsewhere or self._sends_everything):
            return self._publish_unwanted(route, value, now, is_reliable, is_retained)
        if self._is_closed:
            raise ClosedError("the bus is closed")
        payload = self._encode(route, value)
        if is_retained:
            self._check_retained(route, value, payload)
        number = self._put(route, payload, now, is_reliable, is_retained)
        if is_retained:
            self._retain(route, value, payload, number, now)
        if route.inboxes:
            self._deliver_own(route.inboxes, route.topic, payload, number, now)
        elif self._outbox.shares(now) and b"\\" not in route.prefix:
            self._fast_publish.prefixes[route.topic] = route.prefix
        return True

    def look_again(self, state: str, now: float) -> None:
        """The state, or somebody's subscriptions, changed: decide about what is held."""
        self._state = state
        self._sends_everything = self._settings.mode == "basic" or state == DOUBTING
        self._fast_publish.forget()
        if not self._queue:
            return
        if state == DOUBTING:
            self._send_held(self._queue.take_all(), now)
            return
        self._send_held(self._queue.take_where(self._router.is_wanted_elsewhere), now)
        if state == SURE:
            self._counters.held_suppressed += len(self._queue.take_all())

    def close(self, now: float) -> None:
        """Send what is held: nobody will be asked any more who wants it."""
        self._send_held(self._queue.take_all(), now)
        self._is_closed = True
        self._fast_publish.forget()

    def _publish_unwanted(
        self, route: Route, value: Any, now: float, is_reliable: bool, is_retained: bool
    ) -> bool:
        """Publish what no other node is known to want."""
        if self._is_closed:
            raise ClosedError("the bus is closed")
        is_joining = self._state == JOINING
        if not is_joining and not route.subscribers and not is_retained:
            self._counters.messages_suppressed += 1
            self._fast_publish.prefixes[route.topic] = b""
            return False
        payload = self._encode(route, value)
        if is_retained:
            self._check_retained(route, value, payload)
            self._retain(route, value, payload, 0, now)
        if route.subscribers:
            self._deliver_own(route.subscribers, route.topic, payload, None, now)
        if is_joining:
            self._counters.messages_held += 1
            self._send_held(self._queue.put(route.topic, payload, is_reliable, is_retained), now)
        else:
            self._counters.messages_local += 1
        return True

    def _deliver_own(
        self, inboxes: tuple[Inbox, ...], topic: str, payload: bytes, number: int | None, now: float
    ) -> None:
        """Own subscriptions get what the others get: the value as JSON carries it."""
        wall = now + self._outbox.wall_offset_s
        settings = self._settings
        origin = Origin(settings.node, settings.name, settings.incarnation, wall, wall)
        message = make_message(topic, codec.loads(payload), number, origin)
        self._deliveries.add_to_all(inboxes, message)

    def _send_held(self, held: list[Held], now: float) -> None:
        for topic, payload, is_reliable, is_retained in held:
            self._counters.held_sent += 1
            route = self._router.route(topic)
            number = self._put(route, payload, now, is_reliable, is_retained)
            if route.onlookers:  # subscribers had it when it was published
                self._deliver_own(route.onlookers, topic, payload, number, now)

    def _put(
        self, route: Route, payload: bytes, now: float, is_reliable: bool, is_retained: bool
    ) -> int:
        """Into the outbox; the message's number."""
        if is_reliable:
            return self._reliable.publish(route, payload, now, is_retained=is_retained)
        return self._outbox.put_message(route.prefix, payload, now, is_retained=is_retained)

    def _check_retained(self, route: Route, value: Any, payload: bytes) -> None:
        if value is not None:
            self._retained.check_room(route.topic, len(payload))

    def _retain(self, route: Route, value: Any, payload: bytes, number: int, now: float) -> None:
        """The last value for who comes later; None ends it."""
        if value is None:
            self._retained.end(route.topic)
        else:
            sent_us = int((now + self._outbox.wall_offset_s) * 1_000_000)
            self._retained.keep(route.topic, RetainedValue(payload, number, sent_us))

    def _encode(self, route: Route, value: Any) -> bytes:
        payload = codec.dumps(value)
        if len(payload) > self._settings.value_bytes_max:
            raise PayloadTooLargeError(route.topic, len(payload), self._settings.value_bytes_max)
        return payload


class JoinQueue:
    """Messages that wait until the node is sure whether anybody wants them.

    Bounded in messages and bytes. If it is full, the oldest messages are sent: the queue may cost
    packets, never data. Messages of one topic keep their order, because the publisher sends the
    queued ones of a topic before any other.
    """

    __slots__ = ("_bytes", "_messages")

    def __init__(self) -> None:
        self._messages: deque[Held] = deque()
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._messages)

    def put(
        self, topic: str, payload: bytes, is_reliable: bool = False, is_retained: bool = False
    ) -> list[Held]:
        """Hold a message; what has to be sent instead, oldest first."""
        self._messages.append((topic, payload, is_reliable, is_retained))
        self._bytes += len(payload)
        overflow: list[Held] = []
        while len(self._messages) > HOLD_MESSAGES_MAX or self._bytes > HOLD_BYTES_MAX:
            oldest = self._messages.popleft()
            self._bytes -= len(oldest[1])
            overflow.append(oldest)
        return overflow

    def take_all(self) -> list[Held]:
        held = list(self._messages)
        self._messages.clear()
        self._bytes = 0
        return held

    def take_where(self, is_wanted: Callable[[str], bool]) -> list[Held]:
        """Messages of topics that are wanted by now, in order."""
        held = self.take_all()
        wanted = []
        for message in held:
            if is_wanted(message[0]):
                wanted.append(message)
            else:
                self._messages.append(message)
                self._bytes += len(message[1])
        return wanted
