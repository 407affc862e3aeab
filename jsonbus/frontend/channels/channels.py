"""Bind a port, connect to a port: the half that is the same with threads and tasks."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from time import monotonic
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from jsonbus.core.channel.connecting import Attempt
from jsonbus.core.channel.ports import check_port
from jsonbus.errors import ConfigError
from jsonbus.frontend.channels.binding import BaseBinding
from jsonbus.frontend.channels.channel import BaseChannel, Handler
from jsonbus.frontend.channels.connector import Call
from jsonbus.frontend.channels.manager import ChannelManager
from jsonbus.frontend.checks import check_seconds

if TYPE_CHECKING:
    from jsonbus.frontend.loop import BaseLoop

C = TypeVar("C", bound=BaseChannel)
B = TypeVar("B", bound=BaseBinding[Any])


class BaseChannels(ABC, Generic[C, B]):
    """The channels of one bus, from its first `bind` or `connect` on."""

    _channel_type: type[C]
    _binding_type: type[B]

    def __init__(self, loop: BaseLoop[Any, Any], bus: object) -> None:
        self.loop = loop
        # Every channel keeps its bus alive: it is of use only as long as the bus is open.
        self._bus = bus
        self.manager = ChannelManager(loop)

    def bind(self, port: object, on_accept: Handler | None, *, exclusive: bool) -> B:
        """Do what `Bus.bind` promises."""
        if on_accept is not None:
            self.loop.prepare_handler(on_accept)
        name = check_port(port)
        binding = self._binding_type(self, name, on_accept, exclusive)
        self.manager.listener.bind(name, binding, exclusive=exclusive)
        return binding

    def make_channel(self, port: str, who: str, lock: threading.Lock) -> C:
        """Return a channel that is not open yet."""
        return self._channel_type(port, who, lock, self)

    @abstractmethod
    def cut_off(self) -> None:
        """Release all descriptors in a forked child."""

    def _make_call(self, node: str, port: object, timeout: float, *, retry: bool) -> tuple[C, Call]:
        """Return the channel for a call of `connect`, and the call that opens it."""
        if type(node) is not str or not node:
            raise ConfigError(f"connect to a node's name or id, not to {node!r}")
        timeout_s = check_seconds("timeout", timeout)
        channel = self.make_channel(check_port(port), node, threading.Lock())
        attempt = Attempt(node, channel.port, timeout_s, monotonic(), retry=retry)
        return channel, Call(node, attempt, channel)
