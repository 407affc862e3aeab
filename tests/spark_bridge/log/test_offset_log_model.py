"""A log against a model that is a list: whatever is done to it, every read gives the same rows."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from spark_bridge.log.offset_log import OffsetLog
from tests.spark_bridge.log.log_rows import SECOND_US, make_batch, make_row, read_rows

PARTITIONS = 2
RETENTION_S = 1000.0
#: More than a block lists, fewer than a block, and the rest.
TOPICS = [f"t/{each}" for each in range(300)]

flush_rows = st.one_of(st.integers(0, 5), st.integers(0, 60), st.just(400))
partitions = st.integers(0, PARTITIONS - 1)
fractions = st.floats(0, 1)


class LogMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.now_at = 1_000_000.0
        self.directory = Path(tempfile.mkdtemp(prefix="jsonbus-log-"))
        self.rows: list[list[dict[str, Any]]] = [[] for _ in range(PARTITIONS)]
        self.firsts = [0] * PARTITIONS
        self.log = self.open()

    def open(self) -> OffsetLog:
        return OffsetLog(
            self.directory,
            partitions=PARTITIONS,
            retention_s=RETENTION_S,
            segment_bytes=6000,
            seal_rows=32,
            seal_bytes=1 << 14,
            now=lambda: self.now_at,
        )

    def teardown(self) -> None:
        self.log.close()
        shutil.rmtree(self.directory)

    @rule(
        sizes=st.dictionaries(partitions, flush_rows),
        topics=st.sampled_from([1, 3, len(TOPICS)]),
        gap_every=st.sampled_from([2, 7, 1000]),
        value_bytes=st.sampled_from([0, 10, 2000]),
    )
    def append(self, sizes: dict[int, int], topics: int, gap_every: int, value_bytes: int) -> None:
        batches = {}
        for partition, count in sizes.items():
            rows = []
            for number in range(count):
                offset = len(self.rows[partition]) + number
                is_gap = offset % gap_every == gap_every - 1
                rows.append(
                    make_row(
                        None if is_gap else f"{partition}:{offset}:" + "x" * value_bytes,
                        None if is_gap and offset % 3 else TOPICS[offset * 31 % topics],
                        int(self.now_at * SECOND_US) + offset % 5,
                        gap=offset if is_gap else None,
                    )
                )
            batches[partition] = make_batch(rows)
            self.rows[partition].extend(batches[partition].to_pylist())
        self.log.append(batches)
        self.follow_first()

    @rule()
    def reopen(self) -> None:
        self.log.close()
        self.log = self.open()
        assert self.log.stats()["torn_bytes_cut"] == 0

    @rule(partition=partitions, low=fractions, high=fractions, gaps=st.booleans())
    def read(self, partition: int, low: float, high: float, gaps: bool) -> None:
        self.check_read(partition, low, high, None, gaps)

    @rule(
        partition=partitions,
        low=fractions,
        high=fractions,
        wanted=st.sampled_from([set(), {"t/0"}, {"t/1", "t/2"}, set(TOPICS[:150]), set(TOPICS)]),
        gaps=st.booleans(),
    )
    def read_filtered(
        self, partition: int, low: float, high: float, wanted: set[str], gaps: bool
    ) -> None:
        self.check_read(partition, low, high, wanted, gaps)

    @rule(seconds=st.sampled_from([-5000.0, -1.0, 1.0, 130.0, 700.0, 5000.0]))
    def let_time_pass(self, seconds: float) -> None:
        self.now_at += seconds

    @rule()
    def expire(self) -> None:
        before = sum(self.firsts)
        expired = self.log.expire()
        self.follow_first()
        assert sum(self.firsts) == before + expired

    @rule(seconds=st.sampled_from([-6000.0, -700.0, -1.0, 0.0, 1.0]))
    def find(self, seconds: float) -> None:
        time_us = int((self.now_at + seconds) * SECOND_US) + 3
        for partition, found in enumerate(self.log.find(time_us)):
            rows = self.rows[partition]
            offsets = range(self.firsts[partition], len(rows))
            expected = (
                each
                for each in offsets
                if rows[each]["received_at"].timestamp() * SECOND_US >= time_us - 0.5
            )
            assert found == next(expected, len(rows))

    @rule(low=fractions, max_bytes=st.integers(1, 1 << 16))
    def limit(self, low: float, max_bytes: int) -> None:
        end = self.log.end()
        start = [
            first + int(low * (last - first)) for first, last in zip(self.firsts, end, strict=True)
        ]
        assert self.log.limit(start, end, 1 << 40) == end
        found = self.log.limit(start, end, max_bytes)
        assert found == end or sum(found) > sum(start)
        assert all(a <= b <= c for a, b, c in zip(start, found, end, strict=True))

    @invariant()
    def ends_are_known(self) -> None:
        assert self.log.end() == [len(each) for each in self.rows]
        assert self.log.first() == self.firsts

    def check_read(
        self, partition: int, low: float, high: float, wanted: set[str] | None, gaps: bool
    ) -> None:
        first, end = self.firsts[partition], len(self.rows[partition])
        start, stop = sorted(first + round(each * (end - first)) for each in (low, high))
        wants = None if wanted is None else wanted.__contains__
        found = read_rows(self.log, partition, start, stop, wants=wants, gaps=gaps)
        expected = []
        for offset in range(start, stop):
            row = self.rows[partition][offset]
            is_wanted = wanted is None or row["topic"] is None or row["topic"] in wanted
            if is_wanted and (gaps or row["gap"] is None):
                expected.append({**row, "offset": offset})
        assert found == expected

    def follow_first(self) -> None:
        """What is gone was to go, and never comes back."""
        oldest = self.now_at - RETENTION_S
        for partition, first in enumerate(self.log.first()):
            gone = self.rows[partition][self.firsts[partition] : first]
            assert first >= self.firsts[partition]
            assert all(row["received_at"].timestamp() < oldest for row in gone)
            self.firsts[partition] = first


TestLogMachine = LogMachine.TestCase
TestLogMachine.settings = settings(
    max_examples=25,
    stateful_step_count=25,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
