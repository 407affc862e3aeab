"""Publishers and subscribers that count, for the hosts of a lab.

    python3 traffic.py publish NAME --subscribers N --count N [--topics N] [--reliable]
    python3 traffic.py subscribe NAME --publishers N --count N [--topics N]

A publisher waits until each subscriber has answered a ping, so that later losses are losses of the
network. It publishes `--count` numbers to each of its topics in turn, and stays to repair losses.
A subscriber knows which numbers to expect and checks every message. Both print their counts, one
JSON object a line, until they are killed.
"""

from __future__ import annotations

import argparse
import json
import sys
import threading
import time

import jsonbus

TELL_S = 0.2
PING_S = 0.3
FIGURES = (
    "messages_lost",
    "messages_dropped",
    "messages_repaired",
    "messages_given_up",
    "repairs_unavailable",
    "naks_sent",
    "naks_received",
    "reliable_waits",
    "datagrams_sent",
    "datagrams_received",
    "datagrams_repeated",
    "kernel_drops",
)


def main() -> None:
    options = _parse_arguments()
    with jsonbus.Bus(name=options.name, reliable=options.reliable) as bus:
        if options.role == "publish":
            _publish(bus, options)
        else:
            _subscribe(bus, options)


def _publish(bus: jsonbus.Bus, options: argparse.Namespace) -> None:
    answered: set[str] = set()
    while len(answered) < options.subscribers:
        answered |= {pong.name for pong in bus.ping(PING_S) if pong.name.startswith("sub")}
        _tell(bus, published=0, answered=len(answered))
    began_at = time.monotonic()
    topics = [f"load/{options.name}/{number}" for number in range(options.topics)]
    for number in range(options.count):
        for topic in topics:
            bus.publish(topic, number)
    bus.flush()
    while True:
        _tell(bus, published=options.count * options.topics, began_at=began_at)
        time.sleep(TELL_S)


class Reader:
    """Check messages against what was published: each topic counts from 0."""

    def __init__(self, count: int) -> None:
        self.delivered = self.repeated = self.late = 0
        self.last_at = 0.0
        self._count = count
        self._last: dict[str, int] = {}
        self._came: dict[str, bytearray] = {}
        self._lock = threading.Lock()

    def take(self, message: jsonbus.Message) -> None:
        topic, number = message.topic, message.value
        with self._lock:
            came = self._came.setdefault(topic, bytearray(self._count))
            self.delivered += not came[number]
            self.repeated += came[number]
            came[number] = 1
            self.late += number < self._last.get(topic, -1)
            self._last[topic] = number
            self.last_at = time.monotonic()

    def standing(self) -> dict[str, float]:
        with self._lock:
            return {
                "delivered": self.delivered,
                "repeated": self.repeated,
                "late": self.late,
                "last_at": self.last_at,
            }


def _subscribe(bus: jsonbus.Bus, options: argparse.Namespace) -> None:
    reader = Reader(options.count)
    # Room for all: whether a reader keeps up is not what is measured here.
    room = options.publishers * options.topics * options.count + 1
    bus.subscribe("load/**", reader.take, maxsize=room)
    while True:
        _tell(bus, **reader.standing())
        time.sleep(TELL_S)


def _tell(bus: jsonbus.Bus, **standing: float) -> None:
    stats = bus.stats()
    print(json.dumps({**standing, **{name: stats.get(name, 0) for name in FIGURES}}), flush=True)


def _parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("role", choices=("publish", "subscribe"))
    parser.add_argument("name")
    parser.add_argument("--subscribers", type=int, default=1)
    parser.add_argument("--publishers", type=int, default=1)
    parser.add_argument("--count", type=int, default=1_000, help="messages to each topic")
    parser.add_argument("--topics", type=int, default=2, help="of each publisher")
    parser.add_argument("--reliable", action="store_true")
    return parser.parse_args()


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(130)
