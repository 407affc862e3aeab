"""Finds offsets in a partition: by time, and by how many bytes lie between."""

from __future__ import annotations

import math

import pyarrow as pa
import pyarrow.compute as pc

from .range_reader import read_rows
from .view import View


def find_time(view: View, time_us: int) -> int:
    """Return the first offset that was received at that time or later; the end if there is none.

    Clocks jump, so times are not in order: blocks whose latest time is too early are skipped, and
    the rest is examined in order.
    """
    for segment in view.segments:
        if segment.received_max_us < time_us:
            continue
        for entry in segment.entries(segment.first, segment.end):
            if entry.received_max_us < time_us:
                continue
            if entry.received_min_us >= time_us:
                return entry.first
            return entry.first + _find_row(read_rows(segment.file.open(), segment, entry), time_us)
    offset = view.sealed_end
    for batch in view.tail:
        row = _find_row(batch, time_us)
        if row >= 0:
            return offset + row
        offset += batch.num_rows
    return view.end


def count_bytes(view: View, start: int, end: int) -> float:
    """Estimate how many bytes the rows take uncompressed."""
    total = 0.0
    for segment in view.segments_of(start, end):
        if start <= segment.first and segment.end <= end:
            total += segment.plain_bytes
            continue
        for entry in segment.entries(start, end):
            rows = min(end, entry.end) - max(start, entry.first)
            total += entry.plain_bytes * rows / entry.rows
    return total + _tail_row_bytes(view) * max(end - max(start, view.sealed_end), 0)


def find_bytes(view: View, start: int, end: int, bytes_max: float) -> int:
    """Return the largest offset, up to `end`, such that the rows before it take about that many
    bytes.
    """
    left = bytes_max
    for segment in view.segments_of(start, end):
        if start <= segment.first and segment.end <= end and segment.plain_bytes <= left:
            left -= segment.plain_bytes
            continue
        for entry in segment.entries(start, end):
            low, high = max(start, entry.first), min(end, entry.end)
            row_bytes = entry.plain_bytes / entry.rows
            if row_bytes * (high - low) > left:
                return low + math.floor(left / row_bytes)
            left -= row_bytes * (high - low)
    low = max(start, view.sealed_end)
    row_bytes = _tail_row_bytes(view)
    if row_bytes * (end - low) > left:
        return low + math.floor(left / row_bytes)
    return end


def share_bytes(wanted: list[float], bytes_max: float) -> list[float]:
    """Split `bytes_max` equally; what one does not need is divided among the others."""
    shares = [0.0] * len(wanted)
    left = bytes_max
    by_size = sorted(range(len(wanted)), key=wanted.__getitem__)
    for rank, number in enumerate(by_size):
        shares[number] = min(wanted[number], left / (len(wanted) - rank))
        left -= shares[number]
    return shares


def _tail_row_bytes(view: View) -> float:
    return view.tail_bytes / max(view.end - view.sealed_end, 1)


def _find_row(rows: pa.RecordBatch, time_us: int) -> int:
    """Return the first row received at that time or later; -1 if there is none."""
    times = rows.column("received_at").view(pa.int64())
    row: int = pc.index(pc.greater_equal(times, time_us), True).as_py()
    return row
