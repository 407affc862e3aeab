"""A node with channels that tells how it stands, as a program. It is asked by a channel.

echo       sends back what it gets
hoard      accepts, and takes nothing until it is told to
control    answers commands, which are lists of a name and arguments
"""

from __future__ import annotations

import logging
import os
import resource
import threading
import time
from pathlib import Path
from typing import Any

import jsonbus
from jsonbus.errors import MessageTooLargeError
from jsonbus.sync.channel import Channel


class Server:
    """The methods are the commands."""

    def __init__(self, bus: jsonbus.Bus) -> None:
        self._bus = bus
        self._hoard: dict[str, Channel] = {}
        bus.bind("echo", lambda channel: channel.on_message(channel.send))
        bus.bind("hoard", lambda channel: self._hoard.update({channel.node: channel}))
        bus.bind("control", self._accept)

    def _accept(self, channel: Channel) -> None:
        channel.on_message(lambda command: channel.send(getattr(self, command[0])(*command[1:])))

    def place(self) -> list[Any]:
        """Where it listens."""
        channels = self._bus._loop.channels
        assert channels is not None
        return list(channels.manager.listener.own_place() or ())

    def standing(self) -> dict[str, Any]:
        status = dict(
            line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines()
        )
        return {
            "resident_mb": int(status["VmRSS"].split()[0]) / 1024,
            "peak_mb": int(status["VmHWM"].split()[0]) / 1024,
            "threads": threading.active_count(),
            **self._bus.stats(),
        }

    def cpu_s(self) -> float:
        """What it has used; asking takes no descriptor."""
        return time.process_time()

    def leave_descriptors(self, count: int) -> None:
        """Have so many left."""
        highest = max(int(each) for each in os.listdir("/proc/self/fd"))
        _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (highest + 1 + count, hard))

    def take(self, node: str, count: int) -> list[int]:
        """The sizes of the next messages that a node has sent to the hoard."""
        return [self._take(self._hoard[node]) for _ in range(count)]

    def drop(self) -> None:
        """Close all channels of the hoard."""
        for channel in self._hoard.values():
            channel.close(0)

    def _take(self, channel: Channel) -> int:
        try:
            return len(channel.receive(60))
        except MessageTooLargeError as error:
            return error.size_bytes


if __name__ == "__main__":
    logging.basicConfig(format="%(message)s")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    with jsonbus.Bus(name="server") as bus:
        Server(bus)
        time.sleep(3_600)
