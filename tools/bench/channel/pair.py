"""Two processes of the benchmark of channels that have a connection: started, asked, and ended."""

from __future__ import annotations

import re
import statistics
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tools.bench.arena import Arena
from tools.bench.channel.side import Side
from tools.bench.child import ANSWER_S, Child, RunError, cpu_clock_s

WORKER = "tools.bench.channel.worker"


@dataclass(frozen=True, slots=True)
class Flow:
    """What became of messages that went one way."""

    messages: int
    size_bytes: int
    seconds: float  # from the first to the confirmation of the last
    sender_cpu_s: float
    receiver_cpu_s: float

    @property
    def per_s(self) -> float:
        return self.messages / self.seconds

    @property
    def mb_s(self) -> float:
        return self.per_s * self.size_bytes / 1e6

    def extra(self) -> dict[str, Any]:
        return {
            "mb_s": self.mb_s,
            "sender_us": 1e6 * self.sender_cpu_s / self.messages,
            "receiver_us": 1e6 * self.receiver_cpu_s / self.messages,
        }


class Pair:
    """A context manager: a listener and a caller of one system, connected."""

    def __init__(self, arena: Arena, system: str) -> None:
        self.system = system
        self._children: list[Child] = []
        port = arena.next_port()
        try:
            for role in ("listener", "caller"):
                side = Side(system, role, arena.group, port, arena.interface)
                child = Child(f"{system} {role}", WORKER, [side.to_json()], arena.environment)
                self._children.append(child)
            self.listener, self.caller = self._children
            self._address = self.listener.hear()["address"]
            self.caller.hear()
            self.connect()
        except BaseException:
            self.end()
            raise

    def __enter__(self) -> Pair:
        return self

    def __exit__(self, *failure: object) -> None:
        self.end()

    def connect(self) -> float:
        """Anew; how many seconds that took the caller."""
        self.listener.tell("accept")
        seconds: float = self.caller.ask("connect", address=self._address)["seconds"]
        self.listener.hear()
        return seconds

    def connect_as_stranger(self) -> float:
        seconds: float = self.caller.ask("connect_as_stranger")["seconds"]
        return seconds

    def hold(self, count: int) -> float:
        """So many connections more, that nothing is sent on; the seconds it took."""
        answer = self.caller.ask("hold", ANSWER_S + count, count=count, address=self._address)
        seconds: float = answer["seconds"]
        return seconds

    def check_held(self, count: int) -> None:
        """Raises RunError unless so many are still open, at both ends."""
        for child in (self.caller, self.listener):
            if (held := child.ask("count_held")["held"]) != count:
                raise RunError(f"{child.label}: {held:,} of {count:,} are still open")

    def flow(self, count: int, size_bytes: int, is_json: bool = False) -> Flow:
        """So many messages as fast as they are taken."""
        sender_cpu_s, receiver_cpu_s = self._cpu_s()
        self.listener.tell("receive", count=count, is_json=is_json)
        answer = self.caller.ask("send", count=count, size_bytes=size_bytes, is_json=is_json)
        if self.listener.hear()["received"] != count:
            raise RunError(f"{self.listener.label}: not everything came")
        sent_cpu_s, received_cpu_s = self._cpu_s()
        return Flow(
            count,
            size_bytes,
            answer["seconds"],
            sent_cpu_s - sender_cpu_s,
            received_cpu_s - receiver_cpu_s,
        )

    def ping(self, count: int, size_bytes: int, is_json: bool = False) -> list[float]:
        """How many microseconds each took there and back, by plain calls."""
        self.listener.tell("echo", count=count, is_json=is_json)
        delays_us = self._ping(count, size_bytes, is_json)
        self.listener.hear()
        return delays_us

    def ping_handler(self, count: int, size_bytes: int) -> list[float]:
        """The same on a connection of its own, where a handler answers."""
        self.connect()
        self.listener.ask("echo_by_handler")
        delays_us = self._ping(count, size_bytes, False)
        self.connect()
        return delays_us

    def cpu_s(self) -> float:
        return sum(self._cpu_s())

    def memory_mb(self, what: str = "VmRSS") -> tuple[float, float]:
        """The caller's and the listener's, now; or at most ever, as VmHWM."""
        return (
            _status(self.caller.pid, what) * 1024 / 1e6,
            _status(self.listener.pid, what) * 1024 / 1e6,
        )

    def threads(self) -> int:
        return _status(self.caller.pid, "Threads") + _status(self.listener.pid, "Threads")

    def end(self) -> None:
        for child in reversed(self._children):
            child.end()

    def _ping(self, count: int, size_bytes: int, is_json: bool) -> list[float]:
        answer = self.caller.ask("ping", count=count, size_bytes=size_bytes, is_json=is_json)
        delays_us: list[float] = answer["delays_us"]
        return delays_us

    def _cpu_s(self) -> tuple[float, float]:
        return cpu_clock_s(self.caller.pid), cpu_clock_s(self.listener.pid)


def median_ms(seconds: list[float]) -> float:
    return 1e3 * statistics.median(seconds)


def _status(pid: int, what: str) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    found = re.search(rf"^{what}:\s+(\d+)", status, re.MULTILINE)
    assert found is not None
    return int(found[1])
