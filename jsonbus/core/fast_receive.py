"""FastReceive: where every datagram comes in, and the short way for most of them.

There are two ways. Nearly all datagrams hold messages, or a slice of one, and are the very next one
of a node that was heard before. For these, `receive` reads the few header fields that matter from
the parsed JSON and goes straight to the messages: no look for repeats, gaps or restarts, no frame.
Everything else is decoded in full, and the frame returned for `Receiver`. test_equivalence.py in
tests/core/receiver holds the two ways to one result. Slices have a branch of their own in the first
way: a value of 1 MB has 800 of them, and by frames each takes half as long again.

A large message that nobody here wants is recognized before it is parsed, once another one of its
topic and sender was: by its first and last bytes, and only if it is the very next datagram.

A presence that repeats what its sender said before, and agrees with this node's list, is recognized
by its bytes; tests/core/receiver/test_presence.py holds that to the same result, too.

`deliver` takes messages to inboxes, whichever way they came. Its loop is the only code that runs
once per message. Reliable and retained messages carry marks after topic and value, and take
`_deliver_marked`: as long as they are the very next ones of their stream, by a loop that is as
short, and looks at their sequences only.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from jsonbus.core.limits import PEEK_BYTES_MIN, REPAIR_SIZE_BYTES, UNWANTED_MAX
from jsonbus.core.membership.directory import Directory
from jsonbus.core.membership.membership import Membership
from jsonbus.core.message import Message, Origin, make_message
from jsonbus.core.outbox import Outbox
from jsonbus.core.reliable.reliable import Reliable
from jsonbus.core.reliable.streams import IN_TURN
from jsonbus.core.roster import Address, Peer, Roster
from jsonbus.core.routing.router import Inbox, Route, Router
from jsonbus.core.values.fragments import Fragments, LargeValues
from jsonbus.core.values.retained import RETAINED_IN_SLICES, RetainedDelivery
from jsonbus.core.wire.codec import loads
from jsonbus.core.wire.decode import DEEP_BYTES_MIN, decode, decode_body, may_be_deep, single_item
from jsonbus.core.wire.encode import PRESENCE_START
from jsonbus.core.wire.frames import PLAIN_PREFIX, FragmentFrame, Frame, Header
from jsonbus.core.wire.names import (
    BATCH,
    DATAGRAM_BYTES_MAX,
    FRAGMENT,
    INTEGER_MAX,
    KEY_COUNTER,
    KEY_FIRST_MESSAGE,
    KEY_FRAGMENT,
    KEY_INCARNATION,
    KEY_NODE,
    KEY_SENT_US,
    RESERVED_PREFIX,
)
from jsonbus.errors import DatagramError

_TOPIC_START = b'{"topic":"%b"'
_TOPIC_START_BYTES = len(b'{"topic":"')
_PRESENCE_START = PRESENCE_START + b',"jb":{"%b":"' % KEY_NODE.encode()
_PRESENCE_START_BYTES = len(_PRESENCE_START)
_NO_TOPIC = object()


class FastReceive:
    """See the head of this file. `outbox` knows the wall clock."""

    def __init__(
        self,
        roster: Roster,
        router: Router,
        membership: Membership,
        directory: Directory,
        outbox: Outbox,
        reliable: Reliable,
        retained: RetainedDelivery,
        fragments: Fragments,
    ) -> None:
        self._roster = roster
        self._peers = roster.peers
        self._router = router
        self._deliveries = router.deliveries
        self._unwanted = router.unwanted
        self._membership = membership
        self._directory = directory
        self._outbox = outbox
        self._counters = roster.counters
        self._reliable = reliable
        self._retained = retained
        self.large_values = LargeValues(
            fragments, roster, router, deliver=self.deliver, touch=reliable.touch
        )

    def receive(self, data: bytes, sender: Address, now: float) -> Frame | None:
        """Take a datagram, or return its frame; bad input is counted, never raised."""
        if data.startswith(_PRESENCE_START):
            if self._receive_known(data, sender, now):
                return None
        elif len(data) >= PEEK_BYTES_MIN:
            start = data[: data.find(b'"', _TOPIC_START_BYTES) + 1]
            peer = self._peers.get(self._unwanted.get((start, sender), ""))
            if peer is not None and peer.is_next(data):
                self._take_next(peer, 1, len(data), now)
                self._counters.messages_received += 1
                self._counters.messages_unwanted += 1
                return None
        try:
            body = loads(data) if len(data) <= DATAGRAM_BYTES_MAX else None
        except ValueError:
            body = None
        if body is not None and self._receive_next(body, data, sender, now):
            return None
        try:
            return decode(data) if body is None else decode_body(body, data)
        except DatagramError as error:
            self._counters.datagrams_received += 1
            self._counters.bytes_received += len(data)
            self._roster.reject(error.cause, sender, error.detail)
            return None

    def _receive_known(self, data: bytes, sender: Address, now: float) -> bool:
        """Take a presence that says nothing new; False if it is, or may be, another one.

        This is all that an idle bus sends: every node gets one per heartbeat and node.
        """
        end = data.find(b'"', _PRESENCE_START_BYTES)
        peer = self._peers.get(data[_PRESENCE_START_BYTES:end].decode("latin-1"))
        if peer is None or peer.address != sender or not peer.repeats_presence(data):
            return False
        membership, directory = self._membership, self._directory
        if not (directory.note_again(peer, data, now) and membership.try_confirm_again(peer, now)):
            return False
        self._counters.datagrams_received += 1
        self._counters.bytes_received += len(data)
        peer.go_on(0)
        if membership.accompany(peer.node, now):
            self._roster.needs_attention = True
        return True

    def _receive_next(self, body: Any, data: bytes, sender: Address, now: float) -> bool:
        """Take the very next datagram with messages of a known node; False if it is another one."""
        try:
            header = body["jb"]
            peer = self._peers[header[KEY_NODE]]
            first, counter = header[KEY_FIRST_MESSAGE], header[KEY_COUNTER]
            incarnation = header[KEY_INCARNATION]
            if (
                first != peer.next_message
                or counter != peer.top + 1
                or incarnation != peer.incarnation
            ):
                return False
            sent_us, topic, items = header[KEY_SENT_US], body["topic"], body["payload"]
        except (KeyError, TypeError):
            return False
        # Compare types, too: 7.0 == 7 and True == 1, but neither is a valid header number.
        if not (type(first) is type(counter) is type(incarnation) is type(sent_us) is int):
            return False
        if first > INTEGER_MAX or counter > INTEGER_MAX or not 0 <= sent_us <= INTEGER_MAX:
            return False
        if type(topic) is not str:
            return False
        if topic != BATCH:
            if topic.startswith(RESERVED_PREFIX):
                return topic == FRAGMENT and self._receive_next_slice(body, peer, now, len(data))
            items = [single_item(topic, items, header) if len(header) > 5 else [topic, items]]
        elif type(items) is not list:
            return False
        if peer.challenger is not None or (len(data) >= DEEP_BYTES_MIN and may_be_deep(data)):
            return False
        self._take_next(peer, len(items), len(data), now)
        self.deliver(items, first, sent_us, peer, now)
        if topic != BATCH and len(data) >= PEEK_BYTES_MIN:
            self._note_unwanted(topic, data, sender, peer)
        return True

    def _receive_next_slice(self, body: Any, peer: Peer, now: float, size_bytes: int) -> bool:
        """Take the next datagram if it is a slice; of a large message, nearly all come like that.

        False if it is not the next slice, or not a valid one.
        """
        header, text = body["jb"], body["payload"]
        place = header.get(KEY_FRAGMENT)
        if type(place) is not list or not 3 <= len(place) <= 4:
            return False
        number, index, count = place[:3]
        sequence = place[3] if len(place) > 3 else None
        if sequence is not None and type(sequence) is not int:
            return False
        if not (type(number) is type(index) is type(count) is int and type(text) is str):
            return False
        if number != peer.next_message or peer.challenger is not None:
            return False
        self._take_next(peer, 0, size_bytes, now)
        head = Header(peer.node, peer.incarnation, peer.top, number, header[KEY_SENT_US])
        self.large_values.receive(
            FragmentFrame(head, number, index, count, text, sequence), peer, now
        )
        return True

    def _take_next(self, peer: Peer, messages: int, size_bytes: int, now: float) -> None:
        """Count the very next datagram of a peer, with so many messages, and hear the peer."""
        self._counters.datagrams_received += 1
        self._counters.bytes_received += size_bytes
        peer.go_on(messages)
        if not self._membership.hear(peer.node, peer.incarnation, now):
            self._roster.needs_attention = True

    def _note_unwanted(self, topic: str, data: bytes, sender: Address, peer: Peer) -> None:
        """If nobody here wants it, let the next messages of this topic and sender be refused."""
        route = self._router.current.get(topic)
        if route is None or route.inboxes:
            return
        if len(self._unwanted) >= UNWANTED_MAX:
            self._unwanted.clear()
        start = data[: data.find(b'"', _TOPIC_START_BYTES) + 1]
        if start == _TOPIC_START % topic.encode():
            self._unwanted[start, sender] = peer.node

    def deliver(
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
            self._deliver_marked(items, first, origin, peer, size_bytes, now)
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
                # A topic not met since subscriptions changed, one that is marked, or no message.
                route = self._find_route(item, peer)
                if route is None:
                    taken = sequence - first
                    break
                value = item[1]
                if len(item) > 2:
                    self._deliver_marked([item], sequence, origin, peer, size_bytes, now)
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

    def deliver_plain(self, topic: Any, value: Any, sender: Address, now: float) -> None:
        """Deliver a message of a node or sensor that knows only `topic` and `payload`."""
        counters = self._counters
        counters.messages_received += 1
        route = self._router.find(topic)
        if route is None:
            counters.messages_malformed += 1
            self._roster.reject("bad_topic", sender, f"{topic!r:.80}")
        elif not route.inboxes:
            counters.messages_unwanted += 1
        else:
            counters.messages_delivered += 1
            wall = now + self._outbox.wall_offset_s
            node = f"{PLAIN_PREFIX}{sender[0]}:{sender[1]}"
            message = make_message(topic, value, None, Origin(node, node, 0, wall, wall))
            self._deliveries.add_to_all(route.inboxes, message)

    def _deliver_marked(
        self, items: list[Any], first: int, origin: Origin, peer: Peer, size_bytes: int, now: float
    ) -> None:
        """Deliver messages that are reliable or retained, or retained values that came in slices.

        If the first one of a batch is marked, most likely all of them are.
        """
        place = 0
        while place < len(items):
            if len(items) > 1:  # a lone one is sooner looked at
                place += self._deliver_in_turn(items, place, first + place, origin, peer, now)
                if place == len(items):
                    return
            if not self._deliver_one(items[place], first + place, origin, peer, size_bytes, now):
                self._counters.messages_malformed += len(items) - place
                return
            place += 1

    def _deliver_in_turn(
        self, items: list[Any], start: int, first: int, origin: Origin, peer: Peer, now: float
    ) -> int:
        """Deliver the items from `start` on that are the very next ones of a reliable stream.

        Returns how many they were. Nothing is asked of each but its sequence.
        """
        try:
            topic = items[start][0]
            route = self._router.current[topic]
        except (KeyError, TypeError, IndexError):
            return 0
        stream = self._reliable.stream_in_order(peer, route, first)
        if stream is None:
            return 0
        messages: list[Message] = []
        sequence = stream.top
        for item in items[start:] if start else items:
            try:
                of_topic, value, number = item
            except (TypeError, ValueError):
                break
            if number != sequence or type(number) is not int or of_topic != topic:
                break
            message = Message()
            message.topic = route.topic
            message.value = value
            message.sequence = first
            message.origin = origin
            message._position = sequence
            messages.append(message)
            sequence += 1
            first += 1
        if messages:
            stream.top = sequence
            stream.heard_at = now
            self._deliveries.add_many(route.inboxes, messages)
            self._counters.messages_delivered += len(messages)
        return len(messages)

    def _deliver_one(
        self, item: Any, number: int, origin: Origin, peer: Peer, size_bytes: int, now: float
    ) -> bool:
        """Deliver a message that may be marked; False, and a rejection, if it is no message."""
        try:
            route: Route | None = self._router.current[item[0]]
        except (KeyError, TypeError, IndexError):
            route = None
        if route is None or type(item) is not list or len(item) < 2:
            route = self._find_route(item, peer)
            if route is None:
                return False
        counters = self._counters
        mark = item[3] if len(item) > 3 else None
        if not route.inboxes:
            counters.messages_unwanted += 1
            return True
        if mark == RETAINED_IN_SLICES:
            self._retained.receive_large(item, peer, now)
            return True
        message = make_message(route.topic, item[1], number, origin)
        if mark == 1 and route.subscribers:
            self._retained.cache.note(message)
        sequence = item[2] if len(item) > 2 else None  # in its reliable stream
        # Passive subscribers get no repairs and no ordering.
        if route.subscribers and type(sequence) is int and sequence > 0:
            outcome = self._reliable.receive(peer, route, message, sequence, size_bytes, now)
            if outcome is not IN_TURN:
                self._roster.needs_attention = True  # it may have set a timer
        else:
            counters.messages_delivered += 1
            self._deliveries.add_to_all(route.inboxes, message)
        return True

    def _find_route(self, item: Any, peer: Peer) -> Route | None:
        """Return the route of an item of a batch; None, and a rejection, if it is no message."""
        if type(item) is not list or len(item) < 2:
            cause, detail = "bad_fields", "an item of a batch is no message"
        else:
            route = self._router.find(item[0])
            if route is not None:
                return route
            cause, detail = "bad_topic", f"{item[0]!r:.80}"
        self._roster.reject(cause, peer.address, detail)
        return None
