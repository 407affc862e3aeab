"""What datagrams decode to: one small class per kind of datagram.

The classes are slotted but not frozen: a frozen dataclass takes three times as long to make,
and frames are made for every datagram. Nobody changes a frame after it was made.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from typing import Any, NamedTuple

try:
    # Where hashlib has it from. hashlib itself loads OpenSSL, which no start should wait for.
    from _blake2 import blake2b
except ImportError:  # an interpreter that keeps it elsewhere
    from hashlib import blake2b

# Lists are compared bucket by bucket when they differ, so that only what differs is sent.
BUCKETS = 256
BUCKET_SUM_BITS = 16

PLAIN_PREFIX = "plain:"  # pseudo-node ids of plain (classic) peers: "plain:ADDRESS"


@dataclass(slots=True)
class Header:
    """Who sent the datagram: the part of `jb` that every datagram of ours has."""

    node: str
    incarnation: int  # when the node started, milliseconds since 1970
    counter: int  # this incarnation's datagrams, from 1
    # Number of the first message inside; in a datagram without messages, of the next one to be
    # sent: so that a loss at the end of a burst is seen without waiting for the next message.
    first_message: int
    sent_us: int


class About(NamedTuple):
    """Where a node runs, and what: told by itself alone, in no list, which would grow by it."""

    host: str | None = None  # what its machine is called
    version: str | None = None  # of its software
    channel_port: int | None = None  # the TCP port at which it takes channels, if it does


#: Of a node that did not tell.
UNTOLD = About()


class Totals(NamedTuple):
    """What a node has counted since it started, in messages; told with where it runs."""

    sent: int = 0
    suppressed: int = 0  # published, and wanted by nobody
    received: int = 0  # from others, whether wanted or not
    lost: int = 0  # of others, and never came
    repaired: int = 0  # sent again for who had missed them
    shares: int = 0  # not messages: full lists sent, which is how late joiners are answered


class Digest(NamedTuple):
    """Equal digests mean identical subscription lists."""

    nodes: int
    hash: int  # XOR of the entries' 64-bit hashes

    def __str__(self) -> str:
        return f"{self.nodes}/{self.hash:016x}"


@dataclass(slots=True, frozen=True)
class Entry:
    """One node's part of the subscription list; immutable, so that lists may share entries."""

    node: str
    incarnation: int
    version: int
    name: str = ""
    patterns: tuple[str, ...] = ()
    mode: str = "delayed"  # basic, master or delayed
    is_master: bool = False  # it answers in mode master
    left: bool = False  # said goodbye: its last version
    gone: bool = False  # not heard for longer than its lease, and asked for in vain

    @property
    def is_plain(self) -> bool:
        return self.node.startswith(PLAIN_PREFIX)

    @property
    def is_alive(self) -> bool:
        return not (self.left or self.gone)

    def hash64(self) -> int:
        """The entry's share of the digest."""
        text = f"{self.node}|{self.incarnation}|{self.version}"
        if self.is_plain:  # nobody numbers a plain list's versions: its content has to tell
            text += "|" + "|".join(self.patterns)
        return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "big")


def bucket_of(node: str) -> int:
    """The bucket that a node's entry is in, the same on every node."""
    return zlib.crc32(node.encode()) % BUCKETS


@dataclass(slots=True)
class MessagesFrame:
    """One message or a batch.

    `items` should be lists [topic, value], with the sequence third if the topic is reliable, and 1
    fourth if the value is retained. Those of a batch are as they came: the node looks each topic up
    anyway, and checks shape and name only where that look-up fails.
    """

    header: Header | None  # None: a plain datagram
    items: list[Any]


@dataclass(slots=True)
class FragmentFrame:
    """A slice of a message that is too large for one datagram (fragments.py)."""

    header: Header
    number: int  # of the message
    index: int  # of the slice, from 0
    count: int  # slices of the message
    text: str
    sequence: int | None = None  # of a reliable topic's message


@dataclass(slots=True)
class ListFrame:
    """(Part of) a subscription list: an announcement, a share, or what differs."""

    header: Header | None  # None: a plain list
    topics: list[str]  # the plain union, without "jsonbus.topics" itself
    entries: list[tuple[Entry, float]]  # with the seconds since the entry's node was heard
    digest: Digest | None  # of the sender's whole list
    sums: int | None  # of the sender's whole list
    # Bit b set: the share holds every entry of bucket b. None: an announcement, which holds only
    # its sender's entry. ALL_BUCKETS: a full share.
    covers: int | None
    part: tuple[int, int]  # index, count
    settled: bool  # the sender was past joining
    # How much may wait for the sender, as its kernel counts it. In announcements, where known.
    receive_buffer_bytes: int | None = None
    about: About = UNTOLD  # of the sender; in announcements


ALL_BUCKETS = (1 << BUCKETS) - 1


@dataclass(slots=True)
class PresenceFrame:
    """I am here; this is my digest; (suspects) has anybody heard of these?"""

    header: Header
    version: int
    name: str
    mode: str
    is_master: bool
    settled: bool
    digest: Digest | None  # None in basic mode
    sums: int | None
    suspects: tuple[tuple[str, int], ...] = ()  # (node, incarnation)
    receive_buffer_bytes: int | None = None  # as in an announcement
    about: About = UNTOLD
    is_answer: bool = False  # somebody asked where the sender is
    totals: Totals | None = None


@dataclass(slots=True)
class ByeFrame:
    """The sender leaves; `version` is its entry's last."""

    header: Header
    version: int


@dataclass(slots=True)
class RequestFrame:
    """A value for whoever serves `topic`."""

    header: Header
    topic: str
    value: Any
    request_id: int
    timeout_ms: int


@dataclass(slots=True)
class ReplyFrame:
    """The answer to node `to`'s request; `error` is None unless the handler failed."""

    header: Header
    to: str
    request_id: int
    value: Any
    error: str | None


class MissingSlices(NamedTuple):
    """What is missing of a message that came in part."""

    sequence: int
    start: int  # the first slice that is missing
    bits: int  # bit b set: slice start + b is missing


class MissingOfTopic(NamedTuple):
    """What is missing of a reliable topic."""

    topic: str
    ranges: list[tuple[int, int]]  # of sequences, first and last
    slices: list[MissingSlices] = []  # of some of them nothing else is missing


@dataclass(slots=True)
class NakFrame:
    """The sender misses these messages of reliable topics."""

    header: Header
    node: str  # whose
    incarnation: int
    topics: list[MissingOfTopic]


@dataclass(slots=True)
class BeatFrame:
    """How far the sender's reliable topics are."""

    header: Header
    beats: list[tuple[str, int, int]]  # topic, last sequence, first that can be had again


@dataclass(slots=True)
class RepairFrame:
    """Messages of reliable topics, sent again because somebody missed them.

    `items` should be lists [topic, value, sequence, number], with 1 fifth if the value is retained,
    but are as they came.
    """

    header: Header
    items: list[Any]


@dataclass(slots=True)
class RetainedFrame:
    """Last values of topics, for nodes that began to want them only now.

    `items` should be lists [topic, value, number, sent_us], but are as they came.
    """

    header: Header
    to: tuple[str, ...]
    items: list[Any]


@dataclass(slots=True)
class PingFrame:
    """Whoever hears this, answer."""

    header: Header
    ping_id: int


@dataclass(slots=True)
class PongFrame:
    """The answer to node `to`'s ping."""

    header: Header
    to: str
    ping_id: int
    about: About = UNTOLD
    totals: Totals | None = None


@dataclass(slots=True)
class WhereFrame:
    """Whoever has this id or this name, tell where you are."""

    header: Header
    who: str


@dataclass(slots=True)
class EchoFrame:
    """Whoever answers echoes, answer in the same size. For `jsonbus doctor`, not for nodes."""

    header: Header
    echo_id: int


@dataclass(slots=True)
class EchoedFrame:
    """The answer to node `to`'s echo, or, to nobody's, the news that the sender answers echoes."""

    header: Header
    to: str  # the sender itself: nobody asked
    echo_id: int
    heard: int  # echoes of `to` that have come so far, each counted once
    repeated: int  # and how many came again
    name: str  # of the sender; only where nobody asked, since an answer may have no room for it


Frame = (
    MessagesFrame
    | FragmentFrame
    | ListFrame
    | PresenceFrame
    | ByeFrame
    | RequestFrame
    | ReplyFrame
    | NakFrame
    | BeatFrame
    | RepairFrame
    | RetainedFrame
    | PingFrame
    | PongFrame
    | WhereFrame
    | EchoFrame
    | EchoedFrame
)
