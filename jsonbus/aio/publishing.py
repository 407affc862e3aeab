"""From `AsyncBus.publish` to the socket, and when the publisher has to wait.

The shortest way, for a message that is batched with others, is in `AsyncBus.publish` itself
(core/fast_publish.py explains it). The methods here are for all other messages. None of them
awaits, so what one task publishes is not torn apart by another; if the publisher has to wait,
`must_wait` is set afterwards, and it calls `wait_for_room`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from time import monotonic
from typing import TYPE_CHECKING, Any

from jsonbus.aio.outgoing import Outgoing
from jsonbus.aio.subscription import Subscription
from jsonbus.core.limits import BEAT_MIN_S
from jsonbus.core.message import Message
from jsonbus.frontend.limits import HISTORY_WAIT_S

#: Publishes after which a publisher yields even if little or nothing was sent. Awaiting alone does
#: not yield: a task that keeps publishing what nobody wants would keep the bus from ever receiving
#: that somebody does. So many take half a millisecond, of which yielding is a twentieth.
PUBLISHED_MAX = 1024


if TYPE_CHECKING:
    from jsonbus.aio.loop import Loop


class Publishing:
    """The rest of `AsyncBus.publish`. All methods are for the event loop's thread."""

    def __init__(self, loop: Loop, outgoing: Outgoing) -> None:
        self._loop = loop
        self._node = loop.node
        self._outgoing = outgoing
        self._event_loop = loop.event_loop
        self._check_here = loop.check_here  # raises in a wrong thread, loop or process
        self._full: list[Subscription] = []  # own subscriptions that publishers wait for
        self._published = 0  # by `publish`, since a publisher last had to yield
        #: True if the publisher has to call `wait_for_room`.
        self.must_wait = False

    def publish(
        self, topic: str, value: Any, *, is_reliable: bool = False, is_retained: bool = False
    ) -> bool:
        """Publish a value to a topic that may be new. Raises LocalError in a wrong thread."""
        self._check_here()
        self._published += 1
        if self._published >= PUBLISHED_MAX:
            self.must_wait = True
        node, now = self._node, monotonic()
        if not node.publish(topic, value, now, is_reliable=is_reliable, is_retained=is_retained):
            return False
        if is_reliable:
            self._loop.set_timer(now + BEAT_MIN_S)
        if node.outbox.has_output and self._outgoing.flush_queued(now):
            self.must_wait = True
        deliveries = node.take_deliveries()
        if deliveries:
            self.deliver_own(deliveries)  # type: ignore[arg-type]  # sinks are subscriptions
        return True

    async def wait_for_history(self, topic: str) -> None:
        """Wait while subscribers request earlier messages again: they must not be pushed out."""
        self._check_here()
        while (pause_s := self._node.reliable.room_at(topic, monotonic()) - monotonic()) > 0:
            if self._outgoing.is_closed:
                return
            self._node.counters.reliable_waits += 1
            await asyncio.sleep(min(pause_s, HISTORY_WAIT_S))

    def publish_encoded(self, prefix: bytes, payload: bytes) -> None:
        """Send or queue an encoded message."""
        if not self._event_loop.is_running():  # in the right thread, and that will do
            self._check_here()
        if self._outgoing.put(prefix, payload, monotonic()):
            self.must_wait = True

    def publish_large(self, prefix: bytes, payload: bytes) -> None:
        """Send an encoded message that is larger than a datagram."""
        self._check_here()
        now = monotonic()
        self._node.outbox.put_message(prefix, payload, now)
        self._outgoing.flush_queued(now)
        self.must_wait = True  # sending it took long

    def flush_queued(self) -> None:
        """Send the queued messages, of which there are now enough."""
        if not self._event_loop.is_running():
            self._node.fast_publish.queued.pop()  # the publish will be refused
            self._check_here()
        if self._outgoing.flush_queued(monotonic()):
            self.must_wait = True

    def deliver_own(self, deliveries: Iterable[tuple[Subscription, Sequence[Message]]]) -> None:
        """Put messages published here into mailboxes; note full ones, for `wait_for_room`."""
        for subscription, messages in deliveries:
            if not subscription.deliver(messages):
                self._full.append(subscription)
                self.must_wait = True

    async def wait_for_room(self) -> None:
        """Let other tasks run; wait for room in the output and in full mailboxes."""
        self.must_wait = False
        self._published = 0
        full, self._full = self._full, []
        await asyncio.sleep(0)
        await self._outgoing.wait_for_room()
        for subscription in full:
            await subscription.wait_for_room()
