"""Node: one participant of the bus, without network, clock or threads.

A front end owns the sockets and the clock and drives the node: it gives it what was received and
the time, and takes from it datagrams to send, messages to deliver, events, and the instant of the
next timer. Nothing here waits. Not thread-safe: one call at a time.

What a node is made of:

- `Membership`: who is here and what they want (list, joining, sharing, liveness);
- `Router`: per topic, whether to send a message and whom to give it to;
- `Publisher`: from a value to the outbox, the hold queue, or nowhere;
- `Outbox`: what waits to be sent;
- `Receiver`: what comes in, sorted; `Dialogue`: requests and replies.
"""

from __future__ import annotations

import math
import random
from collections import deque
from collections.abc import Container
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from jsonbus.core.counters import Counters
from jsonbus.core.events import Event
from jsonbus.core.fast_publish import Express
from jsonbus.core.limits import EVENTS_MAX, FRAGMENTS_BYTES_MAX, PLAIN_LEASE_S, TIMER_SLACK_S
from jsonbus.core.membership.buffers import PeerBuffers
from jsonbus.core.membership.directory import Place, Whereabouts
from jsonbus.core.membership.membership import Membership
from jsonbus.core.membership.subscription_list import FrozenList
from jsonbus.core.message import Message, Origin
from jsonbus.core.outbox import Outbox
from jsonbus.core.publisher import Publisher
from jsonbus.core.receiver import Receiver
from jsonbus.core.reliable.reliable import Reliable
from jsonbus.core.roster import Roster
from jsonbus.core.routing.router import Deliveries, Inbox, Router
from jsonbus.core.routing.topics import check_pattern, check_topic
from jsonbus.core.rpc.dialogue import Dialogue
from jsonbus.core.rpc.pings import Pings
from jsonbus.core.rpc.requests import Request
from jsonbus.core.settings import NodeSettings
from jsonbus.core.values.fragments import Fragments
from jsonbus.core.values.large_values import LargeValues
from jsonbus.core.values.retained_delivery import Giving
from jsonbus.core.wire.encode import ENTRY_BYTES_MAX, entry_size_bytes
from jsonbus.core.wire.encode_messages import Stamp
from jsonbus.core.wire.frames import Entry, Frame, Totals
from jsonbus.core.wire.names import SERVED_PREFIX
from jsonbus.errors import ClosedError, LocalError

if TYPE_CHECKING:
    from jsonbus.core import views  # at run time where it is used: most programs never look


class Node:
    """See the head of this file. `now` is in seconds of a clock that never goes back."""

    def __init__(
        self, settings: NodeSettings, rng: random.Random, wall_offset_s: float = 0.0
    ) -> None:
        self.settings = settings
        self.counters = Counters()
        self._events: deque[Event] = deque()
        self.express = Express()
        self._outbox = Outbox(
            Stamp(settings.node, settings.incarnation),
            settings.datagram_bytes_max,
            wall_offset_s,
            batching=settings.batching,
            express=self.express,
        )
        self._roster = Roster()
        self._buffers = PeerBuffers()
        self._fragments = Fragments(settings.value_bytes_max, FRAGMENTS_BYTES_MAX)
        self._membership = Membership(
            settings,
            rng,
            self._outbox,
            self.counters,
            emit=self._emit,
            about=self._roster.about,
            totals=self._totals,
            on_entry=self._entry_changed,
            on_state=self._state_changed,
        )
        self._router = Router(self._other_entries, self.express)
        self._pings = Pings(
            lambda: self._membership.about, self._totals, self._outbox, rng, self._emit
        )
        self._deliveries = Deliveries()
        self._dialogue = Dialogue(
            settings,
            router=self._router,
            outbox=self._outbox,
            deliveries=self._deliveries,
            counters=self.counters,
            emit=self._emit,
        )
        self._inboxes: dict[object, Inbox] = {}
        self._giving = Giving(
            settings,
            rng,
            outbox=self._outbox,
            router=self._router,
            deliveries=self._deliveries,
        )
        self._reliable = Reliable(
            settings,
            rng,
            outbox=self._outbox,
            router=self._router,
            roster=self._roster,
            deliveries=self._deliveries,
            counters=self.counters,
            subscribers=lambda: len(self._membership.list) - 1,
            fragments=self._fragments,
            emit=self._emit,
        )
        self._publisher = Publisher(
            settings,
            router=self._router,
            outbox=self._outbox,
            express=self.express,
            deliveries=self._deliveries,
            counters=self.counters,
            reliable=self._reliable,
            retained=self._giving.store,
        )
        self._whereabouts = Whereabouts(
            settings,
            membership=self._membership,
            roster=self._roster,
            outbox=self._outbox,
            emit=self._emit,
        )
        self._receiver = Receiver(
            settings.node,
            counters=self.counters,
            roster=self._roster,
            membership=self._membership,
            router=self._router,
            deliveries=self._deliveries,
            outbox=self._outbox,
            dialogue=self._dialogue,
            pings=self._pings,
            buffers=self._buffers,
            large_values=LargeValues(
                self._fragments,
                router=self._router,
                reliable=self._reliable,
                counters=self.counters,
            ),
            reliable=self._reliable,
            giving=self._giving,
            whereabouts=self._whereabouts,
            emit=self._emit,
        )
        self._sending_fails = False
        self._is_closed = False

    # --- Being driven ---------------------------------------------------------------------------

    @property
    def wall_offset_s(self) -> float:
        """Seconds since 1970 less `now`; set anew when the machine's clock was set."""
        return self._outbox.wall_offset_s

    @wall_offset_s.setter
    def wall_offset_s(self, offset_s: float) -> None:
        self._outbox.wall_offset_s = offset_s

    def open(self, now: float) -> None:
        """Join the bus."""
        self._membership.open(now)

    def open_converged(self, now: float, group: FrozenList) -> None:
        """Be a member of a group that has long agreed on that list (for simulations)."""
        self._membership.open_converged(now, group)

    def receive_datagram(self, data: bytes, sender: tuple[str, int], now: float) -> None:
        """Take what the network brought; bad input is counted, never raised."""
        if not self._is_closed:
            self._receiver.receive_datagram(data, sender, now)

    def receive(
        self, data: bytes, sender: tuple[str, int], now: float
    ) -> list[tuple[object, list[Message]]]:
        """`receive_datagram`, and then `take_deliveries`."""
        if not self._is_closed:
            self._receiver.receive_datagram(data, sender, now)
        return self._deliveries.take() if self._deliveries.touched else []

    def receive_frame(
        self, frame: Frame, sender: tuple[str, int], now: float, size_bytes: int
    ) -> None:
        """The same for a datagram that was decoded already."""
        if not self._is_closed:
            self._receiver.receive_frame(frame, sender, now, size_bytes)

    def take_stir(self) -> bool:
        """Whether something came in, since the last call, that may have moved timers.

        If not, `timer_at`, `take_events` and `datagrams_to_send` have nothing new to say.
        """
        is_stirred, self._receiver.is_stirred = self._receiver.is_stirred, False
        return is_stirred

    def allow_bytes(self, datagram_bytes_max: int, whole_bytes_max: int | None = None) -> None:
        """The network carries datagrams of that size: messages may fill them.

        With `whole_bytes_max`, one message alone may take a larger one.

        Lists and other control datagrams keep to the settings, whatever the network carries now.
        """
        self._outbox.allow_bytes(datagram_bytes_max, whole_bytes_max)

    @property
    def has_output(self) -> bool:
        return bool(self._outbox)

    @property
    def has_full_datagram(self) -> bool:
        """Whether waiting for more messages would not make the next datagram any fuller."""
        return self._outbox.has_full_datagram

    @property
    def typical_count(self) -> int:
        """How many messages like the last ones fill a datagram."""
        return self._outbox.typical_count

    @property
    def output_bytes(self) -> int:
        return self._outbox.size_bytes

    @property
    def held(self) -> int:
        """Messages that wait until the node is sure."""
        return self._publisher.held

    def datagrams_to_send(self, now: float, *, keeps_rest: bool = False) -> list[bytes]:
        """What to send, in this order; each is given out once.

        With `keeps_rest`, messages that do not fill another datagram go on gathering.
        """
        return self._outbox.take(now, keeps_rest=keeps_rest)

    def lone_datagram(self, lane: bytes, payload: bytes, now: float) -> bytes | None:
        """What to send for a message on the short way; None if something else waits to be sent."""
        return self._outbox.make_lone(lane, payload, now)

    def put_large(self, lane: bytes, payload: bytes, now: float) -> None:
        """Send a message on the short way that no datagram holds."""
        self._outbox.put_message(lane, payload, now)

    def timer_at(self) -> float | None:
        """When to call `handle_timer` next."""
        if self._is_closed:
            return None
        at = min(
            self._membership.timer_at(),
            self._pings.timer_at(),
            self._dialogue.timer_at(),
            self._fragments.timer_at(),
            self._reliable.timer_at(),
            self._giving.timer_at(),
        )
        return None if at == math.inf else at

    def handle_timer(self, now: float) -> None:
        if self._is_closed:
            return
        due = now + TIMER_SLACK_S
        self._membership.handle_timer(now)
        self._pings.handle_timer(due, now)
        self._dialogue.handle_timer(due, now)
        self._fragments.handle_timer(due)
        self._reliable.handle_timer(due, now)
        self._giving.handle_timer(due, now)

    def take_events(self) -> list[Event]:
        events = list(self._events)
        self._events.clear()
        return events

    def take_deliveries(self) -> list[tuple[object, list[Message]]]:
        """Messages for local subscriptions since the last call, by sink, each sink's in order."""
        return self._deliveries.take()

    def interfaces_changed(self, now: float) -> None:
        """Interfaces or addresses came or went: who was here may not be, and others may be new."""
        if not self._is_closed:
            self._membership.doubt_network(now, "the network interfaces changed")

    def was_deaf(self, seconds: float, now: float) -> None:
        """The node did not hear anything for so long: others may have come and gone."""
        if not self._is_closed:
            self._membership.doubt_network(now, f"this node did not listen for {seconds:.1f} s")

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

        A value that nobody wants is not looked at. Raises InvalidTopicError, PayloadError,
        PayloadTooLargeError, ClosedError.
        """
        return self._publisher.publish(
            topic, value, now, is_reliable=is_reliable, is_retained=is_retained
        )

    @property
    def needed_until(self) -> float:
        """Until when somebody may still ask for reliable messages that were sent last."""
        return self._reliable.needed_until

    def room_at(self, topic: str, now: float) -> float:
        """When the next reliable message to the topic should be published: `now`, if at once.

        Later if the history is full of what somebody may still ask for.
        """
        return self._reliable.room_at(topic, now)

    def subscribe(
        self, pattern: str, sink: object, now: float, *, is_passive: bool = False
    ) -> None:
        """Deliver messages that match to `sink`; it may have several patterns.

        A passive one gets what is sent for others anyway: no other node hears of it, nothing is
        sent, repaired or given because of it. A sink is passive with all its patterns, or none.
        """
        self.subscribe_all((pattern,), sink, now, is_passive=is_passive)

    def subscribe_all(
        self, patterns: tuple[str, ...], sink: object, now: float, *, is_passive: bool = False
    ) -> None:
        """The same for several patterns: all of them, or none if one is refused."""
        self._check_open()
        patterns = tuple(dict.fromkeys(map(check_pattern, patterns)))
        if not is_passive:
            self._check_room(*patterns)
        inbox = self._inboxes.get(sink)
        if inbox is None:
            inbox = self._inboxes[sink] = Inbox(sink, is_passive=is_passive)
        assert inbox.is_passive is is_passive
        if is_passive:
            for pattern in patterns:
                self._router.passive.subscribe(pattern, inbox)
            self._router.forget()
            return
        for pattern in patterns:
            self._reliable.subscribing(pattern)
            self._router.local.subscribe(pattern, inbox)
        self._giving.subscribed(patterns, inbox, now)
        self._own_patterns_changed(now)

    def unsubscribe(self, pattern: str, sink: object, now: float) -> bool:
        """End a subscription; what was not taken yet is still delivered."""
        return self.unsubscribe_all((pattern,), sink, now)

    def unsubscribe_all(self, patterns: tuple[str, ...], sink: object, now: float) -> bool:
        """The same for several patterns; False if there was none of them."""
        inbox = self._inboxes.get(sink)
        if inbox is None:
            return False
        store = self._router.passive if inbox.is_passive else self._router.local
        ended = [pattern for pattern in patterns if store.unsubscribe(pattern, inbox)]
        if not ended:
            return False
        if not store.patterns_of(inbox):
            del self._inboxes[sink]
        if inbox.is_passive:
            self._router.forget()
            return True
        for pattern in ended:
            self._reliable.unsubscribed(pattern)
        self._own_patterns_changed(now)
        return True

    # --- Requests -------------------------------------------------------------------------------

    def serve(self, topic: str, sink: object, now: float) -> None:
        """Deliver requests for the topic to `sink`, as Request objects; answer with `reply`."""
        self._check_open()
        topic = check_topic(topic)
        self._check_room(SERVED_PREFIX + topic)
        self._dialogue.serve(topic, sink)
        self._own_patterns_changed(now)

    def unserve(self, topic: str, now: float) -> None:
        if self._dialogue.unserve(topic):
            self._own_patterns_changed(now)

    def serves(self, topic: str) -> bool:
        return self._dialogue.serves(topic)

    def reply(self, request: Request, value: Any, error: str | None, now: float) -> None:
        """Answer a request; a value that cannot be sent becomes an error that the asker sees."""
        self._dialogue.reply(request, value, error, now, is_closed=self._is_closed)

    def request(self, topic: str, value: Any, timeout_s: float, now: float) -> int:
        """Ask whoever serves the topic; its id. Then ReplyReceived or RequestUnserved."""
        self._check_open()
        topic = check_topic(topic)
        origin = self._make_origin(now)
        return self._dialogue.request(topic, value, timeout_s, origin, self.state, now)

    def cancel_request(self, request_id: int) -> None:
        self._dialogue.cancel(request_id)

    def ping(self, now: float) -> int:
        """Ask every node for a sign of life; then PongReceived events."""
        self._check_open()
        return self._pings.start(now)

    # --- Channels -------------------------------------------------------------------------------

    def set_channel_port(self, port: int, now: float) -> None:
        """Tell the others that this node takes channels at that TCP port."""
        self._check_open()
        self._membership.set_channel_port(port, now)

    def seek(self) -> None:
        """Have NodeIntroduced events, until `give_up`, for every node that tells where it is."""
        self._whereabouts.seek()

    def give_up(self) -> None:
        self._whereabouts.give_up()

    def ask_where(self, who: str, now: float) -> None:
        """Ask the nodes with that id or name to tell where they are."""
        if not self._is_closed:
            self._whereabouts.ask(who, now)

    def find(self, who: str, now: float) -> list[Place]:
        """The node with that id, or all with that name, and where they are as far as is known."""
        return self._whereabouts.find(who, now)

    # --- Looking --------------------------------------------------------------------------------

    @property
    def state(self) -> str:
        return self._membership.state

    @property
    def state_reason(self) -> str:
        return self._membership.joining.reason

    def own_entry(self) -> Entry:
        return self._membership.entry

    def has_subscribers(self, topic: str) -> bool:
        route = self._router.route(topic)
        return bool(route.subscribers) or route.is_wanted_elsewhere

    def subscriptions(self) -> dict[str, list[str]]:
        """The ids of the nodes that want each pattern; this node's own included."""
        from jsonbus.core import views

        return views.list_subscriptions(self._membership.list)

    def nodes(self, now: float) -> list[views.NodeInfo]:
        from jsonbus.core import views

        return views.list_nodes(
            self.settings,
            self._membership.about,
            self._totals(),
            self._membership.list,
            self._roster,
            now,
        )

    def smallest_buffer(self, hosts: Container[str]) -> int | None:
        """The smallest receive buffer on these hosts, as their kernels count; None if none told.

        That of this node counts, wherever it is. Cheap as long as `hosts` is the same object.
        """
        own, smallest = self.settings.receive_buffer_bytes, self._buffers.smallest(hosts)
        if own is None or smallest is None:
            return smallest if own is None else own
        return min(own, smallest)

    def explain(self, topic: str, now: float) -> views.Explanation:
        """Why a publish would be sent or not. Raises InvalidTopicError, ClosedError."""
        from jsonbus.core import views

        self._check_open()
        route = self._router.route(topic)
        return views.explain(
            topic,
            mode=self.settings.mode,
            state=self.state,
            state_reason=self.state_reason,
            local=len(route.subscribers),
            others=self._other_entries(),
        )

    def stats(self) -> dict[str, int]:
        """Counters, and the sizes of what is bounded."""
        counts = self.counters.as_dict()
        counts["messages_published"] = self._outbox.messages_put
        counts["messages_suppressed"] += self.express.count_suppressed()
        counts["datagrams_sent"] = self._outbox.datagrams_sent
        counts["messages_sent"] = self._outbox.messages_sent
        counts["messages_waiting_to_be_sure"] = self.held
        counts |= self._reliable.figures()
        counts["values_retained"] = len(self._giving.store)
        counts["values_given"] = self._giving.store.given
        counts["messages_incomplete"] = self._fragments.dropped
        counts["nodes_known"] = len(self._membership.list)
        return counts

    # --- Inside ---------------------------------------------------------------------------------

    def _totals(self) -> Totals:
        counters = self.counters
        return Totals(
            sent=self._outbox.messages_sent,
            suppressed=counters.messages_suppressed
            + counters.held_suppressed
            + self.express.count_suppressed(),
            received=counters.messages_received,
            lost=max(0, counters.messages_lost),
            repaired=self._reliable.repaired,
            shares=counters.list_shares_sent,
        )

    def _make_origin(self, now: float) -> Origin:
        wall = now + self._outbox.wall_offset_s
        settings = self.settings
        return Origin(settings.node, settings.name, settings.incarnation, wall, wall)

    def _own_patterns_changed(self, now: float) -> None:
        self._router.forget()
        patterns = self._router.local.patterns()
        patterns += self._dialogue.patterns()
        self._membership.set_patterns(tuple(sorted(patterns)), now)

    def _entry_changed(self, old: Entry | None, new: Entry | None, now: float) -> None:
        self._router.entry_changed(old, new)
        self._giving.entry_changed(old, new, now)
        if new is None:
            if old is not None:
                self._buffers.forget(old.node)
                self._fragments.forget(old.node)
                self._reliable.forget(old.node)
        else:
            peer = self._roster.get(new.node)
            if peer is not None:
                peer.name = new.name
            if new.is_plain:
                self._outbox.send_unbatched(now + PLAIN_LEASE_S)
        self._state_changed(now)

    def _state_changed(self, now: float) -> None:
        """The state, or somebody's subscriptions."""
        self._publisher.look_again(self._membership.state, now)
        self._dialogue.look_again(self.state, now)

    def _other_entries(self) -> list[Entry]:
        own = self.settings.node
        return [entry for entry in self._membership.list if entry.node != own]

    def _emit(self, event: Event) -> None:
        if len(self._events) >= EVENTS_MAX:
            self._events.popleft()
            self.counters.events_dropped += 1
        self._events.append(event)

    def _check_room(self, *patterns: str) -> None:
        """Refuse a subscription that would make the own entry too large to be announced."""
        entry = self._membership.entry
        size = entry_size_bytes(replace(entry, patterns=(*entry.patterns, *patterns)))
        if size > ENTRY_BYTES_MAX:
            raise LocalError(
                f"{len(entry.patterns):,} subscriptions fill a datagram and leave no room for "
                f"{', '.join(map(repr, patterns)):.500}: use patterns with wildcards instead"
            )

    def _check_open(self) -> None:
        if self._is_closed:
            raise ClosedError("the bus is closed")
