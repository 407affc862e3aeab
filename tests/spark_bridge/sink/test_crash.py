"""The sink in a process that is killed anywhere, and on a disk that is full."""

from __future__ import annotations

import errno
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from spark_bridge.errors import StoreFullError
from spark_bridge.sink.sink import Sink
from spark_bridge.sink.store import Part
from tests.helpers import wait_until
from tests.spark_bridge.sink.staging import value_rows

ROOT = Path(__file__).parents[3]
ROUNDS = 12
PROGRESS_ROWS = 50

#: Stages and publishes batch after batch, as a query does that is retried after each crash: what
#: was published is appended to one file, which batches were acknowledged to another.
QUERY = """
import os, sys
from pathlib import Path
from spark_bridge.sink.sink import Sink
from spark_bridge.sink.store import Part
from tests.spark_bridge.sink.staging import value_rows

directory, progress_rows = Path(sys.argv[1]), int(sys.argv[2])
sent = os.open(directory / "sent", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
acknowledged = os.open(directory / "acknowledged", os.O_RDWR | os.O_CREAT | os.O_APPEND)

def publish(topic, value, *, retain, reliable):
    os.write(sent, f"{value[0]} {value[1]}\\n".encode())
    return True

sink = Sink(directory, publish, progress_rows=progress_rows)
sink.recover()
print("repeated", sink.stats()["rows_possibly_repeated"], flush=True)
me = os.getpid()
batch = os.lseek(acknowledged, 0, os.SEEK_END) and int(
    (directory / "acknowledged").read_text().split()[-1]
) + 1
while True:
    for partition in range(2):
        for part in range(2):
            first = (partition * 2 + part) * 60
            rows = value_rows([[batch, number] for number in range(first, first + 60)])
            sink.stage(Part("query", batch, partition, me, part, str(me)), rows)
    sink.publish("query", batch, [(partition, me) for partition in range(2)])
    os.write(acknowledged, f"{batch}\\n".encode())
    batch += 1
"""
BATCH_ROWS = 240


@pytest.mark.slow
def test_a_batch_that_was_acknowledged_is_out_whenever_the_process_is_killed(
    tmp_path: Path,
) -> None:
    dice = random.Random(7)
    possibly_repeated = 0
    for number in range(ROUNDS):
        # Half of the rounds end early, some of them while the last batch is still recovered.
        watched = tmp_path / ("acknowledged" if number % 2 == 0 else "sent")
        size_before = _size(watched)
        query = subprocess.Popen(
            [sys.executable, "-c", QUERY, str(tmp_path), str(PROGRESS_ROWS)],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            assert wait_until(lambda path=watched, size=size_before: _size(path) > size, 120)
            time.sleep(dice.random() * 0.03)  # anywhere in what follows
        finally:
            query.send_signal(signal.SIGKILL)
            printed, _ = query.communicate()
        possibly_repeated += int(printed.split()[1]) if printed else PROGRESS_ROWS
    possibly_repeated += _recover(tmp_path)

    acknowledged = [int(line) for line in (tmp_path / "acknowledged").read_text().split()]
    assert len(acknowledged) >= ROUNDS / 2
    assert acknowledged == sorted(set(acknowledged)), "a batch was acknowledged twice"
    sent: Counter[tuple[int, int]] = Counter()
    for line in (tmp_path / "sent").read_text().splitlines():
        batch, number = map(int, line.split())
        sent[batch, number] += 1
    expected = {(batch, number) for batch in acknowledged for number in range(BATCH_ROWS)}
    assert expected <= sent.keys(), "an acknowledged row is missing"
    # A batch that was marked goes out whole, acknowledged or not.
    assert all(count == BATCH_ROWS for count in Counter(batch for batch, _ in sent).values())
    assert sent.total() - len(sent) <= possibly_repeated <= ROUNDS * PROGRESS_ROWS


def _recover(directory: Path) -> int:
    """Finish what the last kill left; how many rows that may have repeated."""
    with open(directory / "sent", "a") as sent:

        def publish(topic: str, value: list[int], *, retain: bool, reliable: bool) -> bool:
            sent.write(f"{value[0]} {value[1]}\n")
            return True

        sink = Sink(directory, publish, progress_rows=PROGRESS_ROWS)
        sink.recover()
        repeated = sink.stats()["rows_possibly_repeated"]
        sink.close()
    return repeated


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    if os.geteuid() != 0:
        pytest.skip("only root may mount a small disk")
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=2m", "jsonbus-test", str(tmp_path)],
        capture_output=True,
        text=True,
    )
    if mounted.returncode:
        pytest.skip(f"a small disk cannot be mounted here: {mounted.stderr.strip()}")
    try:
        yield tmp_path
    finally:
        subprocess.run(["umount", str(tmp_path)], check=True)


@pytest.fixture
def sent() -> list[object]:
    return []


@pytest.fixture
def sink(small_disk: Path, sent: list[object]) -> Iterator[Sink]:
    def publish(topic: str, value: object, *, retain: bool, reliable: bool) -> bool:
        sent.append(value)
        return True

    sink = Sink(small_disk, publish)
    yield sink
    sink.close()


def test_rows_that_do_not_fit_the_disk_are_refused_and_leave_no_trace(
    sink: Sink, sent: list[object]
) -> None:
    sink.stage(Part("q", 0, 0, 1), value_rows([0]))
    staged_bytes = sink.stats()["staged_bytes"]
    noise = random.Random(1).randbytes(2_000_000).hex()
    with pytest.raises(StoreFullError, match="no room on the disk for .*nothing was kept"):
        sink.stage(Part("q", 0, 1, 1), value_rows([noise]))
    assert sink.stats()["staged_bytes"] == staged_bytes
    assert sink.publish("q", 0, [(0, 1)]) == (1, False)
    assert sent == [0]


def test_staging_goes_on_when_the_disk_has_room_again(
    sink: Sink, sent: list[object], small_disk: Path
) -> None:
    _fill(small_disk / "ballast")
    with pytest.raises(StoreFullError):
        for batch in range(1000):  # until what SQLite already has on the disk is used up
            sink.stage(Part("q", batch, 0, 1), value_rows(["x" * 50_000]))
    (small_disk / "ballast").unlink()
    sink.stage(Part("q", 1000, 0, 1), value_rows([1]))
    assert sink.publish("q", 1000, [(0, 1)]) == (1, False)
    assert sent == [1]


def _fill(path: Path) -> None:
    """Until not one more byte fits."""
    with open(path, "wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(4096))
        except OSError as error:
            assert error.errno == errno.ENOSPC
