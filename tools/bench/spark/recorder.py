"""Recording at full speed, and reading a range wherever it is. No Spark takes part."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

from spark_bridge.source.client import Connection
from tools._setup import say
from tools.bench.child import RunError, cpu_clock_s
from tools.bench.measures import Sample
from tools.bench.spark.rows import KEEP_ALL, fill_log
from tools.bench.spark.stage import Bridge, Stage

LOOK_S = 0.02
#: A receiver that got nothing for so long has got all it will ever get.
QUIET_S = 2.0

#: One partition: reading is the same in each.
RANGE_ROWS = 100_000
SMALL_ROWS = 131_072
TIMES_LARGER = 100
READS = 20


def measure_recorder(stage: Stage, messages: int, repetitions: int) -> Iterator[Sample]:
    """Samples of the rate and of the receiver's CPU per message: a flood from one process."""
    systems = {"bare subscriber": _flood_bare, "bridge": _flood_bridge}
    for repetition in range(repetitions):
        for name in sorted(systems, reverse=repetition % 2 == 1):
            received, wall_s, cpu_s = systems[name](stage, messages)
            cpu_us = 1e6 * cpu_s / received
            say(f"{name}: {received / wall_s:,.0f} messages/s, {cpu_us:.2f} µs CPU each")
            counts = {"received": received, "sent": messages}
            yield Sample("recorder-rate", name, received / wall_s, counts)
            yield Sample("recorder-cpu", name, cpu_us)


def measure_ranges(
    stage: Stage, repetitions: int, small_rows: int = SMALL_ROWS
) -> Iterator[Sample]:
    """Samples of time and of the bridge's CPU for a range of a small and of a large log."""
    small, large = stage.new_path("small"), stage.new_path("large")
    say(f"writing logs of {small_rows:,} and {TIMES_LARGER * small_rows:,} rows")
    fill_log(small, small_rows, 1)
    fill_log(large, TIMES_LARGER * small_rows, 1)
    count = min(RANGE_ROWS, small_rows)
    with (
        stage.open_bridge(small, *KEEP_ALL) as bridge,
        stage.open_bridge(large, *KEEP_ALL) as large_bridge,
    ):
        end, large_end = bridge.rows(), large_bridge.rows()
        ranges = {
            "start of a small log": (bridge, 0),
            "end of a small log": (bridge, end - count),
            f"end of a log {TIMES_LARGER} times larger": (large_bridge, large_end - count),
        }
        for each, first in ranges.values():
            _read_range(each, first, count)  # the disk's blocks are in memory now
        for repetition in range(repetitions):
            for name in sorted(ranges, reverse=repetition % 2 == 1):
                each, first = ranges[name]
                wall_ms, cpu_ms = _read_range(each, first, count)
                say(f"{count:,} rows, {name}: {wall_ms:.1f} ms, bridge {cpu_ms:.2f} ms CPU")
                yield Sample("range-cpu", name, cpu_ms)
                yield Sample("range-time", name, wall_ms)


def _flood_bare(stage: Stage, messages: int) -> tuple[int, float, float]:
    port = stage.arena.next_port()
    with stage.open_worker("subscriber", port=port) as subscriber:
        subscriber.hear()
        return _flood(
            stage,
            port,
            messages,
            lambda: subscriber.ask("report")["received"],
            lambda: cpu_clock_s(subscriber.pid),
        )


def _flood_bridge(stage: Stage, messages: int) -> tuple[int, float, float]:
    with stage.open_bridge(stage.new_path("log")) as bridge:
        return _flood(stage, bridge.port, messages, bridge.rows, bridge.cpu_s)


def _flood(
    stage: Stage,
    port: int,
    messages: int,
    count: Callable[[], int],
    cpu: Callable[[], float],
) -> tuple[int, float, float]:
    """Messages received, seconds from the first call to the last one, CPU seconds of receiving."""
    with stage.open_worker("publisher", port=port) as publisher:
        publisher.hear()
        if not publisher.ask("wait", 120.0)["ready"]:
            raise RunError("the publisher does not hear of who receives")
        cpu_s, began_at = cpu(), time.perf_counter()
        publisher.tell("flood", count=messages)
        ended_at = began_at
        received = 0
        while received < messages and time.perf_counter() - ended_at < QUIET_S:
            time.sleep(LOOK_S)
            before, received = received, count()
            if received != before:
                ended_at = time.perf_counter()
        cpu_s = cpu() - cpu_s
        publisher.hear(120.0)
    if not received:
        raise RunError("nothing was received")
    return received, ended_at - began_at, cpu_s


def _read_range(bridge: Bridge, first: int, count: int) -> tuple[float, float]:
    """Milliseconds of time and of the bridge's CPU for one read, as Spark's tasks do it."""
    connection = Connection(bridge.address, None, 60.0)
    try:
        cpu_s, began_at = bridge.cpu_s(), time.perf_counter()
        for _ in range(READS):
            blocks = connection.read(0, first, first + count, ("**",), False)
            rows = sum(batch.num_rows for _, batch in blocks)
            if rows != count:
                raise RunError(f"a range of {count:,} rows had {rows:,}")
        wall_s = time.perf_counter() - began_at
        return 1e3 * wall_s / READS, 1e3 * (bridge.cpu_s() - cpu_s) / READS
    finally:
        connection.close()
