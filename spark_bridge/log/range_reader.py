"""Reads a range of a partition, as pieces that go to a client in order.

Whole blocks that are wanted as they are on disk are not looked into: a run of them is a FileRun,
for sendfile. Of other blocks the rows that are wanted are gathered into new blocks, several into
one, so that a client who wants little does not get many tiny ones.
"""

from __future__ import annotations

import os
import zlib
from collections import deque
from collections.abc import Callable, Iterator
from typing import NamedTuple, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from .block import (
    BLOCK_BYTES_MAX,
    HEADER_BYTES,
    ROWS,
    combine_rows,
    decode_rows,
    decode_topics,
    encode_block,
    is_intact,
    parse_header,
)
from .block_index import BlockEntry
from .disk import LogFile
from .recovery import corrupt
from .segment import Segment
from .view import View

#: Rows that are collected into one block of a reply.
_GATHER_ROWS = 8192
#: Topics for which the filter's answer is remembered while one range is read.
_ANSWERS_MAX = 1 << 16

_NO_ROWS = pa.RecordBatch.from_pylist([], ROWS)


class FileRun(NamedTuple):
    """Consecutive whole blocks of a segment. The file stays open as long as this object is
    kept.
    """

    file: LogFile
    position: int
    length: int
    rows: int


Piece: TypeAlias = FileRun | bytes


class RangeReader:
    """Produces the pieces of one range. Used by one thread."""

    def __init__(
        self,
        view: View,
        start: int,
        end: int,
        wants: Callable[[str], bool] | None,
        gaps: bool,
    ) -> None:
        self._start = start
        self._end = end
        self._wants = wants
        self._gaps = gaps
        self._answers: dict[str, bool] = {}
        # Not the whole view: what retention deletes meanwhile is freed as soon as it has been read.
        self._segments = deque(view.segments_of(start, end))
        self._tail = view.tail_of(start, end)
        self._gathered: list[pa.RecordBatch] = []
        self._gathered_rows = 0
        self._gathered_bytes = 0

    def pieces(self) -> Iterator[Piece]:
        """Yield everything that is wanted, in order. Raises LogCorruptError, or OSError from
        the disk.
        """
        while self._segments:
            yield from self._read_segment(self._segments.popleft())
        for batch in self._tail:
            yield from self._gather(self._filter(batch))
        yield from self._made()

    def _read_segment(self, segment: Segment) -> Iterator[Piece]:
        file = None
        run: FileRun | None = None
        for entry in segment.entries(self._start, self._end):
            file = file or segment.file.open()
            rows = self._select(file, segment, entry)
            if rows is None:
                if run is None:
                    yield from self._made()
                    run = FileRun(file, entry.position, 0, 0)
                run = run._replace(length=run.length + entry.size_bytes, rows=run.rows + entry.rows)
                continue
            if run is not None:
                yield run
                run = None
            yield from self._gather(rows)
        if run is not None:
            yield run

    def _select(self, file: LogFile, segment: Segment, entry: BlockEntry) -> pa.RecordBatch | None:
        """Return the rows of a block that are wanted; None means the whole block, as it is."""
        is_wanted = self._judge(file, entry)
        if is_wanted is False:
            return _NO_ROWS
        if is_wanted and self._start <= entry.first and entry.end <= self._end:
            return None
        rows = read_rows(file, segment, entry)
        low, high = max(self._start - entry.first, 0), min(self._end, entry.end) - entry.first
        rows = self._filter(rows.slice(low, high - low))
        return None if rows.num_rows == entry.rows else rows

    def _judge(self, file: LogFile, entry: BlockEntry) -> bool | None:
        """Return whether all rows of a block are wanted, or none of them, by its table of topics;
        None if the rows have to be examined.
        """
        if self._wants is None:
            return True if self._gaps or not entry.has_gaps else None
        if not entry.topics_bytes:
            return None
        begin = os.pread(file.fileno(), HEADER_BYTES + entry.topics_bytes, entry.position)
        header = parse_header(begin)
        if header is None or zlib.crc32(begin[HEADER_BYTES:]) != entry.topics_checksum:
            return None  # The checksum of the whole block decides.
        answers = self._ask(decode_topics(begin, header) or [])
        if all(answers):
            return True if self._gaps or not entry.has_gaps else None
        if not any(answers) and not (self._gaps and entry.has_gaps):
            return False
        return None

    def _ask(self, topics: list[str]) -> list[bool]:
        assert self._wants is not None
        answers = self._answers
        if len(answers) > _ANSWERS_MAX:
            answers.clear()
        for topic in topics:
            if topic not in answers:
                answers[topic] = self._wants(topic)
        return [answers[topic] for topic in topics]

    def _filter(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        gap = rows.column("gap")
        has_gaps = gap.null_count < rows.num_rows
        mask = None
        if self._wants is not None:
            topic = rows.column("topic")
            topics: list[str] = pc.unique(topic).drop_null().to_pylist()
            answers = self._ask(topics)
            if not all(answers) or topic.null_count:
                wanted = [each for each, answer in zip(topics, answers, strict=True) if answer]
                mask = pc.is_in(topic, pa.array(wanted, pa.string()))
                if self._gaps and has_gaps:
                    unknown = pc.and_(pc.is_null(topic), pc.is_valid(gap))
                    mask = pc.or_(mask, unknown)
        if has_gaps and not self._gaps:
            messages = pc.is_null(gap)
            mask = messages if mask is None else pc.and_(mask, messages)
        return rows if mask is None else rows.filter(mask)

    def _gather(self, rows: pa.RecordBatch) -> Iterator[bytes]:
        """Add rows to the next block of the reply, and yield that block when it is large
        enough.
        """
        if rows.num_rows == 0:
            return
        size_bytes = rows.nbytes
        if self._gathered_bytes + size_bytes > BLOCK_BYTES_MAX:
            yield from self._made()
        self._gathered.append(rows)
        self._gathered_rows += rows.num_rows
        self._gathered_bytes += size_bytes
        if self._gathered_rows >= _GATHER_ROWS:
            yield from self._made()

    def _made(self) -> Iterator[bytes]:
        if self._gathered:
            rows = combine_rows(self._gathered)
            self._gathered = []
            self._gathered_rows = self._gathered_bytes = 0
            offsets = rows.column("offset")
            yield encode_block(rows, offsets[0].as_py(), offsets[-1].as_py() + 1, None)


def read_rows(file: LogFile, segment: Segment, entry: BlockEntry) -> pa.RecordBatch:
    """Return all rows of a block. Raises LogCorruptError."""
    block = os.pread(file.fileno(), entry.size_bytes, entry.position)
    header = parse_header(block)
    if header is None or len(block) != header.size_bytes or not is_intact(block, header):
        raise corrupt(segment.file.path, entry.position, "a checksum does not fit")
    return decode_rows(block, header)
