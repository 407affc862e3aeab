"""Nothing lost and nothing twice, whatever is killed.

Three publishers number their messages; a driver with two queries and the bridge are killed with
SIGKILL again and again, at moments drawn from a seed. What the bridge recorded is the truth: it
must be in both sinks exactly once. What it did not record can only be what was published while it
was dead, one run of numbers for each time.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import sqlite3
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from tests.end_to_end.processes import ROOT, Desk, Process
from tests.helpers import wait_until
from tests.spark.bridges import Bridge
from tests.spark.clusters import start
from tests.spark.jvm import SHORT_LIVED, descendants, is_running

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FOLDER = Path(__file__).parent / "drivers"
SEED = 20_261_117
TOPICS = ("numbers/a", "numbers/b", "numbers/c")
RATE = 100  # messages a second, of each publisher
DRIVER_KILLS = 5
BRIDGE_KILLS = 3

#: (topic, value, partition, offset)
Row = tuple[str, str, int, int]


class Driver:
    """exactly_once_driver.py, running."""

    def __init__(self, desk: Desk, bridge: Bridge, folder: Path) -> None:
        self._desk = desk
        self._folder = folder
        script = str(FOLDER / "exactly_once_driver.py")
        self._process = start(
            desk,
            [sys.executable, "-W", "ignore", script, bridge.address, str(folder), SHORT_LIVED],
            {"PYTHONPATH": str(ROOT)},
        )

    def wait_for_batches(self, count: int) -> None:
        """Wait until the two queries together have committed so many more."""
        target = self._committed() + count
        self._desk.wait_until(
            lambda: self._committed() >= target or not is_running(self._process.pid)
        )
        assert is_running(self._process.pid), self._process.complaints

    def kill(self) -> None:
        """The JVM, its Python processes, and the one that started it."""
        family = [self._process.pid, *descendants(self._process.pid)]
        for pid in family:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        assert wait_until(lambda: not any(map(is_running, family)))
        self._process.end()

    def _committed(self) -> int:
        """How many batches both checkpoints say are done."""
        commits = [*self._folder.glob("parquet/commits/*"), *self._folder.glob("sqlite/commits/*")]
        return sum(each.name.isdecimal() for each in commits)


def test_what_was_recorded_is_in_both_sinks_exactly_once_whatever_is_killed(
    spark: SparkSession, desk: Desk, open_bridge: Callable[..., Bridge], tmp_path: Path
) -> None:
    bridge = open_bridge("--partitions", "2")
    dice = random.Random(SEED)
    kills = ["driver"] * DRIVER_KILLS + ["bridge"] * BRIDGE_KILLS
    dice.shuffle(kills)
    publishers = [_start_publisher(desk, topic) for topic in TOPICS]
    driver = Driver(desk, bridge, tmp_path)
    for victim in kills:
        driver.wait_for_batches(dice.randint(1, 5))
        time.sleep(dice.uniform(0, 0.3))  # anywhere in a batch
        if victim == "driver":
            driver.kill()
            driver = Driver(desk, bridge, tmp_path)
        else:
            bridge.restart()
    published = _stop(publishers)
    assert wait_until(lambda: _last_numbers(_log(spark, bridge)) == published, timeout_s=120)
    recorded = sorted(_log(spark, bridge))
    assert wait_until(lambda: len(_parquet(spark, tmp_path)) >= len(recorded), timeout_s=120)
    assert wait_until(lambda: len(_sqlite(tmp_path)) >= len(recorded), timeout_s=120)
    driver.kill()

    assert sorted(_parquet(spark, tmp_path)) == recorded
    assert sorted(_sqlite(tmp_path)) == recorded
    for topic, last in zip(TOPICS, published, strict=True):
        numbers = [int(value) for name, value, _, _ in recorded if name == topic]
        assert len(set(numbers)) == len(numbers)
        missing = set(range(last + 1)) - set(numbers)
        assert _count_runs(missing) <= BRIDGE_KILLS, sorted(missing)


def _start_publisher(desk: Desk, topic: str) -> Process:
    script = str(FOLDER / "numbers_publisher.py")
    return start(desk, [sys.executable, script, topic, str(RATE)], {"PYTHONPATH": str(ROOT)})


def _stop(publishers: list[Process]) -> list[int]:
    """The last number that each has published."""
    for each in publishers:
        each.send_signal(signal.SIGTERM)
    for each in publishers:
        each.expect_exit(0)
    return [each.results[0] - 1 for each in publishers]


def _log(spark: SparkSession, bridge: Bridge) -> list[Row]:
    return _rows(spark.read.format("jsonbus").option("bridge", bridge.address).load())


def _parquet(spark: SparkSession, folder: Path) -> list[Row]:
    """What Spark's own list of the folder says that was committed."""
    return _rows(spark.read.parquet(str(folder / "rows.parquet")))


def _sqlite(folder: Path) -> list[Row]:
    with contextlib.closing(sqlite3.connect(folder / "rows.sqlite")) as store:
        return store.execute("SELECT * FROM rows").fetchall()


def _rows(rows: DataFrame) -> list[Row]:
    return [tuple(row) for row in rows.select("topic", "value", "partition", "offset").collect()]


def _last_numbers(rows: Iterable[Row]) -> list[int]:
    last = dict.fromkeys(TOPICS, -1)
    for topic, value, _, _ in rows:
        last[topic] = max(last[topic], int(value))
    return list(last.values())


def _count_runs(numbers: set[int]) -> int:
    """How many stretches of consecutive numbers there are."""
    return sum(number - 1 not in numbers for number in numbers)
