"""Values filed under patterns and found by topic: exact topics by dict, wildcards by trie.

The trie has one branch per level of the patterns with wildcards. A topic walks down all matching
ways side by side, as a set of branches, so `**/a/**/a/**` costs no more than any other pattern of
its length. What was found for a topic is kept, in the view, until a pattern changes.

Readers need no lock, though a walk takes many steps, a change may too, and writers may come at any
point of a walk:

    writer                                    reader
    1. replaces the view by a new, empty      1. takes the view that is there, and the change
       one that tells of the change              that it tells of, if any
    2. changes the entries of one pattern     2. walks
       after the other                        3. brings what it found in line with the change
    3. takes the change out of the view       4. same view still there? keep the result in it,
                                                 else walk again

A change happens in step 1, at once for all topics: there is no moment at which a value that was
added under `**` is found for one topic and not yet for another, or found and then not. Whoever took
the view before, and met a later step 2, finds in step 4 that the view was replaced. Whoever took it
after finds each entry of this change old or new, and of all changes before it new; step 3 settles
the rest. So each result is exactly what held at the moment its view was taken. A reader walks again
only after a writer got something done, so nobody waits for anybody.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Hashable, Iterable
from itertools import chain
from operator import itemgetter
from typing import Generic, TypeVar

from jsonbus.core.routing.topics import is_pattern, is_valid_topic, matches
from jsonbus.core.wire.names import RESERVED_PREFIX

# Topics with a cached result: more than most buses have, and a few MB when somebody floods us with
# new ones.
CACHED_TOPICS_MAX = 4_096

V = TypeVar("V", bound=Hashable)

# Values with the serial numbers of their adding, in this order.
_Entries = tuple[tuple[V, int], ...]
_serial_of = itemgetter(1)


class PatternMap(Generic[V]):
    """Values filed under patterns, found by topic.

    `match` and `matches_any` may be called from any thread at any time. Writers (`add`, `discard`,
    `discard_all`) must exclude each other.
    """

    __slots__ = ("_entries", "_root", "_serial", "_serials", "_view")

    def __init__(self) -> None:
        self._serial = 0
        self._serials: dict[tuple[str, V], int] = {}  # for writers alone
        self._entries: dict[str, _Entries[V]] = {}  # by pattern, with and without wildcards
        self._root: _Branch[V] = _Branch("")  # those with wildcards once more
        self._view: _View[V] = _View(None)

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
        entry = (value, self._serial)
        self._serials[key] = self._serial
        view = self._view = _View(_Arrival(pattern, entry))
        # Copying pointers: with 10,000 values, ten times faster than to build the pairs anew.
        self._file(pattern, (*self._entries.get(pattern, ()), entry))
        view.change = None
        return True

    def discard(self, pattern: str, value: V) -> bool:
        """Take a value away from under a pattern; False if it is not there."""
        return self.discard_all((pattern,), value)

    def discard_all(self, patterns: Iterable[str], value: V) -> bool:
        """Take a value away from under several patterns at once; False if it is under none.

        No reader finds it under some of them and no longer under others.
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
        """The values whose patterns match, each once, in the order in which they were added.

        A name that is not a valid topic matches nothing, a reserved one only itself.
        """
        found = self._view.get(topic)
        return self._find(topic) if found is None else found

    def matches_any(self, topic: str) -> bool:
        """Whether any pattern matches."""
        return bool(self.match(topic))

    def _find(self, topic: str) -> tuple[V, ...]:
        is_valid = is_valid_topic(topic)
        if not is_valid and not (isinstance(topic, str) and topic.startswith(RESERVED_PREFIX)):
            return ()
        while True:
            view = self._view
            change = view.change  # before the walk: when it is out, all entries are new
            sources = [self._entries.get(topic, ())]
            if is_valid and self._root.branches:
                sources += self._root.find(topic.split("/"))
            if change is not None:
                sources = change.settle(topic, sources)
            found = _values(sources)
            if view is self._view:
                break
        if is_valid:  # other names may come from the network and have any length: not kept
            # Cleared whole when full: to know which topic was used least, each hit would have to
            # write, while to find a result anew costs a few microseconds, once per topic.
            if len(view) >= CACHED_TOPICS_MAX:
                view.clear()
            view[topic] = found
        return found

    def _file(self, pattern: str, entries: _Entries[V]) -> None:
        """The writers' second step, for one pattern; no entries to forget it."""
        if entries:
            self._entries[pattern] = entries
        else:
            del self._entries[pattern]
        if is_pattern(pattern):
            self._root.replace(pattern.split("/"), entries)


class _View(dict[str, tuple[V, ...]]):
    """What was found by topic since the last change, and that change while it is under way."""

    __slots__ = ("change",)

    def __init__(self, change: _Arrival[V] | _Departure[V] | None) -> None:
        self.change = change


class _Arrival(Generic[V]):
    """A value is being added under a pattern."""

    __slots__ = ("_entry", "_pattern")

    def __init__(self, pattern: str, entry: tuple[V, int]) -> None:
        self._pattern = pattern
        self._entry = entry

    def settle(self, topic: str, sources: list[_Entries[V]]) -> list[_Entries[V]]:
        """What is found for a topic after the change; twice is as good as once."""
        return [*sources, (self._entry,)] if matches(self._pattern, topic) else sources


class _Departure(Generic[V]):
    """A value is being taken away; the serial numbers tell from where."""

    __slots__ = ("_serials",)

    def __init__(self, serials: frozenset[int]) -> None:
        self._serials = serials

    def settle(self, topic: str, sources: list[_Entries[V]]) -> list[_Entries[V]]:
        """What is found for a topic after the change."""
        return [
            tuple([entry for entry in entries if entry[1] not in self._serials])
            for entries in sources
        ]


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
