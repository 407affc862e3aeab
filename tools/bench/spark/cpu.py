"""The processes of a pipeline, and the CPU time of each kind of them, from /proc."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from tools.bench.child import cpu_clock_s

_TICK_S = 1 / os.sysconf("SC_CLK_TCK")
#: Places in /proc/PID/stat behind the name: the parent, and CPU time of children that have ended.
_PARENT, _ENDED_USER, _ENDED_SYSTEM = 1, 13, 14


class Cpu(NamedTuple):
    """Seconds of CPU time, the kernel's work included."""

    jvm: float  # Spark itself
    driver: float  # the program that started it
    workers: float  # what Spark started: Python for offsets and for tasks
    bridge: float

    @property
    def spark(self) -> float:
        """Spark with all of its Python."""
        return self.jvm + self.driver + self.workers

    @property
    def all(self) -> float:
        return self.spark + self.bridge

    def since(self, before: Cpu) -> Cpu:
        return Cpu(*(max(0.0, now - then) for now, then in zip(self, before, strict=True)))


NOTHING = Cpu(0.0, 0.0, 0.0, 0.0)


class Processes:
    """A Spark that this process started, and maybe a bridge."""

    def __init__(self, jvm: int, bridge: int | None = None) -> None:
        self._jvm = jvm
        self._bridge = bridge

    def read(self) -> Cpu:
        """Up to now."""
        return Cpu(
            jvm=_clock(self._jvm),
            driver=_clock(os.getpid()),
            workers=children_cpu_s(self._jvm),
            bridge=_clock(self._bridge) if self._bridge is not None else 0.0,
        )


def children_cpu_s(root: int) -> float:
    """Return the CPU seconds of all descendants, including those that have ended."""
    running = descendants(root)
    ended_s = sum(map(_ended_children_s, [root, *running]))
    return ended_s + sum(map(_clock, running))


def descendants(root: int) -> list[int]:
    """Return the ids of its children, their children, and so on."""
    children: dict[int, list[int]] = {}
    for pid in _all_pids():
        fields = _stat(pid)
        if fields:
            children.setdefault(int(fields[_PARENT]), []).append(pid)
    found: list[int] = []
    waiting = [root]
    while waiting:
        born = children.get(waiting.pop(), [])
        waiting += born
        found += born
    return found


def _all_pids() -> Iterable[int]:
    return [int(entry.name) for entry in os.scandir("/proc") if entry.name.isdecimal()]


def _clock(pid: int) -> float:
    try:
        return cpu_clock_s(pid)
    except OSError:  # it has just ended
        return 0.0


def _ended_children_s(pid: int) -> float:
    fields = _stat(pid)
    if not fields:
        return 0.0
    return (int(fields[_ENDED_USER]) + int(fields[_ENDED_SYSTEM])) * _TICK_S


def _stat(pid: int) -> list[str]:
    """What stands behind the name, which may hold anything."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []
