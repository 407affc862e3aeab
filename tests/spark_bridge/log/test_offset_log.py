from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import pyarrow as pa
import pytest

from spark_bridge.errors import (
    LogCorruptError,
    LogError,
    LogLockedError,
    LogWriteError,
    OffsetOutOfRangeError,
    RequestError,
)
from spark_bridge.log.block import ROWS
from spark_bridge.log.offset_log import OffsetLog
from tests.helpers import wait_until
from tests.spark_bridge.log.log_rows import make_values, read_values, rows_of


def test_rows_are_numbered_by_partition_and_stay(tmp_path: Path) -> None:
    directory = tmp_path / "new" / "log"
    with OffsetLog(directory, partitions=3) as log:
        assert (log.first(), log.end()) == ([0, 0, 0], [0, 0, 0])
        log.append({0: make_values("a", "b"), 2: make_values("c")})
        log.append({2: make_values("d"), 1: make_values()})
        assert log.end() == [2, 0, 2]
        identity = log.id
    with OffsetLog(directory, partitions=None) as log:
        assert (log.id, log.partitions) == (identity, 3)
        assert (log.first(), log.end()) == ([0, 0, 0], [2, 0, 2])
        assert [read_values(log, each) for each in range(3)] == [
            {0: "a", 1: "b"},
            {},
            {0: "c", 1: "d"},
        ]


def test_meta_tells_what_the_log_is(tmp_path: Path) -> None:
    with OffsetLog(tmp_path, partitions=2, now=lambda: 1234.5) as log:
        meta = json.loads((tmp_path / "meta.json").read_text())
        assert meta == {"id": log.id, "version": 1, "partitions": 2, "created_at": 1234.5}
    with OffsetLog(tmp_path / "other") as other:
        assert other.id != log.id
        assert other.partitions == 4


def test_another_number_of_partitions_is_an_error_that_says_so(tmp_path: Path) -> None:
    OffsetLog(tmp_path, partitions=2).close()
    with pytest.raises(LogError, match="has 2 partitions, not 4"):
        OffsetLog(tmp_path)
    with pytest.raises(LogError, match="1 to 1024 partitions, not 0"):
        OffsetLog(tmp_path / "other", partitions=0)


def test_a_log_without_its_meta_is_not_taken_for_a_new_one(tmp_path: Path) -> None:
    with OffsetLog(tmp_path) as log:
        identity = log.id
    meta = tmp_path / "meta.json"
    meta.unlink()  # as if its creation had been interrupted
    with OffsetLog(tmp_path) as log:
        assert log.id != identity
        log.append({0: make_values("a")})
    good = meta.read_bytes()
    meta.unlink()
    with pytest.raises(LogCorruptError, match=r"has rows of a log but no meta\.json"):
        OffsetLog(tmp_path)
    for damaged in (b"", b"[]", b'{"id":1}', good.replace(b'"version": 1', b'"version": "1"')):
        meta.write_bytes(damaged)
        with pytest.raises(LogCorruptError, match=r"meta\.json is damaged"):
            OffsetLog(tmp_path)
    meta.write_bytes(good.replace(b'"version": 1', b'"version": 2'))
    with pytest.raises(LogError, match="has version 2, and this software reads only 1"):
        OffsetLog(tmp_path)
    meta.write_bytes(good)
    with OffsetLog(tmp_path) as log:
        assert read_values(log) == {0: "a"}


def test_a_partition_that_is_gone_is_an_error(tmp_path: Path) -> None:
    OffsetLog(tmp_path).close()
    for path in (tmp_path / "partition-2").iterdir():
        path.unlink()
    with pytest.raises(LogCorruptError, match="partition-2 has no segments"):
        OffsetLog(tmp_path)
    (tmp_path / "partition-2").rmdir()
    with pytest.raises(LogCorruptError, match="partition-2 has no segments"):
        OffsetLog(tmp_path)


def test_what_the_system_refuses_is_a_log_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(LogError, match="cannot be opened"):
        OffsetLog(tmp_path / "file")


def test_a_second_log_in_a_directory_is_refused(tmp_path: Path) -> None:
    with OffsetLog(tmp_path):
        with pytest.raises(LogLockedError, match=f"process {os.getpid()} .* {tmp_path}"):
            OffsetLog(tmp_path)
    OffsetLog(tmp_path).close()


HOLDER = """
import sys, pathlib
from spark_bridge.log.offset_log import OffsetLog
log = OffsetLog(pathlib.Path(sys.argv[1]))
print("open", flush=True)
sys.stdin.read()
"""


@pytest.mark.slow
def test_the_lock_holds_between_processes_and_dies_with_its_holder(tmp_path: Path) -> None:
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, tmp_path], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert holder.stdin is not None and holder.stdout is not None
    with holder, holder.stdin, holder.stdout:
        assert holder.stdout.readline() == b"open\n"
        with pytest.raises(LogLockedError, match=f"process {holder.pid} "):
            OffsetLog(tmp_path)
        holder.kill()
        holder.wait()
        OffsetLog(tmp_path).close()


def test_offsets_outside_the_log_are_errors_at_the_call(tmp_path: Path) -> None:
    with OffsetLog(tmp_path, partitions=1) as log:
        log.append({0: make_values("a", "b")})
        for start, end, wrong in ((0, 3, 3), (3, 3, 3), (3, 1, 3), (-1, 2, -1)):
            with pytest.raises(OffsetOutOfRangeError) as caught:
                log.read(0, start, end)
            error = caught.value
            assert (error.offset, error.first, error.end) == (wrong, 0, 2)
        for partition in (-1, 1):
            with pytest.raises(RequestError, match="there is no partition"):
                log.read(partition, 0, 0)
        assert list(log.read(0, 2, 2)) == []


def test_only_rows_of_the_right_shape_are_appended(tmp_path: Path) -> None:
    with OffsetLog(tmp_path, partitions=1) as log:
        with pytest.raises(ValueError, match="partition 1 of 1"):
            log.append({0: make_values("a"), 1: make_values("a")})
        with pytest.raises(ValueError, match="ROWS_WITHOUT_OFFSET"):
            log.append({0: pa.RecordBatch.from_pylist([], schema=ROWS)})
        assert log.end() == [0]


def test_a_closed_log_takes_nothing_but_is_read_to_the_end(tmp_path: Path) -> None:
    with OffsetLog(tmp_path, partitions=1, seal_rows=2, segment_bytes=1) as log:
        for _ in range(3):
            log.append({0: make_values("a", "b")})
        pieces = log.read(0, 0, 6)
        first = next(pieces)
    log.close()
    for call in (lambda: log.append({0: make_values("a")}), log.expire):
        with pytest.raises(LogError, match="is closed"):
            call()
    assert [len(rows_of(each)) for each in (first, *pieces)] == [2, 2, 2]


def test_counters_tell_what_there_is_and_what_was_done(tmp_path: Path) -> None:
    with OffsetLog(tmp_path, partitions=2, seal_rows=8, segment_bytes=1) as log:
        log.append({0: make_values(*"abcdefgh"), 1: make_values("a")})
        log.append({0: make_values(*"abcdefgh")})
        stats = log.stats()
        files = [each.stat().st_size for each in tmp_path.glob("partition-*/*.log")]
        assert stats.pop("bytes") == sum(files)
        assert stats == {
            "rows": 17,
            "segments": 3,
            "blocks": 2,
            "tail_rows": 1,
            "rows_appended": 17,
            "rows_expired": 0,
            "seals": 2,
            "syncs": 3,
            "torn_bytes_cut": 0,
        }


def test_readers_do_not_wait_for_a_sync(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    is_syncing, may_end = threading.Event(), threading.Event()

    def slow(fd: int) -> None:
        is_syncing.set()
        assert may_end.wait(60)

    with OffsetLog(tmp_path, partitions=1) as log:
        log.append({0: make_values("a")})
        monkeypatch.setattr(os, "fdatasync", slow)
        writer = threading.Thread(target=log.append, args=({0: make_values("b")},))
        writer.start()
        assert is_syncing.wait(60)
        assert (log.first(), log.end(), log.find(1)) == ([0], [1], [1])
        assert (read_values(log), log.limit([0], [1], 9)) == ({0: "a"}, [1])
        assert log.stats()["rows"] == 1
        assert writer.is_alive()
        may_end.set()
        writer.join()
        assert read_values(log) == {0: "a", 1: "b"}


def test_a_failed_sync_names_the_partition_and_keeps_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with OffsetLog(tmp_path, partitions=3) as log:
        log.append({each: make_values("a") for each in range(3)})
        right = os.fdatasync

        def fail_for_one(fd: int) -> None:
            if "partition-1" in os.readlink(f"/proc/self/fd/{fd}"):
                raise OSError(5, "Input/output error")
            right(fd)

        with monkeypatch.context() as patched:
            patched.setattr(os, "fdatasync", fail_for_one)
            with pytest.raises(LogWriteError, match="partitions 1 .* Input/output error") as caught:
                log.append({each: make_values("lost") for each in range(3)})
        assert caught.value.partitions == (1,)
        assert isinstance(caught.value, OSError)
        assert log.end() == [2, 1, 2]
        log.append({1: make_values("b")})
        assert read_values(log, 1) == {0: "a", 1: "b"}
    with OffsetLog(tmp_path, partitions=3) as log:
        assert read_values(log, 1) == {0: "a", 1: "b"}


@pytest.mark.slow
def test_one_writes_while_others_read_and_old_rows_go(tmp_path: Path) -> None:
    flushes = 150
    failures: list[BaseException] = []
    is_over = threading.Event()

    with OffsetLog(
        tmp_path, partitions=2, seal_rows=32, segment_bytes=8192, retention_bytes=1 << 20
    ) as log:

        def read(partition: int) -> None:
            last_end = rounds = 0
            try:
                while not is_over.is_set() or not rounds:
                    first, end = log.first()[partition], log.end()[partition]
                    assert end >= last_end
                    try:
                        pieces = log.read(partition, first, end)
                    except OffsetOutOfRangeError:
                        continue  # retention was faster
                    found = [row for each in pieces for row in rows_of(each)]
                    assert [row["offset"] for row in found] == list(range(first, end))
                    assert all(row["value"] == str(row["offset"]) for row in found)
                    last_end, rounds = end, rounds + 1
            except BaseException as error:
                failures.append(error)

        readers = [threading.Thread(target=read, args=(each % 2,)) for each in range(3)]
        for each in readers:
            each.start()
        for flush in range(flushes):
            rows = 1 + flush * 7 % 40
            log.append(
                {
                    each: make_values(*(str(log.end()[each] + i) for i in range(rows)))
                    for each in range(2)
                }
            )
            log.expire()
        is_over.set()
        assert wait_until(lambda: not any(each.is_alive() for each in readers))
    assert failures == []
