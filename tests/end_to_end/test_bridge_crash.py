"""A bridge that is killed again and again: no offset that it ever showed means something else."""

from __future__ import annotations

import hashlib
import random
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyarrow")

from tests.end_to_end.processes import Desk
from tests.helpers import wait_until
from tests.spark.bridges import Bridge
from tests.spark_bridge.raw_client import open_client

SEED = 7
KILLS = 10
RATE = 10_000  # messages a second
TOPICS = "ad"  # one for each of two partitions

PUBLISHER = f"""
import itertools, time
import jsonbus

with jsonbus.Bus(name="publisher", reliable=True) as bus:
    began_at = time.monotonic()
    for number in itertools.count():
        bus.publish({TOPICS!r}[number % 2], number)
        if number % 30 == 0:
            time.sleep(max(0.0, began_at + number / {RATE} - time.monotonic()))
"""


class Reader:
    """Polls and reads all the time, and remembers everything that it was ever shown."""

    def __init__(self, address: str, partitions: int) -> None:
        self.rows = 0
        self.reconnections = 0
        self.failures: list[str] = []
        self._address = address
        self._shown: list[dict[int, bytes]] = [{} for _ in range(partitions)]
        self._ends = [0] * partitions
        self._log_id: str | None = None
        self._dice = random.Random(SEED)
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join()

    def read_everything_again(self) -> dict[str, list[int]]:
        """Once more from the start, in ranges of any size; the numbers of each topic, in order."""
        numbers: dict[str, list[int]] = {}
        with open_client(self._address) as client:
            ends = self._note_ends(client.ask({"op": "poll"}))
            for partition, end in enumerate(ends):
                start = 0
                while start < end:
                    stop = min(end, start + self._dice.choice((1, 500, 5_000)))
                    for row in self._read(client, partition, start, stop):
                        numbers.setdefault(row["topic"], []).append(int(row["value"]))
                    start = stop
        for partition, shown in enumerate(self._shown):
            self._expect(set(shown) == set(range(ends[partition])), "offsets are missing")
        return numbers

    def _run(self) -> None:
        while not self._stopping.is_set() and not self.failures:
            try:
                self._follow()
            except OSError:
                self.reconnections += 1  # it was killed; it will be back
                time.sleep(0.01)
            except AssertionError as error:
                self.failures.append(f"a refusal, or a block that is not whole: {error!r}")

    def _follow(self) -> None:
        with open_client(self._address) as client:
            known = None
            while not self._stopping.is_set() and not self.failures:
                known = self._note_ends(client.ask({"op": "poll", "known": known, "wait_ms": 200}))
                for partition, end in enumerate(known):
                    start = max(self._shown[partition], default=-1) + 1
                    # Now and then again what was shown before: it may have been cut and rewritten.
                    start = self._dice.choice((start, start, max(0, start - 300)))
                    self._read(client, partition, start, end)

    def _note_ends(self, reply: dict[str, Any]) -> list[int]:
        ends: list[int] = reply["end"]
        for partition, (before, end) in enumerate(zip(self._ends, ends, strict=True)):
            self._expect(end >= before, f"the end of {partition} went from {before} to {end}")
        self._ends = ends
        return ends

    def _read(self, client: Any, partition: int, start: int, end: int) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = client.read(partition, start, end)
        found = [row["offset"] for row in rows]
        self._expect(found == list(range(start, end)), f"{start} to {end} gave {found[:5]}…")
        shown = self._shown[partition]
        for row in rows:
            digest = hashlib.blake2b(repr(sorted(row.items())).encode(), digest_size=8).digest()
            before = shown.setdefault(row["offset"], digest)
            self._expect(before == digest, f"offset {row['offset']} of {partition} is now {row}")
        self.rows += len(rows)
        return rows

    def _expect(self, is_true: bool, complaint: str) -> None:
        if not is_true:
            self.failures.append(complaint)


def test_no_offset_changes_its_meaning_though_the_bridge_is_killed_at_any_moment(
    desk: Desk, tmp_path: Path
) -> None:
    dice = random.Random(SEED)
    # More than will be recorded, but few enough for small segments: so kills meet new ones, too.
    bridge = Bridge(desk, tmp_path / "data", "--partitions", "2", "--retention-bytes", "10M")
    desk.start_command([sys.executable, "-c", PUBLISHER])
    reader = Reader(bridge.address, 2)
    try:
        for _ in range(KILLS):
            seen = reader.rows
            assert wait_until(lambda: reader.rows > seen or reader.failures, 60)  # noqa: B023
            time.sleep(dice.uniform(0.0, 0.6))  # the moment
            bridge.restart()
            assert not reader.failures, reader.failures[0]
        seen = reader.rows
        assert wait_until(lambda: reader.rows > seen or reader.failures, 60)
    finally:
        reader.stop()
    try:
        assert not reader.failures, reader.failures[0]
        assert reader.reconnections >= KILLS
        numbers = reader.read_everything_again()
        assert not reader.failures, reader.failures[0]
        # In order and none twice; those that came while no bridge was there are not in the log.
        assert numbers.keys() == set(TOPICS)
        for topic, found in numbers.items():
            assert found == sorted(set(found)), topic
            assert len(found) > 100
    finally:
        bridge.close()
