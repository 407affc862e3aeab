"""Measure times: of a micro-batch with next to nothing to do, and from publish to a row in Spark.

For small batches both sources have rows waiting, and give a few to each batch: nobody waits for
anything but Spark. An idle query is measured, too.

For the age of a message when a query has it, a process publishes, or writes to the socket, at a
steady rate values that have the instant in them. The query parses them with `from_json` in the JVM
and gives them to `foreachBatch`, where they are taken to be handled. That is the same for Spark's
socket source.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from tools._setup import say
from tools.bench.bus.run import quantile
from tools.bench.child import Child, RunError
from tools.bench.measures import Sample
from tools.bench.spark.flows import (
    PARTITIONS,
    has_batches,
    into_noop,
    make_flow,
    run_until,
    start,
    wait_for,
)
from tools.bench.spark.rows import KEEP_ALL, VALUE_SCHEMA, fill_log
from tools.bench.spark.stage import NOTHING, Bridge, Cpu, Stage

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


RATE = 1_000.0
#: Seconds in front of those that count.
FIRST_S = 4.0
QUANTILES = {"latency-p50": 0.50, "latency-p95": 0.95, "latency-p99": 0.99}
STAMP_SCHEMA = f"{VALUE_SCHEMA}, number BIGINT, sent_us BIGINT"
#: How long the last rows may take.
REST_S = 30.0


def measure_latency(stage: Stage, seconds: float, repetitions: int) -> Iterator[Sample]:
    """Samples of three percentiles."""
    systems = {"jsonbus": _run_jsonbus, "socket source": _run_socket}
    for run in systems.values():
        run(stage, 0.0)  # Java compiles
    for repetition in range(repetitions):
        for name in sorted(systems, reverse=repetition % 2 == 1):
            ages_ms = systems[name](stage, seconds)
            found = {each: quantile(ages_ms, share) for each, share in QUANTILES.items()}
            say(f"{name}: " + ", ".join(f"{each} {ms:.0f} ms" for each, ms in found.items()))
            for measure, age_ms in found.items():
                yield Sample(measure, name, age_ms)


def _run_jsonbus(stage: Stage, seconds: float) -> list[float]:
    with (
        stage.open_bridge(stage.new_path("log")) as bridge,
        stage.open_worker("publisher", port=bridge.port) as publisher,
    ):
        publisher.hear()
        if not publisher.ask("wait", 120.0)["ready"]:
            raise RunError("the publisher does not hear of the bridge")
        frame = stage.spark.readStream.format("jsonbus").option("bridge", bridge.address).load()
        return _collect(stage, frame, publisher, seconds, lambda: None)


def _run_socket(stage: Stage, seconds: float) -> list[float]:
    with stage.open_worker("feeder") as feeder:
        port = feeder.hear()["port"]
        frame = stage.spark.readStream.format("socket").options(host="127.0.0.1", port=port).load()
        return _collect(stage, frame, feeder, seconds, lambda: feeder.ask("wait"))


def _collect(
    stage: Stage, frame: DataFrame, sender: Child, seconds: float, connected: Callable[[], object]
) -> list[float]:
    """How old each row was when it was there, in milliseconds, without those of the first time."""
    from pyspark.sql.functions import col, from_json

    value = from_json(col("value"), STAMP_SCHEMA)
    stamped = frame.select(value["sent_us"].alias("sent_us"), value["number"].alias("number"))
    ages_us: dict[int, int] = {}
    begun: list[int] = []

    def take(batch: DataFrame, batch_id: int) -> None:
        begun.append(batch_id)
        rows = batch.collect()
        now_us = time.time_ns() // 1_000
        for row in rows:
            ages_us[row.number] = now_us - row.sent_us

    first, count = int(FIRST_S * RATE), int((FIRST_S + seconds) * RATE)
    query = start(stage, stamped.writeStream.foreachBatch(take))
    try:
        connected()
        if frame.columns != ["value"]:
            wait_for(query, lambda: bool(begun))  # from there on it misses nothing
        sender.ask("tick", 60.0 + 2 * count / RATE, count=count, rate=RATE)
        give_up_at = time.monotonic() + REST_S
        wait_for(query, lambda: len(ages_us) >= count or time.monotonic() > give_up_at)
        steps = make_flow(query.recentProgress, NOTHING).steps_ms
    finally:
        query.stop()
    say("ms per batch: " + ", ".join(f"{name} {ms:.0f}" for name, ms in steps.items()))
    if len(ages_us) < count:
        say(f"only {len(ages_us):,} of {count:,} rows arrived")
    return [age_us / 1e3 for number, age_us in sorted(ages_us.items()) if number >= first]
