"""From messages to rows: the recorder's hot path.

What is done once per message is an item in a comprehension and one `dumps`; all else is done once
per datagram (what its messages share is one object, `message.origin`) or by Arrow, column by
column. A loop in Python over messages and columns would cost ten times as much.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import orjson
import pyarrow as pa

import jsonbus

from .block import ROWS, ROWS_WITHOUT_OFFSET

#: Topics whose partition is remembered; beyond, they are computed anew. A topic takes 100 bytes.
TOPICS_REMEMBERED_MAX = 100_000

#: Rows of one partition that are made in one go; a column of Arrow's ends at 2 GiB.
PLAIN_BYTES_MAX = 64 << 20


Messages = Sequence[jsonbus.Message]


class Gap(NamedTuple):
    """Messages that the bridge knows it never got, or could not record."""

    topic: str | None  # None: some topics or other
    node: str | None
    incarnation: int | None
    missing: int
    at: float  # seconds since 1970


class RowMaker:
    """Makes rows of messages, by partition. A topic is always in one partition: its order stays."""

    def __init__(self, partitions: int) -> None:
        self._partitions = partitions
        self._partition_of: dict[str, int] = {}

    def partition_of(self, topic: str | None) -> int:
        """Where a topic's messages go, for as long as the log lives; unknown topics go to 0."""
        if topic is None:
            return 0
        if len(self._partition_of) >= TOPICS_REMEMBERED_MAX:
            self._partition_of.clear()
        partition = zlib.crc32(topic.encode()) % self._partitions
        self._partition_of[topic] = partition
        return partition

    def make(self, messages: Messages) -> Iterator[tuple[Messages, dict[int, pa.RecordBatch]]]:
        """Messages, and their rows in order by partition; only partitions that got some.

        Nearly always all of them in one go; large values make it several, one behind the other.
        """
        rows = {
            partition: _make_rows(each)
            for partition, each in enumerate(self._split(messages))
            if each
        }
        if len(messages) > 1 and any(
            each is None or each.nbytes > PLAIN_BYTES_MAX for each in rows.values()
        ):
            half = len(messages) // 2
            yield from self.make(messages[:half])
            yield from self.make(messages[half:])
        else:
            yield messages, rows

    def make_gaps(self, gaps: Sequence[Gap]) -> dict[int, pa.RecordBatch]:
        """The gap records, by partition."""
        parts: dict[int, list[Gap]] = {}
        for gap in gaps:
            parts.setdefault(self.partition_of(gap.topic), []).append(gap)
        return {partition: _make_gap_rows(each) for partition, each in parts.items()}

    def _split(self, messages: Messages) -> list[list[jsonbus.Message]]:
        if self._partitions == 1:
            return [list(messages)]
        parts: list[list[jsonbus.Message]] = [[] for _ in range(self._partitions)]
        known = self._partition_of
        for message in messages:
            try:
                parts[known[message.topic]].append(message)
            except KeyError:
                parts[self.partition_of(message.topic)].append(message)
        return parts


def _make_rows(messages: list[jsonbus.Message]) -> pa.RecordBatch | None:
    """None if the values are too many for one column of Arrow's."""
    values = _texts([message.value for message in messages])
    if isinstance(values, pa.ChunkedArray):
        return None
    nodes: list[str] = []
    incarnations: list[int] = []
    sent_us: list[int] = []
    received_us: list[int] = []
    retained: list[bool] = []
    places: list[int] = []  # of each message's origin
    last, place, start = None, -1, 0
    for index, message in enumerate(messages):
        origin = message.origin
        if origin is not last:
            places.extend([place] * (index - start))
            last, place, start = origin, place + 1, index
            nodes.append(origin.node)
            incarnations.append(origin.incarnation)
            sent_us.append(round(origin.sent_at * 1_000_000))
            received_us.append(round(origin.received_at * 1_000_000))
            retained.append(origin.is_retained)
    places.extend([place] * (len(messages) - start))
    by_origin = pa.RecordBatch.from_arrays(
        [
            pa.array(nodes, pa.string()),
            pa.array(incarnations, pa.int64()),
            pa.array(sent_us, pa.int64()).cast(_TIME),
            pa.array(received_us, pa.int64()).cast(_TIME),
            pa.array(retained, pa.bool_()),
        ],
        names=["node", "incarnation", "timestamp", "received_at", "retained"],
    ).take(pa.array(places, pa.int32()))
    return pa.RecordBatch.from_arrays(
        [
            pa.array([message.topic for message in messages], pa.string()),
            values.view(pa.string()),
            by_origin.column("node"),
            by_origin.column("incarnation"),
            pa.array([message.sequence for message in messages], pa.int64()),
            by_origin.column("timestamp"),
            by_origin.column("received_at"),
            by_origin.column("retained"),
            pa.nulls(len(messages), pa.int64()),
        ],
        schema=ROWS_WITHOUT_OFFSET,
    )


def _texts(values: list[object]) -> pa.Array | pa.ChunkedArray:
    """Values as bytes of JSON. They came as JSON, or were published here: none can be wrong."""
    dumps = orjson.dumps
    try:
        texts = [dumps(value) for value in values]
    except TypeError:  # a dict of this process with keys that are no strings
        texts = [dumps(value, option=orjson.OPT_NON_STR_KEYS) for value in values]
    # What orjson writes is UTF-8: to have Arrow check that, by way of strings, doubles the time.
    return pa.array(texts, pa.binary())


def _make_gap_rows(gaps: list[Gap]) -> pa.RecordBatch:
    count = len(gaps)
    times = pa.array([round(gap.at * 1_000_000) for gap in gaps], pa.int64()).cast(_TIME)
    return pa.RecordBatch.from_arrays(
        [
            pa.array([gap.topic for gap in gaps], pa.string()),
            pa.nulls(count, pa.string()),
            pa.array([gap.node for gap in gaps], pa.string()),
            pa.array([gap.incarnation for gap in gaps], pa.int64()),
            pa.nulls(count, pa.int64()),
            times,
            times,
            pa.array([False] * count, pa.bool_()),
            pa.array([gap.missing for gap in gaps], pa.int64()),
        ],
        schema=ROWS_WITHOUT_OFFSET,
    )


_TIME = ROWS.field("received_at").type
