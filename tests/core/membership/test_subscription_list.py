"""The subscription list: what replaces what, tombstones, what differs."""

from __future__ import annotations

from dataclasses import replace

import pytest

from jsonbus.core.limits import (
    LIST_ENTRIES_MAX,
    PEERS_UNLISTED_MAX,
    TOMBSTONES_MAX,
    WHOLE_LIST_NODES,
)
from jsonbus.core.membership import subscription_list
from jsonbus.core.membership.subscription_list import (
    CHANGED,
    SAME,
    STALE,
    SubscriptionList,
)
from jsonbus.core.wire.encode import LIST_OVERHEAD_BYTES, entry_size_bytes
from jsonbus.core.wire.frames import ALL_BUCKETS, Digest, Entry, bucket_of
from jsonbus.core.wire.names import DATAGRAM_BYTES_MAX

NOW = 1000.0
LEASE = 7.0

X1 = Entry("x", 5, 1, "x", ("t",))
X2 = replace(X1, version=2, patterns=("t", "u"))


def make_list(*entries: Entry, heard_at: float = NOW) -> SubscriptionList:
    made = SubscriptionList()
    for entry in entries:
        made.put(entry, heard_at)
    return made


def merge(into: SubscriptionList, entry: Entry, age_s: float = 0.0, now: float = NOW) -> int:
    return into.merge(entry, age_s, now, LEASE)


def make_many(count: int) -> list[Entry]:
    return [Entry(f"n{number:04d}", 1, 1, f"node {number}", ("t",)) for number in range(count)]


# --- Newer, older, same ---------------------------------------------------------------------------


def test_larger_version_replaces_and_smaller_is_ignored() -> None:
    known = make_list(X1)
    assert merge(known, X2) == CHANGED
    assert merge(known, X1) == STALE
    assert known.get("x") == X2


def test_larger_incarnation_beats_any_version() -> None:
    known = make_list(replace(X1, version=900))
    restarted = Entry("x", 6, 1, "x")
    assert merge(known, restarted) == CHANGED
    assert merge(known, replace(X1, version=901)) == STALE
    assert known.get("x") == restarted


def test_same_entry_with_a_smaller_age_is_a_sign_of_life() -> None:
    known = make_list(X1, heard_at=NOW - 5)
    assert merge(known, X1, age_s=2.0) == SAME
    assert known.heard_at("x") == NOW - 2


def test_age_never_makes_a_node_look_older() -> None:
    known = make_list(X1, heard_at=NOW - 1)
    merge(known, X1, age_s=6.0)
    assert known.heard_at("x") == NOW - 1
    merge(known, X2, age_s=6.0)
    assert known.heard_at("x") == NOW - 1


def test_unknown_node_unheard_for_a_lease_is_not_taken_in() -> None:
    known = make_list()
    assert merge(known, X1, age_s=LEASE + 0.1) == STALE
    assert merge(known, X1, age_s=LEASE - 0.1) == CHANGED


def test_version_that_its_owner_could_not_overrule_is_not_believed() -> None:
    known = make_list(X1)
    assert merge(known, replace(X1, version=2**53)) == STALE
    assert known.get("x") == X1


@pytest.mark.parametrize("pattern", ["x" * 250, '"' * 250])
def test_entry_that_no_node_could_pass_on_is_not_believed(pattern: str) -> None:
    large = Entry("x", 5, 1, "x", tuple(f"{number:03d}{pattern}" for number in range(300)))
    known = make_list()
    for count in range(1, 301):
        entry = replace(large, version=count, patterns=large.patterns[:count])
        if entry_size_bytes(entry) > DATAGRAM_BYTES_MAX - LIST_OVERHEAD_BYTES:
            assert merge(known, entry) == STALE
        elif count % 20 == 0:
            assert merge(known, entry) == CHANGED


# --- Leaving, being gone, coming back -------------------------------------------------------------


def test_node_that_left_is_no_part_of_the_digest() -> None:
    known = make_list(X1)
    empty = Digest(0, 0)
    assert merge(known, Entry("x", 5, 2, "x", left=True)) == CHANGED
    assert known.get("x") is None
    assert (known.digest, known.sums, len(known)) == (empty, 0, 0)


def test_old_list_does_not_bring_back_who_left() -> None:
    known = make_list(X1)
    merge(known, Entry("x", 5, 2, "x", left=True))
    assert merge(known, X1) == STALE
    assert known.get("x") is None


def test_goodbye_that_arrives_before_the_announcement_counts() -> None:
    known = make_list()
    merge(known, Entry("x", 5, 2, "x", left=True))
    assert merge(known, X1) == STALE
    assert len(known) == 0


def test_goodbye_counts_even_without_a_version_of_its_own() -> None:
    known = make_list(X1)
    assert merge(known, replace(X1, patterns=(), left=True)) == CHANGED
    assert known.get("x") is None


def test_newer_entry_of_a_buried_node_is_not_taken_in_when_nobody_heard_it_lately() -> None:
    known = make_list(X1)
    known.bury(replace(X1, gone=True), NOW)
    assert merge(known, X2, age_s=LEASE + 0.1) == STALE
    assert merge(known, X2, age_s=LEASE - 0.1) == CHANGED
    assert known.get("x") == X2


def test_node_that_left_may_start_anew() -> None:
    known = make_list(X1)
    merge(known, Entry("x", 5, 2, "x", left=True))
    assert merge(known, Entry("x", 6, 1, "x", ("t",))) == CHANGED
    assert "x" not in known.tombstones


def test_tombstone_of_a_node_heard_lately_is_not_believed() -> None:
    known = make_list(X1, heard_at=NOW - 1)
    assert merge(known, replace(X1, patterns=(), gone=True)) == STALE
    assert merge(known, replace(X2, patterns=(), gone=True)) == STALE
    assert known.get("x") == X1


def test_tombstone_of_a_node_silent_here_as_well_is_believed() -> None:
    known = make_list(X1, heard_at=NOW - 0.8 * LEASE)
    assert merge(known, replace(X1, patterns=(), gone=True)) == CHANGED
    assert known.get("x") is None


def test_a_node_that_comes_back_after_a_tombstone_from_the_wire_still_wants_what_it_wanted() -> (
    None
):
    # Tombstones travel without patterns: what was known of the node has to be kept.
    known = make_list(X1, heard_at=NOW - 0.8 * LEASE)
    merge(known, replace(X1, patterns=(), gone=True))
    buried, _ = known.tombstones["x"]
    assert buried.patterns == X1.patterns
    assert merge(known, replace(buried, gone=False), now=NOW + 1) == CHANGED
    assert known.get("x") == X1


def test_tombstone_of_a_node_never_known_cannot_bring_it_back_without_its_patterns() -> None:
    known = make_list()
    merge(known, replace(X1, patterns=(), gone=True))
    assert "x" not in known.tombstones
    assert merge(known, X1) == CHANGED
    assert known.get("x") == X1


def test_gone_node_comes_back_when_somebody_heard_it_after_all() -> None:
    known = make_list(X1)
    known.bury(replace(X1, gone=True), NOW)
    assert merge(known, X1, age_s=LEASE + 1) == SAME
    assert known.get("x") is None
    assert merge(known, X1, age_s=1.0) == CHANGED
    assert known.get("x") == X1


def test_tombstones_are_forgotten_when_they_are_old() -> None:
    known = make_list(X1)
    merge(known, Entry("x", 5, 2, "x", left=True))
    known.forget_tombstones(before=NOW)
    assert "x" in known.tombstones
    known.forget_tombstones(before=NOW + 0.1)
    assert "x" not in known.tombstones


def test_versions_of_forgotten_nodes_are_remembered_of_the_last_ones() -> None:
    known = make_list()
    for number in range(PEERS_UNLISTED_MAX + 1):
        known.bury(Entry(f"n{number}", 1, 3, gone=True), NOW)
    known.forget_tombstones(before=NOW + 0.1)
    last = f"n{PEERS_UNLISTED_MAX}"
    assert known.is_outdated(Entry(last, 1, 2))
    assert not known.is_outdated(Entry(last, 1, 3))
    assert not known.is_outdated(Entry(last, 2, 1))
    assert not known.is_outdated(Entry("n0", 1, 2))
    known.put(Entry(last, 1, 4), NOW)
    assert not known.is_outdated(Entry(last, 1, 2))  # merging tells


def test_tombstone_ages_on_its_way_from_list_to_list() -> None:
    first = make_list(X1)
    merge(first, Entry("x", 5, 2, "x", left=True))
    second = make_list()
    half = LEASE / 2
    for entry, age_s in first.entries_in(ALL_BUCKETS, NOW + half):
        merge(second, entry, age_s, NOW + half)
    assert "x" in second.tombstones
    second.forget_tombstones(before=NOW + 0.1)  # not a lease after it was passed on
    assert not second.tombstones


def test_tombstone_older_than_a_lease_is_not_passed_on_again() -> None:
    known = make_list()
    merge(known, Entry("x", 5, 2, "x", left=True), age_s=LEASE + 0.1)
    assert not known.tombstones


def test_tombstones_are_bounded() -> None:
    known = make_list()
    for number in range(TOMBSTONES_MAX + 5):
        known.bury(Entry(f"n{number}", 1, 1, left=True), NOW)
    assert len(known.tombstones) == TOMBSTONES_MAX
    assert "n0" not in known.tombstones


def test_nothing_is_kept_of_a_node_but_its_tombstone() -> None:
    known = make_list(X1)
    known.bury(replace(X1, gone=True), NOW)
    assert "x" not in known.heard
    known.forget_tombstones(before=NOW + 1)
    assert not known.tombstones
    assert list(known) == []


def test_full_list_refuses_and_says_so() -> None:
    known = make_list()
    known.digest = Digest(LIST_ENTRIES_MAX, 0)  # as if it held so many
    assert merge(known, X1) == STALE
    assert known.is_full


def test_patterns_of_all_entries_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subscription_list, "LIST_PATTERNS_MAX", 10)
    four = ("a", "b", "c", "d")
    known = make_list(Entry("x", 1, 1, "x", four), Entry("y", 1, 1, "y", four))
    assert merge(known, Entry("z", 1, 1, "z", four)) == STALE
    assert known.is_full
    assert merge(known, Entry("z", 1, 1, "z", ("a",))) == CHANGED
    assert merge(known, Entry("z", 1, 2, "z", four)) == STALE
    assert merge(known, Entry("z", 1, 2, "z", ("a", "b"))) == CHANGED
    assert merge(known, Entry("x", 1, 2, "x", ("e", "f", "g", "h"))) == CHANGED
    known.bury(Entry("y", 1, 2, "y", left=True), NOW)
    assert merge(known, Entry("w", 1, 1, "w", four)) == CHANGED


# --- What differs ---------------------------------------------------------------------------------


def test_sums_tell_which_buckets_differ() -> None:
    left, right = make_list(*make_many(100)), make_list(*make_many(100))
    merge(left, Entry("n0007", 1, 2, "node 7"))
    merge(right, Entry("another", 1, 1, "another"))
    expected = 1 << bucket_of("n0007") | 1 << bucket_of("another")
    assert left.differing_buckets(right.sums) == expected
    assert right.differing_buckets(left.sums) == expected


def test_equal_sums_of_different_lists_mean_the_whole_list() -> None:
    known = make_list(X1)
    assert known.differing_buckets(known.sums) == ALL_BUCKETS


def test_entries_of_some_buckets_are_exactly_those() -> None:
    known = make_list(*make_many(300))
    wanted = 0b1011 << 40
    inside = {entry.node for entry in known if wanted >> bucket_of(entry.node) & 1}
    assert {entry.node for entry, _ in known.entries_in(wanted, NOW)} == inside
    assert 0 < len(inside) < 300


def test_tombstones_travel_with_the_bucket_of_their_node() -> None:
    known = make_list()
    for number in range(50):
        merge(known, Entry(f"n{number}", 1, 2, left=True))
    wanted = 1 << bucket_of("n7")
    listed = [entry.node for entry, _ in known.entries_in(wanted, NOW)]
    assert "n7" in listed and len(listed) < 10


def test_entries_travel_with_their_age_and_tombstones_come_first() -> None:
    known = make_list(X1, heard_at=NOW - 3)
    merge(known, Entry("y", 1, 2, "y", left=True))
    listed = list(known.entries_in(ALL_BUCKETS, NOW))
    assert [(entry.node, age_s) for entry, age_s in listed] == [("y", 0.0), ("x", 3.0)]


def test_ages_are_never_negative() -> None:
    known = make_list(X1, heard_at=NOW + 1)
    assert [age_s for _, age_s in known.entries_in(ALL_BUCKETS, NOW)] == [0.0]


def test_sums_travel_only_with_lists_that_are_worth_it() -> None:
    assert make_list(*make_many(WHOLE_LIST_NODES)).sums_to_send() is None
    large = make_list(*make_many(WHOLE_LIST_NODES + 1))
    assert large.sums_to_send() == large.sums
