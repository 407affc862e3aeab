"""Plans how much a batch takes, and into how many tasks it is split. Pure logic."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from .offsets import Offsets, Range

#: Ranges with fewer rows than these, together, are read by one task. A Python task takes Spark some
#: 20 ms, whatever it reads; reading this many rows, with their JSON parsed, takes no longer.
TASK_ROWS_MIN = 4096


def share(sizes: Sequence[int], limit: int) -> list[int]:
    """Return how much of each backlog a batch of at most `limit` rows takes, in proportion.

    Each that has something gets something, if the limit allows, so that a busy partition does not
    hold up a quiet one for ever.
    """
    if sum(sizes) <= limit:
        return list(sizes)
    shares = [0] * len(sizes)
    waiting = [index for index, size in enumerate(sizes) if size]
    waiting.sort(key=lambda index: -sizes[index])
    for index in waiting[:limit]:
        shares[index] = 1
    left = limit - sum(shares)
    if left:
        rest = [size - 1 if size else 0 for size in sizes]
        total = sum(rest)
        for index in waiting:
            shares[index] += left * rest[index] // total
        # Rounding left some over: one each to those that lost most by it.
        losers = sorted(waiting, key=lambda index: -(left * rest[index] % total))
        for index in losers[: limit - sum(shares)]:
            shares[index] += 1
    return shares


def limit_rows(
    begins: Mapping[str, Offsets], ends: Mapping[str, Offsets], max_rows: int
) -> dict[str, Offsets]:
    """Return the ends, by bridge, of a batch of at most that many rows."""
    places = [(name, index) for name, each in begins.items() for index in range(len(each))]
    sizes = [max(0, ends[name][index] - begins[name][index]) for name, index in places]
    limited = {name: list(each) for name, each in begins.items()}
    for (name, index), rows in zip(places, share(sizes, max_rows), strict=True):
        limited[name][index] += rows
    return {name: tuple(each) for name, each in limited.items()}


def count_rows(begins: Mapping[str, Offsets], ends: Mapping[str, Offsets]) -> int:
    """Count the offsets between, including those that the topics leave out."""
    return sum(
        max(0, end - begin)
        for name, each in begins.items()
        for begin, end in zip(each, ends[name], strict=True)
    )


def plan(
    ranges: Sequence[Range], min_partitions: int | None, max_rows: int | None
) -> list[list[Range]]:
    """Return what each task reads: a range that is large enough for one, or several small ones.

    Several only if the number of tasks is not given.
    """
    parts = split(ranges, min_partitions, max_rows)
    if min_partitions is not None:
        return [[each] for each in parts]
    most = TASK_ROWS_MIN if max_rows is None else min(max_rows, TASK_ROWS_MIN)
    tasks: list[list[Range]] = []
    rows = 0
    for each in parts:
        rows += _rows(each)
        if tasks and rows <= most:
            tasks[-1].append(each)
        else:
            tasks.append([each])
            rows = _rows(each)
    return tasks


def split(ranges: Sequence[Range], min_partitions: int | None, max_rows: int | None) -> list[Range]:
    """Cut the ranges so that none has more rows than `max_rows` and, if there are enough rows,
    there are at least `min_partitions` of them, of about the same size.
    """
    parts = [1 if max_rows is None else -(-_rows(each) // max_rows) for each in ranges]
    if min_partitions is not None and sum(parts) < min_partitions:
        total = sum(map(_rows, ranges))
        parts = [
            max(least, min(_rows(each), -(-min_partitions * _rows(each) // total)))
            for each, least in zip(ranges, parts, strict=True)
        ]
    return [
        each._replace(
            start=each.start + _rows(each) * index // count,
            end=each.start + _rows(each) * (index + 1) // count,
        )
        for each, count in zip(ranges, parts, strict=True)
        for index in range(count)
    ]


def _rows(each: Range) -> int:
    return each.end - each.start
