"""Streaming queries, and rows per second and CPU per row of jsonbus beside Spark's own sources.

Every source gives the same ten columns into Spark's sink `noop`, in batches of about the same
number of rows: jsonbus from a log of four partitions, the JVM's rate source with rows made up on
the way, JSON files with an explicit schema. The socket source, whose batches take time by the
square of their rows, gets few and parses them with `from_json`.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tools._setup import say
from tools.bench.child import RunError
from tools.bench.measures import Sample
from tools.bench.spark.rows import (
    KEEP_ALL,
    SCHEMA,
    VALUE_SCHEMA,
    fill_log,
    rows_like_these,
    write_json_files,
)
from tools.bench.spark.stage import Bridge, Cpu, Stage

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming import DataStreamWriter, StreamingQuery

TIMEOUT_S = 300.0
#: How often a query is looked at that does not end by itself: seldom, since it costs the driver.
LOOK_S = 0.05


@dataclass(frozen=True, slots=True)
class Flow:
    """The figures of a query."""

    rows: int
    batches: int
    seconds: float  # in batches: Spark's triggerExecution
    cpu: Cpu  # from the query's start to its last batch
    steps_ms: dict[str, float]  # median of each of Spark's durationMs
    triggers_ms: tuple[float, ...]  # each batch's triggerExecution

    @property
    def rows_per_s(self) -> float:
        return self.rows / self.seconds

    @property
    def spark_s_per_million(self) -> float:
        return self.cpu.spark / self.rows * 1e6

    @property
    def bridge_s_per_million(self) -> float:
        return self.cpu.bridge / self.rows * 1e6


Sink = Callable[["DataFrame"], "DataStreamWriter"]


def into_noop(frame: DataFrame) -> DataStreamWriter:
    return frame.writeStream.format("noop")


def run_to_the_end(
    stage: Stage, frame: DataFrame, sink: Sink = into_noop, bridge: Bridge | None = None
) -> Flow:
    """Everything that is there, by Trigger.AvailableNow."""
    processes = stage.processes(bridge)
    writer = sink(frame).trigger(availableNow=True)
    before = processes.read()
    query = start(stage, writer)
    try:
        ended = query.awaitTermination(TIMEOUT_S)
        cpu = processes.read().since(before)
        if not ended:
            raise RunError(f"a query did not end within {TIMEOUT_S:.0f} s: {query.status}")
        return make_flow(query.recentProgress, cpu)
    finally:
        query.stop()


def run_until(
    stage: Stage,
    frame: DataFrame,
    is_enough: Callable[[StreamingQuery], bool],
    *,
    sink: Sink = into_noop,
    bridge: Bridge | None = None,
    started: Callable[[StreamingQuery], None] = lambda query: None,
) -> Flow:
    """Batch after batch without pause (ProcessingTime 0), until there is enough."""
    processes = stage.processes(bridge)
    before = processes.read()
    query = start(stage, sink(frame))
    try:
        started(query)
        wait_for(query, lambda: is_enough(query))
        cpu = processes.read().since(before)
        return make_flow(query.recentProgress, cpu)
    finally:
        query.stop()


def has_rows(count: int) -> Callable[[StreamingQuery], bool]:
    """Whether the batches that ended had so many rows; each look takes one progress report."""
    seen: dict[int, int] = {}

    def is_enough(query: StreamingQuery) -> bool:
        last = query.lastProgress
        if last is not None:
            seen[last["batchId"]] = last["numInputRows"]
        return sum(seen.values()) >= count

    return is_enough


def has_batches(count: int) -> Callable[[StreamingQuery], bool]:
    """Whether so many batches ended."""

    def is_enough(query: StreamingQuery) -> bool:
        last = query.lastProgress
        return last is not None and last["batchId"] + 1 >= count

    return is_enough


def wait_for(query: StreamingQuery, condition: Callable[[], bool]) -> None:
    """Wait for the condition. Raises RunError if the query fails or takes far too long."""
    deadline = time.monotonic() + TIMEOUT_S
    while not condition():
        if not query.isActive:
            raise RunError(f"a query ended: {query.exception()}")
        if time.monotonic() > deadline:
            raise RunError(f"a query takes more than {TIMEOUT_S:.0f} s: {query.status}")
        time.sleep(LOOK_S)


def make_flow(progress: Sequence[Any], cpu: Cpu) -> Flow:
    """From Spark's progress reports; batches without rows do not count."""
    reports = [each for each in progress if each["numInputRows"]]
    if not reports:
        raise RunError("a query had no batch with rows")
    steps: dict[str, list[float]] = {}
    for report in reports:
        for name, took_ms in report["durationMs"].items():
            steps.setdefault(name, []).append(took_ms)
    return Flow(
        rows=sum(report["numInputRows"] for report in reports),
        batches=len(reports),
        seconds=sum(steps["triggerExecution"]) / 1e3,
        cpu=cpu,
        steps_ms={name: statistics.median(each) for name, each in steps.items()},
        triggers_ms=tuple(steps["triggerExecution"]),
    )


def start(stage: Stage, writer: DataStreamWriter) -> StreamingQuery:
    """Start a query with a checkpoint of its own."""
    return writer.option("checkpointLocation", str(stage.new_path("checkpoint"))).start()


PARTITIONS = 4
FILES_PER_BATCH = 8


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much is read."""

    rows: int
    rows_per_batch: int
    json_rows: int
    socket_rows: int


def measure_flows(
    stage: Stage, sizes: Sizes, repetitions: int, with_parquet: bool = True
) -> Iterator[Sample]:
    """Samples of rows per second and of CPU, for each source and each repetition."""
    log, files = stage.new_path("log"), stage.new_path("json")
    say(f"writing {sizes.rows:,} rows into a log, and {sizes.json_rows:,} as JSON files")
    fill_log(log, sizes.rows, PARTITIONS)
    batches = -(-sizes.json_rows // sizes.rows_per_batch)
    write_json_files(files, sizes.json_rows, batches * FILES_PER_BATCH)
    with stage.open_bridge(log, *KEEP_ALL) as bridge:
        flows = make_flows(stage, sizes, bridge, files)
        if not with_parquet:
            del flows["into Parquet"]
        for repetition in range(-1, repetitions):
            names = list(flows)
            for name in names[repetition % 2 :] + names[: repetition % 2]:
                flow = flows[name]()
                if repetition < 0:
                    continue  # Java has compiled by now what it is going to need
                say(f"{name}: {flow.rows_per_s:,.0f} rows/s, {describe(flow)}")
                yield from _make_samples(name, flow)


def make_flows(
    stage: Stage, sizes: Sizes, bridge: Bridge, files: Path
) -> dict[str, Callable[[], Flow]]:
    """What to run for each row of the tables."""
    spark = stage.spark

    def read_log() -> DataFrame:
        return (
            spark.readStream.format("jsonbus")
            .option("bridge", bridge.address)
            .option("startingOffsets", "earliest")
            .option("maxRowsPerTrigger", sizes.rows_per_batch)
            .load()
        )

    def read_rate(frame_of: Callable[[DataFrame], DataFrame]) -> Flow:
        frame = (
            spark.readStream.format("rate-micro-batch")
            .option("rowsPerBatch", sizes.rows_per_batch)
            .option("numPartitions", PARTITIONS)
            .load()
        )
        return run_until(stage, frame_of(frame), has_rows(sizes.rows))

    def read_files() -> Flow:
        frame = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", FILES_PER_BATCH)
        return run_to_the_end(stage, frame.json(str(files)))

    def into_parquet(frame: DataFrame) -> DataStreamWriter:
        return frame.writeStream.format("parquet").option("path", str(stage.new_path("parquet")))

    return {
        "jsonbus": lambda: run_to_the_end(stage, read_log(), into_noop, bridge),
        "rate source": lambda: read_rate(rows_like_these),
        "rate source, its two columns": lambda: read_rate(lambda frame: frame),
        "JSON files": read_files,
        "socket source": lambda: _read_socket(stage, sizes.socket_rows),
        "into Parquet": lambda: run_to_the_end(stage, read_log(), into_parquet, bridge),
    }


def describe(flow: Flow) -> str:
    """Where the CPU went, per million rows; and Spark's own account of a batch."""
    per_million = 1e6 / flow.rows
    cpu = flow.cpu
    parts = [
        f"{flow.batches} batches",
        f"JVM {cpu.jvm * per_million:.2f} + driver {cpu.driver * per_million:.2f}"
        f" + Python workers {cpu.workers * per_million:.2f}"
        f" + bridge {cpu.bridge * per_million:.2f} CPU-s per million",
        "ms per batch: " + ", ".join(f"{name} {ms:.0f}" for name, ms in flow.steps_ms.items()),
    ]
    return "; ".join(parts)


def _read_socket(stage: Stage, rows: int) -> Flow:
    from pyspark.sql.functions import col, from_json

    with stage.open_worker("feeder") as feeder:
        port = feeder.hear()["port"]
        frame = stage.spark.readStream.format("socket").options(host="127.0.0.1", port=port).load()
        frame = frame.select(from_json(col("value"), VALUE_SCHEMA).alias("value"))

        def pour(query: StreamingQuery) -> None:
            feeder.ask("wait")
            feeder.ask("pour", count=rows)

        return run_until(stage, frame, has_rows(rows), started=pour)


def _make_samples(name: str, flow: Flow) -> Iterator[Sample]:
    per_million = 1e6 / flow.rows
    extra = {
        "jvm_s": flow.cpu.jvm * per_million,
        "driver_s": flow.cpu.driver * per_million,
        "workers_s": flow.cpu.workers * per_million,
    }
    if name == "into Parquet":
        yield Sample("parquet", name, flow.rows_per_s)
        return
    if name == "jsonbus":
        yield Sample("parquet", "into noop", flow.rows_per_s)
        yield Sample("flow-bridge", "bridge", flow.bridge_s_per_million)
    yield Sample("flow-rate", name, flow.rows_per_s)
    yield Sample("flow-cpu", name, flow.spark_s_per_million, extra)
    yield Sample("flow-per-cpu", name, flow.rows / flow.cpu.all)
