"""Node: one participant of the bus, without network, clock or threads.

A front end owns the sockets and the clock and drives the node: it passes in received datagrams and
the time, and takes out datagrams to send, messages to deliver, events, and the instant of the next
timer. Nothing here waits. Not thread-safe: one call at a time.

The parts of a node; front ends use the public ones directly:

- `outbox`: messages and datagrams that wait to be sent;
- `fast_publish`: the short way into the outbox for topics that were published to before;
- `requests`: asking and serving; `directory`: the addresses of nodes; `reliable`: repairs;
- `view`: nodes, subscriptions and statistics, for people;
- Membership: which nodes are here and what they want (list, joining, sharing, liveness);
- Router: per topic, whether to send a message and which subscriptions get it;
- Publisher: takes a value to the outbox, to the join queue, or nowhere;
- FastReceive, Receiver: take a datagram to the parts that it concerns.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from jsonbus.core.events import Event
from jsonbus.core.limits import TIMER_SLACK_S
from jsonbus.core.membership.subscription_list import FrozenList
from jsonbus.core.message import Message
from jsonbus.core.node_parts import NodeParts
from jsonbus.core.wire.frames import (
    Entry,
    Frame,
)
from jsonbus.errors import ClosedError

if TYPE_CHECKING:
    from jsonbus.core.views import BusView  # imported on first use: most programs never look


class Node(NodeParts):
    """See the head of this file. `now` is in seconds of a clock that never goes back."""

    # --- Being driven ---------------------------------------------------------------------------

    def open(self, now: float) -> None:
        """Join the bus."""
        self._membership.open(now)

    def open_converged(self, now: float, group: FrozenList) -> None:
        """Be a member of a group that has long agreed on that list (for simulations)."""
        self._membership.open_converged(now, group)

    def receive_datagram(self, data: bytes, sender: tuple[str, int], now: float) -> None:
        """Take what the network brought; bad input is counted, never raised."""
        if self._is_closed:
            return
        frame = self._fast_receive.receive(data, sender, now)
        if frame is not None:
            self._receiver.receive_frame(frame, sender, now, len(data), data)

    def receive(
        self, datagrams: Sequence[bytes], sender: tuple[str, int], now: float
    ) -> list[tuple[object, list[Message]]]:
        """`receive_datagram` for each, and then `take_deliveries`."""
        if not self._is_closed:
            receive = self._fast_receive.receive
            for data in datagrams:
                frame = receive(data, sender, now)
                if frame is not None:
                    self._receiver.receive_frame(frame, sender, now, len(data), data)
        return self._deliveries.take() if self._deliveries.touched else []

    def receive_frame(
        self, frame: Frame, sender: tuple[str, int], now: float, size_bytes: int
    ) -> None:
        """The same for a datagram that was decoded already."""
        if not self._is_closed:
            self._receiver.receive_frame(frame, sender, now, size_bytes)

    def take_attention(self) -> bool:
        """Whether something came in, since the last call, that may have moved timers.

        If not, `timer_at`, `take_events` and `datagrams_to_send` have nothing new to say.
        """
        needs_attention, self._roster.needs_attention = self._roster.needs_attention, False
        return needs_attention

    @property
    def messages_heard(self) -> int:
        """Counts messages and slices that came in, wanted or not: all but control datagrams."""
        return self.counters.messages_received + self.counters.fragments_received

    @property
    def held(self) -> int:
        """Messages that wait until the node is sure."""
        return self._publisher.held

    def timer_at(self) -> float | None:
        """When to call `handle_timer` next."""
        if self._is_closed:
            return None
        self._deadlines = [part.timer_at() for part in self._timed]
        at = min(self._deadlines)
        return None if at == math.inf else at

    def handle_timer(self, now: float) -> None:
        """Do what was due when `timer_at` was last called; later changes show in the next call."""
        if self._is_closed:
            return
        if not self._deadlines:
            self.timer_at()
        deadlines, self._deadlines = self._deadlines, []
        due = now + TIMER_SLACK_S
        for part, at in zip(self._timed, deadlines, strict=True):
            if at <= due:
                part.handle_timer(due, now)

    def take_events(self) -> list[Event]:
        events = list(self._events)
        self._events.clear()
        return events

    def take_deliveries(self) -> list[tuple[object, list[Message]]]:
        """Messages for local subscriptions since the last call, by sink, each sink's in order."""
        return self._deliveries.take()

    def doubt_network(self, reason: str, now: float) -> None:
        """Distrust the list: other nodes may have come or gone without this one noticing."""
        if not self._is_closed:
            self._membership.doubt_network(now, reason)

    def send_failed(self, now: float) -> None:
        """A datagram could not be sent."""
        self._sending_fails = True

    def send_works(self, now: float) -> None:
        """A datagram was sent after others failed: what they announced may not have been heard."""
        if self._sending_fails and not self._is_closed:
            self._sending_fails = False
            self._membership.doubt_network(now, "sending failed for a while")

    def close(self, now: float) -> None:
        """Say goodbye: it is in the outbox afterwards, behind all messages."""
        if self._is_closed:
            return
        self._publisher.close(now)
        self.requests.close(now)
        self._membership.close(now)
        self._is_closed = True

    # --- Messages -------------------------------------------------------------------------------

    def publish(
        self,
        topic: str,
        value: Any,
        now: float,
        *,
        is_reliable: bool = False,
        is_retained: bool = False,
    ) -> bool:
        """Send a message, or hold it until sure; False if nobody wants it and nothing was sent.

        A reliable one is kept for a while, and sent again to who missed it. A retained one is kept
        until the next, and given to whoever wants the topic later; None ends that.

        A value that nobody wants is not looked at, unless it is reliable and the topic was sent
        before. Raises InvalidTopicError, PayloadError, PayloadTooLargeError, ClosedError.
        """
        return self._publisher.publish(
            topic, value, now, is_reliable=is_reliable, is_retained=is_retained
        )

    def subscribe(
        self,
        patterns: str | tuple[str, ...],
        sink: object,
        now: float,
        *,
        is_passive: bool = False,
    ) -> None:
        """Deliver matching messages to `sink`: all of the patterns, or none if one is refused.

        A sink may subscribe several times. A passive one gets messages that are sent for others
        anyway: other nodes do not hear of it, and nothing is sent, repaired or given because of
        it. A sink is passive with all its patterns, or with none.
        """
        self._check_open()
        patterns = patterns if isinstance(patterns, tuple) else (patterns,)
        self._subscriptions.subscribe(patterns, sink, now, is_passive=is_passive)

    def unsubscribe(self, patterns: str | tuple[str, ...], sink: object, now: float) -> bool:
        """End subscriptions; False if there was none. Messages not taken yet are delivered."""
        patterns = patterns if isinstance(patterns, tuple) else (patterns,)
        return self._subscriptions.unsubscribe(patterns, sink, now)

    def ping(self, now: float) -> int:
        """Ask every node for a sign of life; return the id of the PongReceived events."""
        self._check_open()
        return self._pings.start(now)

    # --- Looking --------------------------------------------------------------------------------

    @property
    def state(self) -> str:
        return self._membership.state

    def own_entry(self) -> Entry:
        return self._membership.renew_entry()

    def has_subscribers(self, topic: str) -> bool:
        route = self._router.route(topic)
        return bool(route.subscribers) or route.is_wanted_elsewhere

    @property
    def view(self) -> BusView:
        """Return what this node knows of the bus, in the form in which people look at it."""
        if self._view is None:
            from jsonbus.core.views import BusView

            self._view = BusView(
                self.settings,
                membership=self._membership,
                roster=self._roster,
                router=self._router,
                totals=self._totals,
                stats=self._stats,
            )
        return self._view

    # --- Inside ---------------------------------------------------------------------------------

    def _stats(self) -> dict[str, int]:
        """Return the counters, and the sizes of what is bounded."""
        counts = self.counters.as_dict()
        counts["messages_published"] = self.outbox.messages_put
        counts["messages_suppressed"] += self.fast_publish.count_suppressed()
        counts["datagrams_sent"] = self.outbox.datagrams_sent
        counts["messages_sent"] = self.outbox.messages_sent
        counts["messages_waiting_to_be_sure"] = self.held
        counts |= self.reliable.figures()
        counts["values_retained"] = len(self._retained.store)
        counts["values_given"] = self._retained.store.given
        counts["messages_incomplete"] = self._fragments.dropped
        counts["nodes_known"] = len(self._membership.list)
        return counts

    def _check_open(self) -> None:
        if self._is_closed:
            raise ClosedError("the bus is closed")
