"""From `Bus.publish` to the socket.

The shortest way, for a message that is batched with others, is in `Bus.publish` itself
(core/fast_publish.py explains it). The methods here are for all other messages: each takes the lock
once, and sends, delivers and waits without it.
"""

from __future__ import annotations

import math
import time
from time import monotonic
from typing import TYPE_CHECKING, Any

from jsonbus.core.limits import BEAT_MIN_S
from jsonbus.frontend.lifetime import closed_error, forked_error
from jsonbus.frontend.limits import HISTORY_WAIT_S
from jsonbus.sync.outgoing import Outgoing
from jsonbus.sync.receiving import Deliveries

if TYPE_CHECKING:
    from jsonbus.sync.loop import Loop


class Publishing:
    """The rest of `Bus.publish`. Any thread."""

    def __init__(self, loop: Loop, outgoing: Outgoing) -> None:
        self._loop = loop
        self._node = loop.node
        self._outgoing = outgoing
        self._lock = loop.lock
        #: Set when the bus begins to close, under the lock.
        self.is_closing = False
        #: Set in a forked child.
        self.is_cut_off = False

    def publish(
        self, topic: str, value: Any, *, reliable: bool = False, retain: bool = False
    ) -> bool:
        """Publish a value to a topic that may be new."""
        if self.is_cut_off:
            raise forked_error()
        node, outgoing = self._node, self._outgoing
        flags = {"is_reliable": reliable, "is_retained": retain}
        try:
            while True:
                with self._lock:
                    now = monotonic()
                    pause_s = node.reliable.room_at(topic, now) - now if reliable else 0.0
                    if pause_s <= 0 or self.is_closing:
                        if not node.publish(topic, value, now, **flags):
                            return False
                        deliveries = node.take_deliveries()
                        has_turn = node.outbox.has_output and outgoing.take_turn_or_wait(now)
                        if reliable:
                            self._loop.set_timer(now + BEAT_MIN_S)
                        break
                    node.counters.reliable_waits += 1
                # Subscribers request earlier messages again: they must not be pushed out.
                self._loop.workers.will_wait()
                time.sleep(min(pause_s, HISTORY_WAIT_S))
            self._send(has_turn)
        except BaseException:
            outgoing.let_go()
            raise
        if deliveries:
            deliver_own(deliveries)  # type: ignore[arg-type]  # sinks are subscriptions
        return True

    def publish_encoded(self, prefix: bytes, payload: bytes) -> bool:
        """Send or queue an encoded message. Returns True, for `Bus.publish`."""
        outgoing = self._outgoing
        try:
            with self._lock:
                if self.is_closing:
                    raise closed_error()
                now = monotonic()
                datagram = outgoing.take_single_turn(prefix, payload, now)
                if datagram is None:
                    self._node.fast_publish.queued.append(prefix + payload)
                    has_turn = outgoing.take_turn_or_wait(now)
            if datagram is None:
                self._send(has_turn)
            elif not outgoing.send_single(datagram, now):
                self._loop.wake()
        except BaseException:
            outgoing.let_go()
            raise
        return True

    def publish_large(self, prefix: bytes, payload: bytes) -> bool:
        """Send an encoded message that is larger than a datagram. Returns True."""
        try:
            with self._lock:
                if self.is_closing:
                    raise closed_error()
                now = monotonic()
                self._node.outbox.put_message(prefix, payload, now)
                has_turn = self._outgoing.take_turn_or_wait(now)
            self._send(has_turn)
        except BaseException:
            self._outgoing.let_go()
            raise
        return True

    def flush_queued(self) -> bool:
        """Send the queued messages, of which there are now enough. Returns True."""
        outgoing = self._outgoing
        try:
            with self._lock:
                if outgoing.is_closed:
                    outgoing.drop_queued()
                    raise closed_error()
                has_turn = outgoing.take_turn_or_wait(monotonic())
            self._send(has_turn)
        except BaseException:
            outgoing.let_go()
            raise
        return True

    def stay_while_needed(self, deadline: float) -> None:
        """Before closing: stay until nodes could request the last reliable messages again."""
        while True:
            with self._lock:
                now = monotonic()
                pause_s = min(self._node.reliable.needed_until(now), deadline) - now
                if pause_s <= 0 or self.is_closing:
                    return
            self._loop.workers.will_wait()
            time.sleep(min(pause_s, HISTORY_WAIT_S))

    def _send(self, has_turn: bool) -> None:
        """Send the messages for which the turn was taken."""
        if has_turn and not self._outgoing.send(math.inf):
            self._loop.wake()


def deliver_own(deliveries: Deliveries) -> None:
    """Put messages published here into mailboxes; wait for room where that can end."""
    full = [each for each, messages in deliveries if not each.deliver(messages)]
    for subscription in full:
        subscription.wait_for_room()
