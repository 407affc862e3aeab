"""One sensor of the demo, a process of its own.

    python -m jsonbus.demo.sensor PART

It publishes readings, reliably, and reports on standard output, a line at a time. On standard input
it is told, a JSON line at a time, what shall go wrong:

    {"wish":"spike"}             a reading far from the others
    {"wish":"break"}             a reading that no thermometer can have
    {"wish":"late","by_s":4}     a reading that comes late
    {"wish":"late","at":T}       the same, taken at this time
    {"wish":"stop"}              no more readings; who missed one can still ask for it

It ends when its standard input does.
"""

from __future__ import annotations

import json
import math
import os
import queue
import random
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from jsonbus import Bus
from jsonbus.config import BusSettings

from .loopback import LOOPBACK, TTL

#: Readings are published in bursts, as a thermometer with a buffer does.
BURST_S = 0.05
REPORT_S = 0.25

#: After a pause of the machine, readings older than this are not made up for.
CATCH_UP_S = 1.0

#: The bridge is there before the sensors start; they learn of it within this time.
SUBSCRIBER_S = 60.0

#: Degrees around the sensor's own: a slow wave, and noise that is cut at three deviations. A spike
#: and a broken sensor are far beyond both.
WAVE, WAVE_S = 0.3, 60.0
NOISE = 0.4
SPIKE = 15.0
BROKEN = 125.0


@dataclass(frozen=True, slots=True, kw_only=True)
class SensorPart:
    """What a sensor is to be."""

    name: str
    group: str
    port: int
    topic: str
    value: float
    per_s: float
    #: As the pipeline has them. A spike is published only where the pipeline has enough readings to
    #: compare it with, however slow this machine is just now: an alert is then due for sure.
    window_s: float
    lateness_s: float
    baseline_readings_min: int

    def to_line(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_line(cls, line: str) -> SensorPart:
        return cls(**json.loads(line))


@dataclass(slots=True)
class SensorReport:
    """A sensor so far."""

    value: float = 0.0
    #: Readings; of these, the anomalies, and those that came late.
    published: int = 0
    anomalies: int = 0
    late: int = 0
    has_stopped: bool = False

    def to_line(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_line(cls, line: str) -> SensorReport:
        """ValueError for a line that is no report."""
        try:
            return cls(**json.loads(line))
        except TypeError as error:
            raise ValueError(f"no report: {line!r}") from error


class Readings:
    """What a sensor measures, and which of its windows have enough readings to judge by."""

    def __init__(self, part: SensorPart) -> None:
        self._part = part
        self._dice = random.Random(part.name)
        self._by_window: Counter[int] = Counter()
        self._taken_until: float | None = None

    def take(self, now: float) -> Iterator[tuple[float, float]]:
        """The readings that are due, as (time, value)."""
        step_s = 1 / self._part.per_s
        at = max(now - CATCH_UP_S, self._taken_until or now - step_s)
        while at + step_s <= now:
            at += step_s
            self._by_window[int(at // self._part.window_s)] += 1
            yield at, self.value_at(at)
        self._taken_until = at
        for old in [each for each in self._by_window if each < now // self._part.window_s - 20]:
            del self._by_window[old]

    def value_at(self, at: float) -> float:
        noise = max(-3.0, min(3.0, self._dice.gauss(0.0, 1.0)))
        wave = math.sin(2 * math.pi * at / WAVE_S)
        return round(self._part.value + WAVE * wave + NOISE * noise, 2)

    def can_be_judged(self, at: float) -> bool:
        """Whether the window that a reading is compared with has enough readings."""
        part = self._part
        # The one that ended between lateness and lateness plus a window before.
        window = int((at - part.lateness_s) // part.window_s) - 1
        return self._by_window[window] >= 2 * part.baseline_readings_min


class Sensor:
    """Publishes until it is over."""

    def __init__(self, part: SensorPart) -> None:
        self._part = part
        self._readings = Readings(part)
        self._report = SensorReport(part.value)
        self._wishes: list[dict[str, Any]] = []

    def run(self, heard: queue.SimpleQueue[dict[str, Any] | None]) -> None:
        """Until None is heard."""
        settings: BusSettings = {
            "group": self._part.group,
            "port": self._part.port,
            "interface": LOOPBACK,
            "ttl": TTL,
            "name": self._part.name,
            "reliable": True,
        }
        with Bus(**settings) as bus:
            bus.wait_for_subscribers(self._part.topic, timeout=SUBSCRIBER_S)
            report_at = 0.0
            while True:
                try:
                    wish = heard.get(timeout=BURST_S)
                except queue.Empty:
                    pass
                else:
                    if wish is None:
                        return
                    if wish["wish"] == "stop":
                        bus.flush()
                        self._report.has_stopped = True
                        report_at = 0.0
                    else:
                        self._wishes.append(wish)
                if not self._report.has_stopped:
                    self._publish_due(bus, time.time())
                if time.monotonic() >= report_at:
                    self._tell()
                    report_at = time.monotonic() + REPORT_S

    def _publish_due(self, bus: Bus, now: float) -> None:
        for at, value in self._readings.take(now):
            self._publish(bus, at, value)
        self._wishes = [wish for wish in self._wishes if not self._fulfil(bus, wish, now)]

    def _fulfil(self, bus: Bus, wish: dict[str, Any], now: float) -> bool:
        """Whether the wish could be fulfilled now."""
        if wish["wish"] == "late":
            self._publish(bus, at := wish.get("at", now - wish.get("by_s", 0.0)), self._value(at))
            self._report.late += 1
            return True
        if wish["wish"] == "spike":
            if not self._readings.can_be_judged(now):
                return False
            self._publish(bus, now, round(self._value(now) + SPIKE, 2))
        else:
            self._publish(bus, now, BROKEN)
        self._report.anomalies += 1
        return True

    def _value(self, at: float) -> float:
        return self._readings.value_at(at)

    def _publish(self, bus: Bus, at: float, value: float) -> None:
        if bus.publish(self._part.topic, {"value": value, "at": round(at, 6)}):
            self._report.value = value
            self._report.published += 1

    def _tell(self) -> None:
        sys.stdout.write(self._report.to_line() + "\n")
        sys.stdout.flush()


def main() -> None:
    heard: queue.SimpleQueue[dict[str, Any] | None] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(heard,), daemon=True).start()
    try:
        Sensor(SensorPart.from_line(sys.argv[1])).run(heard)
    except BrokenPipeError:
        # Nobody reads the reports any more. Python would try to write the rest at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _listen(heard: queue.SimpleQueue[dict[str, Any] | None]) -> None:
    # Not through sys.stdin: its lock, held by a thread that waits, would be in the way at the end.
    rest = b""
    while data := os.read(0, 1024):
        *lines, rest = (rest + data).split(b"\n")
        for line in lines:
            heard.put(json.loads(line))
    heard.put(None)


if __name__ == "__main__":
    main()
