"""The short way from publish() to a datagram, for topics that were published to before.

Theory of operation. Most messages go to a known topic while no subscription changes. For such a
topic the publisher leaves a *prefix* here: the beginning of its messages' JSON, or b"" if no node
wants them. A front end looks the prefix up:

- without one, it takes the long way (`Node.publish`), which leaves one if it can;
- if it is empty, it counts the message as suppressed, and is done;
- else, while messages are being *queued*, it appends its own: `prefix + payload`.

Reliable messages have prefixes of their own, which are left only while a whole batch surely finds
room in the history. They get their sequences, and are kept, when they are packed (wire/items.py).

All prefixes are forgotten whenever a subscription or the node's state changes. The queue is a plain
list; the outbox turns it into datagrams, and numbers the messages only then.

Every step is a single operation on a dict, a list or a counter, each of which is atomic among
threads. So a front end with threads needs no lock on this way, if it obeys the rule at `limit`.
"""

from __future__ import annotations

from itertools import count
from typing import Any

#: More messages in one batch save nothing that can be measured, and their values, all alive at once
#: where they are received, cost fresh memory for each.
BATCH_MESSAGES_MAX = 100

#: The byte that begins every escape in JSON. As a number, it is found six times as fast.
ESCAPE = ord("\\")


class FastPublish:
    """Cached topic prefixes, and the messages queued for the next datagram."""

    def __init__(self) -> None:
        #: By topic: `["topic",` or b"". The keys that are looked up may be any object. A topic that
        #: JSON has to escape has no prefix: the outbox takes the first quote for the topic's end.
        self.prefixes: dict[Any, bytes] = {}
        #: The same for reliable messages: `,["topic",`, as long as the next batch finds room in the
        #: history. What nobody wants takes the long way, since it may have to be kept.
        self.reliable_prefixes: dict[Any, bytes] = {}
        #: The JSON of messages, `["topic",payload`, each without its last bracket (wire/items.py).
        self.queued: list[bytes] = []
        #: Fewer messages than this may be queued without a flush. The front end sets it to the
        #: number that fills a datagram while it has planned to come back, and to 0 while it has
        #: not. The caller checks `limit` after adding a message, and flushes if the batch is full.
        #: Checking after adding guarantees that no message stays behind when two threads race.
        self.limit = 0
        #: One datagram follows the other: a message is hardly alone, even if none is queued yet.
        self.is_flood = False
        #: A larger payload is not queued here; it goes the long way.
        self.size_max = 0
        #: A message of which prefix and payload take more does not fit one datagram.
        self.whole_max = 0
        #: Of payloads from this size on, no two fit one datagram.
        self.alone_min = 0
        #: Counts suppressed messages: `next()` is atomic among threads, `+= 1` is not.
        self.suppressed = count()
        self._asked = 0

    def forget(self) -> None:
        """Drop all prefixes, because a subscription or the state changed."""
        self.prefixes.clear()
        self.reliable_prefixes.clear()

    def count_suppressed(self) -> int:
        """Return how many messages were suppressed on this way. One thread at a time."""
        # A counter reports its value only by going on.
        suppressed = next(self.suppressed) - self._asked
        self._asked += 1
        return suppressed
