"""What the Spark half repeats of the protocol is what the bus half says."""

from __future__ import annotations

from spark_bridge import fields, wire
from spark_bridge.log import block
from spark_bridge.source import options, protocol


def test_both_halves_agree_on_the_protocol() -> None:
    assert protocol.MAGIC == wire.MAGIC
    assert protocol.VERSION == wire.VERSION
    assert protocol.LENGTH_FORMAT == wire.LENGTH.format
    assert protocol.CHUNK_FORMAT == wire.CHUNK.format
    assert (protocol.BLOCKS, protocol.END, protocol.BROKEN) == (
        wire.BLOCKS,
        wire.END,
        wire.BROKEN,
    )
    assert {"out_of_range", "bad_token", "busy"} <= set(wire.ERRORS)


def test_both_halves_agree_on_blocks() -> None:
    assert protocol.BLOCK_MAGIC == block.MAGIC
    assert protocol.BLOCK_VERSION == block.VERSION
    assert protocol.HEADER_FORMAT == block.HEADER.format
    assert protocol.CHECKSUM_ENDS == block._CHECKSUM_ENDS
    assert protocol.ROWS.equals(block.ROWS)


def test_both_halves_agree_on_bounds() -> None:
    assert options.LONG_POLL_MS_MAX == fields.WAIT_MS_MAX
    assert options.NAME_CHARACTERS_MAX == fields.NAME_CHARACTERS_MAX
