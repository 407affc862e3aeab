"""Whatever arrives: decoding gives a frame or a DatagramError, nothing else, in bounded memory."""

from __future__ import annotations

import gc
import random
import tracemalloc
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jsonbus.core.wire import codec
from jsonbus.core.wire.decode import CAUSES, decode
from jsonbus.core.wire.frames import (
    ALL_BUCKETS,
    About,
    BeatFrame,
    ByeFrame,
    Digest,
    EchoedFrame,
    EchoFrame,
    Entry,
    FragmentFrame,
    Frame,
    Header,
    ListFrame,
    MessagesFrame,
    MissingOfTopic,
    MissingSlices,
    NakFrame,
    PingFrame,
    PongFrame,
    PresenceFrame,
    RepairFrame,
    ReplyFrame,
    RequestFrame,
    RetainedFrame,
    WhereFrame,
)
from jsonbus.core.wire.names import (
    DATAGRAM_BYTES_MAX,
    ERROR_CHARS_MAX,
    INTEGER_MAX,
    NAK_SLICES_MAX,
    PORT_MAX,
)
from jsonbus.errors import DatagramError
from tests.core.generated import json_values, unhurried
from tests.core.wire.samples import SAMPLE_IDS, SAMPLES, encode_frame


def decode_anything(data: bytes) -> Frame | None:
    """The frame, or None if it was refused as it must be."""
    try:
        frame = decode(data)
    except DatagramError as error:
        assert error.cause in CAUSES
        assert len(str(error)) < 500
        return None
    assert isinstance(frame, Frame)
    return frame


# --- Bytes ---------------------------------------------------------------------------------------

# Pieces that mean something to the parser or to us, to get further than single bytes do.
TOKENS = [
    *b'{}[]",:\\',
    *(b'"jb":', b',"jb":{', b'"topic":', b'{"topic":"', b'"payload":', b'"subs":', b'"dig":'),
    *(b'"sum":', b'"cov":"all"', b'"part":[0,1]', b'"u":1', b'"n":"x"', b'"jsonbus.topics"'),
    *(
        b'"nak":["x",1,[["a",[[1,2]]]]]',
        b'"beat":[["a",2,1]]',
        b'"s":1',
        b'"k":1',
        b'"f":[1,0,2,1]',
    ),
    *(b'"jsonbus.nak"', b'"jsonbus.beat"', b'"jsonbus.repair"', b'"jsonbus.retained"'),
    *(b'"jsonbus.batch"', b"null", b"true", b"-1", b"1e9", b"9007199254740993", b"1" * 25),
    *(b"\\u0000", b"\\ud800", b"\xff", b"\xed\xa0\x80", b"\x00", b"plain:", b"[" * 300, b"]" * 300),
]
PIECES = [bytes([token]) if isinstance(token, int) else token for token in TOKENS]


def mutate(data: bytes, rng: random.Random) -> bytes:
    start = rng.randrange(len(data) + 1)
    end = min(len(data), start + rng.choice([0, 1, 1, 2, 8, 40]))
    change = rng.randrange(6)
    if change == 0:
        return data[:start]
    if change == 1:
        return data[:start] + rng.randbytes(end - start) + data[end:]
    if change == 2:
        return data[:start] + rng.choice(PIECES) + data[end:]
    if change == 3:
        return data[:start] + data[end:]
    if change == 4:
        return data[:end] + data[start:]
    other = rng.choice(SAMPLES)[1]
    return data[:start] + other[rng.randrange(len(other)) :]


@pytest.mark.parametrize("seed", range(8))
def test_mutated_datagrams_are_understood_or_refused(seed: int) -> None:
    rng = random.Random(seed)
    understood = 0
    for _ in range(1500):
        data = rng.choice(SAMPLES)[1]
        for _ in range(rng.randrange(1, 4)):
            data = mutate(data, rng)
        understood += decode_anything(data) is not None
    assert understood > 0  # or the mutations are too wild to test more than the JSON parser


@pytest.mark.parametrize("seed", range(4))
def test_random_bytes_and_random_pieces_are_understood_or_refused(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(1000):
        decode_anything(rng.randbytes(rng.randrange(200)))
        pieces = b"".join(rng.choices(PIECES, k=rng.randrange(30)))
        decode_anything(pieces)
        decode_anything(b'{"topic":"jsonbus.topics","payload":[],"jb":{' + pieces + b"}}")


@pytest.mark.parametrize("data", [data for _, data in SAMPLES], ids=SAMPLE_IDS)
def test_no_truncated_datagram_is_understood(data: bytes) -> None:
    assert all(decode_anything(data[:end]) is None for end in range(len(data)))


@pytest.mark.parametrize("data", [data for _, data in SAMPLES], ids=SAMPLE_IDS)
def test_a_datagram_with_any_one_value_replaced_is_understood_or_refused(data: bytes) -> None:
    strange: list[Any] = [
        None,
        True,
        -1,
        2**53 + 1,
        1.5,
        "",
        "x" * 300,
        "\x00",
        [],
        [[]],
        {},
        {"a": 1},
    ]
    for path in list_paths(codec.loads(data)):
        for value in strange:
            body = codec.loads(data)
            parent = body
            for step in path[:-1]:
                parent = parent[step]
            parent[path[-1]] = value
            decode_anything(codec.dumps(body))


def list_paths(value: object) -> list[tuple[int | str, ...]]:
    """The way to every value inside arrays and objects."""
    if isinstance(value, dict):
        children = list(value.items())
    elif isinstance(value, list):
        children = list(enumerate(value))
    else:
        return []
    paths: list[tuple[int | str, ...]] = []
    for key, child in children:
        paths += [(key,), *((key, *path) for path in list_paths(child))]
    return paths


@unhurried
@given(st.binary(max_size=500))
def test_any_bytes_are_understood_or_refused(data: bytes) -> None:
    decode_anything(data)


@pytest.mark.slow
@unhurried
@given(json_values)
def test_any_json_is_understood_or_refused(value: object) -> None:
    decode_anything(codec.dumps(value))
    decode_anything(codec.dumps({"topic": "a", "payload": value, "jb": value}))


# --- Memory --------------------------------------------------------------------------------------


def filled(start: bytes, piece: bytes, end: bytes) -> bytes:
    """The largest datagram made of that."""
    count = (DATAGRAM_BYTES_MAX - len(start) - len(end)) // len(piece)
    return start + piece * count + end


_JB = b',"jb":{"n":"x","i":1,"q":1,"m":1,"t":1'
_LIST = b'{"topic":"jsonbus.topics","payload":["jsonbus.topics","a"]' + _JB
_PRESENCE = b'{"topic":"jsonbus.presence","payload":1%b,"v":1,"name":"","mode":"basic"' % _JB
GREEDY = {
    "empty arrays": filled(b'{"topic":"a","payload":[', b"[],", b"1]}"),
    "empty objects": filled(b'{"topic":"a","payload":[', b"{},", b"1]}"),
    "objects": filled(b'{"topic":"a","payload":[', b'{"a":1},', b"1]}"),
    "openings": filled(b'{"topic":"a","payload":', b"[", b""),
    "a wide topic": filled(b'{"topic":"', b"\xf0\x9f\x98\x80", b'","payload":1}'),
    "messages": filled(b'{"topic":"jsonbus.batch","payload":[', b'["a",1],', b"[]]%b}}" % _JB),
    "not messages": filled(b'{"topic":"jsonbus.batch","payload":[', b"[[]],", b"[]]%b}}" % _JB),
    "topics": filled(b'{"topic":"jsonbus.topics","payload":[', b'"a",', b'"a"]}'),
    "indexes": filled(_LIST + b',"subs":{"x":[1,1,1,"",0,[', b"1,", b"1]]}}}"),
    "sums": filled(_LIST + b',"sum":"', b"A", b'","subs":{}}}'),
    "ranges": filled(
        b'{"topic":"jsonbus.nak","payload":null%b,"nak":["x",1,[["a",[' % _JB,
        b"[1,1],",
        b"[1,1]]]]]}}",
    ),
    "beats": filled(
        b'{"topic":"jsonbus.beat","payload":null%b,"beat":[' % _JB, b'["a",1,1],', b'["a",1,1]]}}'
    ),
    "repairs": filled(b'{"topic":"jsonbus.repair","payload":[', b'["a",1,1,1],', b"[]]%b}}" % _JB),
    "suspects": filled(_PRESENCE + b',"sus":[', b'["x",1],', b'["x",1]]}}'),
}


@pytest.mark.slow
@pytest.mark.parametrize("data", GREEDY.values(), ids=GREEDY.keys())
def test_no_datagram_takes_much_memory_or_keeps_any(data: bytes) -> None:
    decode_anything(data)  # whatever is made once and kept, the parser's buffers for one
    gc.collect()
    tracemalloc.start()
    try:
        for _ in range(3):
            decode_anything(data)
        gc.collect()
        kept, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 12 * 2**20
    assert kept < 2**16


# --- Frames --------------------------------------------------------------------------------------

integers = st.integers(0, INTEGER_MAX)
node_ids = st.text("abcdefghijklmnopqrstuvwxyz234567-", min_size=1, max_size=64)
plain_ids = st.from_regex(r"plain:[0-9.]{7,15}:[0-9]{1,5}", fullmatch=True)
names = st.text(st.characters(exclude_categories=("Cc", "Cs")), max_size=60)
topics = st.lists(
    st.text(st.characters(exclude_categories=("Cc", "Cs"), exclude_characters="/*"), min_size=1),
    min_size=1,
    max_size=4,
).map(lambda levels: "/".join(levels)[:60].strip("/") or "x")
patterns = topics | topics.map("{}/*".format) | topics.map("jsonbus.request/{}".format)
modes = st.sampled_from(["basic", "master", "delayed"])
abouts = st.builds(
    About,
    st.none() | names.map(lambda name: name.encode()[:64].decode(errors="ignore") or "x"),
    st.none() | st.from_regex(r"[0-9.a-z+]{1,32}", fullmatch=True),
    st.none() | st.integers(1, PORT_MAX),
)
digests = st.none() | st.builds(Digest, integers, st.integers(0, 2**64 - 1))
sums = st.none() | st.integers(0, 2**4096 - 1)
headers = st.builds(Header, node_ids, integers, st.integers(1, INTEGER_MAX), integers, integers)
entries = st.builds(
    Entry,
    node=node_ids | plain_ids,
    incarnation=integers,
    version=integers,
    name=names,
    patterns=st.lists(patterns, unique=True, max_size=5).map(tuple),
    mode=modes,
    is_master=st.booleans(),
    left=st.booleans(),
    gone=st.booleans(),
).map(lambda entry: entry if entry.is_alive else replace(entry, patterns=()))
aged_entries = st.lists(
    st.tuples(entries, st.integers(0, 10**6).map(lambda age_ms: age_ms / 1000)),
    unique_by=lambda pair: pair[0].node,
    max_size=6,
)
parts = st.integers(1, 65_535).flatmap(lambda n: st.tuples(st.integers(0, n - 1), st.just(n)))

ranges = st.lists(
    st.tuples(st.integers(1, 2**40), st.integers(0, 99)).map(lambda pair: (pair[0], sum(pair))),
    max_size=4,
)


def make_list(
    header: Header,
    aged: list[tuple[Entry, float]],
    digest: Digest | None,
    bucket_sums: int | None,
    covers: int | None,
    part: tuple[int, int],
    settled: bool,
    about: About,
) -> ListFrame:
    union = sorted({pattern for entry, _ in aged for pattern in entry.patterns})
    return ListFrame(header, union, aged, digest, bucket_sums, covers, part, settled, about=about)


missing = st.builds(
    MissingOfTopic,
    topics,
    ranges,
    st.lists(st.builds(MissingSlices, integers, integers, st.integers(1, 2**NAK_SLICES_MAX - 1))),
)
frames: st.SearchStrategy[Frame] = st.one_of(
    st.builds(
        MessagesFrame,
        headers,
        st.lists(st.tuples(topics, json_values).map(list), max_size=4),
    ),
    # Of a reliable topic, retained, or both.
    st.builds(
        MessagesFrame,
        headers,
        st.lists(
            st.tuples(topics, json_values, integers).map(list)
            | st.tuples(topics, json_values, st.none() | integers, st.just(1)).map(list),
            max_size=4,
        ),
    ),
    st.builds(
        lambda header, number, place, text, sequence: FragmentFrame(
            header, number, *place, text, sequence
        ),
        headers,
        integers,
        parts.filter(lambda place: place[1] > 1),
        names,
        st.none() | st.integers(1, INTEGER_MAX),
    ),
    st.builds(NakFrame, headers, node_ids, integers, st.lists(missing)),
    st.builds(BeatFrame, headers, st.lists(st.tuples(topics, integers, integers))),
    st.builds(
        RepairFrame,
        headers,
        st.lists(st.tuples(topics, json_values, integers, integers).map(list), max_size=4),
    ),
    st.builds(
        RetainedFrame,
        headers,
        st.lists(node_ids, max_size=4).map(tuple),
        st.lists(st.tuples(topics, json_values, integers, integers).map(list), max_size=4),
    ),
    st.builds(
        make_list,
        headers,
        aged_entries,
        digests,
        sums,
        st.none() | st.just(ALL_BUCKETS) | st.integers(0, ALL_BUCKETS),
        parts,
        st.booleans(),
        abouts,
    ),
    st.builds(
        PresenceFrame,
        headers,
        integers,
        names,
        modes,
        st.booleans(),
        st.booleans(),
        digests,
        sums,
        st.lists(st.tuples(node_ids | plain_ids, integers), max_size=4).map(tuple),
        st.none() | integers,
        abouts,
    ),
    st.builds(ByeFrame, headers, integers),
    st.builds(RequestFrame, headers, topics, json_values, integers, integers),
    st.builds(
        ReplyFrame,
        headers,
        node_ids,
        integers,
        json_values,
        st.none() | st.text(max_size=ERROR_CHARS_MAX),
    ),
    st.builds(PingFrame, headers, integers),
    st.builds(PongFrame, headers, node_ids, integers, abouts),
    st.builds(WhereFrame, headers, names.filter(bool)),
    st.builds(EchoFrame, headers, integers),
    st.builds(EchoedFrame, headers, node_ids, integers, integers, integers, names),
)


@unhurried
@given(frames)
def test_every_frame_survives_the_way_there_and_back(frame: Frame) -> None:
    data = encode_frame(frame)
    assert decode_anything(data) == frame
    assert decode_anything(b" " + data) == frame  # nothing depends on the first byte's place
