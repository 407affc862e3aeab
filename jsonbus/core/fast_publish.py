"""The short way from publish() to a datagram, for topics whose fate is known.

Theory of operation. Most messages go to a topic that was published to before, while nobody's
subscriptions changed. For such a topic the publisher leaves a *lane* here: the beginning of its
messages' JSON, or nothing at all if nobody wants them. A front end looks the lane up, and

- without one, takes the long way (`Node.publish`), which leaves one if it can;
- with an empty one, counts the message as suppressed, and is done;
- else, while messages *gather*, adds its own to them, as bytes: `lane + payload`.

Lanes are forgotten whenever something changes that they were made from. Messages gather in a plain
list; the outbox turns it into datagrams, and gives the messages their numbers only then.

All of it is done with single operations on a dict, a list and a counter, each of which is whole
even if threads meet in it. So a front end with threads needs no lock on this way. What it has to
heed stands with `limit`.
"""

from __future__ import annotations

from itertools import count
from typing import Any

#: At most so many messages share a datagram. More would save nothing that can be measured, and
#: their values, all alive at once where they are received, would cost fresh memory for each.
SHARING_MAX = 100


class Express:
    """Lanes, and what gathers."""

    __slots__ = (
        "_asked",
        "alone_min",
        "gathered",
        "is_flood",
        "lanes",
        "limit",
        "size_max",
        "suppressed",
        "whole_max",
    )

    def __init__(self) -> None:
        #: By topic: `["topic",` or nothing. Keyed by whatever is looked up, filled with topics.
        self.lanes: dict[Any, bytes] = {}
        #: The JSON of messages, `["topic",payload`, each without its last bracket.
        self.gathered: list[bytes] = []
        #: Fewer messages than this may gather unattended. The front end sets it to what fills a
        #: datagram while it has planned to come back, and to 0 when it has not. Whoever adds a
        #: message looks here afterwards, and attends to it unless there is room: so none stays
        #: behind, whichever of two threads comes first.
        self.limit = 0
        #: One datagram follows the other: a message is hardly alone, even if nothing gathers yet.
        self.is_flood = False
        #: What a payload may take to gather; a larger one goes the long way.
        self.size_max = 0
        #: What lane and payload together may take to fit one datagram; more goes the long way.
        self.whole_max = 0
        #: Of payloads from this size on, no two share a datagram.
        self.alone_min = 0
        #: Counts suppressed messages: `next()` is whole among threads, `+= 1` is not.
        self.suppressed = count()
        self._asked = 0

    def forget(self) -> None:
        """Something changed that lanes were made from."""
        self.lanes.clear()

    def count_suppressed(self) -> int:
        """How many messages were suppressed on this way. One thread at a time."""
        # A counter tells its value only by going on.
        suppressed = next(self.suppressed) - self._asked
        self._asked += 1
        return suppressed
