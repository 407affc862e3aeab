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

#: Values that are written as JSON before they become a part of a column.
TEXTS_LOT = 128


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

    def make(self, messages: Messages) -> Iterator[tuple[int, pa.RecordBatch]]:
        """The rows of messages, in order within each partition; only partitions that got some."""
        for partition, each in enumerate(self._split(messages)):
            if each:
                for rows in _make_rows(each):
                    yield partition, rows

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


def combine_rows(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    """All rows in one batch; they must fit: 2 GiB of text a column."""
    if len(batches) == 1:
        return batches[0]
    (combined,) = pa.Table.from_batches(batches).combine_chunks().to_batches()
    return combined


def _make_rows(messages: list[jsonbus.Message]) -> Iterator[pa.RecordBatch]:
    """Nearly always one batch; several if the values are too large for one column of Arrow's."""
    try:
        values = _texts(messages)
    except pa.ArrowInvalid:
        half = len(messages) // 2
        yield from _make_rows(messages[:half])
        yield from _make_rows(messages[half:])
    else:
        yield _with_values(messages, values)


def _with_values(messages: list[jsonbus.Message], values: pa.Array) -> pa.RecordBatch:
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


def _texts(messages: list[jsonbus.Message]) -> pa.Array:
    """Values as bytes of JSON; ArrowInvalid if they are more than one column takes.

    In small lots: what these take from the C library and give back stays below what it returns to
    the kernel (128 KB). Larger ones meet fresh pages each time, and that takes five times as long
    as writing the text.
    """
    lots = range(0, len(messages), TEXTS_LOT)
    return pa.concat_arrays([_dump(messages[start : start + TEXTS_LOT]) for start in lots])


def _dump(messages: list[jsonbus.Message]) -> pa.Array:
    dumps = orjson.dumps
    try:
        texts = [dumps(message.value) for message in messages]
    except TypeError:  # a dict of this process with keys that are no strings
        option = orjson.OPT_NON_STR_KEYS
        texts = [dumps(message.value, option=option) for message in messages]
    # What orjson writes is UTF-8: to have Arrow check that, by way of strings, doubles the time.
    array = pa.array(texts, pa.binary())
    if isinstance(array, pa.ChunkedArray):
        raise pa.ArrowInvalid("more than one column takes")
    return array


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
