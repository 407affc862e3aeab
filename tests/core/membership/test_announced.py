"""The patterns that stand for others when a node has too many: what they cover, and their size."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from jsonbus.core.membership.announced import EVERYTHING, AnnouncedPatterns, coarser
from jsonbus.core.routing.matching import matches
from jsonbus.core.wire.encode import pattern_size_bytes
from jsonbus.core.wire.topics import is_valid_pattern

LEVELS = st.sampled_from(["a", "b", "c", "ä", "*", "**"])
PATTERNS = st.lists(LEVELS, min_size=1, max_size=5).map("/".join)
TOPICS = st.lists(st.sampled_from(["a", "b", "c", "ä"]), min_size=1, max_size=6).map("/".join)
ROOM_BYTES = 8 * pattern_size_bytes("a/b/c")


class Model:
    """The patterns of a node, and what it tells of them."""

    def __init__(self, room_bytes: int = ROOM_BYTES) -> None:
        self.own: dict[str, None] = {}
        self.room_bytes = room_bytes
        self.announced = AnnouncedPatterns(lambda: self.own, room_bytes)

    def add(self, *patterns: str) -> None:
        for pattern in patterns:
            if pattern not in self.own:
                self._step([pattern], is_wanted=True)

    def remove(self, *patterns: str) -> None:
        self._step([pattern for pattern in patterns if pattern in self.own], is_wanted=False)

    def told(self) -> set[str]:
        return set(self.announced.patterns())

    def _step(self, patterns: list[str], *, is_wanted: bool) -> None:
        before = self.told()
        if is_wanted:
            self.own.update(dict.fromkeys(patterns))
            has_changed = any([self.announced.add(pattern) for pattern in patterns])
        else:
            for pattern in patterns:
                del self.own[pattern]
            has_changed = self.announced.remove(patterns)
        assert has_changed or self.told() == before
        self.check()

    def check(self) -> None:
        told = self.told()
        assert all(map(is_valid_pattern, told))
        assert sum(map(pattern_size_bytes, told)) <= self.room_bytes
        for pattern in self.own:
            assert any(each in told for each in path(pattern))
        if not self.announced.is_coarse:
            assert told == set(self.own)
        if not self.own:
            assert not told


def path(pattern: str) -> list[str]:
    """The pattern, and all that cover it, ever coarser."""
    found = [pattern]
    while (above := coarser(found[-1])) is not None:
        found.append(above)
    return found


@given(PATTERNS, TOPICS)
def test_each_coarser_pattern_covers_the_one_before(pattern: str, topic: str) -> None:
    found = path(pattern)
    assert found[-1] == EVERYTHING
    assert len(found) <= 2 * pattern.count("/") + 3
    assert all(map(is_valid_pattern, found))
    matching = [matches(each, topic) for each in found]
    assert matching == sorted(matching)


def test_the_groups_are_as_people_would_make_them() -> None:
    assert path("a/b/c") == ["a/b/c", "a/b/*", "a/**", "**"]
    assert path("door") == ["door", "*", "**"]
    assert path("a/**") == ["a/**", "**"]


@given(st.lists(st.tuples(st.booleans(), st.lists(PATTERNS, max_size=5)), max_size=25))
def test_whatever_is_subscribed_is_covered_and_fits(
    steps: list[tuple[bool, list[str]]],
) -> None:
    model = Model()
    for is_wanted, patterns in steps:
        unique = list(dict.fromkeys(patterns))
        model.add(*unique) if is_wanted else model.remove(*unique)
    model.remove(*list(model.own))


@given(st.sets(PATTERNS, max_size=40), st.integers(1, 8))
def test_a_smaller_room_is_kept_too(patterns: set[str], share: int) -> None:
    model = Model()
    model.add(*sorted(patterns))
    model.room_bytes = max(pattern_size_bytes(EVERYTHING), ROOM_BYTES // share)
    model.announced.set_room(model.room_bytes)
    model.check()


def test_only_what_saves_most_is_told_coarsely() -> None:
    model = Model(60 * pattern_size_bytes("sensors/1/100"))
    model.add("alarm/door", "alarm/window", "door")
    model.add(*(f"sensors/1/{number}" for number in range(1000)))
    assert model.told() == {"alarm/door", "alarm/window", "door", "sensors/1/*"}


def test_a_covered_pattern_changes_nothing() -> None:
    model = Model()
    model.add(*(f"a/{number}" for number in range(100)))
    assert model.told() == {"a/*"}
    assert model.announced.add("a/100") is False


def test_what_fits_half_of_the_room_is_told_as_it_is_again() -> None:
    model = Model()
    names = [f"a/b/{number}" for number in range(9)]
    model.add(*names)
    assert model.told() == {"a/b/*"}
    for _ in range(3):  # at the bound, nothing jumps
        model.remove(names[0])
        assert model.told() == {"a/b/*"}
        model.add(names[0])
    model.remove(*names[:5])
    assert model.told() == set(names[5:])
    for _ in range(3):
        model.add(names[0])
        model.remove(names[0])
        assert not model.announced.is_coarse
