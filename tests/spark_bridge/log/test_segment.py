from __future__ import annotations

import os
from pathlib import Path

import pytest

from spark_bridge.errors import LogCorruptError
from spark_bridge.log.block import number_rows
from spark_bridge.log.block_index import ENTRY_BYTES, load_index
from spark_bridge.log.segment import (
    INDEX_SUFFIX,
    Segment,
    SegmentWriter,
    create_segment,
    open_complete,
    segment_path,
)
from tests.spark_bridge.log.log_rows import make_values


def fill(directory: Path, first: int, *flushes: list[int]) -> Segment:
    """A segment with a block of so many rows for each number, synced after each flush."""
    writer = create_segment(directory, first)
    for rows_of_blocks in flushes:
        end = writer.segment.end
        batches = []
        for rows in rows_of_blocks:
            batches.append(number_rows(make_values(*(str(end + i) for i in range(rows))), end))
            end += rows
        entries = writer.write(batches)
        os.fdatasync(writer.fd)
        writer.confirm(entries)
    writer.close()
    return writer.segment


def facts(segment: Segment) -> tuple[int, ...]:
    return segment.first, segment.end, segment.blocks, segment.size_bytes, segment.plain_bytes


def damage(path: Path, position: int) -> None:
    data = bytearray(path.read_bytes())
    data[position] ^= 0x40
    path.write_bytes(data)


def reopen(path: Path) -> tuple[Segment, int]:
    writer = SegmentWriter(path)
    writer.close()
    return writer.segment, writer.torn_bytes_cut


def test_a_segment_is_the_same_after_reopening(tmp_path: Path) -> None:
    written = fill(tmp_path, 100, [3, 5], [1])
    path = segment_path(tmp_path, 100)
    assert path.name == "00000000000000000100.log"
    assert (written.first, written.end, written.blocks) == (100, 109, 3)
    assert facts(reopen(path)[0]) == facts(written)
    assert facts(open_complete(path)) == facts(written)


def test_an_offset_is_found_in_its_block(tmp_path: Path) -> None:
    segment = fill(tmp_path, 10, [3, 5], [1], [4])
    for start in range(10, 23):
        for end in range(start + 1, 24):
            found = [(each.first, each.end) for each in segment.entries(start, end)]
            blocks = [(10, 13), (13, 18), (18, 19), (19, 23)]
            assert found == [each for each in blocks if each[0] < end and start < each[1]]
    assert list(segment.entries(0, 10)) == list(segment.entries(23, 99)) == []


def test_a_held_segment_does_not_grow_with_its_file(tmp_path: Path) -> None:
    writer = create_segment(tmp_path, 0)
    held = writer.segment
    writer.confirm(writer.write([number_rows(make_values("a", "b"), 0)]))
    assert (held.end, list(held.entries(0, 9))) == (0, [])
    assert writer.segment.end == 2
    writer.close()


@pytest.mark.parametrize("spoil", ["missing", "short", "flipped", "zeros", "empty"])
def test_an_index_that_does_not_fit_is_made_anew(tmp_path: Path, spoil: str) -> None:
    written = fill(tmp_path, 0, [3], [5], [2])
    path = segment_path(tmp_path, 0)
    index = path.with_suffix(INDEX_SUFFIX)
    right = index.read_bytes()
    match spoil:
        case "missing":
            index.unlink()
        case "short":
            index.write_bytes(right[: ENTRY_BYTES + 5])
        case "flipped":
            damage(index, ENTRY_BYTES + 30)
        case "zeros":
            index.write_bytes(bytes(len(right)))
        case "empty":
            index.write_bytes(b"")
    before = index.read_bytes() if index.exists() else b""
    assert load_index(index, 0, written.size_bytes) is None
    assert facts(open_complete(path)) == facts(written)
    assert index.read_bytes() == right
    index.write_bytes(before)
    assert facts(reopen(path)[0]) == facts(written)
    assert index.read_bytes() == right


@pytest.mark.slow
def test_a_torn_end_is_cut_off_wherever_it_is(tmp_path: Path) -> None:
    fill(tmp_path, 0, [3])
    path = segment_path(tmp_path, 0)
    index = path.with_suffix(INDEX_SUFFIX)
    kept, index_before = path.stat().st_size, index.read_bytes()
    fill_more = SegmentWriter(path)
    fill_more.write([number_rows(make_values("x", "y"), 3), number_rows(make_values("z"), 5)])
    fill_more.close()
    whole = path.read_bytes()
    for length in range(kept, len(whole), 13):
        path.write_bytes(whole[:length])
        index.write_bytes(index_before)
        segment, torn_bytes = reopen(path)
        assert segment.end in (3, 5)
        assert segment.size_bytes + torn_bytes == length
        assert path.stat().st_size == segment.size_bytes
    # All of it, but never confirmed: whole blocks are as good as any.
    path.write_bytes(whole)
    assert reopen(path)[0].end == 6


def test_blocks_of_one_flush_may_reach_the_disk_in_any_order(tmp_path: Path) -> None:
    first = fill(tmp_path, 0, [3])
    path = segment_path(tmp_path, 0)
    index = path.with_suffix(INDEX_SUFFIX)
    index_before = index.read_bytes()
    fill_more = SegmentWriter(path)
    entries = fill_more.write([number_rows(make_values("x"), 3), number_rows(make_values("z"), 4)])
    fill_more.close()
    data = bytearray(path.read_bytes())
    data[entries[0].position : entries[1].position] = bytes(entries[0].size_bytes)
    path.write_bytes(data)
    index.write_bytes(index_before)
    segment, torn_bytes = reopen(path)
    assert facts(segment) == facts(first)
    assert torn_bytes == len(data) - first.size_bytes


@pytest.mark.parametrize("has_index", [True, False])
def test_a_bad_block_before_a_good_one_is_an_error(tmp_path: Path, has_index: bool) -> None:
    segment = fill(tmp_path, 0, [3], [5], [2])
    path = segment_path(tmp_path, 0)
    good = path.read_bytes()
    entries = list(segment.entries(0, 10))
    for position in (entries[0].position, entries[0].position + 80, entries[1].position + 20):
        path.write_bytes(good)
        damage(path, position)
        if not has_index:
            path.with_suffix(INDEX_SUFFIX).unlink(missing_ok=True)
        with pytest.raises(LogCorruptError, match=f"{path} is damaged at byte "):
            SegmentWriter(path)


def test_a_block_that_the_index_lists_is_never_taken_for_torn(tmp_path: Path) -> None:
    segment = fill(tmp_path, 0, [3], [5])
    path = segment_path(tmp_path, 0)
    damage(path, segment.size_bytes - 20)
    with pytest.raises(LogCorruptError, match="the index lists more"):
        SegmentWriter(path)
    os.truncate(path, segment.size_bytes - 8)
    with pytest.raises(LogCorruptError, match="the index lists more"):
        SegmentWriter(path)


def test_a_segment_in_the_middle_has_no_torn_end(tmp_path: Path) -> None:
    segment = fill(tmp_path, 0, [3], [5])
    path = segment_path(tmp_path, 0)
    os.truncate(path, segment.size_bytes - 8)
    with pytest.raises(LogCorruptError, match=r"is damaged at byte \d+"):
        open_complete(path)


def test_a_segment_with_blocks_of_another_is_an_error(tmp_path: Path) -> None:
    fill(tmp_path, 0, [3], [5])
    path = segment_path(tmp_path, 0)
    other = path.rename(segment_path(tmp_path, 4))
    for opened in (open_complete, SegmentWriter):
        with pytest.raises(LogCorruptError, match="a block from offset 0, not 4"):
            opened(other)


def test_what_is_not_confirmed_is_taken_back(tmp_path: Path) -> None:
    writer = create_segment(tmp_path, 0)
    writer.confirm(writer.write([number_rows(make_values("a"), 0)]))
    writer.write([number_rows(make_values("b"), 1)])
    writer.undo()
    path = segment_path(tmp_path, 0)
    assert path.stat().st_size == writer.segment.size_bytes
    writer.write([number_rows(make_values("c"), 1)])
    writer.verify()
    assert path.stat().st_size == writer.segment.size_bytes
    damage(path, 70)
    with pytest.raises(LogCorruptError):
        writer.verify()
    writer.close()


def test_a_deleted_segment_stays_readable_for_those_who_hold_it(tmp_path: Path) -> None:
    segment = fill(tmp_path, 0, [3])
    path = segment_path(tmp_path, 0)
    content = path.read_bytes()
    segment.file.delete()
    assert list(tmp_path.iterdir()) == []
    assert os.pread(segment.file.open().fileno(), 1 << 20, 0) == content
