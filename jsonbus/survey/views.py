"""Views: one picture of the bus at one moment.

Tuples, since a picture of thousands of topics is made several times a second.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jsonbus


class TopicView(NamedTuple):
    """A topic of which something was heard."""

    topic: str
    #: The last value; also None if it was too large to be kept: see `is_value_kept`.
    value: Any
    #: The last message: who sent it, and when.
    message: jsonbus.Message
    #: Messages since the survey began; retained ones that were given to us do not count.
    messages: int
    #: Messages per second, over the last few seconds.
    rate: float
    bytes_per_s: float
    #: Bytes of all its messages, each as compact JSON.
    bytes: int
    #: Names of the nodes that published it and are still there, the first one first.
    publishers: tuple[str, ...]
    #: Names of the nodes that subscribe to it.
    subscribers: tuple[str, ...]
    #: The fraction of its publishers' messages that never came here, 0 to 1. Of *all* their
    #: messages: a lost message does not say what its topic was.
    loss: float
    #: When the last message came, in seconds since 1970.
    last_at: float
    #: How large the last value is, as compact JSON.
    size: int = 0
    is_value_kept: bool = True
    #: Messages that came twice, and are counted once.
    duplicates: int = 0
    #: Messages that came after a later one of the same publisher; the later one's value is shown.
    late: int = 0


class NodeView(NamedTuple):
    """A node, and what it does per second, over the last few seconds.

    What it counts itself is None if it does not report it (yet): plain senders, older nodes.
    """

    info: jsonbus.NodeInfo
    #: Messages from it that came here.
    heard_per_s: float
    #: The fraction of its messages that never came here, since it was first heard.
    loss: float
    sent_per_s: float | None
    received_per_s: float | None
    suppressed_per_s: float | None
    lost_per_s: float | None
    repaired_per_s: float | None


class Overview(NamedTuple):
    """The whole bus.

    `sent` to `shares` are sums over the nodes that are here and report totals (`nodes_telling` of
    them), so when a node leaves, its part is gone. Names with `here` are this node's own view.
    """

    nodes: int
    nodes_telling: int
    topics: int
    #: Messages per second that came here, over the last few seconds.
    rate: float
    bytes_per_s: float
    #: Since the survey began.
    messages: int
    bytes: int
    sent: int
    suppressed: int
    #: The fraction of everything published that nobody wanted, and that was not sent, 0 to 1.
    suppressed_share: float
    received: int
    #: Messages that nodes missed; one that three nodes missed counts three times.
    lost: int
    #: lost / (received + lost).
    loss: float
    repaired: int
    shares: int
    sent_per_s: float
    suppressed_per_s: float
    #: Messages of others that never came here, and their fraction.
    lost_here: int
    loss_here: float
    #: Messages that came here faster than they could be taken.
    dropped_here: int
    #: Topics, and publishers of a topic, that made room for others; their counts are gone.
    topics_forgotten: int
    publishers_forgotten: int
    duplicates: int
    late: int


class Picture(NamedTuple):
    """Everything at one moment. Topics are in no particular order, nodes as they were given."""

    at: float
    topics: list[TopicView]
    nodes: list[NodeView]
    overview: Overview
