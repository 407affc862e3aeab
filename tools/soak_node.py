"""One node of a soak: publishes and receives messages of every kind, and reports its state.

    python3 soak_node.py NAME

Each line of its output is a JSON object: the memory, descriptors and threads it holds, the messages
it received, and their faults. The numbers of each publisher's reliable topic must arrive once and
in order; a missing one must have been given up. The node also opens a channel to each of the others
in turn, again and again; it must echo every message, or break.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from pathlib import Path

import jsonbus

PAUSE_S = 0.02
TELL_S = 1.0
LARGE_BYTES = 50_000
CHANNEL_BYTES = 200_000
CHANNEL_S = 30.0
FIGURES = ("messages_given_up", "messages_dropped", "datagrams_rejected", "messages_malformed")


class Ear:
    """Check that the reliable numbers of each publisher arrive once and in order."""

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


class Mouth(threading.Thread):
    """Open and close channels to the nodes that are present at the time."""

    def __init__(self, bus: jsonbus.Bus) -> None:
        super().__init__(name="mouth", daemon=True)
        self.echoed = self.broken = self.mangled = 0
        self._bus = bus
        bus.bind("echo", lambda channel: channel.on_message(channel.send))

    def run(self) -> None:
        while True:
            for info in self._bus.nodes():
                if not info.is_self:
                    self._talk(info.node)
            time.sleep(PAUSE_S)

    def _talk(self, node: str) -> None:
        text = os.urandom(CHANNEL_BYTES)
        try:
            with self._bus.connect(node, "echo") as channel:
                channel.send(text)
                self.mangled += channel.receive(CHANNEL_S) != text
                self.echoed += 1
        except jsonbus.errors.ChannelError:
            self.broken += 1  # it was killed, or is not here any more


def main() -> None:
    name = sys.argv[1]
    with jsonbus.Bus(name=name) as bus:
        ear, mouth = Ear(bus.id), Mouth(bus)
        mouth.start()
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
                _tell(bus, ear, mouth)
            time.sleep(PAUSE_S)


def _tell(bus: jsonbus.Bus, ear: Ear, mouth: Mouth) -> None:
    stats = bus.stats()
    line = {
        "resident_kb": _resident_kb(),
        "descriptors": len(os.listdir("/proc/self/fd")),
        "threads": threading.active_count(),
        "skipped": ear.skipped,
        "repeated": ear.repeated,
        "echoed": mouth.echoed,
        "broken": mouth.broken,
        "mangled": mouth.mangled,
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
