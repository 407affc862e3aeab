"""What a survey shows: one picture of the bus at one moment.

Tuples, since a picture of thousands of topics is made several times a second.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jsonbus


class TopicView(NamedTuple):
    """A topic that something was heard of."""

    topic: str
    #: The last value; None as well if it was too large to be kept: see `is_value_kept`.
    value: Any
    #: The last message: who sent it, and when.
    message: jsonbus.Message
    #: Messages since the survey began; a retained one that was given to us is none.
    messages: int
    #: Messages per second, over the last few seconds.
    rate: float
    bytes_per_s: float
    #: Of all its messages, each as compact JSON.
    bytes: int
    #: Names of the nodes that published it and are still there, the first one first.
    publishers: tuple[str, ...]
    #: Names of the nodes that subscribe to it.
    subscribers: tuple[str, ...]
    #: The share of its publishers' messages that never came here, 0 to 1. Of *all* their messages:
    #: a lost message does not tell its topic.
    loss: float
    #: When the last message came, seconds since 1970.
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

    What it counts itself is None if it does not tell (yet): plain senders, older nodes.
    """

    info: jsonbus.NodeInfo
    #: Messages of it that came here.
    heard_per_s: float
    #: The share of its messages that never came here, since it was first heard.
    loss: float
    sent_per_s: float | None
    received_per_s: float | None
    suppressed_per_s: float | None
    lost_per_s: float | None
    repaired_per_s: float | None


class Overview(NamedTuple):
    """The whole bus.

    `sent` to `shares` are sums over the nodes that are here and tell (`nodes_telling` of them), so
    a node that leaves takes its share away. What has `here` in its name is this node's own view.
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
    #: Of all that was published, what nobody wanted and so was not sent, 0 to 1.
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
    #: Messages of others that never came here, and their share.
    lost_here: int
    loss_here: float
    #: Messages that came here faster than they could be taken.
    dropped_here: int
    #: Topics, and publishers of a topic, that had to make room for others; their counts are gone.
    topics_forgotten: int
    publishers_forgotten: int
    duplicates: int
    late: int


class Picture(NamedTuple):
    """All of it at one moment. Topics are in no particular order, nodes as they were given."""

    at: float
    topics: list[TopicView]
    nodes: list[NodeView]
    overview: Overview
