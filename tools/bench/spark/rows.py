"""Rows as a bridge records them: made for a log and for JSON files, recorded, and read in ranges.

Recording at full speed, and reading a range wherever it is, take no Spark.
"""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa

from spark_bridge.log.block import ROWS_WITHOUT_OFFSET
from spark_bridge.log.offset_log import OffsetLog
from spark_bridge.source.client import Connection
from tools._setup import say
from tools.bench.child import RunError, cpu_clock_s
from tools.bench.measures import Sample
from tools.bench.spark.stage import Bridge, Stage

#: Rows of one append to one partition, and how many different such batches there are.
BATCH_ROWS = 1 << 16
DIFFERENT_BATCHES = 8
VALUE_BYTES = 74
NODE = "k3v7q2x5m4n6p2r7"
INCARNATION = 1_760_000_000_000
STARTED_US = 1_760_000_000_000_000
#: Between two messages.
STEP_US = 100
ROOMS = 100
#: For the bridge of such a log: its rows are older than any retention.
KEEP_ALL = ("--retention-hours", "0")

#: Of the rows, for Spark's JSON reader and for whoever wants the same columns.
SCHEMA = (
    "topic STRING, value STRING, node STRING, incarnation BIGINT, sequence BIGINT, "
    "timestamp TIMESTAMP, received_at TIMESTAMP, retained BOOLEAN, partition INT, offset BIGINT"
)
VALUE_SCHEMA = "sensor STRING, temperature DOUBLE, humidity DOUBLE, battery DOUBLE"


def fill_log(folder: Path, rows: int, partitions: int) -> None:
    """Write a log of about so many rows: whole batches, or one that is smaller."""
    per_partition = -(-rows // partitions)
    batch_rows = min(BATCH_ROWS, per_partition)
    different = min(DIFFERENT_BATCHES, -(-per_partition // batch_rows) * partitions)
    batches = [make_batch(batch_rows, seed) for seed in range(different)]
    with OffsetLog(folder, partitions=partitions) as log:
        number = 0
        for _ in range(-(-per_partition // batch_rows)):
            appended = {}
            for partition in range(partitions):
                appended[partition] = batches[number % different]
                number += 1
            log.append(appended)


def make_batch(rows: int, seed: int) -> pa.RecordBatch:
    """Messages of many sensors, with values of 74 bytes of which no two are alike."""
    made = [*islice(_make_rows(seed), rows)]
    columns = {name: [row[name] for row in made] for name in ROWS_WITHOUT_OFFSET.names}
    return pa.RecordBatch.from_pydict(columns, ROWS_WITHOUT_OFFSET)


def write_json_files(folder: Path, rows: int, files: int) -> None:
    """The same rows, one JSON object a line."""
    folder.mkdir(parents=True)
    per_file = -(-rows // files)
    for number in range(files):
        lines = []
        for offset, row in enumerate(islice(_make_rows(number), per_file), number * per_file):
            del row["gap"]
            at = datetime.fromtimestamp(row["timestamp"] / 1e6, UTC).isoformat()
            row |= {"timestamp": at, "received_at": at, "partition": number, "offset": offset}
            lines.append(json.dumps(row, separators=(",", ":")))
        (folder / f"{number:05}.json").write_text("\n".join(lines) + "\n")


def rows_like_these(frame: Any) -> Any:
    """The rate source's timestamp and number, made into the same columns; text of that size."""
    return frame.selectExpr(
        f"concat('sensors/room-', value % {ROOMS}, '/climate') AS topic",
        'concat(\'{"sensor":"kitchen-\', 10 + value % 90, \'","temperature":\', 10 + value % 20,'
        " '.', 10 + value % 89, ',\"humidity\":', 10 + value % 80, '.2,\"battery\":0.', "
        "10 + value % 90, '}') AS value",
        f"'{NODE}' AS node",
        f"{INCARNATION}L AS incarnation",
        "value AS sequence",
        "timestamp",
        "timestamp AS received_at",
        "false AS retained",
        "CAST(value % 4 AS INT) AS partition",
        "value AS offset",
    )


def _make_rows(seed: int) -> Iterator[dict[str, Any]]:
    dice = random.Random(seed)
    sequence = seed << 32
    while True:
        room, noise = dice.randrange(ROOMS), dice.random()
        number = 10 + room % 90
        value = (
            f'{{"sensor":"kitchen-{number}","temperature":{10 + 20 * noise:.2f},'
            f'"humidity":{10 + 80 * dice.random():.1f},"battery":{noise:.2f}}}'
        )
        at = STARTED_US + sequence % (1 << 32) * STEP_US
        yield {
            "topic": f"sensors/room-{room}/climate",
            "value": value,
            "node": NODE,
            "incarnation": INCARNATION,
            "sequence": sequence,
            "timestamp": at,
            "received_at": at + 150,
            "retained": False,
            "gap": None,
        }
        sequence += 1


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
