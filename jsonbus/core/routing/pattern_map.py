"""Values filed under patterns and found by topic: exact topics by dict, wildcards by trie.

The trie has one branch per level of the patterns with wildcards. A look-up follows all matching
paths side by side, as a set of branches, so `**/a/**/a/**` costs no more than any other pattern of
its length. The view caches the result for a topic until a pattern changes.

Readers need no lock, although a walk takes many steps, a change may take many, too, and a writer
may start at any point of a walk:

    writer                                    reader
    1. replaces the view by a new, empty      1. takes the view that is there, and the change
       one that names the change                 that it names, if any
    2. changes the entries of one pattern     2. walks
       after the other                        3. brings what it found in line with the change
    3. takes the change out of the view       4. same view still there? keep the result in it,
                                                 else walk again

A change takes effect in step 1, at once for all topics: there is no moment at which a value added
under `**` is found for one topic and not yet for another, or is found and then not. A reader that
took the view before step 1, and met a later step 2, sees in step 4 that the view was replaced. A
reader that took it after step 1 finds each entry of this change old or new, and all earlier changes
complete; step 3 corrects the old ones. So each result is exactly what held when its view was taken.
A reader repeats its walk only after a writer made progress, so no thread waits for another.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Hashable, Iterable
from itertools import chain
from operator import itemgetter
from typing import Generic, TypeVar

from jsonbus.core.routing.matching import is_pattern, matches
from jsonbus.core.wire.names import RESERVED_PREFIX
from jsonbus.core.wire.topics import is_valid_topic

# Topics with a cached result: more than most buses have, and only a few MB when a node floods this
# one with new topics.
CACHED_TOPICS_MAX = 4_096

V = TypeVar("V", bound=Hashable)

# Values with their serial numbers, in the order in which they were added.
_Entries = tuple[tuple[V, int], ...]
_serial_of = itemgetter(1)


class PatternMap(Generic[V]):
    """Values filed under patterns, found by topic.

    `match` and `find` may be called from any thread at any time. Writers (`add`, `discard`,
    `discard_all`) must exclude each other.
    """

    __slots__ = ("_entries", "_root", "_serial", "_serials", "_view")

    def __init__(self) -> None:
        self._serial = 0
        self._serials: dict[tuple[str, V], int] = {}  # used by writers only
        self._entries: dict[str, _Entries[V]] = {}  # by pattern, with and without wildcards
        self._root: _Branch[V] = _Branch("")  # the patterns with wildcards, as a trie
        self._view: _View[V] = _View(None)

    def __len__(self) -> int:
        """Return the number of patterns."""
        return len(self._entries)

    def __contains__(self, pattern: object) -> bool:
        return pattern in self._entries

    def patterns(self) -> list[str]:
        """Return all patterns, in the order in which they were added."""
        return list(self._entries)

    def add(self, pattern: str, value: V) -> bool:
        """File a value under a valid pattern; return False if it is there already."""
        key = (pattern, value)
        if key in self._serials:
            return False
        self._serial += 1
        entry = (value, self._serial)
        self._serials[key] = self._serial
        view = self._view = _View(_Arrival(pattern, entry))
        # This copies pointers: with 10,000 values, ten times faster than building the pairs again.
        self._file(pattern, (*self._entries.get(pattern, ()), entry))
        view.change = None
        return True

    def discard(self, pattern: str, value: V) -> bool:
        """Remove a value from a pattern; return False if it is not there."""
        return self.discard_all((pattern,), value)

    def discard_all(self, patterns: Iterable[str], value: V) -> bool:
        """Remove a value from several patterns at once; return False if it is under none.

        No reader finds it under some of these patterns and not under others.
        """
        serials = {}
        for pattern in patterns:
            serial = self._serials.pop((pattern, value), None)
            if serial is not None:
                serials[pattern] = serial
        if not serials:
            return False
        view = self._view = _View(_Departure(frozenset(serials.values())))
        for pattern, serial in serials.items():
            entries = self._entries[pattern]
            place = bisect_left(entries, serial, key=_serial_of)
            self._file(pattern, entries[:place] + entries[place + 1 :])
        view.change = None
        return True

    def match(self, topic: str) -> tuple[V, ...]:
        """Return the values whose patterns match, each once, in the order in which they were added.

        A name that is not a valid topic matches nothing; a reserved name matches only itself.
        """
        found = self._view.get(topic)
        if found is not None:
            return found
        if not isinstance(topic, str):
            return ()
        is_name = topic.startswith(RESERVED_PREFIX) or is_valid_topic(topic)
        return self._find(topic) if is_name else ()

    def find(self, topic: str) -> tuple[V, ...]:
        """Return what `match` does, for a valid topic or a reserved name, without a check."""
        found = self._view.get(topic)
        return self._find(topic) if found is None else found

    def _find(self, topic: str) -> tuple[V, ...]:
        is_reserved = topic.startswith(RESERVED_PREFIX)
        while True:
            view = self._view
            change = view.change  # read before the walk: once it is gone, all entries are new
            sources = [self._entries.get(topic, ())]
            if self._root.branches and not is_reserved:
                sources += self._root.find(topic.split("/"))
            if change is not None:
                sources = change.settle(topic, sources)
            found = _values(sources)
            if view is self._view:
                break
        if not is_reserved:  # reserved names may come from the network at any length: not cached
            # Cleared whole when full. Finding the least used topic would need a write with each
            # hit, while looking a result up again costs a few microseconds, once per topic.
            if len(view) >= CACHED_TOPICS_MAX:
                view.clear()
            view[topic] = found
        return found

    def _file(self, pattern: str, entries: _Entries[V]) -> None:
        """Do the writers' second step for one pattern; empty entries remove the pattern."""
        if entries:
            self._entries[pattern] = entries
        else:
            del self._entries[pattern]
        if is_pattern(pattern):
            self._root.replace(pattern.split("/"), entries)


class _View(dict[str, tuple[V, ...]]):
    """The results by topic since the last change, and that change while it is under way."""

    __slots__ = ("change",)

    def __init__(self, change: _Arrival[V] | _Departure[V] | None) -> None:
        self.change = change


class _Arrival(Generic[V]):
    """A value that is being added under a pattern."""

    __slots__ = ("_entry", "_pattern")

    def __init__(self, pattern: str, entry: tuple[V, int]) -> None:
        self._pattern = pattern
        self._entry = entry

    def settle(self, topic: str, sources: list[_Entries[V]]) -> list[_Entries[V]]:
        """Return what a topic finds after the change. Idempotent."""
        return [*sources, (self._entry,)] if matches(self._pattern, topic) else sources


class _Departure(Generic[V]):
    """A value that is being removed; the serial numbers identify its entries."""

    __slots__ = ("_serials",)

    def __init__(self, serials: frozenset[int]) -> None:
        self._serials = serials

    def settle(self, topic: str, sources: list[_Entries[V]]) -> list[_Entries[V]]:
        """Return what a topic finds after the change."""
        return [
            tuple([entry for entry in entries if entry[1] not in self._serials])
            for entries in sources
        ]


class _Branch(Generic[V]):
    """A node of the trie: one level of the patterns that share all levels before it."""

    __slots__ = ("branches", "entries", "takes_many")

    def __init__(self, level: str) -> None:
        self.takes_many = level == "**"
        self.branches: dict[str, _Branch[V]] = {}
        self.entries: _Entries[V] = ()  # entries of the pattern that ends here

    def find(self, levels: list[str]) -> list[_Entries[V]]:
        """Return the entries of every pattern that matches. Called on the root."""
        # A branch is in the set once, however many paths lead to it: a topic costs at most its
        # levels times the branches of the trie.
        active: set[_Branch[V]] = set()
        self._enter(active)
        for level in levels:
            following: set[_Branch[V]] = set()
            for branch in active:
                if branch.takes_many:
                    following.add(branch)
                if (child := branch.branches.get(level)) is not None:
                    child._enter(following)
                if (child := branch.branches.get("*")) is not None:
                    child._enter(following)
            active = following
        return [branch.entries for branch in active if branch.entries]

    def replace(self, levels: list[str], entries: _Entries[V]) -> None:
        """Set the entries of a pattern; empty entries remove the pattern. Called on the root."""
        branch = self
        path = []
        for level in levels:
            path.append((branch, level))
            child = branch.branches.get(level)
            if child is None:
                child = branch.branches[level] = _Branch(level)
            branch = child
        branch.entries = entries
        while path and not (branch.entries or branch.branches):
            branch, level = path.pop()
            del branch.branches[level]

    def _enter(self, active: set[_Branch[V]]) -> None:
        """Activate this branch and the `**` directly behind it, which may match zero levels."""
        branch: _Branch[V] | None = self
        while branch is not None:
            active.add(branch)
            branch = branch.branches.get("**")


def _values(sources: list[_Entries[V]]) -> tuple[V, ...]:
    """Return each value once, in the order of adding; sources may be empty."""
    sources = [entries for entries in sources if entries]
    if len(sources) == 1:
        return tuple([value for value, _ in sources[0]])
    entries = sorted(chain.from_iterable(sources), key=_serial_of)
    return tuple(dict.fromkeys([value for value, _ in entries]))
