"""The subscription list: the patterns that a node believes the whole bus wants.

A map from node to entry, merged by the larger (incarnation, version): commutative, associative and
idempotent, so loss, repeats and reordering do no harm. Only a node itself raises its version.

Two lists are identical when their digests are equal: (count, XOR of the entries' hashes), over the
entries of live nodes. Nodes that left, or are gone, are kept beside the list for a while as
tombstones, so that an old list cannot bring them back. Tombstones are not part of the digest,
because nodes forget them at different times.

When digests differ, `sums` show where: entries are spread over 256 buckets by their node's id, and
every bucket has a 16-bit sum. All sums together are one integer of 4,096 bits, so that adding an
entry is one XOR. Two different buckets have the same sum once in 65,536 times; then the digests
still differ, and the whole list is sent.

Ten thousand simulated nodes cannot each hold ten thousand entries. A list can therefore stand on a
`FrozenList` that many lists have in common, and keep only what differs from it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from jsonbus.core.limits import (
    LARGE_ENTRY_PATTERNS,
    LIST_ENTRIES_MAX,
    LIST_PATTERNS_MAX,
    PEERS_UNLISTED_MAX,
    PLAIN_BYTES_MAX,
    PLAIN_LEASE_S,
    PLAIN_PEERS_MAX,
    TOMBSTONES_MAX,
    WHOLE_LIST_NODES,
)
from jsonbus.core.wire.encode import ENTRY_BYTES_MAX, entry_size_bytes
from jsonbus.core.wire.frames import (
    ALL_BUCKETS,
    BUCKET_SUM_BITS,
    BUCKETS,
    Digest,
    Entry,
    bucket_of,
)
from jsonbus.core.wire.names import INTEGER_MAX

_SUM_MASK = (1 << BUCKET_SUM_BITS) - 1

# What became of an entry that was merged.
STALE = 0  # older than what is known, or not to be believed
SAME = 1  # known
CHANGED = 2  # the list has changed


class FrozenList:
    """Entries that many lists have in common; immutable."""

    __slots__ = ("digest", "entries", "patterns", "sums")

    def __init__(self, entries: Iterable[Entry]) -> None:
        self.entries = {entry.node: entry for entry in entries}
        total = sums = 0
        for entry in self.entries.values():
            hash64 = entry.hash64()
            total ^= hash64
            sums ^= _sum_of(entry.node, hash64)
        self.digest = Digest(len(self.entries), total)
        self.patterns = sum(len(entry.patterns) for entry in self.entries.values())
        self.sums = sums


EMPTY = FrozenList(())


class SubscriptionList:
    """Entries by node, the instant each node was last heard, digest and sums."""

    def __init__(self) -> None:
        # What differs from the base; None stands for an entry of the base that was removed.
        self._own: dict[str, Entry | None] = {}
        self._plain: dict[str, None] = {}  # ids of plain peers
        #: When each node was last heard, by itself or through the age in somebody's list.
        self.heard: dict[str, float] = {}
        #: Entries of nodes that left or are gone, and since when.
        self.tombstones: dict[str, tuple[Entry, float]] = {}
        self._former: dict[str, tuple[int, int]] = {}  # versions of nodes that were forgotten
        #: An entry was refused for lack of room: this node cannot be sure of anything.
        self.is_full = False
        self.stand_on(EMPTY, 0.0)

    def stand_on(self, base: FrozenList, heard_at: float) -> None:
        """Take over the entries of the base, all heard at that instant; only for an empty list."""
        assert not self._own
        self._base = base
        self._base_heard_at = heard_at
        self.digest = base.digest
        self._patterns = base.patterns
        self.sums = base.sums

    def __len__(self) -> int:
        return self.digest.nodes

    def __iter__(self) -> Iterator[Entry]:
        """Entries of live nodes."""
        own = self._own
        for node, entry in self._base.entries.items():
            if node not in own:
                yield entry
        for changed in own.values():
            if changed is not None:
                yield changed

    def get(self, node: str) -> Entry | None:
        """Return the entry of a live node."""
        try:
            return self._own[node]
        except KeyError:
            return self._base.entries.get(node)

    def has_partner_of(self, node: str) -> bool:
        """Whether another node could agree on the list: plain and basic nodes never do."""
        return any(
            each.mode != "basic" and not each.is_plain and each.node != node for each in self
        )

    def heard_at(self, node: str) -> float:
        return self.heard.get(node, self._base_heard_at)

    def hear(self, node: str, at: float) -> None:
        """Note that a live node was heard at that instant."""
        if at > self.heard.get(node, self._base_heard_at):
            self.heard[node] = at

    def put(self, entry: Entry, heard_at: float) -> None:
        """Set a live node's entry, whether or not there was one."""
        self._drop(entry.node)
        self.tombstones.pop(entry.node, None)
        if entry.is_plain:
            self._plain[entry.node] = None
        self._patterns += len(entry.patterns)
        self._own[entry.node] = entry
        self._mix(entry, 1)
        self.heard[entry.node] = heard_at

    def bury(self, entry: Entry, buried_at: float) -> None:
        """Remove the node's entry and remember why (`entry.left` or `entry.gone`)."""
        self._drop(entry.node)
        if len(self.tombstones) >= TOMBSTONES_MAX:
            del self.tombstones[next(iter(self.tombstones))]
        self.tombstones[entry.node] = (entry, buried_at)

    def forget_tombstones(self, before: float) -> None:
        for node in [node for node, (_, since) in self.tombstones.items() if since < before]:
            entry, _ = self.tombstones.pop(node)
            self._former.pop(node, None)  # the one that was forgotten last is the last
            self._former[node] = entry.incarnation, entry.version
            if len(self._former) > PEERS_UNLISTED_MAX:
                del self._former[next(iter(self._former))]

    def is_outdated(self, entry: Entry) -> bool:
        """Whether a newer version of this unknown node was known, and is forgotten.

        So says who was cut off from it and hears it again, before the node's own word has come.
        """
        former = self._former.get(entry.node)
        if former is None or self.get(entry.node) is not None:
            return False
        return (entry.incarnation, entry.version) < former

    def merge(self, entry: Entry, age_s: float, now: float, lease_s: float) -> int:
        """Take over a newer entry. Returns STALE, SAME or CHANGED.

        The age of an entry that is dead is the time since it was buried.
        """
        heard_at = now - age_s
        if entry.is_plain:
            return self._merge_plain(entry, heard_at, now)
        if entry.version >= INTEGER_MAX:
            return STALE  # its owner could never overrule it
        if len(entry.patterns) > LARGE_ENTRY_PATTERNS and entry_size_bytes(entry) > ENTRY_BYTES_MAX:
            return STALE  # nobody could pass it on
        known = self.get(entry.node)
        buried = None
        if known is None:
            tombstone = self.tombstones.get(entry.node)
            if tombstone is not None:
                known = buried = tombstone[0]
        if known is None:
            return self._merge_unknown(entry, heard_at, now, lease_s)
        if entry.incarnation == known.incarnation and entry.version == known.version:
            return self._merge_equal(entry, known, buried is not None, heard_at, now, lease_s)
        if (entry.incarnation, entry.version) < (known.incarnation, known.version):
            return STALE
        return self._merge_newer(entry, buried is None, heard_at, now, lease_s)

    def entries_in(self, buckets: int, now: float) -> Iterator[tuple[Entry, float]]:
        """Yield the entries of those buckets with their age in seconds; tombstones first.

        A list that misses a departure has an entry too many; only a tombstone can correct it.
        """
        everything = buckets == ALL_BUCKETS
        for entry, buried_at in self.tombstones.values():
            if everything or buckets >> bucket_of(entry.node) & 1:
                yield entry, max(0.0, now - buried_at)
        for entry in self:
            if everything or buckets >> bucket_of(entry.node) & 1:
                yield entry, max(0.0, now - self.heard_at(entry.node))

    def differing_buckets(self, sums: int) -> int:
        """Return a bit per bucket that differs; all bits if the sums do not show where."""
        difference = self.sums ^ sums
        if not difference:
            return ALL_BUCKETS
        buckets = 0
        for bucket in range(BUCKETS):
            if difference & _SUM_MASK:
                buckets |= 1 << bucket
            difference >>= BUCKET_SUM_BITS
        return buckets

    def plain_entries(self) -> list[Entry]:
        """Entries of plain peers, the one that changed longest ago first."""
        return [entry for node in self._plain if (entry := self.get(node)) is not None]

    def sums_to_send(self) -> int | None:
        """Return the sums if the list is so large that sending what differs is worth their size."""
        return self.sums if self.digest.nodes > WHOLE_LIST_NODES else None

    def _merge_unknown(self, entry: Entry, heard_at: float, now: float, lease_s: float) -> int:
        if now - heard_at > lease_s:
            return STALE  # as good as gone: no node has heard it for so long
        if entry.left:
            self.bury(entry, heard_at)
            return SAME
        if entry.gone:
            return SAME  # nothing to take out
        if not self._has_room(entry):
            return STALE
        self.put(entry, heard_at)
        return CHANGED

    def _has_room(self, entry: Entry) -> bool:
        """Whether the entry fits, in the place of the one that is known."""
        known = self.get(entry.node)
        nodes = self.digest.nodes - (known is not None)
        patterns = self._patterns - (len(known.patterns) if known is not None else 0)
        if nodes < LIST_ENTRIES_MAX and patterns + len(entry.patterns) <= LIST_PATTERNS_MAX:
            return True
        self.is_full = True
        return False

    def _merge_equal(
        self,
        entry: Entry,
        known: Entry,
        is_buried: bool,
        heard_at: float,
        now: float,
        lease_s: float,
    ) -> int:
        if is_buried:
            if known.gone and entry.is_alive and now - heard_at <= lease_s:
                self.put(entry, heard_at)  # another node heard it after all
                return CHANGED
            return SAME
        if entry.gone:
            return self._believe_gone(known, heard_at, now, lease_s)
        if entry.left:
            self.bury(entry, heard_at)
            return CHANGED
        self.hear(entry.node, heard_at)
        return SAME

    def _merge_newer(
        self, entry: Entry, was_alive: bool, heard_at: float, now: float, lease_s: float
    ) -> int:
        if entry.gone:
            known = self.get(entry.node)
            return STALE if known is None else self._believe_gone(known, heard_at, now, lease_s)
        if entry.left:
            self.bury(entry, heard_at)
            return CHANGED if was_alive else SAME
        if was_alive:
            heard_at = max(heard_at, self.heard_at(entry.node))
        elif now - heard_at > lease_s:
            return STALE
        if not self._has_room(entry):
            return STALE
        self.put(entry, heard_at)
        return CHANGED

    def _believe_gone(self, known: Entry, buried_at: float, now: float, lease_s: float) -> int:
        """Another node asked for the node in vain. Believe it if the silence is long here as well.

        The known entry is buried: one from the wire has no patterns, and the node may come back.
        """
        if now - self.heard_at(known.node) <= 0.75 * lease_s:
            return STALE
        self.bury(replace(known, gone=True), buried_at)
        return CHANGED

    def _merge_plain(self, entry: Entry, heard_at: float, now: float) -> int:
        """Merge a plain peer, whose topics only grow: their number is its version.

        Plain peers expire by their longer lease, on every node alike.
        """
        if not entry.is_alive or now - heard_at > PLAIN_LEASE_S:
            return STALE
        known = self.get(entry.node)
        if known is None:
            if len(self._plain) >= PLAIN_PEERS_MAX:
                self.is_full = True
                return STALE
            self.put(make_plain_entry(entry.node, entry.patterns), heard_at)
            return CHANGED
        self.hear(entry.node, heard_at)
        merged = make_plain_entry(entry.node, (*known.patterns, *entry.patterns))
        if merged == known:
            return SAME
        self.put(merged, self.heard_at(entry.node))
        return CHANGED

    def _drop(self, node: str) -> None:
        known = self.get(node)
        if known is None:
            return
        self.is_full = False
        self._patterns -= len(known.patterns)
        self._mix(known, -1)
        self.heard.pop(node, None)
        self._plain.pop(node, None)
        if node in self._base.entries:
            self._own[node] = None
        else:
            del self._own[node]

    def _mix(self, entry: Entry, by: int) -> None:
        """Add the entry to digest and sums (by 1), or take it out (by -1): XOR does both."""
        hash64 = entry.hash64()
        nodes, total = self.digest
        self.digest = Digest(nodes + by, total ^ hash64)
        self.sums ^= _sum_of(entry.node, hash64)


def make_plain_entry(node: str, topics: Iterable[str]) -> Entry:
    """Make the entry of a plain peer that wants those topics; too many of them become `**`."""
    patterns = tuple(sorted(set(topics)))
    entry = Entry(node, 0, len(patterns), node, patterns)
    if "**" in patterns or entry_size_bytes(entry) > PLAIN_BYTES_MAX:
        return Entry(node, 0, PLAIN_BYTES_MAX, node, ("**",))
    return entry


def _sum_of(node: str, hash64: int) -> int:
    return (hash64 & _SUM_MASK) << (BUCKET_SUM_BITS * bucket_of(node))
