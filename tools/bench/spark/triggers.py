"""Measure a micro-batch that has next to nothing to do, and a query that waits.

Both sources of small batches have rows waiting, and give a few to each batch: nobody waits for
anything but Spark.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

from tools._setup import say
from tools.bench.measures import Sample
from tools.bench.spark.cpu import Cpu
from tools.bench.spark.flows import PARTITIONS
from tools.bench.spark.queries import (
    has_batches,
    into_noop,
    run_until,
    start,
    wait_for,
)
from tools.bench.spark.rows import KEEP_ALL, fill_log
from tools.bench.spark.stage import Bridge, Stage

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

#: To each task one or a few.
ROWS_PER_BATCH = 20
#: Batches in front of those that count: Python starts, Java compiles.
FIRST_BATCHES = 10
#: How long a query is left alone before it counts as idle.
SETTLE_S = 3.0


def measure_triggers(stage: Stage, batches: int, repetitions: int) -> Iterator[Sample]:
    """Samples of the median duration of a batch."""
    count = FIRST_BATCHES + batches
    log = stage.new_path("log")
    fill_log(log, 2 * count * ROWS_PER_BATCH, PARTITIONS)
    with stage.open_bridge(log, *KEEP_ALL) as bridge:
        frames = {
            "jsonbus": lambda: _read_log(stage, bridge),
            "rate source": lambda: (
                stage.spark.readStream.format("rate-micro-batch")
                .option("rowsPerBatch", ROWS_PER_BATCH)
                .option("numPartitions", PARTITIONS)
                .load()
            ),
        }
        for repetition in range(repetitions):
            for name in sorted(frames, reverse=repetition % 2 == 1):
                # Each has a warm Java: the first repetition begins with some batches of both.
                if repetition == 0:
                    run_until(stage, frames[name](), has_batches(count))
                flow = run_until(stage, frames[name](), has_batches(count))
                took_ms = flow.triggers_ms[FIRST_BATCHES:]
                median_ms = statistics.median(took_ms)
                steps = ", ".join(f"{step} {ms:.0f}" for step, ms in flow.steps_ms.items())
                say(f"{name}: {median_ms:.0f} ms a batch of {ROWS_PER_BATCH} rows; {steps}")
                cpu_ms = 1e3 * flow.cpu.spark / flow.batches
                yield Sample("trigger", name, median_ms, {"cpu_ms": cpu_ms})


def measure_idle(stage: Stage, seconds: float, repetitions: int) -> Iterator[Sample]:
    """Samples of the share of a core that a session takes, alone and with a query that waits."""
    with stage.open_bridge(stage.new_path("log")) as bridge:
        assert stage.spark is not None  # started before the clock
        time.sleep(SETTLE_S)
        for _ in range(repetitions):
            alone = _watch(stage, bridge, seconds)
            frame = stage.spark.readStream.format("jsonbus").option("bridge", bridge.address)
            query = start(stage, into_noop(frame.load()))
            try:
                wait_for(query, lambda query=query: query.lastProgress is not None)
                time.sleep(SETTLE_S)
                waiting = _watch(stage, bridge, seconds)
            finally:
                query.stop()
            time.sleep(SETTLE_S)
            more = waiting.all - alone.all
            say(f"idle: {alone.all:.3f} of a core alone, {waiting.all:.3f} with a query")
            yield Sample("idle", "session and bridge, no query", alone.all, _shares(alone))
            yield Sample("idle", "with a query that waits", waiting.all, _shares(waiting))
            yield Sample("idle", "the query", more)


def _read_log(stage: Stage, bridge: Bridge) -> DataFrame:
    return (
        stage.spark.readStream.format("jsonbus")
        .option("bridge", bridge.address)
        .option("startingOffsets", "earliest")
        .option("maxRowsPerTrigger", ROWS_PER_BATCH)
        .load()
    )


def _watch(stage: Stage, bridge: Bridge, seconds: float) -> Cpu:
    """CPU of all processes while this one sleeps, as shares of a core."""
    processes = stage.processes(bridge)
    before, began_at = processes.read(), time.monotonic()
    time.sleep(seconds)
    spent = processes.read().since(before)
    elapsed_s = time.monotonic() - began_at
    return Cpu(*(each / elapsed_s for each in spent))


def _shares(cpu: Cpu) -> dict[str, float]:
    return {
        "jvm_s": cpu.jvm,
        "driver_s": cpu.driver,
        "workers_s": cpu.workers,
        "bridge_s": cpu.bridge,
    }
