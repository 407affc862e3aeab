"""Plain (classic) peers: nodes that only know `topic` and `payload`.

They share the union of all topics, without versions, and never say goodbye. Each source address has
a pseudo-node in the list. Its topics only grow, and it is kept for ten minutes after its last sign
of life. A plain list that lacks something is answered like a joiner's.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TypeVar

from jsonbus.core.counters import Counters
from jsonbus.core.limits import PLAIN_ANSWER_INTERVAL_S, PLAIN_PEERS_MAX
from jsonbus.core.membership.joining import Joining
from jsonbus.core.membership.sharing import Sharing
from jsonbus.core.membership.subscription_list import SubscriptionList, make_plain_entry
from jsonbus.core.wire.frames import ALL_BUCKETS, PLAIN_PREFIX, Digest, Entry
from jsonbus.core.wire.names import SERVED_PREFIX

V = TypeVar("V")


class PlainPeers:
    """Takes the lists of plain peers. `merge(entry, now)` puts an entry into our list."""

    def __init__(
        self,
        subscription_list: SubscriptionList,
        joining: Joining,
        sharing: Sharing,
        counters: Counters,
        merge: Callable[[Entry, float], None],
    ) -> None:
        self._list = subscription_list
        self._joining = joining
        self._sharing = sharing
        self._counters = counters
        self._merge = merge
        self._heard: dict[str, tuple[int, Digest]] = {}  # the last list, and ours after it
        self._answered_at: dict[str, float] = {}

    def receive_list(self, topics: list[str], address: str, now: float) -> None:
        """Take a list without `jb`."""
        node = PLAIN_PREFIX + address
        if self._list.get(node) is None:
            if len(self._list.plain_entries()) >= PLAIN_PEERS_MAX:
                self._counters.plain_peers_refused += 1
                return
        content = hash(tuple(topics))
        if self._heard.get(node) == (content, self._list.digest):
            self._list.hear(node, now)  # nothing new: do not merge a long list again and again
        else:
            self._merge(make_plain_entry(node, topics), now)
            _remember(self._heard, node, (content, self._list.digest))
        if self._sharing.strategy.answers and self._joining.is_settled:
            self._answer(node, set(topics), now)

    def hear(self, address: str, now: float) -> bool:
        """Take a sign of life of a plain sender; True if it has sent a list before."""
        node = PLAIN_PREFIX + address
        if self._list.get(node) is None:
            return False
        self._list.hear(node, now)
        return True

    def _answer(self, node: str, topics: set[str], now: float) -> None:
        """Send the peer what its list lacks, but not after each of its repeats."""
        if now - self._answered_at.get(node, -math.inf) < PLAIN_ANSWER_INTERVAL_S:
            return
        if any(not topics.issuperset(_wanted_patterns(entry)) for entry in self._list):
            _remember(self._answered_at, node, now)
            self._sharing.owe(node, ALL_BUCKETS, now, is_joining=True)


def _remember(memory: dict[str, V], node: str, value: V) -> None:
    if len(memory) >= PLAIN_PEERS_MAX and node not in memory:
        memory.clear()
    memory[node] = value


def _wanted_patterns(entry: Entry) -> list[str]:
    """Return the patterns without those of served topics, which mean nothing to a plain peer."""
    return [pattern for pattern in entry.patterns if not pattern.startswith(SERVED_PREFIX)]
