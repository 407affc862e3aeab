"""A port that a node has bound: the part that is the same with threads and tasks."""

from __future__ import annotations

from collections import deque
from typing import Generic, TypeVar

from jsonbus.core.channel.limits import ACCEPT_MAX
from jsonbus.errors import ChannelTimeoutError
from jsonbus.frontend.channels.channel import BaseChannel, Handler

C = TypeVar("C", bound=BaseChannel)


class BoundPort(Generic[C]):
    """The base of `Binding` in both front ends. No lock here: it needs the binding's own."""

    def __init__(self, port: str, on_accept: Handler | None, *, exclusive: bool) -> None:
        self._port = port
        self._on_accept = on_accept
        self._is_exclusive = exclusive
        self._waiting: deque[C] = deque()  # open, and not accepted yet
        self._is_closed = False

    @property
    def port(self) -> str:
        """What others connect to."""
        return self._port

    @property
    def exclusive(self) -> bool:
        """Whether one channel at a time is all that it takes."""
        return self._is_exclusive

    @property
    def pending(self) -> int:
        """How many channels wait to be accepted."""
        return len(self._waiting)

    @property
    def is_closed(self) -> bool:
        return self._is_closed

    @property
    def has_room(self) -> bool:
        """Whether one more caller may wait."""
        return len(self._waiting) < ACCEPT_MAX

    def _timeout_error(self, timeout_s: float | None) -> ChannelTimeoutError:
        return ChannelTimeoutError("this node", self._port, "nobody connected", timeout_s or 0.0)

    def __repr__(self) -> str:
        state = "closed" if self._is_closed else f"{self.pending} pending"
        return f"<{type(self).__name__} of {self._port!r}, {state}>"
