"""What a text client has not read yet."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from jsonbus.gateway.line_backlog import PIECE_BYTES, Chunk, LineBacklog


def test_limits_hold_for_lines_and_for_bytes_but_one_chunk_is_kept_always() -> None:
    backlog = LineBacklog()
    assert not backlog
    assert backlog.append(Chunk(b"x" * 100, 50), lines_max=2, bytes_max=10)
    assert not backlog.append(Chunk(b"y", 1), lines_max=50, bytes_max=1_000)
    assert not backlog.append(Chunk(b"y", 1), lines_max=1_000, bytes_max=100)
    assert (backlog.lines, backlog.bytes) == (50, 100)
    assert backlog.append(Chunk(b"y", 1), lines_max=51, bytes_max=101)
    assert backlog.take_piece() == b"x" * 100 + b"y"
    assert (bool(backlog), backlog.lines, backlog.bytes) == (False, 0, 0)


@given(st.lists(st.tuples(st.integers(1, 100_000), st.integers(1, 9)), max_size=20))
def test_pieces_are_the_chunks_in_order_and_not_too_large(sizes: list[tuple[int, int]]) -> None:
    chunks = [Chunk(bytes((n,)) * size, lines) for n, (size, lines) in enumerate(sizes)]
    backlog = LineBacklog()
    for chunk in chunks:
        assert backlog.append(chunk, lines_max=1_000, bytes_max=1 << 30)
    assert backlog.lines == sum(chunk.lines for chunk in chunks)
    pieces = []
    while backlog:
        pieces.append(backlog.take_piece())
    largest = max((len(chunk.data) for chunk in chunks), default=0)
    assert all(len(piece) <= max(PIECE_BYTES, largest) for piece in pieces)
    assert b"".join(pieces) == b"".join(chunk.data for chunk in chunks)
    assert (backlog.lines, backlog.bytes) == (0, 0)


def test_cleared_backlog_is_empty() -> None:
    backlog = LineBacklog()
    backlog.append(Chunk(b"x", 1), 10, 10)
    backlog.clear()
    assert (bool(backlog), backlog.lines, backlog.bytes) == (False, 0, 0)
