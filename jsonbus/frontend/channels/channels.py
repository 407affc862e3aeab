"""Bind a port, connect to a port: the half that is the same with threads and tasks."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from time import monotonic
from typing import Any, ClassVar, Generic, TypeVar

from jsonbus.core.channel.connecting import Attempt
from jsonbus.core.channel.ports import check_port
from jsonbus.core.settings import NodeSettings
from jsonbus.errors import ConfigError
from jsonbus.frontend.channels.binding import BaseBinding
from jsonbus.frontend.channels.channel import BaseChannel, Handler
from jsonbus.frontend.channels.connector import Call, NodeAccess, NodeLoop
from jsonbus.frontend.channels.manager import ChannelManager
from jsonbus.frontend.checks import check_handler, check_seconds

C = TypeVar("C", bound=BaseChannel)
B = TypeVar("B", bound=BaseBinding[Any])


class BaseChannels(ABC, Generic[C, B]):
    """The channels of one bus, from its first `bind` or `connect` on."""

    #: Whether handlers may be coroutine functions.
    takes_async_handlers: ClassVar[bool]

    def __init__(self, loop: NodeLoop, own: NodeSettings, bus: object) -> None:
        self.log = loop.log
        # Every channel keeps its bus alive: it is of use only as long as the bus is open.
        self._bus = bus
        self.manager = ChannelManager(own, NodeAccess(loop), loop.addresses, loop.log)

    def bind(self, port: object, on_accept: Handler | None, *, exclusive: bool) -> B:
        """Do what `Bus.bind` promises."""
        if on_accept is not None:
            check_handler(on_accept, may_be_async=self.takes_async_handlers)
        name = check_port(port)
        binding = self._make_binding(name, on_accept, exclusive)
        self.manager.listener.bind(name, binding, exclusive=exclusive)
        return binding

    def look(self) -> None:
        """Look again for nodes to connect to: some joined, left or announced their address."""
        self.manager.look()

    def follow_addresses(self) -> None:
        """Listen on the addresses that the machine has now."""
        self.manager.listener.follow_addresses()

    def figures(self) -> dict[str, int]:
        return self.manager.figures()

    @abstractmethod
    def make_channel(self, port: str, who: str, lock: threading.Lock) -> C:
        """Return a channel that is not open yet."""

    @abstractmethod
    def schedule(self, channel: Any) -> None:
        """Have a worker call `channel.run_handler`."""

    @abstractmethod
    def check_thread(self) -> None:
        """Raise if the calling thread may not use the channels of this bus."""

    @abstractmethod
    def _make_binding(self, port: str, on_accept: Handler | None, exclusive: bool) -> B: ...

    def _make_call(self, node: str, port: object, timeout: float, *, retry: bool) -> tuple[C, Call]:
        """Return the channel for a call of `connect`, and the call that opens it."""
        if type(node) is not str or not node:
            raise ConfigError(f"connect to a node's name or id, not to {node!r}")
        timeout_s = check_seconds("timeout", timeout)
        channel = self.make_channel(check_port(port), node, threading.Lock())
        attempt = Attempt(node, channel.port, timeout_s, monotonic(), retry=retry)
        return channel, Call(node, attempt, channel)
