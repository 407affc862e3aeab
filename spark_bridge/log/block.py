"""Rows as Arrow, and the block: the unit of the log on disk and of the bridge's replies.

    block   = header topics body padding
    header  = 64 bytes, little endian, see HEADER
    topics  = JSON array of the distinct topics in the block, sorted; empty (no bytes at all) if
              they are unknown, or more than TOPICS_MAX
    body    = one Arrow IPC record batch message with the schema ROWS, buffers lz4-compressed,
              without the schema message, which is always the same
    padding = zeros up to a multiple of 8 bytes

The checksum is the CRC-32 of everything in the block that stands behind it, padding included. A
reader takes the bytes of a block as they are on disk: a range of the log that is a run of whole
blocks costs the bridge a sendfile and no look inside.

Offsets of a block are consecutive in the log; a block that was cut or filtered for a reply has
gaps in its column `offset`, and fewer rows than its `end - first`.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

MAGIC = b"JBLK"
VERSION = 1
UINT32_MAX = 0xFFFF_FFFF

#: magic, version, checksum; then all that the checksum covers: flags, first offset, end offset,
#: rows, bytes of the topics, bytes of the body, bytes that the rows take uncompressed, earliest
#: and latest `received_at` (µs since 1970).
HEADER = struct.Struct("<4sB3xIIQQIIIIqq")
HEADER_BYTES = HEADER.size
_CHECKSUM_ENDS = 12  # what stands behind the checksum is covered by it

#: Flags. Some rows are gap records.
HAS_GAPS = 1
#: Written to the log in one flush with the block in front of it. A block without this flag proves
#: that everything in front of it was on disk before: only what was written together can be torn.
SAME_FLUSH = 2

#: Distinct topics that a block lists: a filter looks at them before it looks at rows.
TOPICS_MAX = 256

#: What the rows of a block take uncompressed, at most, unless one row takes more: what has to be in
#: memory at once to read it.
BLOCK_BYTES_MAX = 4 << 20

_MICROSECONDS = pa.timestamp("us", tz="UTC")

#: A row of the log. `sequence` is null for plain senders; `gap` is null but for gap records: then
#: it is how many messages are missing, `value` is null, and so is `topic` if it is not known.
ROWS = pa.schema(
    [
        pa.field("topic", pa.string()),
        pa.field("value", pa.string()),
        pa.field("node", pa.string()),
        pa.field("incarnation", pa.int64()),
        pa.field("sequence", pa.int64()),
        pa.field("timestamp", _MICROSECONDS),
        pa.field("received_at", _MICROSECONDS),
        pa.field("retained", pa.bool_()),
        pa.field("offset", pa.int64()),
        pa.field("gap", pa.int64()),
    ]
)

_OFFSET = ROWS.get_field_index("offset")

#: What the log is given: it numbers the rows itself.
ROWS_WITHOUT_OFFSET = ROWS.remove(_OFFSET)

# Arrow's threads would compress a large batch a quarter sooner, for a third more processor time; a
# batch of a few rows they make five times as expensive.
_WRITE_OPTIONS = pa.ipc.IpcWriteOptions(compression="lz4", use_threads=False)
_PADDING = bytes(8)


class BlockHeader(NamedTuple):
    """What a block says of itself; the checksum is not checked yet."""

    checksum: int
    flags: int
    first: int  # offset
    end: int  # the offset behind the last one
    rows: int
    topics_bytes: int
    body_bytes: int
    plain_bytes: int  # what the rows take uncompressed
    received_min_us: int
    received_max_us: int

    @property
    def has_gaps(self) -> bool:
        """Whether some rows are gap records."""
        return bool(self.flags & HAS_GAPS)

    @property
    def size_bytes(self) -> int:
        """Of the whole block, with header and padding."""
        content = self.topics_bytes + self.body_bytes
        return HEADER_BYTES + content + -content % 8


def encode_block(
    rows: pa.RecordBatch,
    first: int,
    end: int,
    topics: list[str] | None,
    *,
    flags: int = 0,
    plain_bytes: int | None = None,
) -> bytes:
    """Rows, with the columns of ROWS and at least one of them, as a block.

    `first` and `end` are the range of offsets that it stands for, `topics` the distinct ones.
    HAS_GAPS is set by itself. `plain_bytes` is `rows.nbytes`, if the caller has asked already: to a
    small block that question is a good part of its cost.
    """
    body = _serialize(rows)
    listed = b"" if topics is None or len(topics) > TOPICS_MAX else _dump(sorted(topics))
    times = pc.min_max(rows.column("received_at").view(pa.int64()))
    if rows.column("gap").null_count < rows.num_rows:
        flags |= HAS_GAPS
    header = HEADER.pack(
        MAGIC,
        VERSION,
        0,
        flags,
        first,
        end,
        rows.num_rows,
        len(listed),
        body.size,
        min(rows.nbytes if plain_bytes is None else plain_bytes, UINT32_MAX),
        times["min"].as_py() or 0,
        times["max"].as_py() or 0,
    )
    padding = _PADDING[: -(len(listed) + body.size) % 8]
    covered = (header[_CHECKSUM_ENDS:], listed, body, padding)
    checksum = 0
    for part in covered:
        checksum = zlib.crc32(part, checksum)
    return b"".join((header[: _CHECKSUM_ENDS - 4], checksum.to_bytes(4, "little"), *covered))


def parse_header(data: bytes | memoryview) -> BlockHeader | None:
    """The header that the bytes begin with; None if they are too short, or no block's."""
    if len(data) < HEADER_BYTES:
        return None
    magic, version, *fields = HEADER.unpack_from(data)
    if magic != MAGIC or version != VERSION:
        return None
    header = BlockHeader(*fields)
    return header if 0 < header.rows <= header.end - header.first else None


def is_intact(block: bytes | memoryview, header: BlockHeader) -> bool:
    """Whether a whole block has the bytes that it was written with."""
    return zlib.crc32(memoryview(block)[_CHECKSUM_ENDS:]) == header.checksum


def decode_topics(block: bytes | memoryview, header: BlockHeader) -> list[str] | None:
    """The distinct topics of a block; None if it does not list them."""
    if not header.topics_bytes:
        return None
    topics: list[str] = json.loads(bytes(block[HEADER_BYTES : HEADER_BYTES + header.topics_bytes]))
    return topics


def decode_rows(block: bytes | memoryview, header: BlockHeader) -> pa.RecordBatch:
    """The rows of a whole block that is intact."""
    start = HEADER_BYTES + header.topics_bytes
    body = pa.py_buffer(block).slice(start, header.body_bytes)
    return pa.ipc.read_record_batch(body, ROWS)


def number_rows(rows: pa.RecordBatch, first: int) -> pa.RecordBatch:
    """Rows with the columns of ROWS_WITHOUT_OFFSET, numbered from `first` on."""
    columns = rows.columns
    columns.insert(_OFFSET, pc.add(count_up_to(rows.num_rows), pa.scalar(first, pa.int64())))
    return pa.RecordBatch.from_arrays(columns, schema=ROWS)


def combine_rows(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    """All rows, with the columns of ROWS, in one batch. They must fit: 2 GiB of text a column."""
    if len(batches) == 1:
        return batches[0]
    (combined,) = pa.Table.from_batches(batches, ROWS).combine_chunks().to_batches()
    return combined


def cut_rows(rows: pa.RecordBatch, rows_max: int, bytes_max: int) -> Iterator[pa.RecordBatch]:
    """The rows in batches that are as large as a block may be; one row may exceed `bytes_max`."""
    if rows.num_rows <= 1 or (rows.num_rows <= rows_max and rows.nbytes <= bytes_max):
        yield rows
        return
    half = rows.num_rows // 2
    yield from cut_rows(rows.slice(0, half), rows_max, bytes_max)
    yield from cut_rows(rows.slice(half), rows_max, bytes_max)


def distinct_topics(rows: pa.RecordBatch) -> list[str] | None:
    """What `encode_block` lists of rows: None if there are too many."""
    topics = pc.unique(rows.column("topic")).drop_null()
    found: list[str] | None = topics.to_pylist() if len(topics) <= TOPICS_MAX else None
    return found


def count_up_to(count: int) -> pa.Array:
    """0, 1, … count - 1. Arrow makes no ranges in its older versions, and Python is slow at it."""
    global _counting
    numbers = _counting
    while len(numbers) < count:
        numbers = pa.concat_arrays([numbers, pc.add(numbers, len(numbers))])
        if len(numbers) <= _COUNTING_KEPT:
            _counting = numbers
    return numbers.slice(0, count)


def _serialize(rows: pa.RecordBatch) -> pa.Buffer:
    """The record batch message alone. Only a stream writer compresses: its schema is cut off."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, ROWS, options=_WRITE_OPTIONS) as writer:
        writer.write_batch(rows)
    return sink.getvalue()[_SCHEMA_BYTES:-_END_BYTES]


def _dump(topics: list[str]) -> bytes:
    return json.dumps(topics, ensure_ascii=False, separators=(",", ":")).encode()


def _measure_schema() -> int:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, ROWS, options=_WRITE_OPTIONS):
        pass
    return int(sink.getvalue().size) - _END_BYTES


_COUNTING_KEPT = 1 << 16
_counting = pa.array(range(1024), pa.int64())
_END_BYTES = 8  # how an Arrow stream ends
_SCHEMA_BYTES = _measure_schema()
