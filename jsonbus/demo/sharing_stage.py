"""One mode of the demo, from the first process to the last.

    sensors (and a master) start ── alone ── the subscriber joins ── together ── it leaves ── alone

The stage keeps what every process told last (the scene), and hands it to the view some ten times a
second. Times are shares of the seconds that a mode is to take. They begin when what they wait for
has happened, that the sensors are ready or that the subscriber has a value: a busy machine takes
longer, and shows the same.
"""

from __future__ import annotations

import math
import queue
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

import click

from jsonbus import BusConfig

from ..cli import signals
from .loopback import find_free_port
from .process import Child, end_processes
from .sharing_report import Part, Report, Tally, add_up

SENSORS = ("kitchen", "bath", "garage", "attic")
#: What every sensor publishes, and where it begins: kitchen/temp, kitchen/light.
QUANTITIES = {"temp": 21.0, "light": 55.0}
SUBSCRIBER = "display"
PATTERN = "*/temp"

#: Shares of a mode's seconds.
ALONE_BEFORE = 0.35
TOGETHER = 0.45
ALONE_AFTER = 0.20

#: How long to wait for processes that start; more than a busy machine takes.
READY_S_MAX = 60.0

#: How often the view is shown something new.
REFRESH_S = 0.1

#: Events that a view can look back on.
EVENTS_KEPT = 5

Condition = Callable[[], bool]
Inbox = queue.SimpleQueue[tuple["NodeProcess", Report]]


class NodeProcess(Child):
    """A node of the demo in a process of its own; what it tells comes into the inbox."""

    def __init__(self, part: Part, inbox: Inbox) -> None:
        self.part = part
        self._inbox = inbox
        super().__init__(
            part.name, [f"{__package__}.sharing_node", part.to_line()], self._take_line
        )

    def _take_line(self, line: str) -> bool:
        try:
            self._inbox.put((self, Report.from_line(line)))
        except ValueError:
            return False
        return True


@dataclass(slots=True)
class Scene:
    """What is known about one mode while it runs; views only read it."""

    mode: str
    address: str
    seconds: float
    #: The last process of each name, and what it told last.
    processes: dict[str, NodeProcess] = field(default_factory=dict)
    reports: dict[str, Report] = field(default_factory=dict)
    #: What happened lately: (seconds since the sensors were ready, text).
    events: deque[tuple[float, str]] = field(default_factory=lambda: deque(maxlen=EVENTS_KEPT))
    elapsed_s: float = 0.0
    has_subscriber: bool = False
    #: The subscribers before the last, together.
    past: Report = field(default_factory=Report)

    def tally(self) -> Tally:
        return add_up(self.mode, [self.past, *self.reports.values()])


class View(Protocol):
    """Shows a mode to people while it runs."""

    def show(self, scene: Scene) -> None:
        """Called about ten times a second."""

    def tell(self, scene: Scene, text: str) -> None:
        """Something happened."""


class Stage:
    """Runs one mode. `close` ends its processes; leaving a with block does it, too."""

    def __init__(self, mode: str, seconds: float, view: View) -> None:
        group = BusConfig().group
        port = find_free_port()
        self.scene = Scene(mode, f"{group}:{port}", seconds)
        self._group, self._port = group, port
        self._view = view
        self._inbox: Inbox = queue.SimpleQueue()
        self._running: list[NodeProcess] = []
        self._ready_at = math.inf

    def __enter__(self) -> Stage:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def run(self, *, is_forever: bool = False) -> None:
        """Tell the whole story; `is_forever`: the subscriber comes and goes until interrupted."""
        scene = self.scene
        if scene.mode == "master":
            self._start("master", is_master=True)
        for name in SENSORS:
            topics = {f"{name}/{quantity}": value for quantity, value in QUANTITIES.items()}
            self._start(name, publishes=topics)
        names = [each.name for each in self._running]
        started = ", ".join(f"{each.name} (pid {each.pid})" for each in self._running)
        self._tell(f"{started} start")
        self._wait_for(lambda: scene.reports.keys() >= set(names), "the sensors are not ready")
        self._ready_at = time.monotonic()
        topic_count = len(SENSORS) * len(QUANTITIES)
        self._tell(f"{len(SENSORS)} sensors publish to {topic_count} topics; nobody subscribes")
        self._play(ALONE_BEFORE)
        while True:
            self._bring_subscriber()
            self._play(TOGETHER)
            self._dismiss_subscriber()
            self._play(ALONE_AFTER)
            if not is_forever:
                return

    def close(self) -> None:
        """End all processes and take in what they told last."""
        running, self._running = self._running, []
        try:
            end_processes(running)
        finally:
            self._take_all()

    def _bring_subscriber(self) -> None:
        scene = self.scene
        scene.past = scene.past.plus(scene.reports.pop(SUBSCRIBER, Report()))
        subscriber = self._start(SUBSCRIBER, subscribes=(PATTERN,))
        scene.has_subscriber = True
        self._tell(f"{SUBSCRIBER} (pid {subscriber.pid}) starts: it subscribes to {PATTERN}")
        self._wait_for(
            lambda: scene.reports.get(SUBSCRIBER, Report()).first_value_ms is not None,
            f"{SUBSCRIBER} got no value",
        )
        first_value_ms = scene.reports[SUBSCRIBER].first_value_ms
        self._tell(f"{SUBSCRIBER} has its first value, {first_value_ms:.0f} ms after joining")

    def _dismiss_subscriber(self) -> None:
        leaving = [each for each in self._running if each.name == SUBSCRIBER]
        self._running = [each for each in self._running if each.name != SUBSCRIBER]
        end_processes(leaving)
        self._take_all()
        self.scene.has_subscriber = False
        self._tell(f"{SUBSCRIBER} has said goodbye")

    def _start(
        self,
        name: str,
        *,
        is_master: bool = False,
        publishes: dict[str, float] | None = None,
        subscribes: tuple[str, ...] = (),
    ) -> NodeProcess:
        part = Part(
            name=name,
            group=self._group,
            port=self._port,
            mode=self.scene.mode,
            is_master=is_master,
            publishes=publishes or {},
            subscribes=subscribes,
        )
        process = NodeProcess(part, self._inbox)
        self._running.append(process)
        self.scene.processes[name] = process
        return process

    def _play(self, share: float) -> None:
        end_at = time.monotonic() + share * self.scene.seconds
        self._run_until(lambda: time.monotonic() >= end_at)

    def _wait_for(self, condition: Condition, failure: str) -> None:
        give_up_at = time.monotonic() + READY_S_MAX
        self._run_until(lambda: condition() or time.monotonic() >= give_up_at)
        if not condition():
            raise click.ClickException(
                f"{failure} after {READY_S_MAX:g} s in mode {self.scene.mode}"
            )

    def _run_until(self, condition: Condition) -> None:
        """Take in reports and show them until the condition holds."""
        show_at = time.monotonic()
        while not condition():
            self._take(REFRESH_S / 2)
            now = time.monotonic()
            if now >= show_at:
                signals.check()
                self._check_processes()
                self.scene.elapsed_s = max(0.0, now - self._ready_at)
                self._view.show(self.scene)
                show_at = now + REFRESH_S

    def _take(self, timeout_s: float) -> bool:
        """Take in one report; False if none came."""
        try:
            process, report = self._inbox.get(timeout=timeout_s)
        except queue.Empty:
            return False
        self.scene.reports[process.name] = report
        return True

    def _take_all(self) -> None:
        while self._take(0.0):
            pass

    def _check_processes(self) -> None:
        for each in self._running:
            if each.has_ended:
                each.forget()  # so that its last words are here
                raise click.ClickException(f"the process {each.name} failed: {each.complaint}")

    def _tell(self, text: str) -> None:
        self.scene.elapsed_s = max(0.0, time.monotonic() - self._ready_at)
        self.scene.events.append((self.scene.elapsed_s, text))
        self._view.tell(self.scene, text)
