"""What a process of the benchmark of channels is told, and what it sends."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any

from tools.bench.bus.spec import make_value

#: Under which the listener is known, and what is bound there.
NAME, PORT, HOLD_PORT = "bench-listener", "bench", "bench-hold"

SEALED = "-sealed"

#: Of a bus that nobody else has to be kept out of.
KEYS = {
    "jsonbus-key": 1,
    "bus": "bench",
    "keys": [{"id": "k1", "secret": "ben/" * 10 + "ben=", "from": "2026-01-01T00:00:00Z"}],
}


@dataclass(frozen=True, slots=True)
class Side:
    """One process: which system, which side, and where to meet the other."""

    system: str  # stream, socket, jsonbus or jsonbus-aio; the latter two perhaps with -sealed
    role: str  # listener or caller
    group: str
    port: int  # of the bus
    interface: str

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Side:
        return cls(**json.loads(text))

    @property
    def kind(self) -> str:
        return self.system.removesuffix(SEALED)

    def bus_settings(self) -> dict[str, Any]:
        return {
            "key_file": KEYS if self.system.endswith(SEALED) else None,
            "name": NAME if self.role == "listener" else "bench-caller",
            "group": self.group,
            "port": self.port,
            "interface": self.interface,
        }


def make_body(size_bytes: int, is_json: bool) -> Any:
    """What is sent: bytes, or a value that has as many of JSON."""
    return make_value(size_bytes) if is_json else bytes(size_bytes)
