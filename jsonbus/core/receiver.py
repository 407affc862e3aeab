"""Receiver: takes a decoded frame, drops repeats, counts losses, and calls the handler of its type.

fast_receive.py comes before: it decodes, and takes most datagrams with messages itself.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from jsonbus.core.fast_receive import FastReceive
from jsonbus.core.limits import BUFFER_BYTES_MIN, DUPLICATE_WINDOW, PLAIN_HEARD_S, PLAIN_LEASE_S
from jsonbus.core.membership.directory import Directory
from jsonbus.core.membership.membership import Membership
from jsonbus.core.outbox import Outbox
from jsonbus.core.roster import Address, Peer, Roster
from jsonbus.core.wire.frames import (
    EchoedFrame,
    EchoFrame,
    Frame,
    Header,
    ListFrame,
    MessagesFrame,
    PongFrame,
    PresenceFrame,
)

#: Called with a frame of its type, the peer that sent it, and the time.
Handler = Callable[[Any, Peer, float], None]


class Receiver:
    """Sorts frames. `handlers` has one entry per type of frame without messages."""

    def __init__(
        self,
        own_node: str,
        roster: Roster,
        fast_receive: FastReceive,
        *,
        membership: Membership,
        directory: Directory,
        outbox: Outbox,
        handlers: dict[type[Any], Handler],
    ) -> None:
        self._own_node = own_node
        self._roster = roster
        self._counters = roster.counters
        self._fast_receive = fast_receive
        self._membership = membership
        self._directory = directory
        self._outbox = outbox
        self._handlers = handlers

    def receive_frame(
        self, frame: Frame, sender: Address, now: float, size_bytes: int, data: bytes = b""
    ) -> None:
        """Take a frame that was decoded from a datagram of that size.

        With the datagram itself, a presence is recognized when it comes again.
        """
        self._counters.datagrams_received += 1
        self._counters.bytes_received += size_bytes
        header = frame.header
        if header is None:
            self._receive_plain(frame, sender, now)
            return
        if isinstance(frame, (EchoFrame, EchoedFrame)):
            return  # sent by a program that measures the network and is no node
        peer = self._admit(frame, header, sender)
        if peer is None:
            return
        first = header.first_message
        if type(frame) is not MessagesFrame:
            # Such datagrams carry the number of the next message: a loss at the end of a burst is
            # noticed without waiting for the next burst.
            if first != peer.next_message:
                self._roster.count_messages(peer, first, 0)
            self._receive_control(frame, peer, sender, now, data)
            return
        if not self._membership.hear(peer.node, peer.incarnation, now):
            self._roster.needs_attention = True
        self._roster.count_messages(peer, first, len(frame.items))
        self._fast_receive.deliver(frame.items, first, header.sent_us, peer, now)

    def _admit(self, frame: Frame, header: Header, sender: Address) -> Peer | None:
        """Return the sender's peer if it is another node, and the datagram not a repeat."""
        if header.node == self._own_node:
            return None  # multicast brings back what this node sent
        peer = self._roster.peers.get(header.node)
        if peer is None or peer.incarnation != header.incarnation or peer.challenger is not None:
            peer = self._roster.meet(header, sender)
            if peer is None:
                self._counters.datagrams_outdated += 1
                return None
            known = self._membership.list.get(header.node)
            if known is not None:
                peer.name = known.name
                self._roster.note_listed(header.node)
        if not peer.admit(header.counter):
            # Behind the window a repeat looks like a datagram that comes late. A late list must not
            # be lost, and a repeated one does no harm.
            is_late = header.counter <= peer.top - DUPLICATE_WINDOW
            if not (is_late and isinstance(frame, (ListFrame, PresenceFrame))):
                self._counters.datagrams_repeated += 1
                return None
        return peer

    def _receive_control(
        self, frame: Frame, peer: Peer, sender: Address, now: float, data: bytes
    ) -> None:
        roster, membership = self._roster, self._membership
        is_settled = False
        # First, because the handler may report a new node, with what the node said of itself.
        if isinstance(frame, (PresenceFrame, ListFrame, PongFrame)):
            if self._directory.note(frame, peer, sender, now):
                roster.needs_attention = True
            if not isinstance(frame, PongFrame):
                is_settled = membership.try_confirm_unchanged(frame, now)
                if is_settled and isinstance(frame, PresenceFrame):
                    roster.needs_attention |= membership.accompany(peer.node, now)
        if not is_settled:
            roster.needs_attention = True
            self._handlers[type(frame)](frame, peer, now)
        # Last, because the frame may just have introduced the node.
        if not membership.hear(peer.node, peer.incarnation, now):
            roster.needs_attention = True
        elif isinstance(frame, (PresenceFrame, ListFrame)):
            size = frame.receive_buffer_bytes
            if size is not None and size >= BUFFER_BYTES_MIN:
                self._directory.buffers.note(peer.node, sender[0], size)
            if data and isinstance(frame, PresenceFrame) and frame.is_calm:
                peer.note_presence(data, frame.digest)

    def _receive_plain(self, frame: Frame, sender: Address, now: float) -> None:
        """Take a datagram of a node or sensor that knows only `topic` and `payload`."""
        self._counters.datagrams_plain += 1
        self._roster.needs_attention = True
        plain_peers = self._membership.plain_peers
        has_list = plain_peers.hear(sender[0], now)
        self._outbox.send_unbatched(now + (PLAIN_LEASE_S if has_list else PLAIN_HEARD_S))
        if isinstance(frame, ListFrame):
            plain_peers.receive_list(frame.topics, sender[0], now)
            return
        assert isinstance(frame, MessagesFrame)
        topic, value = frame.items[0]
        self._fast_receive.deliver_plain(topic, value, sender, now)
