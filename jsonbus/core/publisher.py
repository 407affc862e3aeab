"""The long way of a publish: a message goes to the outbox, to the join queue, or nowhere.

It leaves prefixes for the short way (fast_publish.py), which most messages of a flood take.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from jsonbus.core.counters import Counters
from jsonbus.core.fast_publish import ESCAPE, FastPublish
from jsonbus.core.limits import HOLD_BYTES_MAX, HOLD_MESSAGES_MAX
from jsonbus.core.membership.joining import DOUBTING, JOINING, SURE
from jsonbus.core.message import Origin, make_message
from jsonbus.core.outbox import Outbox
from jsonbus.core.reliable.reliable import Reliable
from jsonbus.core.routing.router import Inbox, Route, Router
from jsonbus.core.settings import NodeSettings
from jsonbus.core.values.retained import RetainedStore, RetainedValue
from jsonbus.core.wire import codec
from jsonbus.core.wire.items import RELIABLE_START
from jsonbus.errors import ClosedError, PayloadTooLargeError

Held = tuple[str, bytes, bool, bool]  # topic, payload, whether to be reliable, and retained

#: A retained value with this text ends the one before. What is compared is what others receive: the
#: value of an enum may be None, too.
END_OF_RETAINED = b"null"


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
        if self._is_closed:
            raise ClosedError("the bus is closed")
        is_sent = route.is_wanted_elsewhere or self._sends_everything
        is_held = not is_sent and self._state == JOINING
        # Who had messages of the topic before may only be away.
        is_kept = is_reliable and not (is_sent or is_held) and self._reliable.has_begun(route.topic)
        if not (is_sent or is_held or is_kept or route.subscribers or is_retained):
            return self._suppress(route)
        payload = codec.dumps(value, nan_as_null=self._settings.nan_as_null)
        if len(payload) > self._settings.value_bytes_max:
            raise PayloadTooLargeError(route.topic, len(payload), self._settings.value_bytes_max)
        if is_retained and payload != END_OF_RETAINED:
            self._retained.check_room(route.topic, len(payload))
        number = self._put(route, payload, now, is_reliable, is_retained) if is_sent else 0
        if is_kept:
            self._reliable.keep_unsent(route, payload, now, is_retained=is_retained)
        if is_retained:
            self._retain(route, payload, number, now)
        # Passive subscriptions see only what is sent.
        inboxes = route.inboxes if is_sent else route.subscribers
        if inboxes:
            self._deliver_own(inboxes, route.topic, payload, number or None, now)
        elif is_sent and self._outbox.shares(now) and ESCAPE not in route.prefix:
            self._leave_prefix(route, now, is_reliable=is_reliable)
        if is_held:
            self._counters.messages_held += 1
            self._send_held(self._queue.put((route.topic, payload, is_reliable, is_retained)), now)
        elif not is_sent:
            if not (route.subscribers or is_retained):
                return self._suppress(route)
            self._counters.messages_local += 1
        return True

    def look_again(self, state: str, now: float) -> None:
        """Decide about held messages, after the state or somebody's subscriptions changed."""
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
            self._suppress_held(self._queue.take_all(), now)

    def close(self, now: float) -> None:
        """Send what is held: this node will not learn any more who wants it."""
        self._send_held(self._queue.take_all(), now)
        self._is_closed = True
        self._fast_publish.forget()

    def _leave_prefix(self, route: Route, now: float, *, is_reliable: bool) -> None:
        """Let the topic's next messages take the short way."""
        if not is_reliable:
            self._fast_publish.prefixes[route.topic] = route.prefix
            return
        prefixes = self._fast_publish.reliable_prefixes
        if route.topic not in prefixes and self._reliable.is_at_ease(route.topic, now):
            prefixes[route.topic] = RELIABLE_START + route.prefix

    def _deliver_own(
        self, inboxes: tuple[Inbox, ...], topic: str, payload: bytes, number: int | None, now: float
    ) -> None:
        """Deliver to subscriptions of this node what others get: the value as JSON carries it."""
        wall = now + self._outbox.wall_offset_s
        settings = self._settings
        origin = Origin(settings.node, settings.name, settings.incarnation, wall, wall)
        message = make_message(topic, codec.loads(payload), number, origin)
        self._deliveries.add_to_all(inboxes, message)

    def _suppress(self, route: Route) -> bool:
        self._counters.messages_suppressed += 1
        self._fast_publish.prefixes[route.topic] = b""
        return False

    def _suppress_held(self, held: list[Held], now: float) -> None:
        self._counters.held_suppressed += len(held)
        for topic, payload, is_reliable, is_retained in held:
            if is_reliable and self._reliable.has_begun(topic):
                route = self._router.route(topic)
                self._reliable.keep_unsent(route, payload, now, is_retained=is_retained)

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
        """Put a message into the outbox; return its number."""
        if is_reliable:
            return self._reliable.publish(route, payload, now, is_retained=is_retained)
        return self._outbox.put_message(route.prefix, payload, now, is_retained=is_retained)

    def _retain(self, route: Route, payload: bytes, number: int, now: float) -> None:
        """Keep the value for nodes that want it later; null ends that."""
        if payload == END_OF_RETAINED:
            self._retained.end(route.topic)
        else:
            sent_us = int((now + self._outbox.wall_offset_s) * 1_000_000)
            self._retained.keep(route.topic, RetainedValue(payload, number, sent_us))


class JoinQueue:
    """Messages that wait until the node is sure whether anybody wants them.

    Bounded in messages and bytes. If it is full, the oldest messages are sent: the queue may cost
    packets, never data. Messages of one topic keep their order, because the publisher sends the
    queued ones of a topic before any other.
    """

    def __init__(self) -> None:
        self._messages: deque[Held] = deque()
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._messages)

    def put(self, message: Held) -> list[Held]:
        """Hold a message; return those that must be sent instead, oldest first."""
        self._messages.append(message)
        self._bytes += len(message[1])
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
        """Return the messages of topics that are wanted by now, in order."""
        wanted = []
        for message in self.take_all():
            if is_wanted(message[0]):
                wanted.append(message)
            else:
                self._messages.append(message)
                self._bytes += len(message[1])
        return wanted
