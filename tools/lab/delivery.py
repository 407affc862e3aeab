"""Publishers and subscribers on the hosts of a lab, and the messages that arrived."""

from __future__ import annotations

import dataclasses
import time
from pathlib import Path
from typing import Any

from tools.lab.network import Lab
from tools.lab.process import Process

TRAFFIC = Path(__file__).with_name("traffic.py")
POLL_S = 0.2
#: How long nothing may change before a run counts as ended: longer than the longest pause between
#: two beats, with what a busy machine adds.
SILENT_S = 6.0


@dataclasses.dataclass(frozen=True, slots=True)
class Load:
    """How many publishers and subscribers there are, and how much is published."""

    publishers: int = 3
    subscribers: int = 5
    topics: int = 2  # of each publisher
    count: int = 1_000  # messages to each topic
    is_reliable: bool = True

    @property
    def published(self) -> int:
        return self.publishers * self.topics * self.count

    @property
    def expected(self) -> int:
        """Deliveries, if nothing is lost."""
        return self.published * self.subscribers


@dataclasses.dataclass(frozen=True, slots=True)
class Outcome:
    """The result of a load, all subscribers together."""

    load: Load
    took_s: float  # from the first publish to the last delivery
    publishers: list[dict[str, Any]]  # how each stood in the end
    subscribers: list[dict[str, Any]]

    @property
    def delivered(self) -> int:
        return self._sum(self.subscribers, "delivered")

    @property
    def lost(self) -> int:
        return self.load.expected - self.delivered

    @property
    def late(self) -> int:
        """Delivered after a later one of the same topic."""
        return self._sum(self.subscribers, "late")

    @property
    def repeated(self) -> int:
        """Delivered again."""
        return self._sum(self.subscribers, "repeated")

    @property
    def repaired(self) -> int:
        """Messages sent again, each for all who missed it."""
        return self._sum(self.publishers, "messages_repaired")

    @property
    def naks(self) -> int:
        return self._sum(self.subscribers, "naks_sent")

    @property
    def given_up(self) -> int:
        return self._sum(self.subscribers, "messages_given_up")

    @property
    def messages_per_s(self) -> float:
        return self.load.published / self.took_s if self.took_s > 0 else 0.0

    def _sum(self, standings: list[dict[str, Any]], name: str) -> int:
        return sum(each[name] for each in standings)


class Delivery:
    """One load on one lab: subscribers on the first hosts, publishers on the others."""

    def __init__(self, lab: Lab, load: Load) -> None:
        hosts = load.publishers + load.subscribers
        assert len(lab.hosts) >= hosts, f"this takes {hosts} hosts"
        shared = ["--count", str(load.count), "--topics", str(load.topics)]
        self.load = load
        self.subscribers: list[Process] = []
        self.publishers: list[Process] = []
        for number, host in enumerate(lab.hosts[: load.subscribers]):
            role = ["subscribe", f"sub{number}", "--publishers", str(load.publishers)]
            self.subscribers.append(host.start_program(TRAFFIC, *role, *shared))
        for number, host in enumerate(lab.hosts[load.subscribers : hosts]):
            role = ["publish", f"pub{number}", "--subscribers", str(load.subscribers)]
            flag = ["--reliable"] if load.is_reliable else []
            self.publishers.append(host.start_program(TRAFFIC, *role, *shared, *flag))

    def delivered(self) -> int:
        """So far, by all subscribers."""
        return sum(_standing(each).get("delivered", 0) for each in self.subscribers)

    def wait(self, timeout_s: float) -> Outcome:
        """Wait until all was delivered, or all was published and nothing more comes.

        Raises TimeoutError with what the processes said if neither happens in time.
        """
        deadline = time.monotonic() + timeout_s
        before, changed_at = -1, time.monotonic()
        while True:
            now = time.monotonic()
            delivered = self.delivered()
            if delivered != before:
                before, changed_at = delivered, now
            if delivered == self.load.expected:
                break
            if self._all_published() and now - changed_at >= SILENT_S:
                break
            everybody = [*self.publishers, *self.subscribers]
            if now >= deadline or any(each.returncode is not None for each in everybody):
                reports = "\n".join(each.report() for each in everybody)
                raise TimeoutError(f"{delivered:,} of {self.load.expected:,} came\n{reports}")
            time.sleep(POLL_S)
        time.sleep(2 * POLL_S)  # whatever comes twice comes now
        return self._outcome()

    def _all_published(self) -> bool:
        each = self.load.topics * self.load.count
        return all(_standing(process).get("published") == each for process in self.publishers)

    def _outcome(self) -> Outcome:
        publishers = [_standing(each) for each in self.publishers]
        subscribers = [_standing(each) for each in self.subscribers]
        began_at = min((each.get("began_at", 0.0) for each in publishers), default=0.0)
        took_s = max(each["last_at"] for each in subscribers) - began_at
        return Outcome(self.load, took_s, publishers, subscribers)


def _standing(process: Process) -> dict[str, Any]:
    """Return the last report of a process."""
    objects = process.objects()
    return objects[-1] if objects else {}
