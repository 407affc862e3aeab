from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from spark_bridge.errors import LogCorruptError
from spark_bridge.log.offset_log import FileRun, OffsetLog
from tests.spark_bridge.log.log_rows import make_batch, make_row, read_rows, read_values, rows_of


def open_log(directory: Path, **options: Any) -> OffsetLog:
    options = {"partitions": 1, "seal_rows": 8, **options}
    return OffsetLog(directory, **options)


def append(log: OffsetLog, *rows: dict[str, Any]) -> None:
    log.append({0: make_batch(rows)})


def test_a_run_of_whole_blocks_is_one_piece_of_the_file(tmp_path: Path) -> None:
    with open_log(tmp_path) as log:
        for flush in range(10):
            append(log, *(make_row(str(flush * 8 + i)) for i in range(8)))
        (run,) = log.read(0, 8, 72)
        assert isinstance(run, FileRun)
        assert run.rows == 64
        assert [row["value"] for row in rows_of(run)] == [str(each) for each in range(8, 72)]


@pytest.mark.slow
def test_a_range_is_cut_at_its_edges(tmp_path: Path) -> None:
    with open_log(tmp_path) as log:
        for flush in range(3):
            append(log, *(make_row(str(flush * 8 + i)) for i in range(8)))
        append(log, make_row("24"))
        before, run, after = log.read(0, 5, 25)
        assert isinstance(before, bytes) and isinstance(run, FileRun) and isinstance(after, bytes)
        assert [len(rows_of(each)) for each in (before, run, after)] == [3, 16, 1]
        for start in range(26):
            for end in range(start, 26):
                found = [row["offset"] for row in read_rows(log, 0, start, end)]
                assert found == list(range(start, end))
        assert read_rows(log, 0, 9, 3) == []


def test_segments_are_read_one_after_the_other(tmp_path: Path) -> None:
    with open_log(tmp_path, segment_bytes=1) as log:
        for flush in range(4):
            append(log, *(make_row(str(flush * 8 + i)) for i in range(8)))
        pieces = list(log.read(0, 0, 32))
        assert len(pieces) == log.stats()["segments"] == 4
        assert [row["offset"] for each in pieces for row in rows_of(each)] == list(range(32))


@pytest.mark.parametrize(
    ("wants", "expected"),
    [
        (lambda topic: True, range(18)),
        (lambda topic: False, []),
        (lambda topic: topic == "a", range(8)),
        (lambda topic: topic == "b", [8, 10, 12, 14, 16]),
        (lambda topic: topic in "ac", [*range(8), 9, 11, 13, 15, 17]),
    ],
)
def test_topics_are_filtered_in_blocks_and_in_the_tail(
    tmp_path: Path, wants: Callable[[str], bool], expected: list[int]
) -> None:
    with open_log(tmp_path) as log:
        append(log, *(make_row("1", "a") for _ in range(8)))
        append(log, *(make_row("1", "bc"[each % 2]) for each in range(8)))
        append(log, make_row("1", "b"))
        append(log, make_row("1", "c"))
        assert list(read_values(log, wants=wants)) == list(expected)


def test_each_topic_is_asked_about_once_in_a_range(tmp_path: Path) -> None:
    asked: list[str] = []

    def wants(topic: str) -> bool:
        asked.append(topic)
        return topic == "a"

    with open_log(tmp_path) as log:
        for _ in range(3):
            append(log, *(make_row("1", "abcd"[each % 4]) for each in range(8)))
        assert list(read_values(log, wants=wants)) == list(range(0, 24, 4))
    assert sorted(asked) == ["a", "b", "c", "d"]


def test_blocks_without_wanted_topics_are_not_read(tmp_path: Path) -> None:
    with open_log(tmp_path) as log:
        append(log, *(make_row("1", "a") for _ in range(8)))
        append(log, *(make_row("1", "b") for _ in range(8)))
        path = next(tmp_path.glob("partition-0/*0.log"))
        entry = next(log._partitions[0].view.segments[0].entries(0, 1))
        with path.open("r+b") as file:
            file.seek(entry.size_bytes - 20)
            file.write(b"damage")
        assert list(read_values(log, wants=lambda topic: topic == "b")) == list(range(8, 16))
        with pytest.raises(LogCorruptError, match=f"{path} is damaged at byte 0 "):
            read_values(log, start=3, end=16)


def test_a_damaged_table_of_topics_is_an_error_not_a_skipped_block(tmp_path: Path) -> None:
    with open_log(tmp_path) as log:
        append(log, *(make_row("1", "a") for _ in range(8)))
        with next(tmp_path.glob("partition-0/*0.log")).open("r+b") as file:
            file.seek(64)
            assert file.read(5) == b'["a"]'
            file.seek(64)
            file.write(b'["b"]')
        with pytest.raises(LogCorruptError, match="a checksum does not fit"):
            read_values(log, wants=lambda topic: topic == "a")


def test_what_is_left_of_many_blocks_comes_as_one(tmp_path: Path) -> None:
    with open_log(tmp_path, segment_bytes=1) as log:
        for _ in range(10):
            append(log, make_row("1", "b"), *(make_row("1", "a") for _ in range(7)))
        (block,) = log.read(0, 0, 80, wants=lambda topic: topic == "b")
        assert isinstance(block, bytes)
        assert [row["offset"] for row in rows_of(block)] == list(range(0, 80, 8))


def test_a_block_of_many_topics_that_are_all_wanted_stays_as_it_is(tmp_path: Path) -> None:
    with open_log(tmp_path, seal_rows=400) as log:
        append(log, *(make_row("1", f"a/{each}") for each in range(400)))
        (piece,) = log.read(0, 0, 400, wants=lambda topic: topic.startswith("a/"))
        assert isinstance(piece, FileRun)


GAPS = [
    make_row("1", "a"),
    make_row(None, "a", gap=2),
    make_row(None, "b", gap=3),
    make_row(None, None, gap=4),
    make_row("1", "b"),
]


@pytest.mark.parametrize("is_sealed", [True, False])
@pytest.mark.parametrize(
    ("wanted", "gaps", "expected"),
    [
        (None, False, [0, 4]),
        (None, True, [0, 1, 2, 3, 4]),
        ("a", False, [0]),
        ("a", True, [0, 1, 3]),
        ("ab", True, [0, 1, 2, 3, 4]),
        ("c", False, []),
        ("c", True, [3]),
    ],
)
def test_gap_records_are_left_out_unless_asked_for(
    tmp_path: Path, is_sealed: bool, wanted: str | None, gaps: bool, expected: list[int]
) -> None:
    with open_log(tmp_path, seal_rows=5 if is_sealed else 100) as log:
        append(log, *GAPS)
        assert log.stats()["tail_rows"] == (0 if is_sealed else 5)
        wants = None if wanted is None else lambda topic: topic in wanted
        assert list(read_values(log, wants=wants, gaps=gaps)) == expected


def test_blocks_of_gap_records_only_disappear(tmp_path: Path) -> None:
    with open_log(tmp_path) as log:
        append(log, *(make_row(None, None, gap=1) for _ in range(8)))
        append(log, *(make_row("1", "a") for _ in range(8)))
        assert list(read_values(log)) == list(range(8, 16))
        assert list(read_values(log, wants=lambda topic: False)) == []
        assert list(read_values(log, wants=lambda topic: False, gaps=True)) == list(range(8))
