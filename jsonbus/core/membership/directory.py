"""Directory: the addresses of nodes, for channels, and the sizes of their receive buffers.

A node includes the port at which it accepts channels in its announcements and presences (About);
its address is where those came from. Lists contain neither, and a newcomer has heard of most nodes
only through lists. So it asks, by id or by name, and the nodes that are meant answer with presence.
The directory notes what nodes say of themselves whether or not it asked.

A publisher needs the smallest receive buffer on its own host, several hundred times a second while
it floods, among up to 10,000 nodes: `PeerBuffers` keeps the answer until a node on these hosts
changes it.
"""

from __future__ import annotations

from collections.abc import Callable, Container
from typing import NamedTuple

from jsonbus.core.events import Event, NodeIntroduced
from jsonbus.core.limits import INTRODUCED_S
from jsonbus.core.membership.membership import Membership
from jsonbus.core.outbox import Outbox
from jsonbus.core.roster import Peer, Roster
from jsonbus.core.settings import NodeSettings
from jsonbus.core.wire.encode import encode_where
from jsonbus.core.wire.frames import ABOUT_UNKNOWN, ListFrame, PongFrame, PresenceFrame, WhereFrame
from jsonbus.core.wire.names import is_node_name
from jsonbus.errors import ClosedError


class Place(NamedTuple):
    """A node, and the address of its channels as far as it is known."""

    node: str
    name: str
    is_self: bool = False
    host: str | None = None  # its address; None: the node was not heard yet
    port: int | None = None  # of TCP; None: it accepts no channels, or has not said so yet
    introduced_at: float = -1.0  # when it last said so; before any `now` if never
    answered_at: float = -1.0  # when it last did so because a node asked


class Directory:
    """Looks up nodes by id or name, and answers when another node looks up this one."""

    def __init__(
        self,
        own: NodeSettings,
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
        """Announce that this node accepts channels at that TCP port."""
        if self._membership.is_closed:
            raise ClosedError("the bus is closed")
        self._membership.set_channel_port(port, now)

    def start_lookup(self) -> None:
        """Emit NodeIntroduced for every node that states its address, until `stop_lookup`."""
        self._lookups += 1

    def stop_lookup(self) -> None:
        """End one lookup; the events end with the last."""
        self._lookups -= 1

    def ask(self, who: str, now: float) -> None:
        """Ask the nodes with that id or name for their address. Ignored on a closed node."""
        if self._membership.is_closed:
            return
        # No node has a name that cannot be sent.
        if who and is_node_name(who) and who == who.encode(errors="replace").decode():
            self._outbox.put_control(encode_where(who), now)

    def smallest_buffer(self, hosts: Container[str]) -> int | None:
        """Return the smallest receive buffer on these hosts, as their kernels count.

        None if no node announced its size. This node's own buffer counts on whatever host it runs.
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
        """Note what a node says of itself; True if that emitted an event."""
        peer.forget_presence()
        if frame.header is not None:
            self._note_clock(peer, frame.header.sent_us, now)
        if not isinstance(frame, ListFrame) and frame.totals is not None:
            peer.totals = frame.totals
        if isinstance(frame, PresenceFrame):
            if frame.suspects:
                return False  # such presences leave no room for `about`
            peer.name = frame.name
            if frame.is_answer:
                peer.answered_at = now
        elif frame.about is ABOUT_UNKNOWN:
            return False
        peer.about = frame.about
        peer.address = sender
        peer.introduced_at = now
        if not self._lookups:
            return False
        self._emit(NodeIntroduced(peer.node))
        return True

    def note_again(self, peer: Peer, data: bytes, now: float) -> bool:
        """Note that a node says of itself what it said before; False if somebody waits for that."""
        if self._lookups:
            return False
        self._note_clock(peer, peer.presence_sent_us(data), now)
        peer.introduced_at = now
        return True

    def find(self, who: str, now: float) -> list[Place]:
        """Return the node with that id; else those with that name, in the order of their ids."""
        entries = self._membership.list
        named = entries.get(who)
        if named is not None and not named.is_plain:
            return [self._place(who, named.name)]
        found = {
            entry.node: entry.name for entry in entries if entry.name == who and not entry.is_plain
        }
        # A node that was just heard may not be in the list yet, or, in mode basic, never be.
        for peer in self._roster.peers.values():
            if peer.introduced_at >= now - INTRODUCED_S and who in (peer.node, peer.name):
                if peer.node not in entries.tombstones:
                    found.setdefault(peer.node, peer.name)
        return [self._place(node, found[node]) for node in sorted(found)]

    def _note_clock(self, peer: Peer, sent_us: int, now: float) -> None:
        peer.clock_ahead_s = sent_us / 1_000_000 - (now + self._outbox.wall_offset_s)

    def _place(self, node: str, name: str) -> Place:
        if node == self._own.node:
            return Place(node, name, is_self=True)
        peer = self._roster.peers.get(node)
        if peer is None or peer.introduced_at < 0:
            return Place(node, name)
        return Place(
            node,
            name,
            host=peer.address[0],
            port=peer.about.channel_port,
            introduced_at=peer.introduced_at,
            answered_at=peer.answered_at,
        )


class PeerBuffers:
    """Sizes by node id. The caller keeps it as small as the subscription list."""

    __slots__ = ("_hosts", "_is_current", "_known", "_smallest")

    def __init__(self) -> None:
        self._known: dict[str, tuple[str, int]] = {}  # node -> host and bytes
        self._hosts: Container[str] = ()  # of the last call of `smallest`
        self._smallest: int | None = None  # on these hosts
        self._is_current = True

    def note(self, node: str, host: str, size_bytes: int) -> None:
        """Note the size of a node's buffer; `host` is the address that it was heard from."""
        known = self._known.get(node)
        if known != (host, size_bytes):
            self._known[node] = (host, size_bytes)
            if host in self._hosts or (known is not None and known[0] in self._hosts):
                self._is_current = False

    def forget(self, node: str) -> None:
        """The node is gone."""
        known = self._known.pop(node, None)
        if known is not None and known[0] in self._hosts:
            self._is_current = False

    def smallest(self, hosts: Container[str]) -> int | None:
        """Return the smallest size on these hosts; None if it is known of no node there."""
        if hosts is not self._hosts or not self._is_current:
            self._hosts = hosts
            sizes = [size for host, size in self._known.values() if host in hosts]
            self._smallest = min(sizes, default=None)
            self._is_current = True
        return self._smallest
