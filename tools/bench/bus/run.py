"""One run: the processes of one system, started, asked, and ended.

The publisher starts first, then the subscribers; then the publisher probes until all of them have
heard it. CPU times are the processes' own, over exactly what was asked for; a broker's is read
from the kernel's clock for its process.
"""

from __future__ import annotations

import os
import re
import statistics
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tools.bench.arena import Arena
from tools.bench.bus.flow import make_slots, open_slots
from tools.bench.bus.spec import SENSOR_BYTES, TOPIC, Spec
from tools.bench.child import ANSWER_S, Child, RunError, cpu_clock_s
from tools.bench.network import Place

WORKER = "tools.bench.bus.worker"
#: Subscribers that stopped counting for so long have got all they will ever get.
QUIET_S = 1.5
WINDOW_MAX = 2048
#: Of larger values a few fill any buffer.
WHOLE_BYTES_MAX = 1 << 16


@dataclass(frozen=True, slots=True)
class Flood:
    """What became of a flood."""

    sent: int
    received: tuple[int, ...]  # by each subscriber
    publisher_cpu_s: float
    subscribers_cpu_s: float
    broker_cpu_s: float
    wall_s: float  # from the first publish to the last message handled

    @property
    def deliveries(self) -> int:
        return sum(self.received)

    @property
    def cpu_us_per_delivery(self) -> float:
        cpu_s = self.publisher_cpu_s + self.subscribers_cpu_s + self.broker_cpu_s
        return 1e6 * cpu_s / max(1, self.deliveries)

    @property
    def wall_us_per_message(self) -> float:
        return 1e6 * self.wall_s / max(1, self.sent)


class Run:
    """A context manager: all processes are there inside, and none afterwards."""

    def __init__(
        self,
        arena: Arena,
        system: str,
        *,
        subscribers: int = 1,
        value_bytes: int = SENSOR_BYTES,
        publisher_system: str | None = None,
        publisher_options: dict[str, Any] | None = None,
        subscriber_systems: Sequence[str] | None = None,
        **options: Any,
    ) -> None:
        self._children: list[Child] = []
        self._broker: subprocess.Popen[bytes] | None = None
        if subscriber_systems is None:
            subscriber_systems = [system] * subscribers
        count = max(1, len(subscriber_systems))
        self._slots_fd = make_slots(count)
        self._slots = open_slots(self._slots_fd, count)
        port = arena.next_port()
        places = arena.places(1 + len(subscriber_systems))
        try:
            if system == "nats":
                self._broker = _start_nats(places[0], port)

            def start(name: str, role: str, index: int, place: Place, **more: Any) -> Child:
                spec = Spec(
                    system=name,
                    role=role,
                    group=arena.group,
                    port=port,
                    interface=place.interface,
                    address=places[0].address,
                    slots_fd=self._slots_fd,
                    subscribers=count,
                    index=index,
                    window=window_for(value_bytes, arena.receive_buffer_bytes),
                    value_bytes=value_bytes,
                    **{"topic": TOPIC, **options, **more},
                )
                self._children.append(_start_worker(spec, arena, place))
                return self._children[-1]

            self.publisher = start(
                publisher_system or system, "publisher", 0, places[0], **(publisher_options or {})
            )
            self.publisher.hear()
            self.subscribers = [
                start(name, "subscriber", index, place)
                for index, (name, place) in enumerate(
                    zip(subscriber_systems, places[1:], strict=False)
                )
            ]
            for subscriber in self.subscribers:
                subscriber.hear()
        except BaseException:
            self._end()
            raise

    def __enter__(self) -> Run:
        return self

    def __exit__(self, *failure: object) -> None:
        self._end()

    def probe(self) -> None:
        """Return once every subscriber hears the publisher."""
        if not self.publisher.ask("probe")["ready"]:
            raise RunError(f"{self.publisher.label}: the subscribers hear nothing")

    def means(self) -> str:
        """What the figures depend on: see `Publisher.means`."""
        means: str = self.publisher.ask("means")["means"]
        return means

    def begin(self, expected: int) -> None:
        for subscriber in self.subscribers:
            subscriber.ask("begin", expected=expected)

    def flood(self, count: int) -> Flood:
        """Publish so many values as fast as they are handled."""
        self.begin(count)
        broker_cpu_s = self._broker_cpu_s()
        published = self.publisher.ask("flood", ANSWER_S + count / 2_000, count=count)
        reports = self.settle(count)
        broker_cpu_s = self._broker_cpu_s() - broker_cpu_s
        ends = [report["ended_at"] or published["ended_at"] for report in reports]
        return Flood(
            sent=published["sent"],
            received=tuple(report["received"] for report in reports),
            publisher_cpu_s=published["cpu_s"],
            subscribers_cpu_s=sum(report["cpu_s"] for report in reports),
            broker_cpu_s=broker_cpu_s,
            wall_s=max(ends) - published["started_at"],
        )

    def settle(self, expected: int) -> list[dict[str, Any]]:
        """The subscribers' reports, once all is there, or nothing more comes."""
        quiet_since, before = time.monotonic(), [-1]
        while True:
            reports = [subscriber.ask("report") for subscriber in self.subscribers]
            counts = [report["received"] for report in reports]
            if min(counts) >= expected:
                return reports
            if counts != before:
                quiet_since, before = time.monotonic(), counts
            elif time.monotonic() - quiet_since > QUIET_S:
                return reports
            time.sleep(0.01)

    def close(self) -> tuple[dict[str, int], list[dict[str, Any]]]:
        """End in good order: the publisher's stats, and the subscribers' last reports."""
        stats: dict[str, int] = self.publisher.ask("close")["stats"]
        self.settle(1 << 62)
        return stats, [subscriber.ask("stop") for subscriber in self.subscribers]

    def _broker_cpu_s(self) -> float:
        return 0.0 if self._broker is None else cpu_clock_s(self._broker.pid)

    def _end(self) -> None:
        for child in reversed(self._children):
            child.end()
        if self._broker is not None:
            self._broker.kill()
            self._broker.wait()
        self._slots.release()
        os.close(self._slots_fd)


def _start_worker(spec: Spec, arena: Arena, place: Place) -> Child:
    label = f"{spec.system} {spec.role} {spec.index}"
    inherited = (spec.slots_fd,)
    return Child(label, WORKER, [spec.to_json()], arena.environment, inherited, place.command)


def window_for(value_bytes: int, receive_buffer_bytes: int) -> int:
    """So many messages, one per datagram, take half of the receive buffer at most."""
    room = receive_buffer_bytes // (2 * max(value_bytes, 1024))
    return max(2 if value_bytes > WHOLE_BYTES_MAX else 16, min(WINDOW_MAX, room))


def quantile(values: Sequence[float], share: float) -> float:
    return statistics.quantiles(values, n=1000, method="inclusive")[round(1000 * share) - 1]


def _start_nats(place: Place, port: int) -> subprocess.Popen[bytes]:
    from tools.bench.bus.peers import find_nats_server

    command = find_nats_server()
    assert command is not None
    process = subprocess.Popen(
        [*place.command, command, "--addr", place.address, "--port", str(port)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    # The sockets of the namespace that it is in; 0A: it listens.
    table, listening = Path(f"/proc/{process.pid}/net/tcp"), re.compile(f":{port:04X} \\S+ 0A ")
    for _ in range(500):
        if listening.search(table.read_text()):
            return process
        time.sleep(0.02)
    process.kill()
    process.wait()
    raise RunError("nats-server does not listen")
