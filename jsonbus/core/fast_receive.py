"""FastReceive: where every datagram comes in, and the short way for most of them.

Nearly all datagrams hold messages and are the very next one of a node that was heard before. For
these, `receive` reads the few header fields that matter from the parsed JSON and goes straight to
the messages: no look for repeats, gaps or restarts, no frame. Everything else is decoded in full
and goes to `Receiver`. tests/core/receiver/test_equivalence.py holds the two ways to one result.

A large message for which no subscription asks is recognised before its payload is parsed.
"""

from __future__ import annotations

from typing import Any

from jsonbus.core.batch_receive import Batches
from jsonbus.core.limits import PEEK_BYTES_MIN
from jsonbus.core.receiver import Address, Receiver
from jsonbus.core.roster import Arrivals, Peer, Roster
from jsonbus.core.routing.router import Router
from jsonbus.core.values.fragments import LargeValues, Slice
from jsonbus.core.wire.decode import (
    DEEP_BYTES_MIN,
    decode_body,
    may_be_deep,
    parse,
    peek_header,
    peek_topic,
    single_item,
)
from jsonbus.core.wire.frames import MessagesFrame
from jsonbus.core.wire.names import (
    BATCH,
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

_TOPIC_START = b'{"topic":"'
_TOPIC_START_BYTES = len(_TOPIC_START)
_RESERVED_START = _TOPIC_START + RESERVED_PREFIX.encode()


class FastReceive:
    """See the head of this file."""

    __slots__ = ("_arrivals", "_batches", "_large_values", "_peers", "_receiver", "_router")

    def __init__(
        self,
        roster: Roster,
        router: Router,
        arrivals: Arrivals,
        batches: Batches,
        large_values: LargeValues,
        receiver: Receiver,
    ) -> None:
        self._peers = roster.peers
        self._router = router
        self._arrivals = arrivals
        self._batches = batches
        self._large_values = large_values
        self._receiver = receiver

    def receive(self, data: bytes, sender: Address, now: float) -> None:
        """Take a datagram; bad input is counted, never raised."""
        # A batch, or anything else that is reserved, has no one topic to be refused by.
        if len(data) >= PEEK_BYTES_MIN and not data.startswith(_RESERVED_START):
            start = data[: data.find(b'"', _TOPIC_START_BYTES) + 1]
            if start not in self._router.wanted:
                unwanted = self._peek_unwanted(data)
                if unwanted is not None:
                    self._receiver.receive_frame(unwanted, sender, now, len(data))
                    return
        try:
            body = parse(data)
            if self._receive_next(body, data, now):
                return
            frame = decode_body(body, data)
        except DatagramError as error:
            self._arrivals.count(len(data))
            self._arrivals.reject(error.cause, sender, error.detail)
            return
        self._receiver.receive_frame(frame, sender, now, len(data))

    def _receive_next(self, body: Any, data: bytes, now: float) -> bool:
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
        self._arrivals.take_next(peer, len(items), len(data), now)
        self._batches.receive(items, first, sent_us, peer, now)
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
        self._arrivals.take_next(peer, 0, size_bytes, now)
        piece = Slice(number, index, count, text, sequence, header[KEY_SENT_US])
        self._large_values.receive(piece, peer, now)
        return True

    def _peek_unwanted(self, data: bytes) -> MessagesFrame | None:
        """Return the frame of a large message, without its value, if nobody here wants it.

        `topic` stands first and `jb` last, so both can be read without parsing the payload.
        """
        topic = peek_topic(data)
        if topic is None:
            return None
        try:
            name = topic.decode()
        except UnicodeDecodeError:
            return None
        route = self._router.find(name)
        if route is None:
            return None
        if route.inboxes:
            self._router.wanted.add(_TOPIC_START + topic + b'"')
            return None
        header = peek_header(data)
        return None if header is None else MessagesFrame(header, [[name, None]])
