"""Processes of Spark, as /proc tells of them."""

from __future__ import annotations

from pathlib import Path


def descendants(pid: int) -> list[int]:
    """Its children, their children, and so on, as they are now."""
    children: dict[int, list[int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        fields = _fields(stat)
        if fields:
            children.setdefault(int(fields[1]), []).append(int(stat.parent.name))
    found: list[int] = []
    waiting = [pid]
    while waiting:
        waiting += (born := children.get(waiting.pop(), []))
        found += born
    return found


def command_line(pid: int) -> list[str]:
    """How the process was started; empty if it is gone."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_text().split("\0")[:-1]
    except OSError:
        return []


def is_running(pid: int) -> bool:
    """Whether the process is there, and not only because nobody asked for its exit code."""
    fields = _fields(Path(f"/proc/{pid}/stat"))
    return bool(fields) and fields[0] != "Z"


def _fields(stat: Path) -> list[str]:
    """State, parent, …: what stands behind the name, which may hold anything."""
    try:
        return stat.read_text().rpartition(")")[2].split()
    except OSError:  # it has just ended
        return []
