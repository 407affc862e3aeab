"""Run a show: start its processes, collect what they report, and keep the view up to date.

Everything that processes and the bus report goes through one inbox into the scene; only the thread
that runs the stage touches the scene. Times of a show begin when what they wait for has happened:
a busy machine takes longer and shows the same.
"""

from __future__ import annotations

import queue
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Generic, Self, TypeVar

from jsonbus import BusConfig

from .processes import Child, DemoError, end_processes, find_free_port, kill_processes
from .sensor import Part, Report, to_line
from .view import Scene, View

#: Seconds to wait for processes to start or finish; more than a busy machine takes.
READY_S_MAX = 300.0

#: Seconds between two updates of the view.
REFRESH_S = 0.2

Condition = Callable[[], bool]
S = TypeVar("S", bound=Scene)


class Stage(Generic[S]):
    """Runs one show. Leaving the with block ends its processes.

    `check` is called several times a second and raises KeyboardInterrupt to end the show.
    """

    def __init__(self, scene: S, view: View, check: Callable[[], None]) -> None:
        self.scene = scene
        self.view = view
        self.group = BusConfig().group
        self.port = find_free_port()
        self.children: dict[str, Child] = {}
        self._check = check
        self._inbox: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._started_at = time.monotonic()
        self._shown_from: float | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self.close(is_at_once=kind is not None)

    def close(self, *, is_at_once: bool = False) -> None:
        """End all processes and take in their last reports."""
        try:
            (kill_processes if is_at_once else end_processes)(list(self.children.values()))
        finally:
            self.children.clear()
            self._take(0.0)

    def start(
        self, name: str, arguments: Sequence[str], hear: Callable[[str], bool], **where: Any
    ) -> Child:
        """Start a process; `hear` is called in another thread and uses `post`."""
        child = self.children[name] = Child(name, arguments, hear, **where)
        return child

    def start_node(self, name: str, **what: Any) -> None:
        """Start a node of the demo; its reports go into the scene. See `Part` for what it is."""
        part = Part(name=name, group=self.group, port=self.port, **what)

        def hear(line: str) -> bool:
            try:
                report = Report.from_line(line)
            except ValueError:
                return False
            self.post(lambda: self.take_report(name, report))
            return True

        child = self.start(name, [f"{__package__}.sensor", to_line(part)], hear)
        self.scene.pids[name] = child.pid

    def take_report(self, name: str, report: Report) -> None:
        self.scene.reports[name] = report

    def end(self, name: str) -> None:
        """End a process and take in its last report."""
        end_processes([self.children.pop(name)])
        self._take(0.0)

    def post(self, action: Callable[[], None]) -> None:
        """Call it in the thread of the stage. Any thread may post."""
        self._inbox.put(action)

    def begin_show(self) -> None:
        """From now on the time of the show counts."""
        self._shown_from = time.monotonic()

    def tell(self, text: str) -> None:
        """Report an event to the audience."""
        self._note_time(time.monotonic())
        self.view.tell(self.scene, text)

    def describe(self, names: Sequence[str]) -> str:
        """Return processes and their ids as text."""
        return ", ".join(f"{name} (pid {self.children[name].pid})" for name in names)

    def play(self, seconds: float) -> None:
        """Let time pass."""
        end_at = time.monotonic() + seconds
        self.run_until(lambda: time.monotonic() >= end_at)

    def wait_for(self, condition: Condition, failure: str) -> None:
        """Wait until the condition holds. Raises DemoError if that takes too long."""
        if not self.wait(condition, READY_S_MAX):
            raise DemoError(f"{failure} after {READY_S_MAX:g} s")

    def wait(self, condition: Condition, timeout_s: float) -> bool:
        """Wait until the condition holds, but not for ever. Return True if it does."""
        give_up_at = time.monotonic() + timeout_s
        self.run_until(lambda: condition() or time.monotonic() >= give_up_at)
        return condition()

    def run_until(self, condition: Condition) -> None:
        """Take in reports and show them until the condition holds."""
        show_at = time.monotonic()
        while not condition():
            self._take(REFRESH_S / 4)
            now = time.monotonic()
            if now >= show_at:
                self._check()
                self._check_children()
                self._note_time(now)
                self.view.show(self.scene)
                show_at = now + REFRESH_S

    def _take(self, timeout_s: float) -> None:
        """Take in everything that was posted; wait for the first."""
        with suppress(queue.Empty):
            self._inbox.get(timeout=timeout_s)()
            while True:
                self._inbox.get(block=False)()

    def _check_children(self) -> None:
        for each in self.children.values():
            if each.exit_code is not None:
                each.release()  # so that its last words have been read
                raise DemoError(f"the process {each.name} failed: {each.complaint}")

    def _note_time(self, now: float) -> None:
        self.scene.elapsed_s = now - self._started_at
        if self._shown_from is not None:
            self.scene.shown_s = now - self._shown_from
