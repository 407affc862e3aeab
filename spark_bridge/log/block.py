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
_CHECKSUM_ENDS = 12  # everything after the checksum is covered by it

#: Flags. Some rows are gap records.
HAS_GAPS = 1
#: This block was written to the log in one flush with the block before it. A block without this
#: flag proves that everything before it was on disk: only what was written together can be torn.
SAME_FLUSH = 2

#: The most distinct topics that a block lists. A filter checks this list before it looks at rows.
TOPICS_MAX = 256

#: The most that the rows of a block take uncompressed, unless a single row takes more: the memory
#: needed to read the block.
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

#: The columns that the log is given; it numbers the rows itself.
ROWS_WITHOUT_OFFSET = ROWS.remove(_OFFSET)

# Arrow's threads would compress a large batch a quarter sooner, for a third more CPU time; they
# make a batch of a few rows five times as expensive.
_WRITE_OPTIONS = pa.ipc.IpcWriteOptions(compression="lz4", use_threads=False)
_PADDING = bytes(8)


class BlockHeader(NamedTuple):
    """The header of a block, parsed; its checksum is not verified yet."""

    checksum: int
    flags: int
    first: int  # offset
    end: int  # the offset after the last one
    rows: int
    topics_bytes: int
    body_bytes: int
    plain_bytes: int  # size of the rows, uncompressed
    received_min_us: int
    received_max_us: int

    @property
    def has_gaps(self) -> bool:
        """True if some rows are gap records."""
        return bool(self.flags & HAS_GAPS)

    @property
    def size_bytes(self) -> int:
        """Size of the whole block, with header and padding."""
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
    """Encode rows, at least one and with the columns of ROWS, as a block.

    `first` and `end` are the range of offsets that the block stands for, `topics` the distinct
    topics. HAS_GAPS is set automatically. Pass `rows.nbytes` as `plain_bytes` if you have it
    already: computing it is a good part of the cost of a small block.
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
    """Parse the header at the start of the bytes; None if they are too short or not a block."""
    if len(data) < HEADER_BYTES:
        return None
    magic, version, *fields = HEADER.unpack_from(data)
    if magic != MAGIC or version != VERSION:
        return None
    header = BlockHeader(*fields)
    return header if 0 < header.rows <= header.end - header.first else None


def is_intact(block: bytes | memoryview, header: BlockHeader) -> bool:
    """Return whether the checksum confirms a whole block."""
    return zlib.crc32(memoryview(block)[_CHECKSUM_ENDS:]) == header.checksum


def decode_topics(block: bytes | memoryview, header: BlockHeader) -> list[str] | None:
    """Return the distinct topics of a block; None if it does not list them."""
    if not header.topics_bytes:
        return None
    topics: list[str] = json.loads(bytes(block[HEADER_BYTES : HEADER_BYTES + header.topics_bytes]))
    return topics


def decode_rows(block: bytes | memoryview, header: BlockHeader) -> pa.RecordBatch:
    """Decode the rows of a whole, intact block."""
    start = HEADER_BYTES + header.topics_bytes
    body = pa.py_buffer(block).slice(start, header.body_bytes)
    return pa.ipc.read_record_batch(body, ROWS)


def number_rows(rows: pa.RecordBatch, first: int) -> pa.RecordBatch:
    """Number rows with the columns of ROWS_WITHOUT_OFFSET, starting at `first`."""
    columns = rows.columns
    columns.insert(_OFFSET, pc.add(count_up_to(rows.num_rows), pa.scalar(first, pa.int64())))
    return pa.RecordBatch.from_arrays(columns, schema=ROWS)


def combine_rows(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    """Combine rows with the columns of ROWS into one batch. A column holds at most 2 GiB of
    text.
    """
    if len(batches) == 1:
        return batches[0]
    (combined,) = pa.Table.from_batches(batches, ROWS).combine_chunks().to_batches()
    return combined


def cut_rows(rows: pa.RecordBatch, rows_max: int, bytes_max: int) -> Iterator[pa.RecordBatch]:
    """Cut the rows into batches of at most `bytes_max`; a single row may exceed it."""
    if rows.num_rows <= 1 or (rows.num_rows <= rows_max and rows.nbytes <= bytes_max):
        yield rows
        return
    half = rows.num_rows // 2
    yield from cut_rows(rows.slice(0, half), rows_max, bytes_max)
    yield from cut_rows(rows.slice(half), rows_max, bytes_max)


def distinct_topics(rows: pa.RecordBatch) -> list[str] | None:
    """Return the distinct topics of the rows for `encode_block`; None if there are too many."""
    topics = pc.unique(rows.column("topic")).drop_null()
    found: list[str] | None = topics.to_pylist() if len(topics) <= TOPICS_MAX else None
    return found


def count_up_to(count: int) -> pa.Array:
    """Return 0, 1, … count - 1. Older versions of Arrow have no ranges, and Python is slow at
    it.
    """
    global _counting
    numbers = _counting
    while len(numbers) < count:
        numbers = pa.concat_arrays([numbers, pc.add(numbers, len(numbers))])
        if len(numbers) <= _COUNTING_KEPT:
            _counting = numbers
    return numbers.slice(0, count)


def _serialize(rows: pa.RecordBatch) -> pa.Buffer:
    """Serialize the record batch message alone. Only a stream writer compresses; its schema is
    cut off.
    """
    return _write_stream(rows)[_SCHEMA_BYTES:-_END_BYTES]


def _write_stream(*batches: pa.RecordBatch) -> pa.Buffer:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, ROWS, options=_WRITE_OPTIONS) as writer:
        for batch in batches:
            writer.write_batch(batch)
    return sink.getvalue()


def _dump(topics: list[str]) -> bytes:
    return json.dumps(topics, ensure_ascii=False, separators=(",", ":")).encode()


_COUNTING_KEPT = 1 << 16
_counting = pa.array(range(1024), pa.int64())
_END_BYTES = 8  # the end marker of an Arrow stream
_SCHEMA_BYTES = _write_stream().size - _END_BYTES
