"""What a text client has not read yet."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from jsonbus.gateway.text.backlog import (
    PIECE_BYTES,
    REFERENCE_BYTES,
    Chunk,
    LineBacklog,
    LineBudget,
    join_spared,
)


def test_limits_hold_for_lines_and_for_bytes_but_one_chunk_is_kept_always() -> None:
    backlog = LineBacklog(LineBudget(1 << 40))
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
    backlog = LineBacklog(LineBudget(1 << 40))
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
    backlog = LineBacklog(LineBudget(1 << 40))
    backlog.append(Chunk(b"x", 1), 10, 10)
    backlog.clear()
    assert (bool(backlog), backlog.lines, backlog.bytes) == (False, 0, 0)


def test_a_chunk_costs_its_bytes_once_however_many_hold_it() -> None:
    budget = LineBudget(1_000 + 3 * REFERENCE_BYTES - 1)
    chunk = Chunk(b"x" * 1_000, 1)
    backlogs = [LineBacklog(budget) for _ in range(3)]
    for backlog in backlogs:
        assert not budget.is_exceeded
        backlog.append(chunk, 10, 10_000)
    assert budget.bytes == 1_000 + 3 * REFERENCE_BYTES
    assert budget.is_exceeded
    assert backlogs[0].take_piece() == chunk.data
    backlogs[1].clear()
    assert budget.bytes == 1_000 + REFERENCE_BYTES
    backlogs[2].clear()
    assert budget.bytes == 0


def test_what_is_spared_costs_but_counts_for_no_limit() -> None:
    budget = LineBudget(1 << 20)
    backlog = LineBacklog(budget)
    backlog.append(Chunk(b"live", 1), 2, 10)
    backlog.prepend(join_spared([b"a" * 100, b"b" * 100]))
    assert backlog.append(Chunk(b"more", 1), 2, 10)
    assert not backlog.append(Chunk(b"!", 1), 2, 10)
    assert backlog.append(Chunk(b"c" * 100, 9, is_spared=True), 2, 10)
    assert (backlog.lines, backlog.bytes) == (13, 308)
    assert backlog.take_piece() == b"a" * 100 + b"b" * 100 + b"livemore" + b"c" * 100
    assert (backlog.lines, backlog.bytes, budget.bytes) == (0, 0, 0)


def test_spared_lines_are_joined_to_pieces() -> None:
    lines = [b"x" * 30_000] * 5 + [b"y" * 100_000, b"z"]
    chunks = join_spared(lines)
    assert b"".join(chunk.data for chunk in chunks) == b"".join(lines)
    assert [chunk.lines for chunk in chunks] == [2, 2, 1, 1, 1]
    assert join_spared([]) == []
