from __future__ import annotations

import os
from pathlib import Path

import pytest

from spark_bridge.errors import OffsetOutOfRangeError
from spark_bridge.log.offset_log import FileRun, OffsetLog
from tests.spark_bridge.log.log_rows import SECOND_US, make_values, read_values, rows_of


class Clock:
    at = 1_000_000.0

    def __call__(self) -> float:
        return self.at

    @property
    def us(self) -> int:
        return int(self.at * SECOND_US)


def test_retention_by_age_forgets_everything_but_the_next_offset(tmp_path: Path) -> None:
    clock = Clock()
    options = {"partitions": 1, "seal_rows": 8, "retention_s": 3600.0, "now": clock}
    with OffsetLog(tmp_path, **options) as log:
        for _ in range(4):
            log.append({0: make_values(*"abcdefgh", at_us=clock.us)})
            clock.at += 500
        log.append({0: make_values("i", at_us=clock.us)})
        assert log.expire() == 0
        clock.at += 3600 - 1500
        assert log.expire() == 8
        assert log.first() == [8]
        with pytest.raises(OffsetOutOfRangeError) as caught:
            log.read(0, 7, 20)
        assert (caught.value.offset, caught.value.first, caught.value.end) == (7, 8, 33)
        clock.at += 3600
        log.expire()  # also the tail: it is sealed by now, and as old
        assert log.expire() + log.first()[0] == 33
        assert (log.first(), log.end()) == ([33], [33])
        assert log.stats()["rows_expired"] == 33
    with OffsetLog(tmp_path, **options) as log:
        assert (log.first(), log.end()) == ([33], [33])
        log.append({0: make_values("next", at_us=clock.us)})
        assert read_values(log) == {33: "next"}


@pytest.mark.slow
def test_retention_by_size_deletes_the_oldest_of_all_partitions(tmp_path: Path) -> None:
    clock = Clock()

    def append(partition: int) -> None:
        clock.at += 1
        noise = [os.urandom(8192).hex() for _ in range(8)]
        log.append({partition: make_values(*noise, at_us=clock.us)})

    with OffsetLog(tmp_path, partitions=2, seal_rows=8, retention_bytes=2 << 20, now=clock) as log:
        for _ in range(6):
            append(0)
        for _ in range(8):
            append(1)
        assert log.first() == [0, 0]
        while log.first()[1] == 0:
            append(1)
            assert log.stats()["bytes"] <= 2 << 20
        # Of the older partition only the segment is left that is being written.
        assert [each.name for each in tmp_path.glob("partition-0/0*.log")] == [f"{40:020d}.log"]
        assert (log.first()[0], log.end()[0]) == (40, 48)
        for _ in range(60):
            append(1)
        assert 1 << 20 < log.stats()["bytes"] <= 2 << 20
        assert sum(log.first()) == log.stats()["rows_expired"]
        for partition, end in enumerate(log.end()):
            assert list(read_values(log, partition)) == list(range(log.first()[partition], end))


def test_retention_goes_on_after_what_it_could_not_delete(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    clock = Clock()
    with OffsetLog(
        tmp_path, partitions=2, seal_rows=2, segment_bytes=1, retention_s=100.0, now=clock
    ) as log:
        for _ in range(3):
            log.append({each: make_values("a", "b", at_us=clock.us) for each in range(2)})
        clock.at += 200
        right = Path.unlink

        def refuse(path: Path, missing_ok: bool = False) -> None:
            if path.parent.name == "partition-0" and path.suffix == ".index":
                raise PermissionError(13, "Permission denied")
            right(path, missing_ok)

        with monkeypatch.context() as patched:
            patched.setattr(Path, "unlink", refuse)
            for expired in (6, 0):
                assert log.expire() == expired
                assert log.first() == [0, 6]
                assert read_values(log) == dict(enumerate("ababab"))
        assert caplog.text.count("WARNING") == 1 and "Permission denied" in caplog.text
        assert log.expire() == 6
        assert (log.first(), log.end()) == ([6, 6], [6, 6])


def test_rows_are_readable_while_retention_deletes_them(tmp_path: Path) -> None:
    clock = Clock()
    with OffsetLog(
        tmp_path, partitions=1, seal_rows=2, segment_bytes=1, retention_s=100.0, now=clock
    ) as log:
        for number in range(10):
            log.append({0: make_values(f"{number}a", f"{number}b", at_us=clock.us)})
        pieces = log.read(0, 0, 20)
        cut = log.read(0, 1, 19)
        taken = [next(pieces)]
        clock.at += 200
        assert log.expire() == 20
        assert [each.name for each in tmp_path.glob("*/*.log") if each.stat().st_size] == []
        taken.extend(pieces)
        assert all(isinstance(each, FileRun) for each in taken)
        assert [row["offset"] for each in taken for row in rows_of(each)] == list(range(20))
        assert [row["offset"] for each in cut for row in rows_of(each)] == list(range(1, 19))
        held = {each.file.fileno() for each in taken if isinstance(each, FileRun)}
        del taken, pieces, cut
        for fd in held:  # the last reader is gone, and so are the bytes
            with pytest.raises(OSError):
                os.fstat(fd)
