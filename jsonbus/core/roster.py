"""Roster: the other nodes that this node hears. Recognizes repeats and counts lost messages.

There is one Peer per node id and incarnation. Its window recognizes repeats among the last 1,024
datagrams, because the same node may be heard on several interfaces. Message numbers show exactly
how many messages were lost; a message that comes late is subtracted from the count.
"""

from __future__ import annotations

from collections.abc import Callable

from jsonbus.core.counters import Counters
from jsonbus.core.events import DatagramRejected, Event, MessagesLost
from jsonbus.core.limits import (
    COUNTER_JUMP,
    DUPLICATE_WINDOW,
    MARKS_MAX,
    PEERS_UNLISTED_MAX,
    REJECTS_REPORTED_MAX,
)
from jsonbus.core.wire.encode import PRESENCE_START
from jsonbus.core.wire.encode_messages import HEADER_END_BYTES, INSTANT_BYTES, header_format
from jsonbus.core.wire.frames import ABOUT_UNKNOWN, About, Digest, Header, Totals
from jsonbus.core.wire.names import INTEGER_MAX, PRESENCE_KEPT_BYTES_MAX

Address = tuple[str, int]

_INSTANT_MAX = b"%d" % INTEGER_MAX
_WINDOW_MASK = (1 << DUPLICATE_WINDOW) - 1


class Peer:
    """The state of one sender, derived from the counters in its datagrams."""

    __slots__ = (
        "_first_message",
        "_header",
        "_jumped_to",
        "_messages_jumped_to",
        "_presence_end",
        "_presence_start",
        "_run",
        "next_message",
        "top",
        "_window",
        "about",
        "address",
        "agreed_on",
        "answered_at",
        "challenger",
        "clock_ahead_s",
        "incarnation",
        "heard_since",
        "lost",
        "_marks",
        "name",
        "node",
        "received",
        "introduced_at",
        "totals",
    )

    def __init__(self, header: Header, address: Address) -> None:
        self.node = header.node
        self.incarnation = header.incarnation
        self._header = header_format(header.node, header.incarnation)
        self.address = address
        self.name = header.node
        self.about = ABOUT_UNKNOWN
        self.totals: Totals | None = None
        #: How far its clock is ahead of this node's, with the time that a datagram takes.
        self.clock_ahead_s: float | None = None
        # The last presence: its bytes up to the counter, as a format, and from behind the instant.
        self._presence_start = b""
        self._presence_end: bytes | None = None
        #: The digest in it.
        self.agreed_on: Digest | None = None
        #: When the node last sent its details (`about`); negative if it never did.
        self.introduced_at = -1.0
        #: When it last sent them in answer to a question.
        self.answered_at = -1.0
        #: Another incarnation with the same id, and the datagrams heard of this one since.
        self.challenger: Peer | None = None
        self.heard_since = 0
        self.received = 0
        self.lost = 0
        self.top = header.counter - 1
        self._window = 0
        # The number of datagrams that came in order since `_window` was last updated. Nearly all
        # do, and shifting a thousand bits for each would cost more than everything else here.
        self._run = 0
        self._jumped_to = 0
        self._messages_jumped_to = -COUNTER_JUMP
        self._first_message = self.next_message = header.first_message
        #: (subscription, next message, messages lost) at the time when this node subscribed.
        self._marks = [(-1, header.first_message, 0)]

    def hold_out(self) -> None:
        """Note that this incarnation goes on talking: the challenger was perhaps forged.

        The challenger is forgotten only after a while: if it is a restart after all, its first
        datagrams would otherwise be taken twice when a late one of this incarnation comes between.
        """
        self.heard_since += 1
        if self.heard_since > DUPLICATE_WINDOW:
            self.challenger = None

    def mark(self, subscription: int) -> None:
        """Note the position of a new subscription of this node. Subscription numbers only grow."""
        _, number, lost = self._marks[-1]
        if (number, lost) != (self.next_message, self.lost):
            self._marks.append((subscription, self.next_message, self.lost))
            if len(self._marks) > MARKS_MAX:
                del self._marks[1]  # claiming too much is better than too little

    def claim(self, subscription: int) -> tuple[int, int]:
        """Return the subscription's first message number, and how many were lost since."""
        for made, number, lost in reversed(self._marks):
            if made <= subscription:
                return number, max(0, self.lost - lost)
        raise AssertionError("the first mark is before all subscriptions")

    def admit(self, counter: int) -> bool:
        """Return whether this datagram is new, and note its counter."""
        ahead = counter - self.top
        if ahead == 1:
            self._run += 1
            self.top = counter
            return True
        self._catch_up()
        if abs(ahead) >= COUNTER_JUMP:
            # Believe a jump only when the next datagram confirms it; a forged one stays alone. This
            # includes jumps backwards, because the forged datagram may have come first.
            is_confirmed = 0 < counter - self._jumped_to <= DUPLICATE_WINDOW
            is_new = counter != self._jumped_to
            self._jumped_to = counter
            if is_confirmed:
                self.top, self._window = counter, 1
            return is_new
        if ahead > 0:
            if ahead >= DUPLICATE_WINDOW:
                self._window = 1
            else:
                self._window = (self._window << ahead | 1) & _WINDOW_MASK
            self.top = counter
            return True
        if ahead <= -DUPLICATE_WINDOW:
            return False
        bit = 1 << -ahead
        if self._window & bit:
            return False
        self._window |= bit
        return True

    def _catch_up(self) -> None:
        """Apply the datagrams that came in order to the window."""
        count = min(self._run, DUPLICATE_WINDOW)
        self._window = (self._window << count | (1 << count) - 1) & _WINDOW_MASK
        self._run = 0

    def go_on(self, count: int) -> None:
        """Note that the next datagram in order came, with `count` messages."""
        self._run += 1
        self.top += 1
        self.next_message += count
        self.received += count

    def is_next(self, data: bytes) -> bool:
        """Return whether a datagram with a single message is the next one in order.

        Its last bytes show that, exactly for datagrams of ours; False for those of others.
        """
        header = self._header % (self.top + 1, self.next_message)
        return (
            data.startswith(header, len(data) - len(header) - HEADER_END_BYTES)
            and self.challenger is None
        )

    def note_presence(self, data: bytes, digest: Digest | None) -> None:
        """Note the presence that just came, to recognize its repetition."""
        if len(data) > PRESENCE_KEPT_BYTES_MAX:
            return
        self._presence_start = PRESENCE_START + self._header
        start = self._presence_start % (self.top, self.next_message)
        if data.startswith(start):  # else it came late, or looks like none of ours
            self._presence_end = data[len(start) + INSTANT_BYTES :]
            self.agreed_on = digest

    def forget_presence(self) -> None:
        """The node says something else, or has left: take the next presence as a new one."""
        self._presence_end = None

    def repeats_presence(self, data: bytes) -> bool:
        """Return whether a datagram is the next one in order, and the presence noted last again."""
        if self._presence_end is None or self.challenger is not None:
            return False
        start = self._presence_start % (self.top + 1, self.next_message)
        end = len(start) + INSTANT_BYTES
        instant = data[len(start) : end]
        return (
            data.startswith(start)
            and data[end:] == self._presence_end
            and instant.isdigit()
            and b"1" <= instant <= _INSTANT_MAX
        )

    def presence_sent_us(self, data: bytes) -> int:
        """Return the instant in a datagram that `repeats_presence`."""
        assert self._presence_end is not None
        end = len(data) - len(self._presence_end)
        return int(data[end - INSTANT_BYTES : end])

    def find_again(self, count: int) -> int:
        """Note that `count` missing messages came after all; return how many had been counted
        as lost.
        """
        found = min(count, self.lost)
        self.lost -= found
        self.received += count
        return found

    def count_messages(self, first: int, count: int) -> int:
        """Note that messages first … first + count - 1 came; return how many more are missing now.

        The result is negative for late messages, which were counted as missing before.
        """
        self.received += count
        missing = first - self.next_message
        if abs(missing) >= COUNTER_JUMP:
            # As with counters, believe a jump when the next datagram confirms it. The messages lost
            # in such a jump cannot be counted.
            if 0 <= first - self._messages_jumped_to < COUNTER_JUMP:
                self._first_message = self.next_message = first + count
            self._messages_jumped_to = first + count
            return 0
        if missing >= 0:
            self.next_message = first + count
        elif first < self._first_message:
            return 0  # sent before this peer was met: not counted as missing
        else:
            missing = -min(count, self.lost)
        self.lost += missing
        return missing


class Roster:
    """Peers by node id. Reports what they lost, and what was refused.

    All nodes in the subscription list have their peer, as soon as they were heard; of other senders
    so many that no number of nodes that come and go, and no forger, can fill the memory.
    """

    def __init__(self, counters: Counters, emit: Callable[[Event], None]) -> None:
        self.peers: dict[str, Peer] = {}
        #: Peers that are not in the list, the first to be forgotten first.
        self._unlisted: dict[str, None] = {}
        #: Set when a datagram may have changed timers or caused output. Messages of known nodes do
        #: neither, and a flood of them should not make a front end check its timers each time.
        self.needs_attention = True
        self.counters = counters
        self._emit = emit
        self._reported: set[tuple[str, str]] = set()  # (cause, address)

    def about(self, node: str) -> About:
        """Return what the node has reported about itself."""
        peer = self.peers.get(node)
        return ABOUT_UNKNOWN if peer is None else peer.about

    def meet(self, header: Header, address: Address) -> Peer | None:
        """Return the sender's peer, a new one for a new incarnation; None for an old incarnation.

        A new incarnation takes over when it is heard twice before the old one is heard again: a
        single forged datagram must not make a node that is still sending look outdated.
        """
        node = header.node
        peer = self.peers.get(node)
        if peer is None:
            peer = self.peers[node] = Peer(header, address)
            self.note_unlisted(node)  # until the caller knows better
            return peer
        if peer.incarnation == header.incarnation:
            peer.hold_out()
            return peer
        if header.incarnation < peer.incarnation:
            return None
        challenger = peer.challenger
        if challenger is None or challenger.incarnation != header.incarnation:
            challenger = peer.challenger = Peer(header, address)
        elif not peer.heard_since:
            self.peers[node] = challenger
        peer.heard_since = 0
        return challenger

    def note_listed(self, node: str) -> None:
        """The node is in the subscription list: keep its peer."""
        self._unlisted.pop(node, None)

    def note_unlisted(self, node: str) -> None:
        """The node is not in the list, or no longer: keep its peer for a while."""
        peer = self.peers.get(node)
        if peer is None:
            return
        peer.forget_presence()
        self._unlisted[node] = None
        if len(self._unlisted) > PEERS_UNLISTED_MAX:
            oldest = next(iter(self._unlisted))
            del self._unlisted[oldest]
            del self.peers[oldest]

    def count_messages(self, peer: Peer, first: int, count: int) -> None:
        """Note that messages first … first + count - 1 of a node came; count what is missing."""
        missing = peer.count_messages(first, count)
        if missing:
            self.counters.messages_lost += missing
            if missing > 0:
                self.needs_attention = True
                self._emit(MessagesLost(peer.node, peer.name, missing))

    def reject(self, cause: str, sender: Address, detail: str) -> None:
        """Count a refused datagram; report it the first time per cause and sender."""
        self.counters.reject(cause)
        key = (cause, sender[0])
        # Beyond the bound, refused datagrams are only counted, in case one sender uses many
        # addresses.
        if key in self._reported or len(self._reported) >= REJECTS_REPORTED_MAX:
            return
        self._reported.add(key)
        self.needs_attention = True
        self._emit(DatagramRejected(cause, f"{sender[0]}:{sender[1]}", detail))
