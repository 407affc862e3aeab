"""A bound port: the half that is the same with threads and tasks."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections import deque
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

from jsonbus.core.channel.limits import ACCEPT_MAX
from jsonbus.errors import ChannelTimeoutError, ClosedError, LocalError
from jsonbus.frontend.channels.channel import ACCEPT, BaseChannel, Handler

if TYPE_CHECKING:
    from jsonbus.frontend.channels.channels import BaseChannels

C = TypeVar("C", bound=BaseChannel)


class BaseBinding(ABC, Generic[C]):
    """The base of `Binding` in both front ends.

    `_lock` guards `_waiting` and `_is_closed`. In an event loop nobody contends for it.
    """

    def __init__(
        self, channels: BaseChannels[C, Any], port: str, on_accept: Handler | None, exclusive: bool
    ) -> None:
        self._port = port
        self._on_accept = on_accept
        self._is_exclusive = exclusive
        self._channels = channels
        self._manager = channels.manager
        self._lock = threading.Lock()
        self._waiting: deque[C] = deque()  # open, and not accepted yet
        self._is_closed = False

    @property
    def port(self) -> str:
        """The port that other nodes connect to."""
        return self._port

    @property
    def exclusive(self) -> bool:
        """Whether it takes only one channel at a time."""
        return self._is_exclusive

    @property
    def pending(self) -> int:
        """How many channels wait to be accepted."""
        return len(self._waiting)

    @property
    def is_closed(self) -> bool:
        """Whether it takes no more channels."""
        return self._is_closed

    def accept(self, timeout: float | None = None) -> Any:
        """Return the next channel that another node opened; wait at most `timeout` seconds.

        Raises ChannelTimeoutError; ClosedError once the binding or the bus is closed; LocalError if
        the port was bound with `on_accept`.
        """

    def close(self) -> None:
        """Take no more channels. Accepted ones stay open; waiting ones are closed. Idempotent."""
        if self._is_closed or self._manager.is_cut_off:
            return
        self._channels.loop.check_here()
        with self._lock:
            if self._is_closed:
                return
            self._is_closed = True
        self._manager.listener.unbind(self._port)
        self.end()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        state = "closed" if self._is_closed else f"{self.pending} pending"
        return f"<{type(self).__name__} of {self._port!r}, {state}>"

    # What follows is for the listener.

    @property
    def has_room(self) -> bool:
        """Whether one more channel may wait to be accepted."""
        return len(self._waiting) < ACCEPT_MAX

    def make_channel(self, who: str, lock: threading.Lock) -> C:
        """Return a channel to that node, about to open."""
        return self._channels.make_channel(self._port, who, lock)

    def offer(self, channel: BaseChannel) -> None:
        """Hand over a channel of `make_channel`, which is open now."""
        if self._on_accept is not None:
            channel.handle(ACCEPT, self._on_accept)
            return
        with self._lock:
            if not self._is_closed:
                self._waiting.append(channel)  # type: ignore[arg-type]  # from make_channel
                self._notify()
                return
        channel.begin_close()

    def end(self) -> None:
        """Close it, because the bus is closing or `close` was called."""
        with self._lock:
            self._is_closed = True
            waiting = list(self._waiting)
            self._waiting.clear()
            self._notify()
        for channel in waiting:
            channel.begin_close()

    # What follows is for the front end.

    @abstractmethod
    def _notify(self) -> None:
        """Wake callers of `accept`. Lock held."""

    def _check_acceptable(self) -> None:
        """Raise unless `accept` may be called."""
        if self._on_accept is not None:
            raise LocalError(f"port {self._port!r} has a handler that accepts its channels")
        self._channels.loop.check_here()

    def _closed_error(self) -> ClosedError:
        return ClosedError(f"the binding of port {self._port!r} is closed")

    def _timeout_error(self, timeout_s: float | None) -> ChannelTimeoutError:
        return ChannelTimeoutError("this node", self._port, "nobody connected", timeout_s or 0.0)
