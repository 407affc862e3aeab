"""The processes of a run: one `jsonbus` on every host, as long as it lives, then the next one."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Sequence
from typing import Any

from tools.lab.host import Host
from tools.lab.process import Process
from tools.lab.promises.record import Delivery, Gap, Life, Publication, Record

#: How long a process may take to end when it is told to: `close` waits for repairs, and a busy
#: machine for everything.
END_TIMEOUT_S = 20.0

#: Every so many values one is too large for a datagram, and travels in slices.
LARGE_EVERY = 20
LARGE_PAD = "x" * 4_000

GAP_KEY = "jsonbus.gap"


class Actor:
    """A host's role, and the process that plays it."""

    def __init__(self, host: Host, record: Record, *, role: str, is_reliable: bool = False) -> None:
        self.host = host
        self.role = role
        self.is_frozen = False
        self.life: Life
        self._record = record
        self._is_reliable = is_reliable
        self._lives = 0
        self._position = 0  # up to which the output of this life was read
        self.is_over = True
        self._process: Process

    @property
    def is_publisher(self) -> bool:
        return self.role == "pub"

    def start(self, patterns: Sequence[str]) -> None:
        """Start the next life. Only subscribers want something."""
        self._lives += 1
        self._position = 0
        name = f"{self.role}{self.host.name.removeprefix('host')}.{self._lives}"
        began_at = time.time()
        if self.is_publisher:
            flags = ["--reliable"] if self._is_reliable else []
            self._process = self.host.start("pub", "--name", name, *flags, is_fed=True)
            self.life = Life(name, self.host.name, began_at, is_reliable=self._is_reliable)
        else:
            self._process = self.host.start("sub", "--gaps", "--name", name, *patterns)
            self.life = Life(name, self.host.name, began_at, tuple(patterns))
        self._record.lives[name] = self.life
        self.is_over = False

    def feed(self, topic: str) -> None:
        """Give a publisher a value to publish."""
        number = len(self._record.publications)
        value: dict[str, object] = {"number": number}
        if number % LARGE_EVERY == 0:
            value["pad"] = LARGE_PAD
        publication = Publication(number, topic, self.life.name, time.time())
        self._record.publications.append(publication)
        with contextlib.suppress(BrokenPipeError):  # it ended by itself, which is noted elsewhere
            self._process.feed(json.dumps({"topic": topic, "value": value}))

    def set_frozen(self, is_frozen: bool) -> None:
        self.is_frozen = is_frozen
        self._process.set_frozen(is_frozen)

    def end(self, *, is_killed: bool) -> None:
        """End this life, with a goodbye or without, and keep what it printed."""
        if self._process.returncode is not None:
            self._trouble("it ended by itself")
        elif is_killed:
            self._process.kill()
        else:
            self._process.terminate()
            if self._process.wait(END_TIMEOUT_S) is None:
                self._trouble(f"it did not end within {END_TIMEOUT_S:g} s of SIGTERM")
        self.life.ended_at = time.time()
        self.read()
        if "Traceback" in self._process.errors():
            self._trouble("it printed a traceback")
        self.is_over = True
        self.host.processes.remove(self._process)
        self._process.close()

    def read(self) -> None:
        """Read what a subscriber has printed since the last time."""
        if self.is_publisher or self.is_over:
            return
        lines, self._position = self._process.lines_since(self._position)
        for line in lines:
            fields = json.loads(line)
            if GAP_KEY in fields:
                self.life.gaps.append(_gap(fields[GAP_KEY]))
            else:
                self.life.deliveries.append(_delivery(fields))

    def check(self) -> None:
        """Note what is wrong with a process that should be well."""
        if self._process.returncode is not None:
            self._trouble("it ended by itself")
        elif "Traceback" in self._process.errors():
            self._trouble("it printed a traceback")

    def _trouble(self, what: str) -> None:
        self.life.troubles.append(f"{what}:\n{self._process.report()}")


def _delivery(line: dict[str, Any]) -> Delivery:
    return Delivery(line["value"]["number"], line["topic"], line["node"], line["received_at"])


def _gap(fields: dict[str, Any]) -> Gap:
    return Gap(fields["node"], fields["topic"], fields["first"], fields["last"])
