"""What a process of a benchmark is told, and what it publishes."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any

TOPIC = "sensors/kitchen/12"
TOPIC_NOBODY_WANTS = "sensors/attic/7"

#: A sensor's value as programs send it: 74 bytes of JSON.
SENSOR = {"sensor": "kitchen-12", "temperature": 21.53, "humidity": 40.2, "battery": 0.87}
SENSOR_BYTES = 74

#: The same for every system that has a choice; it is what a bus asks for by default.
RECEIVE_BUFFER_BYTES = 4 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Spec:
    """One process: which system, which side, and where to meet the others."""

    system: str
    role: str  # publisher or subscriber
    group: str
    port: int
    interface: str
    #: Where subscribers tell how far they are (flow.py): a file descriptor, and its slots.
    slots_fd: int
    subscribers: int
    index: int  # of this subscriber
    #: Of the publisher, for systems that connect to it.
    address: str
    #: Messages under way at most.
    window: int
    value_bytes: int = SENSOR_BYTES
    #: Values carry the instant they were sent at, and subscribers keep the differences.
    has_stamps: bool = False
    receive_buffer_bytes: int = RECEIVE_BUFFER_BYTES
    #: Messages that wait for the handler at most; None: more than the window.
    mailbox: int | None = None
    #: How long a handler takes, spent computing.
    handler_us: float = 0.0
    #: A subscriber's main thread computes all the time, in pure Python: others wait for the GIL.
    is_busy: bool = False
    #: sys.setswitchinterval; None: as Python has it.
    switch_interval_s: float | None = None
    mode: str = "delayed"
    topic: str = TOPIC

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Spec:
        return cls(**json.loads(text))


def make_value(size_bytes: int) -> dict[str, Any]:
    """A value of exactly that many bytes of JSON: a sensor's, alone or with readings."""
    if size_bytes == SENSOR_BYTES:
        return dict(SENSOR)
    readings: list[float] = []
    value: dict[str, Any] = {"sensor": "kitchen-12", "readings": readings, "note": ""}
    room = size_bytes - _size_of(value)
    if room < 0:
        raise ValueError(f"a value has {SENSOR_BYTES} bytes, or at least {size_bytes - room}")
    readings.extend(20 + number % 10 + 0.53 for number in range(room // 6))  # "21.53,"
    value["note"] = "." * (size_bytes - _size_of(value))
    assert _size_of(value) == size_bytes
    return value


def _size_of(value: Any) -> int:
    return len(json.dumps(value, separators=(",", ":")))
