"""Streaming queries, run for a while and measured."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tools.bench.child import RunError
from tools.bench.spark.cpu import Cpu
from tools.bench.spark.stage import Bridge, Stage

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
