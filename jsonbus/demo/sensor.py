"""A node of the demo, in a process of its own: a sensor, the master, or the late subscriber.

    python -m jsonbus.demo.sensor PART

PART says what the node is, as JSON. The node writes a `Report` to standard output, one JSON line at
a time. On standard input a sensor is told, one JSON line at a time, what shall go wrong:

    {"wish":"spike"}             a reading far from the others
    {"wish":"break"}             a reading that no thermometer can have
    {"wish":"late","by_s":4}     a reading that comes late
    {"wish":"late","at":T}       a late reading with this time
    {"wish":"stop"}              no more readings; subscribers can still ask for lost ones

It ends when its standard input does, so it never outlives the demo, not even if that is killed.
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
from dataclasses import asdict, dataclass, field
from typing import Any, cast

from jsonbus import Bus, Message
from jsonbus.config import Mode

from .processes import LOOPBACK, TTL

#: Readings are published in bursts, as a thermometer with a buffer does.
BURST_S = 0.02
REPORT_S = 0.2

#: After a pause of the machine, readings older than this are left out.
CATCH_UP_S = 1.0

#: The bridge starts before the sensors; they learn of it within this time.
SUBSCRIBER_S = 60.0
#: A sensor that needs no subscriber waits this long to learn who is there. Otherwise its first
#: values would be held, and the demo shows only what is sent and what is suppressed.
SURE_S = 10.0

#: As in the pipeline. A sensor publishes a spike only when the pipeline has enough readings to
#: compare it with, however slow the machine is: so an alert is certain to follow.
WINDOW_S = 5.0
LATENESS_S = 10.0
BASELINE_READINGS_MIN = 10

#: Degrees around the sensor's value: a slow wave, and noise that is cut at three deviations. A
#: spike and a broken sensor are far beyond both.
WAVE, WAVE_S = 0.3, 60.0
NOISE = 0.4
SPIKE = 15.0
BROKEN = 125.0

Wish = dict[str, Any]
Wishes = queue.SimpleQueue[Wish | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """What a node of the demo is and does. The master neither publishes nor subscribes."""

    name: str
    group: str
    port: int
    mode: str = "delayed"
    is_master: bool = False
    #: A reliable sensor waits for its subscriber, then publishes reliably.
    is_reliable: bool = False
    #: Topic -> the value that its readings are near.
    publishes: dict[str, float] = field(default_factory=dict)
    #: Readings per second, of each topic.
    per_s: float = 10.0
    #: A pattern, or nothing.
    subscribes: str = ""


@dataclass(slots=True)
class TopicReport:
    """One topic of a sensor: its counts so far, and what happens to its values now."""

    value: float
    published: int = 0
    sent: int = 0
    #: As in jsonbus.Explanation: sent, held or suppressed, and the names of the subscribers.
    verdict: str = ""
    wanted_by: list[str] = field(default_factory=list)

    @property
    def suppressed(self) -> int:
        return self.published - self.sent


@dataclass(slots=True)
class Report:
    """The counts of one node so far."""

    #: Of a sensor, by topic.
    topics: dict[str, TopicReport] = field(default_factory=dict)
    #: Of a sensor that was told what shall go wrong.
    anomalies: int = 0
    late: int = 0
    has_stopped: bool = False
    #: Of a subscriber: the last value of each topic, the messages delivered, and the time from
    #: opening the bus to the first of them.
    seen: dict[str, float] = field(default_factory=dict)
    delivered: int = 0
    first_value_ms: float | None = None
    #: Counters of Bus.stats().
    lost: int = 0
    unwanted: int = 0
    shares: int = 0

    @property
    def published(self) -> int:
        return sum(each.published for each in self.topics.values())

    @property
    def sent(self) -> int:
        return sum(each.sent for each in self.topics.values())

    @property
    def suppressed(self) -> int:
        return self.published - self.sent

    @classmethod
    def from_line(cls, line: str) -> Report:
        """Raises ValueError if the line is not a report."""
        try:
            fields = json.loads(line)
            topics = {topic: TopicReport(**each) for topic, each in fields["topics"].items()}
            return cls(**{**fields, "topics": topics})
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"no report: {line!r}") from error


def to_line(what: Part | Report) -> str:
    return json.dumps(asdict(what))


class Readings:
    """The readings of one topic, and which windows have enough of them to judge by."""

    def __init__(self, part: Part, topic: str) -> None:
        self._step_s = 1 / part.per_s
        self._value = part.publishes[topic]
        self._dice = random.Random(topic)
        self._by_window: Counter[int] = Counter()
        self._taken_until: float | None = None

    def take(self, now: float) -> Iterator[tuple[float, float]]:
        """Yield the readings that are due, as (time, value)."""
        step_s = self._step_s
        if self._taken_until is None:
            # Sensors that start together do not measure together.
            self._taken_until = now - step_s * self._dice.random()
        at = max(now - CATCH_UP_S, self._taken_until)
        while at + step_s <= now:
            at += step_s
            self._by_window[int(at // WINDOW_S)] += 1
            yield at, self.value_at(at)
        self._taken_until = at
        for old in [each for each in self._by_window if each < now // WINDOW_S - 20]:
            del self._by_window[old]

    def value_at(self, at: float) -> float:
        noise = max(-3.0, min(3.0, self._dice.gauss(0.0, 1.0)))
        wave = math.sin(2 * math.pi * at / WAVE_S)
        return round(self._value + WAVE * wave + NOISE * noise, 2)

    def can_be_judged(self, at: float) -> bool:
        """Return True if the window that a reading is compared with has enough readings."""
        # The window that ended between lateness and lateness plus a window before.
        window = int((at - LATENESS_S) // WINDOW_S) - 1
        return self._by_window[window] >= 2 * BASELINE_READINGS_MIN


class DemoNode:
    """Publishes, subscribes and reports, with the same loop for every part."""

    def __init__(self, part: Part) -> None:
        self._part = part
        self._readings = {topic: Readings(part, topic) for topic in part.publishes}
        self._report = Report(
            topics={topic: TopicReport(value) for topic, value in part.publishes.items()}
        )
        self._wishes: list[Wish] = []
        self._opened_at = time.monotonic()

    def run(self, heard: Wishes) -> None:
        """Run until None is heard."""
        part = self._part
        with Bus(
            group=part.group,
            port=part.port,
            interface=LOOPBACK,
            ttl=TTL,
            name=part.name,
            mode=cast(Mode, part.mode),
            master=part.is_master,
            reliable=part.is_reliable,
        ) as bus:
            if part.subscribes:
                bus.subscribe(part.subscribes, self._take)
            if part.is_reliable:
                bus.wait_for_subscribers(next(iter(part.publishes)), timeout=SUBSCRIBER_S)
            elif part.publishes:
                bus.wait_until_sure(timeout=SURE_S)
            report_at = 0.0
            wish: Wish | None = {}
            while wish is not None:
                if wish.get("wish") == "stop":
                    bus.flush()
                    self._report.has_stopped = True
                    report_at = 0.0
                elif wish:
                    self._wishes.append(wish)
                if not self._report.has_stopped:
                    self._publish_due(bus, time.time())
                if time.monotonic() >= report_at:
                    self._write_report(bus)
                    report_at = time.monotonic() + REPORT_S
                try:
                    wish = heard.get(timeout=BURST_S)
                except queue.Empty:
                    wish = {}
            bus.flush()
            self._write_report(bus)

    def _publish_due(self, bus: Bus, now: float) -> None:
        for topic, readings in self._readings.items():
            for at, value in readings.take(now):
                self._publish(bus, topic, at, value)
        self._wishes = [wish for wish in self._wishes if not self._fulfil(bus, wish, now)]

    def _fulfil(self, bus: Bus, wish: Wish, now: float) -> bool:
        """Return False if it has to wait."""
        topic, readings = next(iter(self._readings.items()))
        if wish["wish"] == "late":
            at = wish.get("at", now - wish.get("by_s", 0.0))
            self._publish(bus, topic, at, readings.value_at(at))
            self._report.late += 1
            return True
        if wish["wish"] == "spike":
            if not readings.can_be_judged(now):
                return False
            self._publish(bus, topic, now, round(readings.value_at(now) + SPIKE, 2))
        else:
            self._publish(bus, topic, now, BROKEN)
        self._report.anomalies += 1
        return True

    def _publish(self, bus: Bus, topic: str, at: float, value: float) -> None:
        report = self._report.topics[topic]
        report.value = value
        report.published += 1
        report.sent += bus.publish(topic, {"value": value, "at": round(at, 6)})

    def _take(self, message: Message) -> None:
        """Handle a message; there is one worker, so this never runs twice at once."""
        if self._report.first_value_ms is None:
            self._report.first_value_ms = (time.monotonic() - self._opened_at) * 1000
        # A copy: the main thread may be reading the old one.
        self._report.seen = {**self._report.seen, message.topic: message.value["value"]}
        self._report.delivered += 1

    def _write_report(self, bus: Bus) -> None:
        for topic, report in self._report.topics.items():
            explanation = bus.explain(topic)
            report.verdict, report.wanted_by = explanation.verdict, list(explanation.wanted_by)
        stats = bus.stats()
        self._report.lost = stats["messages_lost"]
        self._report.unwanted = stats["messages_unwanted"]
        self._report.shares = stats["list_shares_sent"]
        sys.stdout.write(to_line(self._report) + "\n")
        sys.stdout.flush()


def main() -> None:
    heard: Wishes = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(heard,), daemon=True).start()
    try:
        DemoNode(Part(**json.loads(sys.argv[1]))).run(heard)
    except BrokenPipeError:
        # Nobody reads the reports any more. Python would try to write the rest at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _listen(heard: Wishes) -> None:
    # Not through sys.stdin: a waiting thread would hold its lock and block the exit.
    rest = b""
    while data := os.read(0, 1024):
        *lines, rest = (rest + data).split(b"\n")
        for line in lines:
            heard.put(json.loads(line))
    heard.put(None)


if __name__ == "__main__":
    main()
