"""Crashes: files as they may be found afterwards, and processes that are really killed."""

from __future__ import annotations

import hashlib
import json
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from spark_bridge.errors import LogCorruptError
from spark_bridge.log.offset_log import OffsetLog
from tests.spark_bridge.log.log_rows import make_values, read_values

OPTIONS = {"partitions": 1, "seal_rows": 16, "segment_bytes": 6000}

Files = dict[str, bytes]


def snapshot(directory: Path) -> Files:
    return {
        str(path.relative_to(directory)): path.read_bytes()
        for path in directory.rglob("*")
        if path.is_file()
    }


def restore(directory: Path, files: Files) -> None:
    shutil.rmtree(directory, ignore_errors=True)
    for name, content in files.items():
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)


def crashes(before: Files, after: Files) -> Iterator[Files]:
    """What may be found if the machine died between two states: the index is always behind."""
    grown = [
        name
        for name in after
        if name.endswith(".log") and len(after[name]) > len(before.get(name, b""))
    ]
    (name,) = grown
    behind = {key: value for key, value in after.items() if key.endswith(".log")} | before
    old_bytes, new_bytes = len(before.get(name, b"")), len(after[name])
    step = max((new_bytes - old_bytes) // 20, 1) | 1  # odd: not only where blocks may begin
    for length in (*range(old_bytes, new_bytes, step), new_bytes):
        yield behind | {name: after[name][:length]}
        # The file has its new length already, but not all of its content.
        missing = len(after[name]) - length
        yield behind | {name: after[name][:length] + bytes(missing)}
    yield after  # all done but the answer
    yield after | {key: value for key, value in before.items() if key.endswith("tail.log")}


@pytest.mark.slow
@pytest.mark.parametrize("flush", [1, 3, 14, 50], ids=["tail", "tail too", "seal", "large"])
@pytest.mark.parametrize("sealed", [0, 16, 200], ids=["new", "one block", "segment to follow"])
def test_what_was_confirmed_survives_a_crash_at_any_byte(
    tmp_path: Path, sealed: int, flush: int
) -> None:
    origin, copy = tmp_path / "origin", tmp_path / "copy"
    with OffsetLog(origin, **OPTIONS) as log:
        if sealed:
            log.append({0: make_values(*(f"sealed {each}" * 3 for each in range(sealed)))})
        for number in range(3):
            log.append({0: make_values(f"small {number}")})
        confirmed = read_values(log)
        before = snapshot(origin)
        log.append({0: make_values(*(f"last {each}" for each in range(flush)))})
        everything = read_values(log)
        after = snapshot(origin)
    torn_bytes = 0
    for files in crashes(before, after):
        restore(copy, files)
        with OffsetLog(copy, **OPTIONS) as log:
            torn_bytes += log.stats()["torn_bytes_cut"]
            found = read_values(log)
            assert confirmed.items() <= found.items() <= everything.items()
            assert list(found) == list(range(log.end()[0]))
            log.append({0: make_values("new")})
            assert read_values(log) == found | {len(found): "new"}
        with OffsetLog(copy, **OPTIONS) as log:
            assert read_values(log) == found | {len(found): "new"}
            assert log.stats()["torn_bytes_cut"] == 0
    assert torn_bytes > 0


def test_a_crash_while_the_log_is_made_leaves_nothing_in_the_way(tmp_path: Path) -> None:
    OffsetLog(tmp_path / "origin", **OPTIONS).close()
    files = snapshot(tmp_path / "origin")
    for kept in range(len(files)):
        names = sorted(files, key=lambda name: (name == "meta.json", name))[:kept]
        copy = tmp_path / f"copy-{kept}"
        restore(copy, {name: files[name] for name in names} | {"meta.json.new": b'{"id'})
        with OffsetLog(copy, **OPTIONS) as log:
            log.append({0: make_values("a")})
            assert read_values(log) == {0: "a"}


@pytest.mark.slow
def test_flipped_bytes_are_never_taken_for_rows(tmp_path: Path) -> None:
    origin, copy = tmp_path / "origin", tmp_path / "copy"
    with OffsetLog(origin, **OPTIONS) as log:
        for number in range(40):
            log.append({0: make_values(*(f"{number}:{each}" * 3 for each in range(8)))})
        for number in range(4):
            log.append({0: make_values(f"tail {number}")})
        assert log.stats()["segments"] > 3
        everything = read_values(log)
    files = snapshot(origin)
    dice = random.Random(7)
    noticed_at_opening = 0
    for name in (each for each in files if each.endswith(".log")):
        is_tail = name.endswith("tail.log")
        # The last block of the tail cannot be told from a torn one.
        length = len(files[name]) * 3 // 4 if is_tail else len(files[name])
        for _ in range(12):
            damaged = bytearray(files[name])
            damaged[dice.randrange(length)] ^= 1 << dice.randrange(8)
            restore(copy, files | {name: bytes(damaged)})
            try:
                with OffsetLog(copy, **OPTIONS) as log:
                    found = read_values(log)
            except LogCorruptError as error:
                noticed_at_opening += 1
                assert name in str(error)
            except AssertionError:
                pass  # by the checksum of a block that was sent as it is: the client's to notice
            else:
                assert found == everything, "only bytes without a meaning may change unnoticed"
    assert noticed_at_opening > 12


APPENDER = """
import json, random, sys, pathlib
from spark_bridge.log.offset_log import OffsetLog
from tests.spark_bridge.log.test_offset_log_crash import PARTITIONS, digest, make_flush

directory, run = pathlib.Path(sys.argv[1]), int(sys.argv[2])
log = OffsetLog(directory, partitions=PARTITIONS, seal_rows=256, segment_bytes=1 << 17)
print("open", flush=True)
dice = random.Random(run)
for flush in range(10_000):
    start = log.end()
    batches = make_flush(dice, run, flush)
    log.append(batches)
    confirmed = [[each, start[each], digest(batches[each])] for each in batches]
    assert all(log.end()[each] == start[each] + batches[each].num_rows for each in batches)
    print(json.dumps(confirmed), flush=True)
"""
PARTITIONS = 3
KILLS = 12


def make_flush(dice: random.Random, run: int, flush: int) -> dict[int, pa.RecordBatch]:
    chosen = dice.sample(range(PARTITIONS), dice.randint(1, PARTITIONS))
    return {
        partition: make_values(
            *(
                f'{{"run":{run},"flush":{flush},"row":{row}}}'
                for row in range(dice.choice([1, 2, 5, 40, 300, 1000]))
            )
        )
        for partition in chosen
    }


def digest(rows: pa.RecordBatch) -> tuple[int, str]:
    values = rows.column("value").to_pylist()
    return len(values), hashlib.sha256("\n".join(values).encode()).hexdigest()


def append_until_killed(directory: Path, run: int, dice: random.Random) -> list[list]:
    """What a process was told to be on disk before it was killed."""
    process = subprocess.Popen(
        [sys.executable, "-c", APPENDER, directory, str(run)], stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    confirmed = []
    with process, process.stdout:
        assert process.stdout.readline() == b"open\n"
        for _ in range(dice.randint(1, 40)):
            confirmed.extend(json.loads(process.stdout.readline()))
        time.sleep(dice.random() * 0.01)  # at any moment of the next append
        process.kill()
        for line in process.stdout.read().splitlines(keepends=True):
            if line.endswith(b"\n"):
                confirmed.extend(json.loads(line))
    return confirmed


@pytest.mark.slow
def test_offsets_mean_the_same_after_a_dozen_kills(tmp_path: Path) -> None:
    dice = random.Random(11)
    confirmed: list[list] = []
    for run in range(KILLS):
        confirmed.extend(append_until_killed(tmp_path, run, dice))
        with OffsetLog(tmp_path, partitions=PARTITIONS) as log:
            found = [read_values(log, each) for each in range(PARTITIONS)]
            for partition, end in enumerate(log.end()):
                assert list(found[partition]) == list(range(end))
        for partition, start, (rows, checksum) in confirmed:
            values = [found[partition][start + each] for each in range(rows)]
            assert digest(make_values(*values)) == (rows, checksum)
    assert len(confirmed) > KILLS
