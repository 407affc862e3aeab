"""The laws of merging, and lists that stand on what many share."""

from __future__ import annotations

from dataclasses import replace
from itertools import permutations

from hypothesis import given, settings
from hypothesis import strategies as st

from jsonbus.core.membership.subscription_list import (
    SAME,
    STALE,
    FrozenList,
    SubscriptionList,
    make_plain_entry,
)
from jsonbus.core.wire.frames import ALL_BUCKETS, Entry
from tests.core.generated import unhurried

NOW = 1000.0
LEASE = 7.0

X1 = Entry("x", 5, 1, "x", ("t",))


def make_list(*entries: Entry, heard_at: float = NOW) -> SubscriptionList:
    made = SubscriptionList()
    for entry in entries:
        made.put(entry, heard_at)
    return made


def merge(into: SubscriptionList, entry: Entry, age_s: float = 0.0, now: float = NOW) -> int:
    return into.merge(entry, age_s, now, LEASE)


def content(of: SubscriptionList) -> dict[str, Entry]:
    return {entry.node: entry for entry in of}


def make_many(count: int) -> list[Entry]:
    return [Entry(f"n{number:04d}", 1, 1, f"node {number}", ("t",)) for number in range(count)]


# --- The laws of merging --------------------------------------------------------------------------

# What a node says at one version is always the same, so the patterns follow from the rest.
_entries = st.builds(
    lambda node, incarnation, version, left: Entry(
        node, incarnation, version, node, () if left else (f"t{incarnation}/{version}",), left=left
    ),
    st.sampled_from("abcd"),
    st.integers(1, 3),
    st.integers(1, 3),
    st.sampled_from([False, False, False, True]),
)
_plain_entries = st.builds(
    make_plain_entry,
    st.sampled_from(["plain:10.0.0.1", "plain:10.0.0.2"]),
    st.sets(st.sampled_from(["a", "b", "c", "d/*"])),
)
_lists = st.lists(_entries | _plain_entries, max_size=8)
few = settings(unhurried, max_examples=60)


def merged(*parts: list[Entry]) -> SubscriptionList:
    result = SubscriptionList()
    for part in parts:
        for entry in part:
            merge(result, entry)
    return result


@few
@given(st.lists(_entries | _plain_entries, max_size=4))
def test_merging_is_commutative_and_associative(entries: list[Entry]) -> None:
    entries = _consistent(entries)
    results = [merged(list(order)) for order in permutations(entries)]
    first = results[0]
    for result in results[1:]:
        assert content(result) == content(first)
        assert (result.digest, result.sums) == (first.digest, first.sums)


@few
@given(_lists, _lists)
def test_merging_twice_changes_nothing(first: list[Entry], second: list[Entry]) -> None:
    entries = _consistent(first + second)
    once = merged(entries)
    twice = merged(entries, entries)
    assert content(twice) == content(once)
    assert twice.digest == once.digest
    for entry in entries:
        assert merge(once, entry) in (SAME, STALE)


@few
@given(_lists, _lists)
def test_lists_that_hear_each_others_entries_become_identical(
    first: list[Entry], second: list[Entry]
) -> None:
    both = _consistent(first + second)
    left, right = merged(both[: len(first)]), merged(both[len(first) :])
    for_right = list(left.entries_in(ALL_BUCKETS, NOW))
    for_left = list(right.entries_in(ALL_BUCKETS, NOW))
    for entry, age_s in for_right:
        merge(right, entry, age_s)
    for entry, age_s in for_left:
        merge(left, entry, age_s)
    assert content(left) == content(right)
    assert left.digest == right.digest
    assert left.sums == right.sums


@few
@given(_lists, _lists)
def test_digests_are_equal_exactly_when_the_content_is(
    first: list[Entry], second: list[Entry]
) -> None:
    both = _consistent(first + second)
    left, right = merged(both[: len(first)]), merged(both[len(first) :])
    is_same = content(left) == content(right)
    assert (left.digest == right.digest) == is_same
    assert (left.sums == right.sums) == is_same


@few
@given(_lists)
def test_digest_and_sums_do_not_depend_on_how_the_list_came_about(entries: list[Entry]) -> None:
    grown = merged(_consistent(entries))
    built = FrozenList(grown)
    assert (grown.digest, grown.sums) == (built.digest, built.sums)
    assert grown.digest.nodes == len(grown) == len(content(grown))


def _consistent(entries: list[Entry]) -> list[Entry]:
    """As owners would have said it: the same version is always the same entry."""
    said: dict[tuple[str, int, int], Entry] = {}
    return [
        entry
        if entry.is_plain
        else said.setdefault((entry.node, entry.incarnation, entry.version), entry)
        for entry in entries
    ]


# --- Standing on what many lists share ------------------------------------------------------------


def test_list_that_stands_on_another_holds_the_same() -> None:
    entries = make_many(50)
    base = FrozenList(entries)
    standing = SubscriptionList()
    standing.stand_on(base, NOW)
    alone = make_list(*entries)
    assert content(standing) == content(alone)
    assert (standing.digest, standing.sums, len(standing)) == (alone.digest, alone.sums, 50)
    assert standing.heard_at("n0001") == NOW


def test_changes_on_top_of_a_base_leave_the_base_and_other_lists_alone() -> None:
    base = FrozenList(make_many(10))
    first, second = SubscriptionList(), SubscriptionList()
    first.stand_on(base, NOW)
    second.stand_on(base, NOW)
    merge(first, Entry("n0003", 1, 2, "node 3"))
    merge(first, Entry("n0004", 1, 2, "node 4", left=True))
    merge(first, X1)
    first.hear("n0005", NOW + 3)
    assert content(second) == base.entries
    assert second.digest == base.digest
    assert second.heard_at("n0005") == NOW
    assert len(first) == 10
    assert first.get("n0004") is None


@few
@given(_lists, _lists)
def test_list_on_a_base_behaves_like_one_without(below: list[Entry], above: list[Entry]) -> None:
    both = _consistent(below + above)
    plain = merged(both[: len(below)])
    standing = SubscriptionList()
    standing.stand_on(FrozenList(plain), NOW)
    standing.tombstones.update(plain.tombstones)
    for entry in both[len(below) :]:
        assert merge(standing, entry) == merge(plain, entry)
    assert content(standing) == content(plain)
    assert (standing.digest, standing.sums, len(standing)) == (
        plain.digest,
        plain.sums,
        len(plain),
    )


def test_entry_of_the_base_may_leave_and_come_back() -> None:
    base = FrozenList([X1, *make_many(3)])
    known = SubscriptionList()
    known.stand_on(base, NOW)
    known.bury(replace(X1, gone=True), NOW)
    assert len(known) == 3
    merge(known, X1, now=NOW + 1)
    assert known.digest == base.digest
    assert known.heard_at("x") == NOW + 1
