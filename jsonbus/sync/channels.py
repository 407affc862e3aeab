"""What `Bus` offers about channels: bind a port, connect to one of another node."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from time import monotonic

from jsonbus.core.channel.connecting import Attempt
from jsonbus.core.channel.ports import check_port
from jsonbus.core.settings import NodeSettings
from jsonbus.errors import ChannelError, ClosedError, ConfigError, LocalError
from jsonbus.frontend.channels.binding import BoundPort
from jsonbus.frontend.channels.channel import ACCEPT, BaseChannel, Handler
from jsonbus.frontend.channels.connector import Call, NodeDoor
from jsonbus.frontend.channels.manager import Exchange
from jsonbus.frontend.checks import check_handler, check_optional_seconds, check_seconds
from jsonbus.frontend.lifetime import forked_error
from jsonbus.sync.channel import Channel
from jsonbus.sync.channel_io import Operator
from jsonbus.sync.direct_receive import Seats
from jsonbus.sync.loop import Loop


class Channels:
    """The channels of one bus, from its first `bind` or `connect` on. Any thread."""

    def __init__(self, loop: Loop, own: NodeSettings, bus: object) -> None:
        """Raises TransportError."""
        self._loop = loop
        self._bus = bus
        self.exchange = Exchange(own, NodeDoor(loop), loop.addresses, loop.log)
        self._seats = Seats()
        self._operator = Operator(self.exchange, own.name, loop.log)

    def bind(self, port: object, on_accept: Handler | None, *, exclusive: bool) -> Binding:
        """See `Bus.bind`."""
        if on_accept is not None:
            check_handler(on_accept, may_be_async=False)
        name = check_port(port)
        binding = Binding(
            name,
            on_accept,
            exclusive=exclusive,
            make=partial(self._make_channel, name),
            release=partial(self.exchange.reception.unbind, name),
            exchange=self.exchange,
            will_wait=self._loop.workers.will_wait,
        )
        if on_accept is not None:
            self._loop.workers.start_workers()
        self.exchange.reception.bind(name, binding, exclusive=exclusive)
        return binding

    def connect(
        self, node: str, port: object, timeout: float, *, retry: bool, wait: bool
    ) -> Channel:
        """See `Bus.connect`."""
        if type(node) is not str or not node:
            raise ConfigError(f"connect to a node's name or id, not to {node!r}")
        timeout_s = check_seconds("timeout", timeout)
        channel = self._make_channel(check_port(port), node, threading.Lock())
        attempt = Attempt(node, channel.port, timeout_s, monotonic(), retry=retry)
        call = Call(node, attempt, channel)
        try:
            self.exchange.post(lambda: self.exchange.calls.begin(call))
            if wait:
                channel.wait_until_open()
        except ChannelError:
            raise
        except BaseException:  # of a signal's handler: nobody will have this channel
            channel.close(0.0)
            raise
        return channel

    def look(self) -> None:
        """Nodes came, went, or told where they are."""
        self.exchange.look()

    def follow_addresses(self) -> None:
        """The network changed."""
        self.exchange.reception.follow_addresses()

    def figures(self) -> dict[str, int]:
        return self.exchange.figures()

    def close(self, deadline: float) -> None:
        """Close all of them, and let their handlers finish."""
        self._operator.close(deadline)
        self._seats.close()
        if not self._loop.workers.are_current():
            for channel in tuple(self.exchange.busy):
                assert isinstance(channel, Channel)
                channel.wait_until_handled(deadline)

    def cut_off(self) -> None:
        """This is a forked child."""
        self.exchange.cut_off()
        self._operator.cut_off()
        self._seats.close()

    def _make_channel(self, port: str, who: str, lock: threading.Lock) -> Channel:
        return Channel(
            port,
            who,
            self.exchange,
            self._loop.log,
            lock,
            schedule=self._schedule,
            will_wait=self._loop.workers.will_wait,
            seats=self._seats,
            bus=self._bus,
        )

    def _schedule(self, channel: Channel) -> None:
        self._loop.workers.start_workers()
        self._loop.workers.schedule(channel)


class Binding(BoundPort[Channel]):
    """A port of this node that others connect to; close it to take no more.

    Without `on_accept`: `accept`, or iterate. All methods may be called from any thread.
    """

    def __init__(
        self,
        port: str,
        on_accept: Handler | None,
        *,
        exclusive: bool,
        make: Callable[[str, threading.Lock], Channel],
        release: Callable[[], None],
        exchange: Exchange,
        will_wait: Callable[[], None],
    ) -> None:
        super().__init__(port, on_accept, exclusive=exclusive)
        self._make = make
        self._release = release
        self._exchange = exchange
        self._will_wait = will_wait
        self._lock = threading.Lock()
        self._arrived = threading.Condition(self._lock)

    def accept(self, timeout: float | None = None) -> Channel:
        """The next channel that was opened from elsewhere; waits at most `timeout` seconds.

        Raises ChannelTimeoutError; ClosedError once the binding or the bus is closed.
        """
        timeout_s = check_optional_seconds("timeout", timeout)
        if self._on_accept is not None:
            raise LocalError(f"port {self._port!r} has a handler that accepts its channels")
        if self._exchange.is_cut_off:
            raise forked_error()
        deadline = None if timeout_s is None else monotonic() + timeout_s
        self._will_wait()
        with self._lock:
            while not self._waiting:
                if self._is_closed:
                    raise ClosedError(f"the binding of port {self._port!r} is closed")
                remaining_s = None if deadline is None else deadline - monotonic()
                if remaining_s is not None and remaining_s <= 0:
                    raise self._timeout_error(timeout_s)
                self._arrived.wait(remaining_s)
            return self._waiting.popleft()

    def __iter__(self) -> Binding:
        return self

    def __next__(self) -> Channel:
        try:
            return self.accept()
        except ClosedError:
            raise StopIteration from None

    def close(self) -> None:
        """Take no more channels; those that were accepted stay. A second call does nothing."""
        if self._exchange.is_cut_off:
            return
        with self._lock:
            if self._is_closed:
                return
            self._is_closed = True
        self._release()
        self.end()

    def __enter__(self) -> Binding:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # What follows is for the exchange.

    def make_channel(self, who: str, lock: threading.Lock) -> BaseChannel:
        return self._make(who, lock)

    def offer(self, channel: BaseChannel) -> None:
        assert isinstance(channel, Channel)
        if self._on_accept is not None:
            channel.handle(ACCEPT, self._on_accept)
            return
        with self._lock:
            if not self._is_closed:
                self._waiting.append(channel)
                # All: the one that is woken may be interrupted in that moment, and accept nothing.
                self._arrived.notify_all()
                return
        channel.close(0.0)

    def end(self) -> None:
        with self._lock:
            self._is_closed = True
            waiting = list(self._waiting)
            self._waiting.clear()
            self._arrived.notify_all()
        for channel in waiting:
            channel.close(0.0)
