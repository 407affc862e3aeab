"""The bridge's protocol and blocks, as far as the Spark half needs them.

`spark_bridge/wire.py` and `log/block.py` describe them. The two halves share no import, so these
definitions are repeated here, and a test keeps both equal.

Formats are strings, not `struct.Struct`: those cannot be pickled, and this module travels by value.
"""

from __future__ import annotations

import struct
import zlib
from typing import NamedTuple

import pyarrow as pa

from .errors import CorruptBlockError

MAGIC = b"jsonbus-bridge/1\n"
VERSION = 1
LENGTH_FORMAT = ">I"
CHUNK_FORMAT = ">cQ"
CHUNK_BYTES = struct.calcsize(CHUNK_FORMAT)
BLOCKS, END, BROKEN = b"B", b"E", b"X"

#: A reply is a few numbers by partition: anything longer is not a reply of a bridge.
REPLY_BYTES_MAX = 16 << 20

BLOCK_MAGIC = b"JBLK"
BLOCK_VERSION = 1
HEADER_FORMAT = "<4sB3xIIQQIIIIqq"
HEADER_BYTES = struct.calcsize(HEADER_FORMAT)
CHECKSUM_ENDS = 12

_MICROSECONDS = pa.timestamp("us", tz="UTC")

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


class Block(NamedTuple):
    """Where a block of a reply ends, in bytes and in offsets, and where its rows are."""

    checksum: int
    end: int  # the offset after the last one
    rows: int
    body_starts: int  # bytes from the block's first one
    body_bytes: int
    size_bytes: int


def parse_block(data: memoryview) -> Block:
    """Parse the block that the bytes begin with; at least HEADER_BYTES of them."""
    magic, version, checksum, _, first, end, rows, topics_bytes, body_bytes, *_ = (
        struct.unpack_from(HEADER_FORMAT, data)
    )
    if magic != BLOCK_MAGIC or version != BLOCK_VERSION or not 0 < rows <= end - first:
        raise CorruptBlockError("the bridge sent bytes that are no block of version 1")
    content = topics_bytes + body_bytes
    return Block(
        checksum,
        end,
        rows,
        HEADER_BYTES + topics_bytes,
        body_bytes,
        HEADER_BYTES + content + -content % 8,
    )


def decode_rows(buffer: pa.Buffer, block: Block) -> pa.RecordBatch:
    """Decode the rows of a whole block, after verifying its checksum. Nothing is copied."""
    if zlib.crc32(memoryview(buffer)[CHECKSUM_ENDS:]) != block.checksum:
        raise CorruptBlockError(
            f"a block that ends at offset {block.end} came with a wrong checksum"
        )
    return pa.ipc.read_record_batch(buffer.slice(block.body_starts, block.body_bytes), ROWS)
