"""Counting, sizes, and what encoding cuts or refuses."""

from __future__ import annotations

import math
import random

import pytest

from jsonbus.core.wire import codec
from jsonbus.core.wire.decode import decode
from jsonbus.core.wire.encode import (
    LIST_OVERHEAD_BYTES,
    SUMS_SIZE_BYTES,
    encode_bye,
    encode_list,
    encode_ping,
    encode_where,
    entry_size_bytes,
)
from jsonbus.core.wire.encode_messages import (
    BATCH_OVERHEAD_BYTES,
    MESSAGE_OVERHEAD_BYTES,
    Stamp,
    encode_batch,
    encode_message,
)
from jsonbus.core.wire.frames import ALL_BUCKETS, Digest, Entry, ListFrame, ReplyFrame
from jsonbus.core.wire.names import (
    AGE_MS_MAX,
    ERROR_CHARS_MAX,
    INTEGER_MAX,
    LIST_PARTS_MAX,
    NODE_ID_BYTES_MAX,
)
from jsonbus.errors import PayloadError
from tests.core.wire.samples import HEADER, encode_frame

MAX = INTEGER_MAX


def stamp_with_the_longest_header() -> Stamp:
    stamp = Stamp("n" * NODE_ID_BYTES_MAX, MAX)
    stamp.counter = MAX - 1000
    return stamp


def test_a_stamp_counts_the_datagrams_of_every_kind_from_one() -> None:
    stamp = Stamp("k3v9", 5)
    datagrams = [
        encode_message(stamp, b'"a"', b"1", 1, 2),
        encode_batch(stamp, b'["a",1]', 1, 2),
        encode_bye(3).encode(stamp, 1, 2),
        encode_ping(3).encode(stamp, 1, 2),
        encode_where("k3v8").encode(stamp, 1, 2),
    ]
    headers = [decode(data).header for data in datagrams]
    assert [header and header.counter for header in headers] == [1, 2, 3, 4, 5]
    assert stamp.counter == 5


def test_a_datagram_that_could_not_be_made_is_not_counted() -> None:
    stamp = Stamp("k3v9", 5)
    with pytest.raises(PayloadError):
        encode_where("\ud800").encode(stamp, 1, 2)
    assert stamp.counter == 0


@pytest.mark.parametrize("node", ["", "x" * 65, "ü", 'a"b', "a\\b", "plain:10.0.0.7:1"])
def test_a_stamp_takes_no_id_that_others_would_refuse_or_that_would_grow(node: str) -> None:
    with pytest.raises(AssertionError):
        Stamp(node, 1)


def test_the_overheads_are_reached_by_the_longest_headers_and_never_exceeded() -> None:
    longest = stamp_with_the_longest_header()
    topic, payload = b'"sensors/kitchen"', b'{"temp":21.5}'
    pairs = [b"[%b,%b]" % (topic, payload)] * 5

    message = encode_message(longest, topic, payload, MAX, MAX)
    assert len(message) == len(topic) + len(payload) + MESSAGE_OVERHEAD_BYTES
    batch = encode_batch(longest, b",".join(pairs), MAX, MAX)
    assert len(batch) == sum(len(pair) + 1 for pair in pairs) - 1 + BATCH_OVERHEAD_BYTES

    short = Stamp("k3v9", MAX)
    short.counter = MAX - 1
    message = encode_message(short, topic, payload, MAX, MAX)
    overhead = MESSAGE_OVERHEAD_BYTES - short.id_bytes_saved
    assert len(message) == len(topic) + len(payload) + overhead


def some_entry(rng: random.Random) -> Entry:
    letters = 'abc/"\\ü漢\U0001f600'
    return Entry(
        node=rng.choice(["", "plain:"]) + f"{rng.getrandbits(64):x}",
        incarnation=rng.choice([0, 1_731_715_200_123, MAX]),
        version=rng.choice([0, 17, MAX]),
        name="".join(rng.choices(letters, k=rng.randrange(40))),
        patterns=tuple(
            {"".join(rng.choices(letters, k=rng.randrange(1, 40))) for _ in range(rng.randrange(9))}
        ),
        mode=rng.choice(["basic", "master", "delayed"]),
        is_master=rng.random() < 0.5,
        left=rng.random() < 0.2,
        gone=rng.random() < 0.2,
    )


def longest_list(entries: list[tuple[Entry, float]]) -> bytes:
    control = encode_list(
        entries=entries,
        digest=Digest(MAX, 2**64 - 1),
        sums=2**4096 - 1,
        covers=ALL_BUCKETS - 1,
        part=(LIST_PARTS_MAX - 1, LIST_PARTS_MAX),
        settled=True,
    )
    return control.encode(stamp_with_the_longest_header(), MAX, MAX)


LIST_BOUND_BYTES = LIST_OVERHEAD_BYTES + SUMS_SIZE_BYTES


@pytest.mark.parametrize("seed", range(10))
def test_a_list_is_never_larger_than_its_entries_were_said_to_make_it(seed: int) -> None:
    rng = random.Random(seed)
    for count in (0, 1, 2, 10, 100):
        entries = [(some_entry(rng), rng.choice([0.0, 3.2, math.inf])) for _ in range(count)]
        data = longest_list(entries)
        bound = LIST_BOUND_BYTES + sum(entry_size_bytes(e) for e, _ in entries)
        assert bound * 0.7 - 100 < len(data) <= bound


def test_the_size_of_an_entry_without_patterns_is_off_by_four_bytes_at_most() -> None:
    entries = [(Entry(f"n{i}", MAX, MAX, mode="master", is_master=True), math.inf) for i in "123"]
    bound = LIST_BOUND_BYTES + sum(entry_size_bytes(e) for e, _ in entries)
    data = longest_list(entries)
    assert bound - 4 * len(entries) <= len(data) <= bound


def test_patterns_that_entries_share_are_written_once_and_sorted() -> None:
    entries = [(Entry(f"n{i}", 1, 1, patterns=("z", "m", f"a{i}")), 0.0) for i in range(3)]
    frame = ListFrame(HEADER, [], entries, None, None, None, (0, 1), False)
    data = encode_frame(frame)
    assert codec.loads(data)["payload"] == ["jsonbus.topics", "a0", "a1", "a2", "m", "z"]
    decoded = decode(data)
    assert isinstance(decoded, ListFrame)
    assert decoded.entries == entries


def test_the_patterns_of_who_left_or_is_gone_are_not_sent() -> None:
    for entry in (
        Entry("k3v9", 1, 1, patterns=("a",), left=True),
        Entry("k3v9", 1, 1, patterns=("a",), gone=True),
    ):
        frame = ListFrame(HEADER, [], [(entry, 0.0)], None, None, None, (0, 1), False)
        assert codec.loads(encode_frame(frame))["payload"] == ["jsonbus.topics"]


@pytest.mark.parametrize(
    ("age_s", "sent_s"),
    [(-1.0, 0.0), (0.0, 0.0), (1.23456, 1.235), (math.inf, AGE_MS_MAX / 1000)],
)
def test_ages_are_rounded_and_bounded(age_s: float, sent_s: float) -> None:
    entries = [(Entry("k3v9", 1, 1), age_s)]
    frame = ListFrame(HEADER, [], entries, None, None, None, (0, 1), False)
    decoded = decode(encode_frame(frame))
    assert isinstance(decoded, ListFrame)
    assert [age for _, age in decoded.entries] == [sent_s]


@pytest.mark.parametrize(
    ("error", "sent"),
    [
        ("", ""),
        ("x" * ERROR_CHARS_MAX, "x" * ERROR_CHARS_MAX),
        ("x" * 10_000, "x" * (ERROR_CHARS_MAX - 1) + "…"),
        ("lone \ud800", "lone ?"),
    ],
)
def test_whatever_the_text_of_a_failure_it_can_be_sent(error: str, sent: str) -> None:
    decoded = decode(encode_frame(ReplyFrame(HEADER, "k3v8", 1, None, error)))
    assert decoded == ReplyFrame(HEADER, "k3v8", 1, None, sent)
