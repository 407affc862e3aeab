"""Make the rows that are read: as a bridge records them, in a log and in JSON files."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa

from spark_bridge.log.block import ROWS_WITHOUT_OFFSET
from spark_bridge.log.offset_log import OffsetLog

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
