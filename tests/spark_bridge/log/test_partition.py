from __future__ import annotations

import errno
import os
from pathlib import Path

import pyarrow as pa
import pytest

from spark_bridge.errors import LogCorruptError
from spark_bridge.log.partition import TAIL_AGE_MAX_S, Partition, Settings, create_partition
from spark_bridge.log.range_reader import RangeReader
from tests.spark_bridge.log.log_rows import SECOND_US, make_values, rows_of


class Clock:
    def __init__(self) -> None:
        self.at = 1_000_000.0

    def __call__(self) -> float:
        return self.at


def open_partition(
    directory: Path,
    *,
    seal_rows: int = 8,
    seal_bytes: int = 1 << 20,
    segment_bytes: int = 1 << 20,
    segment_age_max_s: float | None = None,
    now: Clock | None = None,
) -> Partition:
    directory /= "partition"
    create_partition(directory)
    settings = Settings(segment_bytes, segment_age_max_s, seal_rows, seal_bytes, now or Clock())
    return Partition(directory, settings)


def append(partition: Partition, rows: pa.RecordBatch | None) -> None:
    fd = partition.stage(rows)
    if fd is not None:
        os.fdatasync(fd)
        partition.confirm()


def values(partition: Partition) -> list[str]:
    view = partition.view
    pieces = RangeReader(view, view.first, view.end, None, False).pieces()
    rows = [row for piece in pieces for row in rows_of(piece)]
    assert [row["offset"] for row in rows] == list(range(view.first, view.end))
    return [row["value"] for row in rows]


def tail_bytes(directory: Path) -> int:
    return (directory / "partition" / "tail.log").stat().st_size


def test_small_flushes_wait_in_the_tail_and_are_sealed_together(tmp_path: Path) -> None:
    partition = open_partition(tmp_path, seal_rows=8)
    for number in range(7):
        append(partition, make_values(str(number)))
    assert (partition.view.sealed_end, partition.view.end) == (0, 7)
    assert tail_bytes(tmp_path) > 0
    append(partition, make_values("7"))
    assert (partition.view.sealed_end, partition.view.end) == (8, 8)
    assert tail_bytes(tmp_path) == 0
    assert partition.view.segments[0].blocks == 1
    assert values(partition) == [str(each) for each in range(8)]
    partition.close()


def test_a_large_flush_goes_straight_into_the_segment_with_the_tail(tmp_path: Path) -> None:
    partition = open_partition(tmp_path, seal_rows=8)
    append(partition, make_values("0"))
    append(partition, make_values(*(str(each) for each in range(1, 21))))
    assert (partition.view.sealed_end, partition.seals) == (21, 1)
    entries = list(partition.view.segments[0].entries(0, 21))
    assert all(1 <= each.rows <= 8 for each in entries)
    assert values(partition) == [str(each) for each in range(21)]
    partition.close()


def test_many_bytes_are_sealed_like_many_rows(tmp_path: Path) -> None:
    partition = open_partition(tmp_path, seal_rows=8192, seal_bytes=4000)
    for _ in range(10):
        append(partition, make_values("x" * 400))
    assert partition.seals >= 1
    assert values(partition) == ["x" * 400] * 10
    partition.close()


@pytest.mark.slow
def test_thousands_of_single_rows_stay_few_batches(tmp_path: Path) -> None:
    partition = open_partition(tmp_path, seal_rows=8192)
    for number in range(500):
        append(partition, make_values(str(number)))
    assert len(partition.view.tail) < 80
    assert values(partition) == [str(each) for each in range(500)]
    partition.close()


def test_rows_that_waited_too_long_are_sealed(tmp_path: Path) -> None:
    clock = Clock()
    partition = open_partition(tmp_path, now=clock)
    append(partition, make_values("0"))
    clock.at += TAIL_AGE_MAX_S - 1
    assert partition.stage(None) is None
    clock.at += 1
    append(partition, None)
    assert (partition.view.sealed_end, partition.view.end) == (1, 1)
    assert partition.stage(None) is None

    append(partition, make_values("1"))
    clock.at -= 10 * TAIL_AGE_MAX_S  # set back: the age counts from then on
    assert partition.stage(None) is None
    clock.at += TAIL_AGE_MAX_S
    append(partition, make_values("2"))
    assert partition.view.sealed_end == 3
    partition.close()


def test_a_full_or_old_segment_is_followed_by_a_new_one(tmp_path: Path) -> None:
    clock = Clock()
    partition = open_partition(tmp_path, segment_bytes=1, segment_age_max_s=100.0, now=clock)
    for _ in range(3):
        append(partition, make_values(*"abcdefgh"))
    assert [each.first for each in partition.view.segments] == [0, 8, 16]
    partition.close()

    partition = open_partition(tmp_path, segment_age_max_s=100.0, now=clock)
    at_us = int(clock.at * SECOND_US)
    append(partition, make_values(*"abcdefgh", at_us=at_us))  # the rows before it are from 1970
    append(partition, make_values(*"abcdefgh", at_us=at_us))
    assert [each.first for each in partition.view.segments] == [0, 8, 16, 24]
    clock.at += 101
    append(partition, make_values(*"abcdefgh", at_us=at_us))
    assert [each.first for each in partition.view.segments] == [0, 8, 16, 24, 40]
    assert values(partition) == list("abcdefgh" * 6)
    partition.close()


def test_a_view_keeps_what_it_showed(tmp_path: Path) -> None:
    partition = open_partition(tmp_path, segment_bytes=1)
    append(partition, make_values("a"))
    in_tail = partition.view
    append(partition, make_values(*"bcdefghi"))
    sealed = partition.view
    append(partition, make_values(*"jklmnopq"))
    partition.drop_oldest()
    assert (partition.view.first, partition.view.end) == (9, 17)
    for view, expected in ((in_tail, "a"), (sealed, "abcdefghi")):
        pieces = list(RangeReader(view, 0, view.end, None, False).pieces())
        assert "".join(row["value"] for piece in pieces for row in rows_of(piece)) == expected
    partition.close()


def test_rows_that_are_in_both_after_a_crash_are_there_once(tmp_path: Path) -> None:
    partition = open_partition(tmp_path)
    append(partition, make_values("a"))
    append(partition, make_values("b"))
    tail = tmp_path / "partition" / "tail.log"
    stale = tail.read_bytes()
    append(partition, make_values(*"cdefghij"))
    partition.close()
    tail.write_bytes(stale)  # as if the tail had not been emptied
    partition = open_partition(tmp_path)
    assert values(partition) == list("abcdefghij")
    assert partition.torn_bytes_cut == 0
    assert tail.stat().st_size == 0
    partition.close()


def test_a_seal_that_a_crash_tore_takes_the_rest_from_the_tail(tmp_path: Path) -> None:
    partition = open_partition(tmp_path, seal_rows=20)
    append(partition, make_values(*"abcd"))
    append(partition, make_values(*"efgh"))
    tail = tmp_path / "partition" / "tail.log"
    stale = tail.read_bytes()
    partition.close()
    partition = open_partition(tmp_path, seal_rows=6)
    append(partition, make_values(*"ij"))
    first, *_ = partition.view.segments[0].entries(0, 10)
    partition.close()
    segment = tmp_path / "partition" / f"{0:020d}.log"
    os.truncate(segment, first.size_bytes + 100)
    segment.with_suffix(".index").write_bytes(b"")  # it is written after the sync
    tail.write_bytes(stale)
    assert 0 < first.end < 8 and first.end % 4  # in the middle of a block of the tail
    partition = open_partition(tmp_path)
    assert (partition.view.sealed_end, partition.torn_bytes_cut) == (first.end, 100)
    assert values(partition) == list("abcdefgh")
    append(partition, make_values(*"klmnopqr"))
    assert values(partition) == list("abcdefghklmnopqr")
    partition.close()


def test_remains_of_an_older_tail_prove_nothing(tmp_path: Path) -> None:
    partition = open_partition(tmp_path)
    append(partition, make_values("a"))
    append(partition, make_values("b"))
    tail = tmp_path / "partition" / "tail.log"
    stale = tail.read_bytes()
    append(partition, make_values(*"cdefghij"))
    append(partition, make_values("k"))
    recent = tail.read_bytes()
    partition.close()
    # The new block over the beginning of the old file: what follows is garbage, then an old block.
    tail.write_bytes(recent[:200] + stale[200:])
    partition = open_partition(tmp_path)
    assert values(partition) == list("abcdefghij")
    assert partition.torn_bytes_cut > 0
    partition.close()


def test_a_damaged_tail_is_an_error_unless_it_is_torn(tmp_path: Path) -> None:
    partition = open_partition(tmp_path)
    append(partition, make_values("a"))
    one = tail_bytes(tmp_path)
    append(partition, make_values("b"))
    partition.close()
    tail = tmp_path / "partition" / "tail.log"
    good = tail.read_bytes()
    tail.write_bytes(good[:-1])
    partition = open_partition(tmp_path)
    assert values(partition) == ["a"]
    assert partition.torn_bytes_cut == len(good) - 1 - one
    partition.close()

    damaged = bytearray(good)
    damaged[one // 2] ^= 1
    tail.write_bytes(damaged)
    with pytest.raises(LogCorruptError, match=f"{tail} is damaged at byte 0 "):
        open_partition(tmp_path)
    tail.write_bytes(good[one:])
    with pytest.raises(LogCorruptError, match="offset 0 is missing"):
        open_partition(tmp_path)


def test_a_missing_segment_is_an_error(tmp_path: Path) -> None:
    partition = open_partition(tmp_path, segment_bytes=1)
    for _ in range(3):
        append(partition, make_values(*"abcdefgh"))
    paths = [each.file.path for each in partition.view.segments]
    partition.close()
    paths[1].unlink()
    with pytest.raises(LogCorruptError, match="begins with offset 16, but .* ends with 8"):
        open_partition(tmp_path)
    paths[0].unlink()
    open_partition(tmp_path).close()  # as after retention
    stranger = tmp_path / "partition" / "notes.log"
    stranger.touch()
    with pytest.raises(LogCorruptError, match="is no segment"):
        open_partition(tmp_path)


def test_a_failed_sync_keeps_nothing_and_the_next_append_goes_on(tmp_path: Path) -> None:
    partition = open_partition(tmp_path)
    append(partition, make_values("a"))
    for lost in (make_values("x"), make_values(*"stuvwxyz")):
        assert partition.stage(lost) is not None
        partition.reject()
        assert partition.view.end == 1
    append(partition, make_values("b"))
    assert values(partition) == ["a", "b"]
    partition.close()
    partition = open_partition(tmp_path)
    assert values(partition) == ["a", "b"]
    partition.close()


@pytest.mark.parametrize("name", [f"{0:020d}.log", "tail.log"])
def test_after_a_failed_sync_damage_is_noticed_before_the_next_append(
    tmp_path: Path, name: str
) -> None:
    partition = open_partition(tmp_path)
    append(partition, make_values(*"abcdefgh"))
    append(partition, make_values("i"))
    assert partition.stage(make_values("x")) is not None
    partition.reject()
    path = tmp_path / "partition" / name
    os.truncate(path, 100)
    for _ in range(2):
        with pytest.raises(LogCorruptError):
            partition.stage(make_values("y"))
    partition.close()


def test_an_interrupted_append_does_not_reach_the_next(tmp_path: Path) -> None:
    partition = open_partition(tmp_path)
    partition.stage(make_values(*"stuvwxyz"))  # to the segment, and nobody confirms or rejects
    append(partition, make_values("a"))  # to the tail
    partition.close()
    partition = open_partition(tmp_path)
    assert values(partition) == ["a"]
    partition.close()


def test_a_failed_write_is_taken_back_on_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    partition = open_partition(tmp_path)
    append(partition, make_values("a"))
    kept = tail_bytes(tmp_path)
    right = os.pwrite

    def half(fd: int, data: bytes, position: int) -> int:
        right(fd, bytes(data)[: len(data) // 2], position)
        raise OSError(errno.ENOSPC, "No space left on device")

    for rows in (make_values("x"), make_values(*"stuvwxyz")):
        with monkeypatch.context() as patched:
            patched.setattr(os, "pwrite", half)
            with pytest.raises(OSError, match="No space"):
                partition.stage(rows)
        assert tail_bytes(tmp_path) == kept
        assert partition.view.segments[0].file.path.stat().st_size == 0
    append(partition, make_values("b"))
    assert values(partition) == ["a", "b"]
    partition.close()


def test_indexes_without_a_segment_are_cleared_away(tmp_path: Path) -> None:
    partition = open_partition(tmp_path)
    partition.close()
    orphan = tmp_path / "partition" / f"{7:020d}.index"
    orphan.touch()
    open_partition(tmp_path).close()
    assert not orphan.exists()
