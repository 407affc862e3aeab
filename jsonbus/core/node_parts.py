"""NodeParts: makes the parts of a node and connects them.

Who gets what is decided here and nowhere else: each part is given the parts it uses, and a function
for what it reports. What front ends do with a node is in node.py.
"""

from __future__ import annotations

import random
from collections import deque
from typing import TYPE_CHECKING, Any, Protocol

from jsonbus.core.counters import Counters
from jsonbus.core.events import Event
from jsonbus.core.fast_publish import FastPublish
from jsonbus.core.fast_receive import FastReceive
from jsonbus.core.limits import EVENTS_MAX, FRAGMENTS_BYTES_MAX, PLAIN_LEASE_S
from jsonbus.core.local_subscriptions import LocalSubscriptions
from jsonbus.core.membership.directory import Directory
from jsonbus.core.membership.membership import Membership, MembershipCallbacks
from jsonbus.core.outbox import Outbox
from jsonbus.core.publisher import Publisher
from jsonbus.core.receiver import Handler, Receiver
from jsonbus.core.reliable.reliable import Reliable
from jsonbus.core.reliable.streams import Streams
from jsonbus.core.roster import Peer, Roster
from jsonbus.core.routing.router import Router
from jsonbus.core.rpc.pings import Pings
from jsonbus.core.rpc.requests import Requests
from jsonbus.core.settings import NodeSettings
from jsonbus.core.values.fragments import Fragments
from jsonbus.core.values.retained import RetainedDelivery
from jsonbus.core.wire import frames
from jsonbus.core.wire.encode_messages import Stamp
from jsonbus.core.wire.frames import Entry, ListFrame, RepairFrame, Totals

if TYPE_CHECKING:
    from jsonbus.core.views import BusView  # imported on first use: most programs never look


class Timed(Protocol):
    """A part that has to act at certain times."""

    def timer_at(self) -> float: ...

    def handle_timer(self, due: float, now: float) -> None: ...


class NodeParts:
    """The parts of a node, wired together; the base of `Node`."""

    def __init__(
        self, settings: NodeSettings, rng: random.Random, wall_offset_s: float = 0.0
    ) -> None:
        self.settings = settings
        self.counters = Counters()
        self._events: deque[Event] = deque()
        self._view: BusView | None = None
        self._sending_fails = False
        self._is_closed = False
        #: Of each timed part, as of the last call of `timer_at`; empty after `handle_timer`.
        self._deadlines: list[float] = []
        self.fast_publish = FastPublish()
        stamp = Stamp(settings.node, settings.incarnation)
        self.outbox = Outbox(
            stamp,
            settings.datagram_bytes_max,
            wall_offset_s,
            batching=settings.batching,
            fast_publish=self.fast_publish,
        )
        self._roster = Roster(self.counters, self._emit)
        self._router = Router(
            self._other_entries,
            self.fast_publish,
            settings.carries,
            self.counters.refuse_misplaced,
        )
        self._deliveries = self._router.deliveries
        self._build_membership(rng)
        self._build_messages(rng)
        self._build_receiver()

    def _build_membership(self, rng: random.Random) -> None:
        """Make the parts that know the other nodes."""
        settings, outbox = self.settings, self.outbox
        callbacks = MembershipCallbacks(
            emit=self._emit,
            about=self._roster.about,
            totals=self._totals,
            on_entry=self._entry_changed,
            on_state=self._state_changed,
            to_announce=lambda: self._subscriptions.to_announce(),
        )
        membership = Membership(settings, rng, outbox, self.counters, callbacks)
        self._membership = membership
        self.directory = Directory(settings, membership, self._roster, outbox, self._emit)
        self._pings = Pings(settings.node, membership, self._totals, outbox, rng, self._emit)

    def _build_messages(self, rng: random.Random) -> None:
        """Make the parts that send, keep and deliver messages."""
        settings, outbox, router, counters = self.settings, self.outbox, self._router, self.counters
        membership = self._membership
        self._retained = RetainedDelivery(settings, rng, outbox, router)
        self._fragments = Fragments(settings.value_bytes_max, FRAGMENTS_BYTES_MAX)
        self.reliable = Reliable(
            settings,
            outbox=outbox,
            router=router,
            roster=self._roster,
            counters=counters,
            streams=Streams(lambda: membership.list.digest.nodes - 1, rng, is_here=self._is_here),
            fragments=self._fragments,
            emit=self._emit,
        )
        self._publisher = Publisher(
            settings,
            router=router,
            outbox=outbox,
            fast_publish=self.fast_publish,
            counters=counters,
            reliable=self.reliable,
            retained=self._retained.store,
        )
        subscriptions = LocalSubscriptions(
            router, membership, self.reliable, self._retained, lambda: self.requests.patterns()
        )
        self._subscriptions = subscriptions
        self.requests = Requests(
            settings,
            router,
            outbox,
            counters,
            emit=self._emit,
            state=lambda: membership.state,
            check_room=subscriptions.check_room,
            announce=subscriptions.serves,
        )

    def _build_receiver(self) -> None:
        """Make the parts that datagrams meet."""
        roster, membership, outbox = self._roster, self._membership, self.outbox
        self._fast_receive = FastReceive(
            roster,
            self._router,
            membership,
            self.directory,
            outbox,
            self.reliable,
            self._retained,
            self._fragments,
        )
        self._receiver = Receiver(
            self.settings.node,
            roster,
            self._fast_receive,
            membership=membership,
            directory=self.directory,
            outbox=outbox,
            handlers=self._make_handlers(),
        )
        #: The parts with timers, in the order in which they are served.
        self._timed: tuple[Timed, ...] = (
            membership,
            self._pings,
            self.requests,
            self._fragments,
            self.reliable,
            self._retained,
        )

    def _make_handlers(self) -> dict[type[Any], Handler]:
        """Return which part handles which frame."""
        membership, reliable = self._membership, self.reliable
        return {
            frames.PresenceFrame: lambda frame, peer, now: membership.receive_presence(frame, now),
            frames.ListFrame: self._receive_list,
            frames.ByeFrame: lambda frame, peer, now: membership.receive_bye(frame, now),
            frames.WhereFrame: lambda frame, peer, now: self.directory.receive_where(frame, now),
            frames.PingFrame: self._pings.receive_ping,
            frames.PongFrame: self._pings.receive_pong,
            frames.RequestFrame: self.requests.receive_request,
            frames.ReplyFrame: self.requests.receive_reply,
            frames.FragmentFrame: self._fast_receive.large_values.receive,
            frames.RetainedFrame: self._retained.receive,
            frames.BeatFrame: reliable.receive_beat,
            frames.NakFrame: lambda frame, peer, now: reliable.receive_nak(frame, now),
            frames.RepairFrame: self._receive_repair,
        }

    def _totals(self) -> Totals:
        counters = self.counters
        return Totals(
            sent=self.outbox.messages_sent,
            suppressed=counters.messages_suppressed
            + counters.held_suppressed
            + self.fast_publish.count_suppressed(),
            received=counters.messages_received,
            lost=max(0, counters.messages_lost),
            repaired=self.reliable.repaired,
            shares=counters.list_shares_sent,
        )

    def _entry_changed(self, old: Entry | None, new: Entry | None, now: float) -> None:
        self._router.entry_changed(old, new)
        self._retained.entry_changed(old, new, now)
        if new is None:
            if old is not None:
                self.directory.buffers.forget(old.node)
                self._fragments.forget(old.node)
                self.reliable.forget(old.node)
                self._roster.note_unlisted(old.node)
        else:
            self._roster.note_listed(new.node)
            peer = self._roster.peers.get(new.node)
            if peer is not None:
                peer.name = new.name
            if new.is_plain:
                self.outbox.send_unbatched(now + PLAIN_LEASE_S)
            self.reliable.appeared(old, new, now)
        self._state_changed(now)

    def _state_changed(self, now: float) -> None:
        """The state, or somebody's subscriptions."""
        self._publisher.look_again(self._membership.state, now)
        self.requests.review(now)

    def _receive_list(self, frame: ListFrame, peer: Peer, now: float) -> None:
        self._membership.receive_list(frame, now)
        # They are wanted anew, though an entry covers them. Strangers are not heard: nothing bounds
        # their number, and whoever appears later is given what it wants then.
        is_naming = frame.topics and not frame.entries
        if is_naming and self._is_here(peer.node, peer.incarnation):
            self._retained.named(peer.node, tuple(frame.topics), now)
            self.reliable.named(frame.topics, now)

    def _receive_repair(self, frame: RepairFrame, peer: Peer, now: float) -> None:
        missed = self.reliable.receive_repair(frame, peer, now)
        for message, is_retained in missed:
            if is_retained:
                self._retained.cache.note_late(message)
        self.counters.messages_received += len(missed)
        # Messages without a number were never sent, so they were not counted as lost.
        sent = [message for message, _ in missed if message.sequence is not None]
        self.counters.messages_lost -= peer.find_again(len(sent))

    def _is_here(self, node: str, incarnation: int) -> bool:
        entry = self._membership.list.get(node)
        return entry is not None and entry.incarnation == incarnation

    def _other_entries(self) -> list[Entry]:
        own = self.settings.node
        return [entry for entry in self._membership.list if entry.node != own]

    def _emit(self, event: Event) -> None:
        if len(self._events) >= EVENTS_MAX:
            self._events.popleft()
            self.counters.events_dropped += 1
        self._events.append(event)
