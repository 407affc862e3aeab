"""Measure the age of a message when a query has it, beside Spark's socket source.

A process publishes, or writes to the socket, at a steady rate values that have the instant in them.
The query parses them with `from_json` in the JVM and gives them to `foreachBatch`, where they are
taken to be handled. That is the same for both.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from tools._setup import say
from tools.bench.bus.run import quantile
from tools.bench.child import Child, RunError
from tools.bench.measures import Sample
from tools.bench.spark.cpu import NOTHING
from tools.bench.spark.queries import make_flow, start, wait_for
from tools.bench.spark.rows import VALUE_SCHEMA
from tools.bench.spark.stage import Stage

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

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
