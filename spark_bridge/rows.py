"""Turns messages into rows: the recorder's hot path.

A *lot* collects messages in the thread that receives them. Once per message it does two items of
comprehensions and two comparisons; all else, `dumps` too, is done once per datagram, whose messages
share an origin and have consecutive numbers: that is a *run*. No message outlives its datagram, so
its memory is used again while it is warm, and Python's collector of cycles never meets it. Rows are
made of lots later, by Arrow, column by column, mostly without the interpreter's lock.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import NamedTuple

import orjson
import pyarrow as pa
import pyarrow.compute as pc

import jsonbus

from .log.block import ROWS, ROWS_WITHOUT_OFFSET, count_up_to

#: Topics whose partition is remembered; for more, it is computed each time. A topic takes 100
#: bytes.
TOPICS_REMEMBERED_MAX = 100_000

#: The most text and messages of a lot: a column of Arrow ends at 2 GiB, and rows are made in
#: memory. One message may exceed the first, one datagram the second.
LOT_BYTES_MAX = 64 << 20
LOT_ROWS_MAX = 1 << 20

_TIME = ROWS.field("received_at").type

#: What stands between the texts of two values: JSON writes newlines inside strings as backslash, n.
BETWEEN = ",\n,"

_BETWEEN = orjson.Fragment(b"\n")
_START_BYTES, _END_BYTES = len("["), len(",\n]")


class Gap(NamedTuple):
    """Messages that the bridge knows it never got, or could not record."""

    topic: str | None  # None: unknown topics
    node: str | None
    missing: int
    at: float  # seconds since 1970


class Lot:
    """Messages on their way to become rows. Used by one thread at a time."""

    __slots__ = ("ends", "firsts", "origins", "plain_bytes", "texts", "topics")

    def __init__(self) -> None:
        self.topics: list[str] = []
        self.texts: list[bytes] = []  # values as JSON; those of one call with BETWEEN between them
        self.plain_bytes = 0
        # Runs: their origins, first sequences less their place among all rows, and ends.
        self.origins: list[jsonbus.Origin] = []
        self.firsts: list[int | None] = []
        self.ends: list[int] = []

    def add(self, messages: Sequence[jsonbus.Message]) -> int:
        """Take as many messages as there is room for, and return how many."""
        start = len(self.topics)
        if self.plain_bytes >= LOT_BYTES_MAX or start >= LOT_ROWS_MAX:
            return 0
        text = _dump(messages)
        if len(text) > LOT_BYTES_MAX and len(messages) > 1:
            return self.add(messages[: len(messages) // 2])
        self.texts.append(text)
        self.plain_bytes += len(text)
        self.topics += [message.topic for message in messages]
        self._add_runs(messages, start)
        return len(messages)

    def _add_runs(self, messages: Sequence[jsonbus.Message], start: int) -> None:
        """Find runs by looking at every message: those of reliable topics wait for earlier
        ones, so other messages may come between those of one datagram, or later ones first.
        """
        origin: jsonbus.Origin | None = None
        first: int | None = None
        for place, message in enumerate(messages, start):
            sequence = message.sequence
            less_place = None if sequence is None else sequence - place
            if message.origin is not origin or less_place != first:
                if origin is not None:
                    self.ends.append(place)
                origin, first = message.origin, less_place
                self.origins.append(origin)
                self.firsts.append(first)
        self.ends.append(start + len(messages))


class RowMaker:
    """Makes rows, by partition. A topic is always in one partition, so that its order is kept."""

    def __init__(self, partitions: int) -> None:
        self._partitions = partitions
        self._partition_of: dict[str | None, int] = {None: 0}

    def partition_of(self, topic: str | None) -> int:
        """Return the partition of a topic, which never changes; unknown topics go to 0."""
        partition = self._partition_of.get(topic)
        if partition is None:
            assert topic is not None
            if len(self._partition_of) >= TOPICS_REMEMBERED_MAX:
                self._partition_of = {None: 0}
            partition = zlib.crc32(topic.encode()) % self._partitions
            self._partition_of[topic] = partition
        return partition

    def make(self, lot: Lot) -> dict[int, pa.RecordBatch]:
        """Make the rows of a lot, in order, by partition; only partitions that got some are in
        the result.
        """
        return self._split(_make_rows(lot)) if lot.topics else {}

    def make_gaps(self, gaps: Sequence[Gap]) -> dict[int, pa.RecordBatch]:
        """Make the gap records, by partition."""
        return self._split(_make_gap_rows(gaps))

    def _split(self, rows: pa.RecordBatch) -> dict[int, pa.RecordBatch]:
        topics = rows.column("topic").dictionary_encode(null_encoding="encode")
        places = [self.partition_of(topic) for topic in topics.dictionary.to_pylist()]
        present = sorted(set(places))
        if len(present) == 1:
            return {present[0]: rows}
        partitions = pa.array(places, pa.int32()).take(topics.indices)
        return {each: rows.filter(pc.equal(partitions, each)) for each in present}


def _dump(messages: Sequence[jsonbus.Message]) -> bytes:
    """Encode values as JSON. They came as JSON or were published here, so none can be wrong."""
    values = [message.value for message in messages]
    # One call for all takes two thirds of the time of a call for each.
    separated: list[object] = [_BETWEEN] * (2 * len(values))
    separated[::2] = values
    try:
        return orjson.dumps(separated)[_START_BYTES:-_END_BYTES]
    except TypeError:  # a dict of this process with other keys than strings, or the deepest value
        option = orjson.OPT_NON_STR_KEYS
        return BETWEEN.encode().join([orjson.dumps(value, option=option) for value in values])


def _make_rows(lot: Lot) -> pa.RecordBatch:
    origins = lot.origins
    count = len(lot.topics)

    def by_run(values: list[object], kind: pa.DataType) -> pa.Array:
        runs = pa.RunEndEncodedArray.from_arrays(ends, pa.array(values, kind))
        return pc.run_end_decode(runs)

    ends = pa.array(lot.ends, pa.int32())
    places = count_up_to(count)
    texts = pa.array([BETWEEN.encode().join(lot.texts)], pa.binary()).view(pa.string())
    columns = {
        "topic": pa.array(lot.topics, pa.string()),
        "value": pc.split_pattern(texts, BETWEEN).flatten(),
        "node": by_run([each.node for each in origins], pa.string()),
        "incarnation": by_run([each.incarnation for each in origins], pa.int64()),
        "sequence": pc.add(by_run([*lot.firsts], pa.int64()), places),
        "timestamp": by_run([_to_us(each.sent_at) for each in origins], _TIME),
        "received_at": by_run([_to_us(each.received_at) for each in origins], _TIME),
        "retained": by_run([each.is_retained for each in origins], pa.bool_()),
        "gap": pa.nulls(count, pa.int64()),
    }
    return pa.RecordBatch.from_pydict(columns, ROWS_WITHOUT_OFFSET)


def _make_gap_rows(gaps: Sequence[Gap]) -> pa.RecordBatch:
    rows = []
    for gap in gaps:
        at_us = _to_us(gap.at)
        row = {"topic": gap.topic, "node": gap.node, "timestamp": at_us, "received_at": at_us}
        rows.append({**row, "retained": False, "gap": gap.missing})
    return pa.RecordBatch.from_pylist(rows, ROWS_WITHOUT_OFFSET)


def _to_us(seconds: float) -> int:
    return round(seconds * 1_000_000)
