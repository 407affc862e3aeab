"""Bridges as real processes, and somebody who publishes for them."""

from __future__ import annotations

import re
import signal
import socket
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import jsonbus
from spark_bridge import wire
from tests.end_to_end.processes import Desk, Process

_SERVES = re.compile(r"\bserves\b.* on (127\.0\.0\.1:\d+)\b")

#: How long a bridge may take to answer on a machine with more to do than it can.
TIMEOUT_S = 60.0


class Bridge:
    """`jsonbus bridge` with a directory and a port that it keeps when it is started again."""

    def __init__(self, desk: Desk, directory: Path, *arguments: str, name: str = "bridge") -> None:
        self.directory = directory
        self.name = name
        self._desk = desk
        self._arguments = arguments
        self._listen = "127.0.0.1:0"
        self._incarnation = 0
        self._process: Process | None = None
        self._publisher: jsonbus.Bus | None = None
        self.start()

    @property
    def address(self) -> str:
        """For the option `bridge`; the same for good."""
        return self._listen

    @property
    def process(self) -> Process:
        assert self._process is not None, "the bridge is not running"
        return self._process

    def start(self) -> None:
        """Start it; returns when it serves, and every publisher of the desk knows of it."""
        assert self._process is None, "the bridge is running"
        self._process = self._desk.start(
            "bridge",
            *("--name", self.name, "--listen", self._listen, "--data-dir", str(self.directory)),
            *self._arguments,
        )
        self._desk.wait_until(self._find_address)
        self._desk.wait_until(lambda: self._is_known_to(self._desk.observer))
        self._incarnation = max(self._incarnations(self._desk.observer))

    def stop(self) -> None:
        """End it as a user would."""
        self.process.send_signal(signal.SIGTERM)
        self.process.expect_exit(0)
        self._process = None

    def kill(self) -> None:
        """End it as the kernel would: nothing is flushed, nobody is told."""
        self.process.end()
        self._process = None

    def restart(self) -> None:
        """Kill it, and start it again on the same port with the same log."""
        self.kill()
        self.start()

    def publish(self, topic: str, values: Iterable[Any]) -> int:
        """Publish values reliably; returns how many when the bridge has recorded them all."""
        before = self.rows()
        publisher = self._ready_publisher()
        count = 0
        for value in values:
            count += 1
            assert publisher.publish(topic, value), f"nobody subscribes to {topic}"
        self.wait_for_rows(before + count)
        return count

    def rows(self) -> int:
        """How many rows it ever recorded, gap records included; all of them are on disk."""
        return sum(self.ends())

    def ends(self) -> list[int]:
        """The offset behind the last one on disk, by partition."""
        ends: list[int] = self.ask({"op": "poll", "known": None, "wait_ms": 0})["end"]
        return ends

    def wait_for_rows(self, count: int) -> None:
        """Wait until it has recorded so many rows in all."""
        self._desk.wait_until(lambda: self.rows() >= count)

    def ask(self, request: dict[str, Any]) -> dict[str, Any]:
        """One request on a connection of its own; it must be granted."""
        host, _, port = self.address.rpartition(":")
        with socket.create_connection((host, int(port)), TIMEOUT_S) as connection:
            hello = {"op": "hello", "version": wire.VERSION, "client": "test"}
            connection.sendall(wire.MAGIC + wire.encode(hello) + wire.encode(request))
            with connection.makefile("rb") as replies:
                for _ in (hello, request):
                    (length,) = wire.LENGTH.unpack(replies.read(wire.LENGTH.size))
                    reply = wire.decode(replies.read(length))
                    assert reply["ok"], reply
        return reply

    def close(self) -> None:
        if self._publisher is not None:
            self._publisher.close()
        if self._process is not None:
            self.kill()

    def _ready_publisher(self) -> jsonbus.Bus:
        """A node that knows of the bridge as it runs now, not only of one that was killed."""
        if self._publisher is None:
            self._publisher = jsonbus.Bus(
                name=f"publisher for {self.name}",
                port=self._desk.port,
                interface="lo",
                reliable=True,
            )
        publisher = self._publisher
        self._desk.wait_until(lambda: self._incarnation in self._incarnations(publisher))
        return publisher

    def _find_address(self) -> bool:
        for line in list(self.process.complaints):
            if (found := _SERVES.search(line)) is not None:
                self._listen = found[1]
                return True
        return False

    def _is_known_to(self, bus: jsonbus.Bus) -> bool:
        return any(each > self._incarnation for each in self._incarnations(bus))

    def _incarnations(self, bus: jsonbus.Bus) -> list[int]:
        """When nodes of the bridge's name started; one that was killed stays listed for a while."""
        return [
            info.incarnation for info in bus.nodes() if info.name == self.name and info.patterns
        ]
