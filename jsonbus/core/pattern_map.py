"""Values filed under patterns and found by topic: exact topics by dict, wildcards by trie.

The trie has one branch per level of the patterns with wildcards. A topic walks down all matching
ways side by side, as a set of branches, so `**/a/**/a/**` costs no more than any other pattern of
its length. What was found for a topic is kept in a cache until a pattern changes.

Readers need no lock, though a walk takes many steps and writers may come in between:

    writer                                    reader
    1. replaces the tuple of one pattern      1. takes the cache that is there
    2. then replaces the cache by a new one   2. walks; each pattern's tuple is old or new
                                              3. same cache still there? keep the result in it,
                                                 else walk again

So a reader never mixes two changes: by the second one, the first has replaced the cache. What a
reader saw before or amid a change, it keeps in a cache that the writer is about to throw away. A
reader walks again only after a writer got something done, so nobody waits for anybody.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Hashable
from itertools import chain
from operator import itemgetter
from typing import Generic, TypeVar

from jsonbus.core.topics import is_pattern, is_valid_topic
from jsonbus.core.wire_names import RESERVED_PREFIX

# Topics with a cached result: more than most buses have, and a few MB when somebody floods us with
# new ones.
CACHED_TOPICS_MAX = 4_096

V = TypeVar("V", bound=Hashable)

# Values with the serial numbers of their adding, in this order.
_Entries = tuple[tuple[V, int], ...]
_serial_of = itemgetter(1)


class PatternMap(Generic[V]):
    """Values filed under patterns, found by topic.

    `match` and `matches_any` may be called from any thread at any time. Writers (`add`, `discard`)
    must exclude each other.
    """

    __slots__ = ("_cache", "_entries", "_root", "_serial", "_serials")

    def __init__(self) -> None:
        self._serial = 0
        self._serials: dict[tuple[str, V], int] = {}
        self._entries: dict[str, _Entries[V]] = {}  # by pattern, with and without wildcards
        self._root: _Branch[V] = _Branch("")  # those with wildcards once more
        self._cache: dict[str, tuple[V, ...]] = {}

    def __len__(self) -> int:
        """How many patterns there are."""
        return len(self._entries)

    def __contains__(self, pattern: object) -> bool:
        return pattern in self._entries

    def patterns(self) -> list[str]:
        """All patterns, in the order in which they came."""
        return list(self._entries)

    def add(self, pattern: str, value: V) -> bool:
        """File a value under a valid pattern; False if it is there already."""
        key = (pattern, value)
        if key in self._serials:
            return False
        self._serial += 1
        self._serials[key] = self._serial
        # Copying pointers: with 10,000 values, ten times faster than to build the pairs anew.
        self._show(pattern, (*self._entries.get(pattern, ()), (value, self._serial)))
        return True

    def discard(self, pattern: str, value: V) -> bool:
        """Take a value away from under a pattern; False if it is not there."""
        serial = self._serials.pop((pattern, value), None)
        if serial is None:
            return False
        entries = self._entries[pattern]
        place = bisect_left(entries, serial, key=_serial_of)
        self._show(pattern, entries[:place] + entries[place + 1 :])
        return True

    def match(self, topic: str) -> tuple[V, ...]:
        """The values whose patterns match, each once, in the order in which they were added.

        A name that is not a valid topic matches nothing, a reserved one only itself.
        """
        found = self._cache.get(topic)
        return self._find(topic) if found is None else found

    def matches_any(self, topic: str) -> bool:
        """Whether any pattern matches."""
        return bool(self.match(topic))

    def _find(self, topic: str) -> tuple[V, ...]:
        if not is_valid_topic(topic):
            # Not to be cached: it may come from the network and have any length.
            is_reserved = isinstance(topic, str) and topic.startswith(RESERVED_PREFIX)
            return _values([self._entries.get(topic, ())] if is_reserved else [])
        while True:
            cache = self._cache
            sources = [self._entries.get(topic, ())]
            if self._root.branches:
                sources += self._root.find(topic.split("/"))
            found = _values(sources)
            if cache is self._cache:
                break
        # Cleared whole when full: to know which topic was used least, each hit would have to
        # write, while to find a result anew costs a few microseconds, once per topic.
        if len(cache) >= CACHED_TOPICS_MAX:
            cache.clear()
        cache[topic] = found
        return found

    def _show(self, pattern: str, entries: _Entries[V]) -> None:
        """The writers' two steps."""
        if entries:
            self._entries[pattern] = entries
        else:
            del self._entries[pattern]
        if is_pattern(pattern):
            self._root.replace(pattern.split("/"), entries)
        self._cache = {}


class _Branch(Generic[V]):
    """A level that some patterns have in common, and all levels before it."""

    __slots__ = ("branches", "entries", "takes_many")

    def __init__(self, level: str) -> None:
        self.takes_many = level == "**"
        self.branches: dict[str, _Branch[V]] = {}
        self.entries: _Entries[V] = ()  # of the pattern that ends here

    def find(self, levels: list[str]) -> list[_Entries[V]]:
        """The entries of every pattern that matches; asked of the root."""
        # A branch is in the set once, however many ways lead to it: a topic costs at most its
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
        """Put entries at the end of a pattern, none to forget the pattern; asked of the root."""
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
        """Activate this branch, and the `**` right behind it, which may take no level at all."""
        branch: _Branch[V] | None = self
        while branch is not None:
            active.add(branch)
            branch = branch.branches.get("**")


def _values(sources: list[_Entries[V]]) -> tuple[V, ...]:
    """Each value once, in the order of adding; sources may be empty."""
    sources = [entries for entries in sources if entries]
    if len(sources) == 1:
        return tuple([value for value, _ in sources[0]])
    entries = sorted(chain.from_iterable(sources), key=_serial_of)
    return tuple(dict.fromkeys([value for value, _ in entries]))
