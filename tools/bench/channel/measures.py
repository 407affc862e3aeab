"""What the benchmark of channels measures, against which floor, and what is to be reached."""

from __future__ import annotations

from tools.bench.measures import Measure, Target

FLOOR, FLOOR_JSON = "asyncio stream", "asyncio stream, JSON"
FLOORS = (FLOOR, FLOOR_JSON)

#: Rows whose names say what they are, by system.
NAMES = {
    "stream": FLOOR,
    "socket": "blocking socket",
    "jsonbus": "Bus",
    "jsonbus-aio": "AsyncBus",
}


def row_of(system: str, is_json: bool = False) -> str:
    return NAMES[system] + (", JSON" if is_json else "")


def _both(target: Target) -> dict[str, Target]:
    return {row_of("jsonbus"): target, row_of("jsonbus-aio"): target}


MEASURES: dict[str, Measure] = {
    "large": Measure(
        "messages of 64 KB, one way", "messages/s", FLOORS, _both(Target(0.8, is_at_least=True))
    ),
    "trip-p50": Measure(
        "there and back, 64 bytes, median",
        "µs",
        FLOORS,
        _both(Target(1.3)),
    ),
    "trip-p99": Measure("there and back, 64 bytes, 99th percentile", "µs", FLOORS),
    "small": Measure("messages of 64 bytes, one way", "messages/s", FLOORS),
    "connect": Measure("from a name to an open channel, median", "ms", (FLOOR,)),
    "many-time": Measure("to open so many channels to one node, one after the other", "s"),
    "many-memory": Measure("memory of an idle channel, each of its two processes", "KB"),
    "many-idle": Measure("CPU of idle channels, both processes", "ms/s"),
    "many-threads": Measure("threads, both processes", "threads"),
    "transfer": Measure("1 GB in messages of 1 MB", "MB/s", (FLOOR,)),
}
