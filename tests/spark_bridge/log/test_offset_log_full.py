"""A disk that is really full: a small file system of its own, in memory."""

from __future__ import annotations

import os
from pathlib import Path

import pyarrow as pa
import pytest

from spark_bridge.errors import LogError, LogFullError
from spark_bridge.log.offset_log import OffsetLog
from tests.small_disk import DISK_BYTES
from tests.spark_bridge.log.log_rows import SECOND_US, make_values, read_values


def make_noise(rows: int, row_bytes: int = 4000, at_us: int = 0) -> pa.RecordBatch:
    """Rows that do not get smaller."""
    return make_values(*(os.urandom(row_bytes // 2).hex() for _ in range(rows)), at_us=at_us)


def fill(log: OffsetLog, rows: int) -> LogFullError:
    """Append to both partitions until one does not take it."""
    for _ in range(10_000):
        end = log.end()
        try:
            log.append({0: make_noise(rows), 1: make_noise(rows)})
        except LogFullError as error:
            for partition in range(2):
                added = 0 if partition in error.partitions else rows
                assert log.end()[partition] == end[partition] + added
            return error
    raise AssertionError("the disk is never full")


def everything(log: OffsetLog) -> list[dict[int, str]]:
    return [read_values(log, each) for each in range(log.partitions)]


@pytest.mark.parametrize("rows", [1, 20, 100], ids=["tail", "seal", "large"])
def test_a_full_disk_stops_appending_until_there_is_room(disk: Path, rows: int) -> None:
    ballast = disk / "ballast"
    ballast.write_bytes(bytes(DISK_BYTES // 2))
    options = {"partitions": 2, "seal_rows": 64, "segment_bytes": 1 << 17}
    with OffsetLog(disk / "log", **options) as log:
        error = fill(log, rows)
        assert error.partitions and isinstance(error, LogError) and isinstance(error, OSError)
        assert "no room" in str(error) and str(disk) in str(error)
        kept, end = everything(log), log.end()
        files_bytes = sum(each.stat().st_size for each in disk.glob("log/*/*.log"))
        assert files_bytes == log.stats()["bytes"]  # nothing half-written
        for _ in range(3):
            with pytest.raises(LogFullError):
                log.append({0: make_noise(200), 1: make_noise(200)})
        assert (log.end(), everything(log)) == (end, kept)
    with OffsetLog(disk / "log", **options) as log:
        assert (log.end(), everything(log)) == (end, kept)
        assert log.stats()["torn_bytes_cut"] == 0
        with pytest.raises(LogFullError):
            log.append({0: make_noise(200), 1: make_noise(200)})
        ballast.unlink()
        log.append({0: make_noise(rows), 1: make_noise(rows)})
        assert log.end() == [each + rows for each in end]
        found = everything(log)
        for before, after in zip(kept, found, strict=True):
            assert before.items() <= after.items()
    with OffsetLog(disk / "log", **options) as log:
        assert everything(log) == found


def test_what_retention_deletes_is_room_again(disk: Path) -> None:
    now_at = 1_000_000.0
    with OffsetLog(
        disk / "log",
        partitions=2,
        seal_rows=64,
        segment_bytes=1 << 17,
        retention_s=1e6 + 100,
        now=lambda: now_at,
    ) as log:
        fill(log, 20)
        end = log.end()
        now_at += 1000
        # The first try finds no room, but lets retention make some.
        batch = {0: make_noise(100, at_us=int(now_at * SECOND_US))}
        with pytest.raises(LogFullError):
            log.append(batch)
        assert log.stats()["rows_expired"] > 0
        log.append(batch)
        assert log.end() == [end[0] + 100, end[1]]
        assert list(everything(log)[0]) == list(range(log.first()[0], end[0] + 100))
