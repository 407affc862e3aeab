"""Frames, which datagrams are decoded to: one small class per kind of datagram.

The classes are slotted but not frozen: a frozen dataclass takes three times as long to make, and
a frame is made for every datagram. Nothing changes a frame after it was made.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from typing import Any, NamedTuple

try:
    # hashlib takes it from there, too, but loads OpenSSL, which would delay every start.
    from _blake2 import blake2b
except ImportError:  # an interpreter that keeps it elsewhere
    from hashlib import blake2b

# Lists are compared bucket by bucket when they differ, so that only what differs is sent.
BUCKETS = 256
BUCKET_SUM_BITS = 16

PLAIN_PREFIX = "plain:"  # pseudo-node ids of plain (classic) peers: "plain:ADDRESS"


@dataclass(slots=True)
class Header:
    """The part of `jb` that every datagram of a node has: its sender and its numbers."""

    node: str
    incarnation: int  # when the node started, milliseconds since 1970
    counter: int  # this incarnation's datagrams, from 1
    # The number of the first message inside; in a datagram without messages, that of the next one
    # to be sent, which reveals a loss at the end of a burst before the next message.
    first_message: int
    sent_us: int


class About(NamedTuple):
    """Host, software version and channel port of a node.

    Sent only by the node itself; kept out of lists to keep them small.
    """

    host: str | None = None  # the name of its machine
    version: str | None = None  # of its software
    channel_port: int | None = None  # the TCP port on which it accepts channels, if it does


#: Of a node that has not reported it.
ABOUT_UNKNOWN = About()


class Totals(NamedTuple):
    """Messages that a node has counted since it started; sent together with About."""

    sent: int = 0
    suppressed: int = 0  # published, and wanted by nobody
    received: int = 0  # from others, whether wanted or not
    lost: int = 0  # of others, and never came
    repaired: int = 0  # sent again for nodes that had missed them
    shares: int = 0  # full lists sent, not messages: the answers to late joiners


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
    gone: bool = False  # not heard for longer than its lease, and did not answer
    is_coarse: bool = False  # it wants less than the patterns say: they stand for too many others

    @property
    def is_plain(self) -> bool:
        return self.node.startswith(PLAIN_PREFIX)

    @property
    def is_alive(self) -> bool:
        return not (self.left or self.gone)

    def hash64(self) -> int:
        """Return the hash of the entry, of which the digest is the XOR."""
        text = f"{self.node}|{self.incarnation}|{self.version}"
        if self.is_plain:  # a plain list has no version, so its content is hashed
            text += "|" + "|".join(self.patterns)
        return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "big")


def bucket_of(node: str) -> int:
    """Return the bucket of a node's entry; it is the same on every node."""
    return zlib.crc32(node.encode()) % BUCKETS


@dataclass(slots=True)
class MessagesFrame:
    """One message or a batch.

    `items` should be lists [topic, value], with the sequence third if the topic is reliable, and 1
    fourth if the value is retained. The items of a batch are not checked: the receiver looks every
    topic up anyway, and checks an item only if that fails.
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
    """A subscription list or a part of it: an announcement, a share, or what differs."""

    header: Header | None  # None: a plain list
    topics: list[str]  # the plain union, without "jsonbus.topics" itself
    entries: list[tuple[Entry, float]]  # with the seconds since the entry's node was heard
    digest: Digest | None  # of the sender's whole list
    sums: int | None  # of the sender's whole list
    # Bit b set: the share holds every entry of bucket b. None: an announcement, which holds only
    # its sender's entry. ALL_BUCKETS: a full share.
    covers: int | None
    part: tuple[int, int]  # index, count
    settled: bool  # the sender has been sure: its agreement counts
    # The size of the sender's receive buffer, as its kernel counts. In announcements, where known.
    receive_buffer_bytes: int | None = None
    about: About = ABOUT_UNKNOWN  # of the sender; in announcements


ALL_BUCKETS = (1 << BUCKETS) - 1


@dataclass(slots=True)
class PresenceFrame:
    """A sign of life with the sender's digest; asks whether anybody has heard of the suspects."""

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
    about: About = ABOUT_UNKNOWN
    is_answer: bool = False  # to the question where the sender is
    totals: Totals | None = None

    @property
    def is_calm(self) -> bool:
        """Whether it claims to know the list, and asks and answers nothing."""
        return self.settled and self.digest is not None and not (self.suspects or self.is_answer)


@dataclass(slots=True)
class ByeFrame:
    """The sender leaves; `version` is its entry's last."""

    header: Header
    version: int


@dataclass(slots=True)
class RequestFrame:
    """A value for a node that serves `topic`."""

    header: Header
    topic: str
    value: Any
    request_id: int
    timeout_ms: int  # how long the sender still waits


@dataclass(slots=True)
class ReplyFrame:
    """The answer to node `to`'s request; `error` is None unless the handler failed.

    If `to` sent it itself, it no longer waits for an answer.
    """

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
    slices: list[MissingSlices] = []  # the only parts of those messages that are missing


@dataclass(slots=True)
class NakFrame:
    """The sender misses these messages of reliable topics."""

    header: Header
    node: str  # whose
    incarnation: int
    topics: list[MissingOfTopic]


@dataclass(slots=True)
class BeatFrame:
    """The last sequence of reliable topics of the sender, and what it still keeps."""

    header: Header
    beats: list[tuple[str, int, int]]  # topic, last sequence, first that can be repaired


@dataclass(slots=True)
class RepairFrame:
    """Messages of reliable topics, sent again because a subscriber missed them.

    `items` should be lists [topic, value, sequence, number], with 1 fifth if the value is retained;
    they are not checked yet.
    """

    header: Header
    items: list[Any]


@dataclass(slots=True)
class RetainedFrame:
    """Last values of topics, for nodes that have just subscribed.

    `items` should be lists [topic, value, number, sent_us]; they are not checked yet.
    """

    header: Header
    to: tuple[str, ...]
    items: list[Any]


@dataclass(slots=True)
class PingFrame:
    """Asks every node for an answer."""

    header: Header
    ping_id: int


@dataclass(slots=True)
class PongFrame:
    """The answer to node `to`'s ping."""

    header: Header
    to: str
    ping_id: int
    about: About = ABOUT_UNKNOWN
    totals: Totals | None = None


@dataclass(slots=True)
class WhereFrame:
    """Asks the nodes with this id or name for their address."""

    header: Header
    who: str


@dataclass(slots=True)
class EchoFrame:
    """Asks for an answer of the same size. Only `jsonbus doctor` sends and answers it."""

    header: Header
    echo_id: int


@dataclass(slots=True)
class EchoedFrame:
    """The answer to an echo of node `to`, or the announcement that the sender answers echoes."""

    header: Header
    to: str  # the sender itself in an announcement
    echo_id: int
    heard: int  # echoes of `to` received so far, each counted once
    repeated: int  # of them, received more than once
    name: str  # of the sender; only in an announcement, because an answer may have no room for it


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
