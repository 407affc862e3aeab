"""What a publisher process can be asked to do; publish_tasks.py does it in an event loop.

A system gives `publish`, or `burst` where it can do better than one call after the other. The rest
is the same for all: who may go how fast, and where CPU time is read.
"""

from __future__ import annotations

import math
import time
from time import monotonic, monotonic_ns, process_time
from typing import Any

from tools.bench.bus.flow import PAUSE_S, Credit, open_slots
from tools.bench.bus.spec import SENSOR, Spec, make_value

PROBE_S = 0.1
READY_S = 30.0
#: Messages between two looks at the clock when load is offered.
BURST_MAX = 1000
#: A publisher that cannot keep up with the rate it was given stops after so many times the span.
OVERTIME = 3.0


class PublisherBase:
    """What both kinds have in common. `ask` is a name of the methods that return a dict."""

    def __init__(self, spec: Spec) -> None:
        self.spec = spec
        self.topic = spec.topic
        self.value = make_value(spec.value_bytes)
        self.slots = open_slots(spec.slots_fd, spec.subscribers)
        self.credit = Credit(self.slots, spec.window)

    def stats(self) -> dict[str, int]:
        return {}

    def means(self) -> str:
        """The size of datagrams, and whether the kernel cuts runs of them; "" if there are none."""
        return ""

    def all_have_heard(self) -> bool:
        return bool(min(self.slots))


class Publisher(PublisherBase):
    """A system with calls that block."""

    def publish(self, topic: str, value: Any) -> None:
        raise NotImplementedError

    def burst(self, count: int) -> None:
        """Publish the value so many times; some may be kept back until `push`."""
        publish, topic, value = self.publish, self.topic, self.value
        for _ in range(count):
            publish(topic, value)

    def push(self) -> None:
        """Let go of what is kept back."""

    def finish(self) -> None:
        """Return once everything has been given to the system."""
        self.push()

    def close(self) -> None:
        pass

    def probe(self) -> dict[str, Any]:
        """Publish until every subscriber has heard something, and all that is under way arrived."""
        sent = 0
        deadline = monotonic() + READY_S
        while not self.all_have_heard() and monotonic() < deadline:
            self.burst(1)
            self.push()
            sent += 1
            until = monotonic() + PROBE_S
            while not self.all_have_heard() and monotonic() < until:
                time.sleep(PAUSE_S)
        wait_for_the_rest(self, sent)
        return {"ready": self.all_have_heard()}

    def flood(self, count: int) -> dict[str, Any]:
        """Publish as fast as the window allows."""
        self.credit.begin()
        started_at, cpu_s = monotonic(), process_time()
        for chunk in self.credit.chunks(count, self.push):
            self.burst(chunk)
        self.finish()
        return figures(count, started_at, cpu_s + self.credit.waited_cpu_s)

    def blast(self, count: int) -> dict[str, Any]:
        """Publish so many at once, whether or not anybody keeps up."""
        started_at, cpu_s = monotonic(), process_time()
        self.burst(count)
        self.finish()
        return figures(count, started_at, cpu_s)

    def offer(self, count: int, rate: float = 0.0) -> dict[str, Any]:
        """Publish so many at that rate, whether or not anybody keeps up; 0: as fast as possible."""
        started_at, cpu_s = monotonic(), process_time()
        overtime_s = OVERTIME * count / rate if rate else math.inf
        sent = 0
        while sent < count:
            elapsed_s = monotonic() - started_at
            if elapsed_s > overtime_s:
                break
            due = min(count, int(elapsed_s * rate) + 1 if rate else count) - sent
            if due > 0:
                due = min(due, BURST_MAX)
                self.burst(due)
                self.push()
                sent += due
            else:
                time.sleep(PAUSE_S)
        self.finish()
        return figures(sent, started_at, cpu_s)

    def tick(self, count: int, rate: float) -> dict[str, Any]:
        """Publish one value after the other at a low rate, each with the instant in it.

        It sleeps in between: a publisher that spins would take a processor from the subscriber.
        """
        started_at, cpu_s = monotonic(), process_time()
        value, pace = dict[str, Any](SENSOR), Pace(rate)
        for _ in range(count):
            time.sleep(pace.next_pause_s())
            value["at"] = monotonic_ns()  # of the whole machine, on Linux: processes compare it
            self.publish(self.topic, value)
            self.push()
        return figures(count, started_at, cpu_s)


class Pace:
    """When to publish next. Who has slept too long makes up for it, but never in a burst.

    The second message of a burst is not sent by an idle publisher, and would not be measured as
    one. An event loop, which sleeps in whole milliseconds, would make such pairs all the time.
    """

    def __init__(self, rate: float) -> None:
        self._period_s = 1 / rate
        self._due_at = monotonic()

    def next_pause_s(self) -> float:
        now = monotonic()
        self._due_at = max(self._due_at + self._period_s, now + self._period_s / 2)
        return self._due_at - now


def wait_for_the_rest(publisher: PublisherBase, sent: int) -> None:
    """Until each subscriber has all that was sent to it; one that joined late never will."""
    unchanged_until = monotonic() + 1.0
    before = list(publisher.slots)
    while min(publisher.slots) < sent and monotonic() < unchanged_until:
        time.sleep(PAUSE_S)
        if list(publisher.slots) != before:
            before = list(publisher.slots)
            unchanged_until = monotonic() + 1.0


def figures(sent: int, started_at: float, started_cpu_s: float) -> dict[str, Any]:
    cpu_s = process_time() - started_cpu_s
    return {"sent": sent, "cpu_s": cpu_s, "started_at": started_at, "ended_at": monotonic()}


def describe_means(datagram_bytes: int, *, sends_runs: bool) -> str:
    """What the figures of a system depend on, as short as a table wants it."""
    size = f"{datagram_bytes:,} B" if datagram_bytes else "one message"
    return f"{size}, offload" if sends_runs else size
