"""Where nodes are: who wants to talk to one directly needs its address.

A node tells the port at which it takes channels in what it says of itself (About); its address is
where that came from. Lists tell neither, and a newcomer has heard most nodes only through lists: so
it asks, by id or by name, and whoever is meant answers with presence. Answers are noted for all,
asked for or not.
"""

from __future__ import annotations

from collections.abc import Callable, Container
from typing import NamedTuple

from jsonbus.core.events import Event, NodeIntroduced
from jsonbus.core.limits import INTRODUCED_S
from jsonbus.core.membership.buffers import PeerBuffers
from jsonbus.core.membership.membership import Membership
from jsonbus.core.outbox import Outbox
from jsonbus.core.roster import Peer, Roster
from jsonbus.core.settings import NodeSettings
from jsonbus.core.wire.encode import encode_where
from jsonbus.core.wire.frames import UNTOLD, ListFrame, PongFrame, PresenceFrame, WhereFrame
from jsonbus.core.wire.names import is_node_name
from jsonbus.errors import ClosedError


class Place(NamedTuple):
    """A node that was asked for, and where its channels are, as far as that is known."""

    node: str
    name: str
    is_self: bool = False
    host: str | None = None  # its address; None: the node itself was not heard yet
    port: int | None = None  # of TCP; None: it takes no channels, or did not tell
    told_at: float = -1.0  # when it told; before any `now` if it did not
    answered_at: float = -1.0  # the same, because somebody had asked


class Directory:
    """What is known of where others are, and what this node answers when it is asked for."""

    __slots__ = (
        "_emit",
        "_lookups",
        "_membership",
        "_outbox",
        "_own",
        "_roster",
        "buffers",
    )

    def __init__(
        self,
        own: NodeSettings,
        *,
        membership: Membership,
        roster: Roster,
        outbox: Outbox,
        emit: Callable[[Event], None],
    ) -> None:
        self._own = own
        self._membership = membership
        self._roster = roster
        self._outbox = outbox
        self._emit = emit
        self._lookups = 0
        self.buffers = PeerBuffers()

    def set_channel_port(self, port: int, now: float) -> None:
        """Tell the other nodes that this one takes channels at that TCP port."""
        if self._membership.is_closed:
            raise ClosedError("the bus is closed")
        self._membership.set_channel_port(port, now)

    def start_lookup(self) -> None:
        """Emit NodeIntroduced, until `stop_lookup`, for every node that tells where it is."""
        self._lookups += 1

    def stop_lookup(self) -> None:
        """End one lookup; the events end with the last."""
        self._lookups -= 1

    def ask(self, who: str, now: float) -> None:
        """Ask the nodes with that id or name to tell where they are. Ignored on a closed node."""
        if self._membership.is_closed:
            return
        # Nobody can be called what cannot travel.
        if who and is_node_name(who) and who == who.encode(errors="replace").decode():
            self._outbox.put_control(encode_where, now, who=who)

    def smallest_buffer(self, hosts: Container[str]) -> int | None:
        """Return the smallest receive buffer on these hosts, as their kernels count.

        None if no node told its size. This node's own buffer counts on whatever host it runs.
        Cheap as long as `hosts` is the same object.
        """
        own, smallest = self._own.receive_buffer_bytes, self.buffers.smallest(hosts)
        if own is None or smallest is None:
            return smallest if own is None else own
        return min(own, smallest)

    def receive_where(self, frame: WhereFrame, now: float) -> None:
        if frame.who in (self._own.node, self._own.name):
            self._membership.introduce(now)

    def note(
        self,
        frame: PresenceFrame | ListFrame | PongFrame,
        peer: Peer,
        sender: tuple[str, int],
        now: float,
    ) -> bool:
        """Remember what a node says of itself; whether somebody waits for that."""
        if not isinstance(frame, ListFrame) and frame.totals is not None:
            peer.totals = frame.totals
        if isinstance(frame, PresenceFrame):
            if frame.suspects:
                return False  # that leaves no room for introductions
            peer.name = frame.name
            if frame.is_answer:
                peer.answered_at = now
        elif frame.about is UNTOLD:
            return False
        peer.about = frame.about
        peer.address = sender
        peer.told_at = now
        if not self._lookups:
            return False
        self._emit(NodeIntroduced(peer.node))
        return True

    def find(self, who: str, now: float) -> list[Place]:
        """The nodes with that id; else those with that name, in the order of their ids."""
        entries = self._membership.list
        named = entries.get(who)
        if named is not None and not named.is_plain:
            return [self._place(who, named.name)]
        found = {
            entry.node: entry.name for entry in entries if entry.name == who and not entry.is_plain
        }
        # Who has just introduced itself may not be in the list yet, or, in mode basic, never be.
        for peer in self._roster.peers.values():
            if peer.told_at >= now - INTRODUCED_S and who in (peer.node, peer.name):
                if peer.node not in entries.tombstones:
                    found.setdefault(peer.node, peer.name)
        return [self._place(node, found[node]) for node in sorted(found)]

    def _place(self, node: str, name: str) -> Place:
        if node == self._own.node:
            return Place(node, name, is_self=True)
        peer = self._roster.get(node)
        if peer is None or peer.told_at < 0:
            return Place(node, name)
        return Place(
            node,
            name,
            host=peer.address[0],
            port=peer.about.channel_port,
            told_at=peer.told_at,
            answered_at=peer.answered_at,
        )
