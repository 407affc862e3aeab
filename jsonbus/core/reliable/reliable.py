"""Reliable topics: connects history and streams with the rest of a node.

Publishing side: a message leaves like any other; as its datagram is packed, it gets its topic's
next sequence and is kept (wire/items.py, history.py). A NAK that names this node is answered with
what is still kept, or with a beat, which says how far its topics are. A message that nobody wants
is counted and kept as well, once its topic was sent to somebody: who comes back from an absence
gets it, or is told of the gap.

Receiving side: a message with a sequence goes through its stream (streams.py) before it reaches
inboxes. A node asks for missing messages by NAKs, which everybody hears: the publisher and the
other subscribers. Topics without a local subscription have no stream; passive subscriptions begin
none.

Where a stream begins. A subscriber has a claim to what was published since it subscribed, and hears
of a stream for the first time at some sequence s. If nothing of that publisher was lost since, it
has missed nothing. If L messages were lost, then at most the L messages right before s are among
them: so the stream begins at s - L. Of those, messages older than the subscription are not
delivered. Later subscriptions to other topics do not change this. A stream ends with the last
subscription to its topic: the next one begins another.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from jsonbus.core.counters import Counters
from jsonbus.core.events import Event, GapFound
from jsonbus.core.limits import (
    BEAT_MIN_S,
    CLAIM_MESSAGES_MAX,
    NEEDED_S,
    PARTIAL_MAX,
    REPAIR_SIZE_BYTES,
    STREAMS_EXPIRY_S,
)
from jsonbus.core.message import Message, Origin, make_message
from jsonbus.core.outbox import Outbox
from jsonbus.core.reliable.claims import Claims
from jsonbus.core.reliable.gaps import Key, Stream
from jsonbus.core.reliable.history import History
from jsonbus.core.reliable.repairs import Repairs
from jsonbus.core.reliable.streams import IN_TURN, REFUSED, Nak, Streams
from jsonbus.core.roster import Peer, Roster
from jsonbus.core.routing.router import Route, Router
from jsonbus.core.settings import NodeSettings
from jsonbus.core.values.fragments import Fragments
from jsonbus.core.values.fragments import Key as FragmentKey
from jsonbus.core.wire.encode import encode_nak
from jsonbus.core.wire.frames import (
    BeatFrame,
    Entry,
    MissingOfTopic,
    MissingSlices,
    NakFrame,
    RepairFrame,
)
from jsonbus.core.wire.items import RELIABLE_START, RETAINED_MARK
from jsonbus.core.wire.names import NAK_SLICES_MAX


class Reliable:
    """See the head of this file.

    In `streams`, None stands for a message from before the subscription: it only keeps its place.
    """

    def __init__(
        self,
        settings: NodeSettings,
        *,
        outbox: Outbox,
        router: Router,
        roster: Roster,
        counters: Counters,
        streams: Streams[Message | None],
        fragments: Fragments,
        emit: Callable[[Event], None],
    ) -> None:
        self._own = (settings.node, settings.incarnation)
        self._outbox = outbox
        self._fast_publish = outbox.fast_publish
        self._router = router
        self._roster = roster
        self._deliveries = router.deliveries
        self._counters = counters
        self._emit = emit
        self._fragments = fragments
        #: The fragments of messages that have come in part, by stream and sequence.
        self._partial: dict[tuple[str, int, str | None, int], FragmentKey] = {}
        self._repairs = Repairs(outbox)
        self._history = History()
        self._streams = streams
        self._claims = Claims()
        self._expires_at = 0.0
        self.beats_at = -math.inf  # after the messages that were sent last
        self._needed_until = -math.inf
        self._expected = 0  # the highest sequence that the outbox has room for
        self._is_used = False  # nodes without reliable topics have no costs

    # --- Publishing ------------------------------------------------------------------------------

    def publish(self, route: Route, payload: bytes, now: float, *, is_retained: bool) -> int:
        """Send a message and keep it for repairs; return its number."""
        if route.topic not in self._history.topics:
            self._is_used = True
            self._outbox.keep_by(self._keep)
            self._history.begin(route.topic)
        return self._outbox.put_message(
            route.prefix, payload, now, is_reliable=True, is_retained=is_retained
        )

    def has_begun(self, topic: str) -> bool:
        """Whether messages of that topic were sent, so that somebody may have a place in it."""
        return topic in self._history.topics

    def keep_unsent(self, route: Route, payload: bytes, now: float, *, is_retained: bool) -> None:
        """Count and keep a message that nobody wants now, of a topic that has begun."""
        self._outbox.pack(now)  # others of the topic have their sequences before
        number = -self._outbox.messages_put  # it comes after that message
        mark = RETAINED_MARK if is_retained else b""
        texts = (RELIABLE_START + route.prefix + payload,)
        self._keep(route.topic, texts, number, now, mark)

    def _keep(
        self, topic: str, texts: tuple[bytes, ...], number: int, now: float, mark: bytes
    ) -> int:
        """Keep messages that are being sent, or one that is not; return the first's sequence."""
        history = self._history
        sequence = history.keep(topic, texts, number, now, mark)
        if number > 0:
            self._needed_until = now + NEEDED_S
            self.beats_at = now + BEAT_MIN_S
        if history.top > self._expected:
            self._expected = self._outbox.expect_sequences(history.top)
        if history.is_tight:
            self._fast_publish.reliable_prefixes.clear()
        return sequence

    def is_at_ease(self, topic: str, now: float) -> bool:
        """Whether the topic's next batch surely finds room."""
        return self._history.is_at_ease(topic, now) and self._outbox.is_at_ease

    def appeared(self, old: Entry | None, new: Entry, now: float) -> None:
        """A node is here (again), or wants something else: say how far the topics are for it."""
        if old is None:
            self._streams.welcome(new.node, new.incarnation, now)
        if self._history.topics and new.is_alive and not new.is_plain:
            before = set(old.patterns if old and old.incarnation == new.incarnation else ())
            # In their order: that of a set differs from process to process.
            self._history.announce([each for each in new.patterns if each not in before], now)

    def named(self, patterns: list[str], now: float) -> None:
        """A node wants these topics anew: say how far they are."""
        if self._history.topics:
            self._history.announce(patterns, now)

    def room_at(self, topic: str, now: float) -> float:
        """When the topic's next message may be published without pushing out another too soon."""
        count, size_bytes = self._outbox.queued  # they are not kept yet
        return self._history.room_at(topic, size_bytes, now, count + 1)

    def needed_until(self, now: float) -> float:
        """Until when somebody may still ask for the messages that were sent last."""
        self._outbox.pack(now)  # those that wait will be, too
        return self._needed_until

    def receive_nak(self, frame: NakFrame, now: float) -> None:
        """Take a NAK: a node misses messages, of this node or of another one."""
        self._counters.naks_received += 1
        if (frame.node, frame.incarnation) == self._own:
            self._needed_until = max(self._needed_until, now + NEEDED_S)
            for missing in frame.topics:
                self._repairs.note_slices(missing)
                records = self._history.take_nak(missing.topic, missing.ranges, now)
                self._fast_publish.reliable_prefixes.clear()  # each message looks for room
                if records:
                    self._repairs.send(records, now)
            return
        for topic, ranges, slices in frame.topics:
            if not slices:  # else this node may miss other slices, and asks for itself
                self._streams.hear_nak((frame.node, frame.incarnation, topic), ranges, now)

    # --- Receiving -------------------------------------------------------------------------------

    def subscribing(self, patterns: list[str]) -> None:
        """Called before the first subscriptions to these patterns are made.

        They have no claim to what was published before.
        """
        number = self._claims.add(patterns)
        for peer in self._roster.peers.values():
            peer.mark(number)

    def unsubscribed(self, patterns: list[str]) -> None:
        """Called after the last subscriptions to these patterns have ended."""
        self._claims.remove(patterns)
        local = self._router.local
        if self._streams.by_key:
            self._streams.close(lambda topic: not local.subscribers_of(topic))
            if self._streams.ready:
                self._deliver_ready()

    def stream_in_order(
        self, peer: Peer, route: Route, number: int
    ) -> Stream[Message | None] | None:
        """Return the stream if only sequences of messages from that number on need a look."""
        streams = self._streams
        stream = streams.by_key.get((peer.node, peer.incarnation, route.topic))
        if (
            stream is None
            or stream.gaps
            or streams.ready
            or self._partial
            or number < stream.floor
            or not route.subscribers
        ):
            return None
        return stream

    def receive(
        self,
        peer: Peer,
        route: Route,
        message: Message,
        sequence: int,
        size_bytes: int,
        now: float,
        after: int = 0,
    ) -> str:
        """Take a message with a local subscriber; return what `Streams.receive` says of it.

        One that was unsent has no number; it was published after the message `after`.
        """
        streams, key = self._streams, (peer.node, peer.incarnation, route.topic)
        stream = streams.by_key.get(key) or self._open(key, peer, sequence, now)
        if self._partial:
            self._partial.pop((*key, sequence), None)
        message._position = sequence
        number = message.sequence or after
        is_wanted = number >= stream.floor or (after and sequence >= stream.known_from)
        item = message if is_wanted else None
        outcome = streams.receive(stream, sequence, item, size_bytes, now)
        if outcome is not IN_TURN:
            if streams.ready:
                self._deliver_ready(route)
        elif item is not None and route.inboxes:
            self._deliveries.add_to_all(route.inboxes, item)
            self._counters.messages_delivered += 1
        return outcome

    def receive_beat(self, frame: BeatFrame, peer: Peer, now: float) -> None:
        for topic, last, first in frame.beats:
            route = self._router.find(topic)
            if route is None or not route.subscribers:
                continue
            key = (peer.node, peer.incarnation, topic)
            stream = self._streams.by_key.get(key) or self._open(key, peer, last + 1, now)
            self._streams.hear_beat(stream, last, first, now)
        self._settle()

    def receive_repair(
        self, frame: RepairFrame, peer: Peer, now: float
    ) -> list[tuple[Message, bool]]:
        """Take repairs; return the messages that were missing, and whether each is retained."""
        wall = now + self._outbox.wall_offset_s
        sent_at = frame.header.sent_us / 1_000_000
        origin = Origin(peer.node, peer.name, peer.incarnation, sent_at, wall)
        missed: list[tuple[Message, bool]] = []
        for item in frame.items:
            if type(item) is not list or len(item) < 4:
                self._counters.messages_malformed += 1
                continue
            topic, value, sequence, number = item[:4]
            is_valid = type(sequence) is type(number) is int and sequence >= 1 and number
            route = self._router.find(topic) if is_valid else None
            if route is None:
                self._counters.messages_malformed += 1
            elif (peer.node, peer.incarnation, topic) in self._streams.by_key:
                # A repair must not begin a stream: it would begin with an old message.
                after = max(0, -number)
                message = make_message(route.topic, value, None if after else number, origin)
                size = REPAIR_SIZE_BYTES
                if self.receive(peer, route, message, sequence, size, now, after) is not REFUSED:
                    missed.append((message, len(item) > 4 and item[4] == 1))
        return missed

    def touch(
        self, peer: Peer, topic: str | None, sequence: int, fragment: FragmentKey, now: float
    ) -> None:
        """Slices of that message keep arriving; its topic is None until the first slice is here."""
        self._partial[peer.node, peer.incarnation, topic, sequence] = fragment
        if len(self._partial) > PARTIAL_MAX:
            del self._partial[next(iter(self._partial))]
        if topic is not None:
            self._streams.touch((peer.node, peer.incarnation, topic), sequence, now)

    def forget(self, node: str) -> None:
        """The node is gone: deliver the messages that wait for its repairs."""
        self._streams.forget(node)
        self._settle()

    # --- Being driven ----------------------------------------------------------------------------

    def timer_at(self) -> float:
        if not self._is_used:
            return math.inf
        at = min(self._history.timer_at(), self._streams.timer_at())
        return min(at, self._expires_at) if self._streams.by_key else at

    def handle_timer(self, due: float, now: float) -> None:
        if not self._is_used:
            return
        for nak in self._streams.handle_timer(now):
            topics = self._add_slices(nak) if self._partial else nak.topics
            control = encode_nak(nak.node, nak.incarnation, topics)
            self._outbox.put_control(control, now, counts_as_heartbeat=False)
        if self._streams.lost or self._streams.ready:
            self._settle()
        if self._history.topics and self._history.timer_at() <= due:
            self._repairs.send(self._history.repairs(now), now)
            self._repairs.send_beats(self._history.beats(now), now)
        if self._expires_at <= due:
            self._expires_at = now + STREAMS_EXPIRY_S
            self._streams.expire(now)
            self._settle()

    @property
    def repaired(self) -> int:
        """How many own messages were sent again."""
        return self._history.repaired

    def figures(self) -> dict[str, int]:
        """The entries of `Node.stats` for reliable topics."""
        history, streams = self._history, self._streams
        return {
            "messages_kept_for_repair": len(history),
            "messages_repaired": history.repaired,
            "repairs_unavailable": history.unavailable,
            "naks_sent": streams.naks_sent,
            "messages_given_up": streams.given_up,
            "messages_waiting_for_repair": streams.waiting.messages,
        }

    # --- Inside ----------------------------------------------------------------------------------

    def _add_slices(self, nak: Nak) -> list[MissingOfTopic]:
        """Return what the NAK asks for, with the missing slices of messages that came in part."""
        publisher = (nak.node, nak.incarnation)
        return [
            missing._replace(slices=self._missing_slices(publisher, missing))
            for missing in nak.topics
        ]

    def _missing_slices(
        self, publisher: tuple[str, int], missing: MissingOfTopic
    ) -> list[MissingSlices]:
        """Return what is missing of one message that came in part, if there is one."""
        for first, last in missing.ranges:
            # Of a message whose first slice is missing, only the sequence is known. Another topic
            # may be at the same sequence: then the next round will ask for the right slices.
            for known in (missing.topic, None):
                fragment = self._partial.get((*publisher, known, first))
                assembly = None if fragment is None else self._fragments.get(fragment)
                if assembly is not None and first == last:
                    start, bits = assembly.missing_bits(NAK_SLICES_MAX)
                    return [MissingSlices(first, start, bits)]
        return []

    def _open(self, key: Key, peer: Peer, sequence: int, now: float) -> Stream[Message | None]:
        """Begin a stream that is heard of at that sequence, with what may have been missed."""
        if not self._is_used or not self._streams.by_key:
            self._is_used = True
            self._expires_at = now + STREAMS_EXPIRY_S
        topic = key[2]
        floor, lost = peer.claim(self._claims.oldest(topic))
        begin = max(1, sequence - min(lost, CLAIM_MESSAGES_MAX))
        stream = self._streams.open(key, begin, now)
        stream.floor, stream.known_from = floor, sequence
        return stream

    def _settle(self) -> None:
        """Report what streams have given up, and deliver what that released."""
        for node, incarnation, topic, first, last in self._streams.take_lost():
            peer = self._roster.peers.get(node)
            name = node if peer is None else peer.name
            self._emit(GapFound(node, name, topic, first, last, incarnation))
        if self._streams.ready:
            self._deliver_ready()

    def _deliver_ready(self, route: Route | None = None) -> None:
        """Deliver what is ready; `route` is that of the first message, if it is known."""
        for message in self._streams.take_ready():
            if message is None:
                continue
            if route is None or route.topic != message.topic:
                route = self._router.find(message.topic)
            if route is not None and route.inboxes:
                self._deliveries.add_to_all(route.inboxes, message)
                self._counters.messages_delivered += 1
