"""Plain peers in the subscription list: they only grow, and are bounded."""

from __future__ import annotations

from dataclasses import replace

import pytest

from jsonbus.core.limits import (
    PLAIN_BYTES_MAX,
    PLAIN_LEASE_S,
    PLAIN_PEERS_MAX,
)
from jsonbus.core.membership.subscription_list import (
    CHANGED,
    SAME,
    STALE,
    SubscriptionList,
    make_plain_entry,
)
from jsonbus.core.wire.encode import LIST_OVERHEAD_BYTES, entry_size_bytes
from jsonbus.core.wire.frames import Entry
from jsonbus.core.wire.names import DATAGRAM_BYTES_MAX

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


PLAIN = "plain:10.0.0.7"


def test_plain_peers_topics_grow_together() -> None:
    known = make_list(make_plain_entry(PLAIN, ["a", "b"]))
    assert merge(known, make_plain_entry(PLAIN, ["c", "b"])) == CHANGED
    assert known.get(PLAIN) == make_plain_entry(PLAIN, ["a", "b", "c"])
    assert merge(known, make_plain_entry(PLAIN, ["a"])) == SAME


def test_plain_lists_of_the_same_length_have_different_digests() -> None:
    # Nobody numbers their versions: the content has to tell.
    left, right = make_list(), make_list()
    merge(left, make_plain_entry(PLAIN, ["a"]))
    merge(right, make_plain_entry(PLAIN, ["b"]))
    assert left.digest != right.digest


def test_plain_entry_is_the_same_whoever_listed_it_in_whichever_order() -> None:
    left, right = make_list(), make_list()
    merge(left, make_plain_entry(PLAIN, ["a", "b"]))
    merge(right, Entry(PLAIN, 3, 77, "anything", ("b", "a")))
    assert left.digest == right.digest


@pytest.mark.parametrize("end", [{"left": True}, {"gone": True}])
def test_plain_entry_that_ended_is_not_believed(end: dict[str, bool]) -> None:
    ended = replace(make_plain_entry(PLAIN, []), **end)  # type: ignore[arg-type]
    known = make_list()
    assert merge(known, ended) == STALE
    merge(known, make_plain_entry(PLAIN, ["a"]))
    assert merge(known, ended) == STALE
    assert known.get(PLAIN) is not None


def test_plain_entry_older_than_its_lease_is_not_taken_in() -> None:
    known = make_list()
    plain = make_plain_entry(PLAIN, ["a"])
    assert merge(known, plain, age_s=PLAIN_LEASE_S + 1) == STALE
    assert merge(known, plain, age_s=PLAIN_LEASE_S - 1) == CHANGED


def test_plain_entries_from_lists_are_bounded() -> None:
    known = make_list()
    for number in range(PLAIN_PEERS_MAX + 10):
        merge(known, make_plain_entry(f"plain:10.1.{number // 256}.{number % 256}", ["a"]))
    assert len(known) == PLAIN_PEERS_MAX


def test_plain_peer_that_wants_too_much_is_taken_to_want_everything() -> None:
    known = make_list()
    topics = [f"{number:04d}/{'x' * 200}" for number in range(100)]
    for topic in topics:
        merge(known, make_plain_entry(PLAIN, [topic]))
    assert content(known)[PLAIN].patterns == ("**",)
    assert merge(known, make_plain_entry(PLAIN, ["y"])) == SAME
    at_once = make_list()
    merge(at_once, make_plain_entry(PLAIN, topics))
    assert at_once.digest == known.digest
    merge(at_once, make_plain_entry(PLAIN, topics[:3]))
    assert content(at_once)[PLAIN].patterns == ("**",)


def test_plain_entry_may_be_as_large_as_its_bound() -> None:
    topics = [f"{number:04d}" for number in range(1_000)]
    entry = make_plain_entry(PLAIN, topics)
    assert entry.patterns == tuple(topics)
    assert entry_size_bytes(entry) <= PLAIN_BYTES_MAX


def test_plain_entry_of_many_short_topics_still_fits_a_datagram() -> None:
    letters = [chr(code) for code in range(33, 127) if chr(code) not in "*/"]
    topics = [first + second for first in letters for second in letters]
    for count in (10, 1_000, 3_000, 8_000, len(topics)):
        entry = make_plain_entry(PLAIN, topics[:count])
        assert entry_size_bytes(entry) + LIST_OVERHEAD_BYTES <= DATAGRAM_BYTES_MAX


def test_plain_entries_are_found_without_looking_through_the_list() -> None:
    known = make_list(*make_many(3))
    merge(known, make_plain_entry(PLAIN, ["a"]))
    assert known.plain_entries() == [make_plain_entry(PLAIN, ["a"])]
    known.bury(replace(make_plain_entry(PLAIN, ["a"]), gone=True), NOW)
    assert known.plain_entries() == []


def test_plain_peer_that_expired_makes_room() -> None:
    known = make_list()
    peers = [f"plain:10.1.{number // 256}.{number % 256}" for number in range(PLAIN_PEERS_MAX)]
    for node in peers:
        merge(known, make_plain_entry(node, ["a"]))
    assert merge(known, make_plain_entry(PLAIN, ["a"])) == STALE
    assert known.is_full
    known.bury(replace(make_plain_entry(peers[0], ["a"]), gone=True), NOW)
    assert not known.is_full
    assert merge(known, make_plain_entry(PLAIN, ["a"])) == CHANGED


def test_plain_entry_with_a_smaller_age_is_a_sign_of_life() -> None:
    known = make_list()
    merge(known, make_plain_entry(PLAIN, ["a"]), age_s=50.0)
    merge(known, make_plain_entry(PLAIN, ["a"]), age_s=20.0)
    assert known.heard_at(PLAIN) == NOW - 20
    merge(known, make_plain_entry(PLAIN, ["a", "b"]), age_s=30.0)
    assert known.heard_at(PLAIN) == NOW - 20
