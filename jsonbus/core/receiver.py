"""What comes in: repeats dropped, losses counted, messages put into inboxes, the rest passed on.

The hot path is `_receive_next`, once per datagram, and `receive_messages`, whose loop is all that
is done once per message.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from jsonbus.core.counters import Counters
from jsonbus.core.events import DatagramRejected, Event, MessagesLost
from jsonbus.core.limits import (
    BUFFER_BYTES_MIN,
    PEEK_BYTES_MIN,
    PEERS_MAX,
    PLAIN_HEARD_S,
    PLAIN_LEASE_S,
    REJECTS_REPORTED_MAX,
    REPAIR_SIZE_BYTES,
)
from jsonbus.core.membership.directory import Directory
from jsonbus.core.membership.membership import Membership
from jsonbus.core.message import Message, Origin, make_message
from jsonbus.core.outbox import Outbox
from jsonbus.core.reliable.reliable import IN_TURN, Reliable
from jsonbus.core.roster import Peer, Roster
from jsonbus.core.routing.router import Inbox, Route, Router
from jsonbus.core.rpc.pings import Pings
from jsonbus.core.rpc.requests import Requests
from jsonbus.core.values.fragments import LargeValues, Slice
from jsonbus.core.values.retained import RETAINED_IN_SLICES, RetainedDelivery
from jsonbus.core.wire.decode import (
    DEEP_BYTES_MIN,
    decode_body,
    may_be_deep,
    parse,
    peek_header,
    peek_topic,
    single_item,
)
from jsonbus.core.wire.frames import (
    PLAIN_PREFIX,
    BeatFrame,
    ByeFrame,
    EchoedFrame,
    EchoFrame,
    FragmentFrame,
    Frame,
    Header,
    ListFrame,
    MessagesFrame,
    NakFrame,
    PingFrame,
    PongFrame,
    PresenceFrame,
    RepairFrame,
    ReplyFrame,
    RequestFrame,
    RetainedFrame,
    WhereFrame,
)
from jsonbus.core.wire.limits import INTEGER_MAX
from jsonbus.core.wire.names import (
    BATCH,
    FRAGMENT,
    KEY_COUNTER,
    KEY_FIRST_MESSAGE,
    KEY_FRAGMENT,
    KEY_INCARNATION,
    KEY_NODE,
    KEY_SENT_US,
    RESERVED_PREFIX,
)
from jsonbus.errors import DatagramError

Address = tuple[str, int]


_NO_TOPIC = object()
_TOPIC_START = b'{"topic":"'
_TOPIC_START_BYTES = len(_TOPIC_START)
_RESERVED_START = _TOPIC_START + RESERVED_PREFIX.encode()


class Receiver:
    """Sorts datagrams. See the head of node.py for what it is connected to."""

    def __init__(
        self,
        own_node: str,
        *,
        counters: Counters,
        roster: Roster,
        membership: Membership,
        router: Router,
        outbox: Outbox,
        requests: Requests,
        pings: Pings,
        large_values: LargeValues,
        reliable: Reliable,
        retained: RetainedDelivery,
        directory: Directory,
        emit: Callable[[Event], None],
    ) -> None:
        self._own_node = own_node
        self._counters = counters
        self._roster = roster
        self._unwanted = router.unwanted
        self._wanted = router.wanted
        self._peers = roster.peers
        self._membership = membership
        self._router = router
        self._deliveries = router.deliveries
        self._outbox = outbox
        self._requests = requests
        self._pings = pings
        self._buffers = directory.buffers
        self._large_values = large_values
        self._reliable = reliable
        self._retained = retained
        self._directory = directory
        self._emit = emit
        self._reported: set[tuple[str, str]] = set()  # (cause, address)
        #: Something came in that may have changed timers or caused output. Messages of known nodes
        #: do not, and a flood of them should not make a front end look at timers each time.
        self.needs_attention = True

    def receive_datagram(self, data: bytes, sender: Address, now: float) -> None:
        # A batch, or whatever else is reserved, has no one topic to be refused by.
        if len(data) >= PEEK_BYTES_MIN and not data.startswith(_RESERVED_START):
            start = data[: data.find(b'"', _TOPIC_START_BYTES) + 1]
            if start not in self._wanted:
                if start in self._unwanted and self._skip(data, sender, now):
                    return
                if self._refuse_by_prefix(data, sender, now):
                    return
        try:
            body = parse(data)
            if self._receive_next(body, data, now):
                return
            frame = decode_body(body, data)
        except DatagramError as error:
            self._counters.datagrams_received += 1
            self._counters.bytes_received += len(data)
            self.reject(error.cause, sender, error.detail)
            return
        self.receive_frame(frame, sender, now, len(data))

    def _receive_next(self, body: Any, data: bytes, now: float) -> bool:
        """Take a datagram with messages if it is the very next one of a node that was heard before.

        That is nearly all of them, and saves looking for repeats, gaps and restarts. False: it is
        something else.
        """
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
        # To be equal is not enough: 7.0 and True are no numbers of a header.
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
        counters = self._counters
        counters.datagrams_received += 1
        counters.bytes_received += len(data)
        peer.go_on(len(items))
        if not self._membership.hear(peer.node, peer.incarnation, now):
            self.needs_attention = True
        self.receive_messages(items, first, sent_us, peer, now)
        return True

    def _receive_next_slice(self, body: Any, peer: Peer, now: float, size_bytes: int) -> bool:
        """The same for a slice: of a large message, nearly all come like that."""
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
        counters = self._counters
        counters.datagrams_received += 1
        counters.bytes_received += size_bytes
        peer.go_on(0)
        if not self._membership.hear(peer.node, peer.incarnation, now):
            self.needs_attention = True
        piece = Slice(number, index, count, text, sequence, header[KEY_SENT_US])
        self._large_values.receive(piece, peer, now, self)
        return True

    def receive_frame(self, frame: Frame, sender: Address, now: float, size_bytes: int) -> None:
        counters = self._counters
        counters.datagrams_received += 1
        counters.bytes_received += size_bytes
        header = frame.header
        if header is None:
            self._receive_plain(frame, sender, now)
            return
        if isinstance(frame, (EchoFrame, EchoedFrame)):
            return  # who measures the network is no node: nothing to learn, nobody to meet
        peer = self._admit(header, sender)
        if peer is None:
            return
        if type(frame) is MessagesFrame:
            if not self._membership.hear(header.node, header.incarnation, now):
                self.needs_attention = True
            self._count_messages(peer, header, len(frame.items))
            self.receive_messages(frame.items, header.first_message, header.sent_us, peer, now)
        else:
            # Datagrams without messages tell the number of the next one: a loss at the end of a
            # burst is noticed without waiting for the next burst.
            self._count_messages(peer, header, 0)
            # Before anything else is made of it: it may be what tells that the node is here.
            if isinstance(frame, (PresenceFrame, ListFrame, PongFrame)):
                if self._directory.note(frame, peer, sender, now):
                    self.needs_attention = True
            if not (
                isinstance(frame, (PresenceFrame, ListFrame))
                and self._membership.try_confirm_unchanged(frame, now)
            ):
                self.needs_attention = True
                self._receive_control(frame, peer, now)
            # Only now: it may just have introduced itself.
            if not self._membership.hear(header.node, header.incarnation, now):
                self.needs_attention = True
            elif isinstance(frame, (PresenceFrame, ListFrame)):
                size = frame.receive_buffer_bytes
                if size is not None and size >= BUFFER_BYTES_MIN:
                    self._buffers.note(header.node, sender[0], size)

    def receive_messages(
        self,
        items: list[Any],
        first: int,
        sent_us: int,
        peer: Peer,
        now: float,
        size_bytes: int = REPAIR_SIZE_BYTES,
    ) -> None:
        counters = self._counters
        counters.messages_received += len(items)
        routes = self._router.current
        wall = now + self._outbox.wall_offset_s
        origin = Origin(peer.node, peer.name, peer.incarnation, sent_us / 1_000_000, wall)
        if items and type(items[0]) is list and len(items[0]) > 2:
            self._receive_marked_batch(items, first, origin, peer, now, size_bytes)
            return
        last: Any = _NO_TOPIC  # of the message before: its route need not be looked up again
        add: Callable[[Message], None] | None = None  # to its one inbox, if it has just one
        inboxes: tuple[Inbox, ...] = ()
        taken = unwanted = ordered = 0
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
                    unwanted += not route.inboxes
                    ordered += bool(route.inboxes)
                    if route.inboxes:
                        message = make_message(route.topic, value, sequence, origin)
                        self._receive_marked(route, message, item, peer, size_bytes, now)
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
        else:
            taken = len(items)
        counters.messages_delivered += taken - unwanted - ordered  # streams count their own
        counters.messages_unwanted += unwanted
        counters.messages_malformed += len(items) - taken

    def _receive_marked_batch(
        self,
        items: list[Any],
        first: int,
        origin: Origin,
        peer: Peer,
        now: float,
        size_bytes: int,
    ) -> None:
        """The same for a batch that begins with one: most likely all of them are."""
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
            if not route.inboxes:
                counters.messages_unwanted += 1
                continue
            message = make_message(route.topic, item[1], sequence, origin)
            if len(item) > 2:
                self._receive_marked(route, message, item, peer, size_bytes, now)
            else:
                counters.messages_delivered += 1
                self._deliveries.add_to_all(route.inboxes, message)

    def _receive_marked(
        self, route: Route, message: Message, item: list[Any], peer: Peer, size: int, now: float
    ) -> None:
        """A message that is reliable or retained, or a retained value that is given in slices."""
        mark = item[3] if len(item) > 3 else None
        if mark == RETAINED_IN_SLICES:
            self._retained.receive_large(item, peer, now)
            return
        if mark == 1 and route.subscribers:
            self._retained.note(message)
        # Who only looks on has no claim: it gets what comes, as it comes.
        if route.subscribers and type(item[2]) is int and item[2] > 0:
            if self._reliable.receive(peer, route, message, item[2], size, now) is not IN_TURN:
                self.needs_attention = True  # it may have set a timer
        else:
            self._counters.messages_delivered += 1
            self._deliveries.add_to_all(route.inboxes, message)

    def _find_route(self, item: Any, peer: Peer) -> Route | None:
        """The route of an item of a batch, unless the item is no message."""
        if type(item) is not list or len(item) < 2:
            cause, detail = "bad_fields", "an item of a batch is no message"
        else:
            route = self._router.find(item[0])
            if route is not None:
                return route
            cause, detail = "bad_topic", f"{item[0]!r:.80}"
        self.reject(cause, peer.address, detail)
        return None

    def _receive_control(self, frame: Frame, peer: Peer, now: float) -> None:
        membership = self._membership
        if isinstance(frame, PresenceFrame):
            membership.receive_presence(frame, now)
        elif isinstance(frame, ListFrame):
            membership.receive_list(frame, now)
        elif isinstance(frame, ByeFrame):
            membership.receive_bye(frame, now)
        elif isinstance(frame, RequestFrame):
            self._requests.receive_request(frame, peer, now)
        elif isinstance(frame, FragmentFrame):
            place = (frame.number, frame.index, frame.count)
            piece = Slice(*place, frame.text, frame.sequence, frame.header.sent_us)
            self._large_values.receive(piece, peer, now, self)
        elif isinstance(frame, RepairFrame):
            missed = self._reliable.receive_repair(frame, peer, now)
            for message, is_retained in missed:
                self._retained.note_late(message, is_retained)
            self._counters.messages_received += len(missed)
            self._counters.messages_lost -= peer.find_again(len(missed))
        elif isinstance(frame, RetainedFrame):
            self._retained.receive(frame, peer, now)
        elif isinstance(frame, BeatFrame):
            self._reliable.receive_beat(frame, peer, now)
        elif isinstance(frame, NakFrame):
            self._reliable.receive_nak(frame, now)
        elif isinstance(frame, ReplyFrame):
            self._requests.receive_reply(frame, peer, now)
        elif isinstance(frame, PingFrame):
            self._pings.receive_ping(frame, peer, now)
        elif isinstance(frame, PongFrame):
            self._pings.receive_pong(frame, peer, now)
        elif isinstance(frame, WhereFrame):
            self._directory.receive_where(frame, now)

    def _receive_plain(self, frame: Frame, sender: Address, now: float) -> None:
        """From a node or sensor that only knows `topic` and `payload`."""
        self._counters.datagrams_plain += 1
        self.needs_attention = True
        has_list = self._membership.plain_peers.hear(sender[0], now)
        self._outbox.send_unbatched(now + (PLAIN_LEASE_S if has_list else PLAIN_HEARD_S))
        if isinstance(frame, ListFrame):
            self._membership.plain_peers.receive_list(frame.topics, sender[0], now)
            return
        assert isinstance(frame, MessagesFrame)
        self._counters.messages_received += 1
        topic, value = frame.items[0]
        route = self._router.find(topic)
        if route is None:
            self._counters.messages_malformed += 1
            self.reject("bad_topic", sender, f"{topic!r:.80}")
        elif not route.inboxes:
            self._counters.messages_unwanted += 1
        else:
            self._counters.messages_delivered += 1
            wall = now + self._outbox.wall_offset_s
            node = f"{PLAIN_PREFIX}{sender[0]}:{sender[1]}"
            message = make_message(topic, value, None, Origin(node, node, 0, wall, wall))
            self._deliveries.add_to_all(route.inboxes, message)

    def _refuse_by_prefix(self, data: bytes, sender: Address, now: float) -> bool:
        """Whether a large message is unwanted, told without parsing its payload.

        `topic` stands first and `jb` last, so both can be read while the payload is left alone.
        The message is counted all the same.
        """
        topic = peek_topic(data)
        if topic is None:
            return False
        try:
            route = self._router.find(topic.decode())
        except UnicodeDecodeError:
            return False
        if route is None:
            return False
        if route.inboxes:
            self._router.wanted.add(_TOPIC_START + topic + b'"')
            return False
        header = peek_header(data)
        if header is None:
            return False
        counters = self._counters
        counters.datagrams_received += 1
        counters.bytes_received += len(data)
        peer = self._admit(header, sender)
        if peer is not None:
            if not self._membership.hear(header.node, header.incarnation, now):
                self.needs_attention = True
            self._count_messages(peer, header, 1)
            counters.messages_received += 1
            counters.messages_unwanted += 1
            self._remember_unwanted(topic, peer, sender)
        return True

    def _remember_unwanted(self, topic: bytes, peer: Peer, sender: Address) -> None:
        """Let `_skip` know how the next such datagram begins, and who is at that address."""
        self._router.unwanted.add(_TOPIC_START + topic + b'"')
        by_address = self._roster.by_address
        if len(by_address) >= PEERS_MAX:
            by_address.clear()
        by_address[sender] = peer

    def _skip(self, data: bytes, sender: Address, now: float) -> bool:
        """Whether this is the next unwanted message of a node that sent one before.

        All that is looked at is how the datagram begins (by the caller) and how it ends.
        """
        peer = self._roster.by_address.get(sender)
        # The node may have started anew since, or be about to: then it is for `_admit` to say.
        if peer is None or self._peers.get(peer.node) is not peer or peer.challenger is not None:
            return False
        if not peer.admit_next(data):
            return False
        if not self._membership.hear(peer.node, peer.incarnation, now):
            self.needs_attention = True
        counters = self._counters
        counters.datagrams_received += 1
        counters.bytes_received += len(data)
        counters.messages_received += 1
        counters.messages_unwanted += 1
        return True

    def _admit(self, header: Header, sender: Address) -> Peer | None:
        """The sender's peer if the datagram is another node's and heard for the first time."""
        if header.node == self._own_node:
            return None  # multicast brings back what this node sent
        peer = self._roster.get(header.node)
        if peer is None or peer.incarnation != header.incarnation:
            peer = self._roster.meet(header, sender)
            if peer is None:
                self._counters.datagrams_outdated += 1
                return None
            known = self._membership.list.get(header.node)
            if known is not None:
                peer.name = known.name
        elif peer.challenger is not None:
            peer.challenger = None  # the node goes on talking: it was no restart
        if not peer.admit(header.counter):
            self._counters.datagrams_repeated += 1
            return None
        return peer

    def _count_messages(self, peer: Peer, header: Header, count: int) -> None:
        self.count_more(peer, header.first_message, count)

    def count_more(self, peer: Peer, first: int, count: int) -> None:
        """Messages first … first + count - 1 of a node came."""
        missing = peer.count_messages(first, count)
        if missing:
            self._counters.messages_lost += missing
            if missing > 0:
                self.needs_attention = True
                self._emit(MessagesLost(peer.node, peer.name, missing))

    def reject(self, cause: str, sender: Address, detail: str) -> None:
        """Count a refused datagram; report it the first time per cause and sender."""
        self._counters.reject(cause)
        key = (cause, sender[0])
        if key in self._reported:
            return
        if len(self._reported) >= REJECTS_REPORTED_MAX:
            return  # a sender of many addresses; the counters go on
        self._reported.add(key)
        self.needs_attention = True
        self._emit(DatagramRejected(cause, f"{sender[0]}:{sender[1]}", detail))
