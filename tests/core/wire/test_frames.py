from __future__ import annotations

from dataclasses import replace

import pytest

from jsonbus.core.wire.frames import ALL_BUCKETS, BUCKETS, Digest, Entry, bucket_of

ENTRY = Entry("k3v9", 1_731_715_200_123, 4, name="kitchen", patterns=("a", "b/*"))
PLAIN = Entry("plain:10.0.0.7:2416", 0, 1, patterns=("a", "b"))


@pytest.mark.parametrize(
    "other",
    [replace(ENTRY, node="k3v8"), replace(ENTRY, incarnation=1), replace(ENTRY, version=5)],
)
def test_entries_that_differ_in_node_incarnation_or_version_hash_differently(other: Entry) -> None:
    assert other.hash64() != ENTRY.hash64()


def test_the_hash_of_an_entry_ignores_what_its_version_already_tells() -> None:
    assert replace(ENTRY, patterns=(), name="attic").hash64() == ENTRY.hash64()


def test_the_hash_of_a_plain_entry_tells_its_patterns_because_nobody_numbers_them() -> None:
    assert replace(PLAIN, patterns=("a",)).hash64() != PLAIN.hash64()
    assert replace(PLAIN).hash64() == PLAIN.hash64()


def test_hashes_and_buckets_are_the_same_on_every_machine_and_in_every_release() -> None:
    # Nodes of different releases compare them: a change here is a change of the wire format.
    assert f"{ENTRY.hash64():016x}" == "e3f4ba2cb95a2353"
    assert f"{PLAIN.hash64():016x}" == "42212d8edc701eb6"
    assert [bucket_of(node) for node in ("a", "b", "k3v9")] == [67, 249, 175]


def test_hashes_have_64_bits_and_every_bucket_is_used() -> None:
    hashes = [Entry(f"n{i}", 1, 1).hash64() for i in range(1000)]
    assert len(set(hashes)) == 1000
    assert 2**60 < max(hashes) < 2**64
    assert {bucket_of(f"n{i}") for i in range(10_000)} == set(range(BUCKETS))


def test_all_buckets_has_one_bit_per_bucket() -> None:
    assert ALL_BUCKETS.bit_count() == ALL_BUCKETS.bit_length() == BUCKETS


def test_only_pseudo_nodes_of_plain_peers_are_plain() -> None:
    assert PLAIN.is_plain
    assert not ENTRY.is_plain


def test_an_entry_is_alive_until_its_node_left_or_is_gone() -> None:
    assert ENTRY.is_alive
    assert not replace(ENTRY, left=True).is_alive
    assert not replace(ENTRY, gone=True).is_alive


def test_a_digest_reads_as_count_and_hash() -> None:
    assert str(Digest(12, 0x9F)) == "12/000000000000009f"
