"""A process beside Spark: publishes, feeds Spark's own socket source, or only subscribes.

Started with a JSON object as its only argument: "role", and the facts that the role needs.
"""

from __future__ import annotations

import json
import socket
import sys
import time
from time import perf_counter, process_time, time_ns
from typing import Any

import jsonbus
from tools.bench.bus.publish import Pace
from tools.bench.bus.spec import SENSOR
from tools.bench.worker import read_commands, run, write_answer

#: A handful, so that all partitions of a log get something.
TOPICS = [f"sensors/room-{number}/climate" for number in range(16)]
READY_S = 60.0
MAILBOX_MESSAGES_MAX = 65_536
#: Lines that go to Spark's socket source in one call.
POUR_LINES = 1_000


def main() -> None:
    told: dict[str, Any] = json.loads(sys.argv[1])
    role = {"publisher": Publisher, "feeder": Feeder, "subscriber": Subscriber}[told["role"]]
    worker = role(told)
    write_answer({"ready": True, **worker.facts})
    for command in read_commands():
        write_answer(getattr(worker, command.pop("ask"))(**command))


class Publisher:
    """A node that publishes to a bridge, or to a bare subscriber."""

    def __init__(self, told: dict[str, Any]) -> None:
        self._bus = jsonbus.Bus(port=told["port"], interface="lo")
        self.facts: dict[str, Any] = {}

    def wait(self) -> dict[str, Any]:
        """Return once somebody wants every topic."""
        ready = all(self._bus.wait_for_subscribers(topic, timeout=READY_S) for topic in TOPICS)
        return {"ready": ready and self._bus.wait_until_sure(READY_S)}

    def tick(self, count: int, rate: float) -> dict[str, Any]:
        """Publish at a steady rate; every value has the instant that it was sent at."""
        pace = Pace(rate)
        for number in range(count):
            time.sleep(pace.next_pause_s())
            self._bus.publish(TOPICS[number % len(TOPICS)], make_stamped(number))
        self._bus.flush(READY_S)
        return {"sent": count}

    def flood(self, count: int) -> dict[str, Any]:
        """Publish as fast as the bus takes it."""
        publish, topics, mask = self._bus.publish, TOPICS, len(TOPICS) - 1
        cpu_s, started_at = process_time(), perf_counter()
        for number in range(count):
            publish(topics[number & mask], SENSOR)
        self._bus.flush(READY_S)
        return {
            "sent": count,
            "cpu_s": process_time() - cpu_s,
            "wall_s": perf_counter() - started_at,
            "pacing_waits": self._bus.stats()["pacing_waits"],
        }


class Feeder:
    """What Spark's socket source connects to: lines of JSON, the same values."""

    def __init__(self, told: dict[str, Any]) -> None:
        self._listening = socket.create_server(("127.0.0.1", 0))
        self._listening.settimeout(READY_S)
        self._connection: socket.socket | None = None
        self.facts = {"port": self._listening.getsockname()[1]}

    def wait(self) -> dict[str, Any]:
        """Return once Spark is connected."""
        # The source connects for its schema, too, and hangs up: the last one is it.
        self._connection, _ = self._listening.accept()
        self._connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return {"ready": True}

    def tick(self, count: int, rate: float) -> dict[str, Any]:
        """Send at a steady rate; every value has the instant that it was sent at."""
        assert self._connection is not None
        pace = Pace(rate)
        for number in range(count):
            time.sleep(pace.next_pause_s())
            line = json.dumps(make_stamped(number), separators=(",", ":"))
            self._connection.sendall(line.encode() + b"\n")
        return {"sent": count}

    def pour(self, count: int) -> dict[str, Any]:
        """Send as fast as Spark takes it."""
        assert self._connection is not None
        line = json.dumps(SENSOR, separators=(",", ":")).encode() + b"\n"
        for start in range(0, count, POUR_LINES):
            self._connection.sendall(line * min(POUR_LINES, count - start))
        return {"sent": count}


class Subscriber:
    """A node with a handler that only counts."""

    def __init__(self, told: dict[str, Any]) -> None:
        self._bus = jsonbus.Bus(port=told["port"], interface="lo")
        self.received = 0
        self._bus.subscribe("**", self._handle, maxsize=MAILBOX_MESSAGES_MAX, overflow="block")
        self.facts: dict[str, Any] = {}

    def report(self) -> dict[str, Any]:
        lost = self._bus.stats()["messages_lost"]
        return {"received": self.received, "lost": lost}

    def _handle(self, message: jsonbus.Message) -> None:
        self.received += 1


def make_stamped(number: int) -> dict[str, Any]:
    """A sensor's value, and when it is sent."""
    return {**SENSOR, "number": number, "sent_us": time_ns() // 1_000}


if __name__ == "__main__":
    run(main)
