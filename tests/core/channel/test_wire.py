"""Frames of channels: both ways, in any pieces, too large ones, and nonsense."""

from __future__ import annotations

import struct
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jsonbus.core.channel.wire import (
    BEAT,
    BYTES,
    CLOSE,
    END,
    JSON,
    MESSAGES,
    SKIPPED,
    FrameItem,
    FrameReader,
    encode_frame,
)
from tests.core.generated import unhurried

SAMPLES: list[tuple[FrameItem, bytes]] = [
    ((JSON, b'{"a":1}'), b'\x00\x00\x00\x07J{"a":1}'),
    ((JSON, b"null"), b"\x00\x00\x00\x04Jnull"),
    ((BYTES, b""), b"\x00\x00\x00\x00B"),
    ((BYTES, bytes(300)), b"\x00\x00\x01\x2cB" + bytes(300)),
    ((BEAT, b""), b"\x00\x00\x00\x00-"),
    ((CLOSE, b""), b"\x00\x00\x00\x00C"),
    ((END, b""), b"\x00\x00\x00\x00E"),
    ((ord("?"), b"of later"), b"\x00\x00\x00\x08?of later"),
]
FRAMES = [frame for frame, _ in SAMPLES]
STREAM = b"".join(data for _, data in SAMPLES)


def feed(reader: FrameReader, *pieces: bytes) -> list[FrameItem]:
    """The frames of pieces that come in one buffer, which is used again and again."""
    buffer = bytearray(max(map(len, pieces), default=0))
    frames: list[FrameItem] = []
    for piece in pieces:
        buffer[: len(piece)] = piece
        frames += reader.feed(memoryview(buffer)[: len(piece)])
    return frames


def assert_complete(reader: FrameReader) -> None:
    """Nothing of another frame has come: one that comes now is whole."""
    assert feed(reader, encode_frame(BEAT)) == [(BEAT, b"")]


def cut(data: bytes, places: list[int]) -> list[bytes]:
    places = sorted({0, len(data), *(place % (len(data) + 1) for place in places)})
    return [data[start:end] for start, end in zip(places, places[1:], strict=False)]


@pytest.mark.parametrize(("frame", "data"), SAMPLES)
def test_frame_is_written_and_read_as_the_table_says(frame: FrameItem, data: bytes) -> None:
    assert encode_frame(*frame) == data
    reader = FrameReader(1000)
    assert feed(reader, data) == [frame]
    assert reader.held_bytes == 0
    assert_complete(reader)


@pytest.mark.parametrize(("frame", "data"), SAMPLES)
def test_frame_is_read_byte_by_byte(frame: FrameItem, data: bytes) -> None:
    reader = FrameReader(1000)
    pieces = [data[at : at + 1] for at in range(len(data))]
    assert feed(reader, *pieces[:-1]) == []
    assert feed(reader, pieces[-1]) == [frame]
    assert_complete(reader)


@pytest.mark.parametrize("trailing", range(1, len(SAMPLES[0][1])))
@pytest.mark.parametrize(("frame", "data"), SAMPLES)
def test_frame_is_read_with_bytes_of_the_next_one(
    frame: FrameItem, data: bytes, trailing: int
) -> None:
    next_frame, next_data = SAMPLES[0]
    reader = FrameReader(1000)
    assert feed(reader, data + next_data[:trailing]) == [frame]
    assert feed(reader, next_data[trailing:]) == [next_frame]


@unhurried
@given(st.lists(st.integers(0, len(STREAM)), max_size=20))
def test_cuts_make_no_difference(places: list[int]) -> None:
    reader = FrameReader(1000)
    assert feed(reader, *cut(STREAM, places)) == FRAMES
    assert_complete(reader)


def test_prefix_that_is_cut_goes_on_with_the_next_bytes() -> None:
    reader = FrameReader(1000)
    assert feed(reader, b"\x00\x00\x00\x02Jab\x00") == [(JSON, b"ab")]
    assert reader.held_bytes == 1
    assert feed(reader, b"\x00\x00\x01Jc") == [(JSON, b"c")]


def test_held_bytes_are_those_of_the_frame_that_is_not_complete() -> None:
    reader = FrameReader(1000)
    feed(reader, STREAM + b"\x00\x00\x00\x07Jabc")
    assert reader.held_bytes == 3
    feed(reader, b"defg")
    assert reader.held_bytes == 0


# --- Too large -----------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [11, 300, 70_000])
@pytest.mark.parametrize("piece_bytes", [1, 7, 100_000])
def test_too_large_message_is_skipped_in_its_place(size: int, piece_bytes: int) -> None:
    data = (
        encode_frame(JSON, b"1")
        + encode_frame(BYTES, b"x" * size)
        + encode_frame(JSON, b"x" * 10)  # that is as much as may be
    )
    reader = FrameReader(10)
    frames = []
    for at in range(0, len(data), piece_bytes):
        frames += feed(reader, data[at : at + piece_bytes])
        assert reader.held_bytes <= 10
    assert frames == [(JSON, b"1"), (SKIPPED, b"%d" % size), (JSON, b"x" * 10)]
    assert_complete(reader)


def test_four_gibibytes_are_skipped_without_being_kept() -> None:
    reader = FrameReader(1000)
    size = 2**32 - 1
    piece = memoryview(bytes(1 << 24))
    assert feed(reader, struct.pack(">IB", size, JSON)) == []
    tracemalloc.start()
    try:
        for _ in range(size >> 24):
            assert list(reader.feed(piece)) == []
            assert reader.is_skipping
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 10_000
    rest = bytes(size % (1 << 24))
    assert feed(reader, rest + STREAM) == [(SKIPPED, b"4294967295"), *FRAMES]


@pytest.mark.parametrize("kind", [0, CLOSE, ord("?"), 255])
def test_what_is_no_message_is_never_given_out_as_a_skipped_one(kind: int) -> None:
    reader = FrameReader(10)
    assert feed(reader, encode_frame(kind, b"5") + encode_frame(kind, bytes(20))) == [
        (kind, b"5"),
        (kind, b""),
    ]


def test_body_that_is_being_skipped_is_skipped_to_its_end_when_larger_ones_are_taken() -> None:
    reader = FrameReader(10)
    large = encode_frame(BYTES, bytes(20))
    assert feed(reader, large[:15]) == []
    reader.body_bytes_max = 100
    assert feed(reader, large[15:] + large) == [(SKIPPED, b"20"), (BYTES, bytes(20))]


@pytest.mark.parametrize("begun_bytes", range(10))
def test_bodies_can_be_skipped_from_any_moment_on(begun_bytes: int) -> None:
    reader = FrameReader(1000)
    data = encode_frame(BYTES, b"hello")
    assert feed(reader, data[:begun_bytes]) == []
    reader.skip_bodies()
    assert reader.held_bytes == (begun_bytes if begun_bytes < 5 else 0)
    rest = data[begun_bytes:] + encode_frame(BEAT) + encode_frame(JSON, b"1")
    assert feed(reader, rest) == [(SKIPPED, b"5"), (BEAT, b""), (SKIPPED, b"1")]


# --- Nonsense ------------------------------------------------------------------------------------


@unhurried
@given(st.binary(max_size=300), st.integers(0, 200), st.lists(st.integers(0, 300), max_size=5))
def test_any_bytes_are_frames_of_some_kind(data: bytes, limit: int, places: list[int]) -> None:
    whole, in_pieces = FrameReader(limit), FrameReader(limit)
    frames = feed(whole, data)
    assert feed(in_pieces, *cut(data, places)) == frames
    assert whole.held_bytes == in_pieces.held_bytes <= max(limit, 4)
    for kind, body in frames:
        assert kind in range(256) or (kind == SKIPPED and int(body) > limit)
        assert len(body) <= max(limit, 10)


@unhurried
@given(
    st.lists(st.tuples(st.integers(0, 255), st.binary(max_size=40)), max_size=8),
    st.lists(st.integers(0, 400), max_size=8),
    st.integers(0, 40),
)
def test_any_frames_in_any_pieces_come_out_as_they_went_in(
    frames: list[FrameItem], places: list[int], limit: int
) -> None:
    data = b"".join(encode_frame(*frame) for frame in frames)
    reader = FrameReader(limit)
    expected: list[FrameItem] = []
    for kind, body in frames:
        if len(body) <= limit:
            expected.append((kind, body))
        else:
            is_message = kind in MESSAGES
            expected.append((SKIPPED, b"%d" % len(body)) if is_message else (kind, b""))
    assert feed(reader, *cut(data, places)) == expected
    assert_complete(reader)
