"""Two buses and a channel between them."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, NamedTuple

import jsonbus
from jsonbus.errors import ChannelTimeoutError
from jsonbus.sync.channel import Channel
from jsonbus.sync.channels import Binding
from tests.channel_peers import BLOCK, LONG_S
from tests.sync.conftest import OpenBus


class Pair(NamedTuple):
    """`here` was connected by `calling`, `there` accepted by `bound`."""

    here: Channel
    there: Channel
    calling: jsonbus.Bus
    bound: jsonbus.Bus
    binding: Binding


def open_pair(open_bus: OpenBus, **settings: Any) -> Pair:
    calling = open_bus(name="calling", **settings)
    bound = open_bus(name="bound", **settings)
    binding = bound.bind("p")
    here = calling.connect("bound", "p", timeout=LONG_S, retry=True)
    return Pair(here, binding.accept(LONG_S), calling, bound, binding)


def fill(channel: Channel, other: Channel) -> int:
    """Send until everything is full, since the other end does not read; how many blocks."""
    count = 0
    while True:
        try:
            channel.send(BLOCK, timeout=0.1)
            count += 1
        except ChannelTimeoutError:
            if other._connection is not None and not other._connection.interest[0]:
                return count


class InThread:
    """A call in a thread of its own, and what became of it."""

    def __init__(self, call: Callable[..., Any], *arguments: Any) -> None:
        self._call = call
        self._arguments = arguments
        self._result: Any = None
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    @property
    def is_over(self) -> bool:
        return not self._thread.is_alive()

    def result(self) -> Any:
        """What it returned, or raises what it raised."""
        self._thread.join(LONG_S)
        assert self.is_over, "the call still waits"
        if self._error is not None:
            raise self._error
        return self._result

    def _run(self) -> None:
        try:
            self._result = self._call(*self._arguments)
        except BaseException as error:
            self._error = error
