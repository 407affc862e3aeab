"""One node of a soak: publishes and hears messages of every kind, and tells how it stands.

    python3 soak_node.py NAME

Each line of its output is a JSON object: what it holds of the machine, what it heard, and what was
wrong about it. The numbers of each publisher's reliable topic must come once and in order; one that
is missing must have been given up.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import jsonbus

PAUSE_S = 0.02
TELL_S = 1.0
LARGE_BYTES = 50_000
FIGURES = ("messages_given_up", "messages_dropped", "datagrams_rejected", "messages_malformed")


class Ear:
    """Holds the reliable numbers of each publisher against each other."""

    def __init__(self, own: str) -> None:
        self.counts = {"reliable": 0, "plain": 0, "large": 0, "state": 0}
        self.skipped = self.repeated = 0
        self._own = own
        self._last: dict[tuple[str, str], int] = {}

    def take(self, message: jsonbus.Message) -> None:
        if message.node == self._own:
            return
        kind = message.topic.rpartition("/")[2]
        self.counts[kind] += 1
        if kind == "reliable":
            key = (message.node, message.topic)
            last = self._last.get(key, message.value - 1)
            self.repeated += message.value <= last
            self.skipped += max(0, message.value - last - 1)
            self._last[key] = message.value


def main() -> None:
    name = sys.argv[1]
    with jsonbus.Bus(name=name) as bus:
        ear = Ear(bus.id)
        bus.subscribe("soak/**", ear.take, maxsize=100_000)
        tells_at = time.monotonic()
        number = 0
        while True:
            number += 1
            bus.publish(f"soak/{name}/reliable", number, reliable=True)
            bus.publish(f"soak/{name}/plain", number)
            if time.monotonic() >= tells_at:
                tells_at += TELL_S
                bus.publish(f"soak/{name}/large", "x" * LARGE_BYTES, reliable=True)
                bus.publish(f"soak/{name}/state", number, retain=True)
                _tell(bus, ear)
            time.sleep(PAUSE_S)


def _tell(bus: jsonbus.Bus, ear: Ear) -> None:
    stats = bus.stats()
    line = {
        "resident_kb": _resident_kb(),
        "descriptors": len(os.listdir("/proc/self/fd")),
        "threads": threading.active_count(),
        "skipped": ear.skipped,
        "repeated": ear.repeated,
        **ear.counts,
        **{name: stats.get(name, 0) for name in FIGURES},
    }
    print(json.dumps(line), flush=True)


def _resident_kb() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") // 1024


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(130)
