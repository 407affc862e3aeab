"""One process of the demo: a sensor, the master, or the subscriber that comes late.

    python -m jsonbus.demo.sharing_node PART

What it is to be is its argument (sharing_report.Part). It reports on standard output, a line at a
time (sharing_report.Report), the last one when it has published its last value. It ends when its
standard input does: so it never outlives the demo, not even one that was killed.
"""

from __future__ import annotations

import os
import random
import sys
import threading
import time

from jsonbus import Bus, Message
from jsonbus.config import BusSettings

from .loopback import LOOPBACK, TTL
from .sharing_report import Part, Report, TopicReport

PUBLISH_INTERVAL_S = 0.1
REPORT_INTERVAL_S = 0.2

#: A sensor waits so long to learn who is there before its first value, so that none is held: what
#: is held is neither sent nor suppressed yet, and the demo shows just these two.
SURE_WITHIN_S = 10.0


def main() -> None:
    part = Part.from_line(sys.argv[1])
    is_over = threading.Event()
    threading.Thread(target=_wait_for_end, args=(is_over,), daemon=True).start()
    try:
        DemoNode(part).run(is_over)
    except BrokenPipeError:
        # Nobody reads the reports any more. Python would try to write the rest at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


class DemoNode:
    """Publishes, subscribes, reports; the same loop for every part."""

    def __init__(self, part: Part) -> None:
        self._part = part
        self._report = Report(
            topics={topic: TopicReport(value) for topic, value in part.publishes.items()}
        )
        self._dice = random.Random(part.name)
        self._opened_at = 0.0

    def run(self, is_over: threading.Event) -> None:
        """Until it is over."""
        settings: BusSettings = {
            "group": self._part.group,
            "port": self._part.port,
            "interface": LOOPBACK,
            "ttl": TTL,
            "name": self._part.name,
            "mode": self._part.mode,
            "master": self._part.is_master,
        }
        self._opened_at = time.monotonic()
        with Bus(**settings) as bus:
            for pattern in self._part.subscribes:
                bus.subscribe(pattern, self._take)
            if self._part.publishes:
                _wait_until_sure(bus, is_over)
            publish_at = report_at = time.monotonic()
            while not is_over.is_set():
                now = time.monotonic()
                if now >= publish_at:
                    self._publish(bus)
                    publish_at = max(publish_at + PUBLISH_INTERVAL_S, now)
                if now >= report_at:
                    self._tell(bus)
                    report_at = now + REPORT_INTERVAL_S
                is_over.wait(max(0.0, min(publish_at, report_at) - time.monotonic()))
            bus.flush()
            self._tell(bus)

    def _publish(self, bus: Bus) -> None:
        for topic, report in self._report.topics.items():
            report.value = round(report.value + self._dice.gauss(0.0, 0.1), 1)
            report.published += 1
            report.sent += bus.publish(topic, report.value)

    def _take(self, message: Message) -> None:
        """Handler of the subscriptions; there is one worker, so it never runs twice at once."""
        if self._report.first_value_ms is None:
            self._report.first_value_ms = (time.monotonic() - self._opened_at) * 1000
        # A copy: the main thread may just be reading the old one.
        self._report.seen = {**self._report.seen, message.topic: float(message.value)}
        self._report.delivered += 1

    def _tell(self, bus: Bus) -> None:
        for topic, report in self._report.topics.items():
            explanation = bus.explain(topic)
            report.verdict, report.wanted_by = explanation.verdict, explanation.wanted_by
        stats = bus.stats()
        self._report.lost = stats["messages_lost"]
        self._report.unwanted = stats["messages_unwanted"]
        self._report.shares = stats["list_shares_sent"]
        sys.stdout.write(self._report.to_line() + "\n")
        sys.stdout.flush()


def _wait_until_sure(bus: Bus, is_over: threading.Event) -> None:
    deadline = time.monotonic() + SURE_WITHIN_S
    while not bus.wait_until_sure(timeout=0.2):
        if is_over.is_set() or time.monotonic() >= deadline:
            return


def _wait_for_end(is_over: threading.Event) -> None:
    # Not through sys.stdin: its lock, held by a thread that waits, would be in the way at the end.
    while os.read(0, 1024):
        pass
    is_over.set()


if __name__ == "__main__":
    main()
