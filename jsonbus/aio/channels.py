"""What `AsyncBus` offers about channels: bind a port, connect to one of another node."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from functools import partial
from time import monotonic

from jsonbus.aio.channel import Channel
from jsonbus.aio.channel_io import Operator
from jsonbus.aio.loop import Loop
from jsonbus.aio.signal import Signal
from jsonbus.core.channel.connecting import Attempt
from jsonbus.core.channel.ports import check_port
from jsonbus.core.settings import NodeSettings
from jsonbus.errors import ClosedError, ConfigError, LocalError
from jsonbus.frontend.channels.binding import BoundPort
from jsonbus.frontend.channels.channel import ACCEPT, BaseChannel, Handler
from jsonbus.frontend.channels.connector import Call, NodeDoor
from jsonbus.frontend.channels.manager import Exchange
from jsonbus.frontend.checks import check_handler, check_optional_seconds, check_seconds


class Channels:
    """The channels of one bus, from its first `bind` or `connect` on."""

    def __init__(self, loop: Loop, own: NodeSettings, bus: object) -> None:
        self._loop = loop
        self._bus = bus
        self.exchange = Exchange(own, NodeDoor(loop), loop.addresses, loop.log)
        self._operator = Operator(self.exchange, loop.event_loop, loop.log)

    def bind(self, port: object, on_accept: Handler | None, *, exclusive: bool) -> Binding:
        """See `AsyncBus.bind`."""
        if on_accept is not None:
            check_handler(on_accept, may_be_async=True)
        name = check_port(port)
        binding = Binding(
            name,
            on_accept,
            exclusive=exclusive,
            make=partial(self._make_channel, name),
            release=partial(self.exchange.reception.unbind, name),
            exchange=self.exchange,
            event_loop=self._loop.event_loop,
            check_here=self._loop.check_here,
        )
        self.exchange.reception.bind(name, binding, exclusive=exclusive)
        return binding

    async def connect(
        self, node: str, port: object, timeout_s: float, *, retry: bool, wait: bool
    ) -> Channel:
        """See `AsyncBus.connect`."""
        if type(node) is not str or not node:
            raise ConfigError(f"connect to a node's name or id, not to {node!r}")
        channel = self._make_channel(check_port(port), node, threading.Lock())
        timeout_s = check_seconds("timeout", timeout_s)
        attempt = Attempt(node, channel.port, timeout_s, monotonic(), retry=retry)
        call = Call(node, attempt, channel)
        self.exchange.post(lambda: self.exchange.calls.begin(call))
        if wait:
            await channel.wait_until_open()
        return channel

    def look(self) -> None:
        """Nodes came, went, or told where they are."""
        self.exchange.look()

    def follow_addresses(self) -> None:
        """The network changed."""
        self.exchange.reception.follow_addresses()

    def figures(self) -> dict[str, int]:
        return self.exchange.figures()

    async def close(self, deadline: float) -> None:
        """Close all of them, and let their handlers finish."""
        await self._operator.close(deadline)
        if not self._loop.workers.are_current():
            for channel in tuple(self.exchange.busy):
                assert isinstance(channel, Channel)
                await channel.wait_until_handled(deadline)

    def end_now(self) -> None:
        """Close them without waiting."""
        self._operator.end_now()

    def cut_off(self) -> None:
        """This is a forked child."""
        self.exchange.cut_off()

    def _make_channel(self, port: str, who: str, lock: threading.Lock) -> Channel:
        return Channel(
            port,
            who,
            self.exchange,
            self._loop.log,
            lock,
            event_loop=self._loop.event_loop,
            check_here=self._loop.check_here,
            schedule=self._loop.workers.schedule,
            bus=self._bus,
        )


class Binding(BoundPort[Channel]):
    """A port of this node that others connect to; close it to take no more.

    Without `on_accept`: `accept`, or iterate. All methods are for the event loop of the bus.
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
        event_loop: asyncio.AbstractEventLoop,
        check_here: Callable[[], None],
    ) -> None:
        super().__init__(port, on_accept, exclusive=exclusive)
        self._make = make
        self._release = release
        self._exchange = exchange
        self._check_here = check_here
        self._arrived = Signal(event_loop)

    async def accept(
        self,
        timeout: float | None = None,  # noqa: ASYNC109 - as with threads
    ) -> Channel:
        """The next channel that was opened from elsewhere; waits at most `timeout` seconds.

        Raises ChannelTimeoutError; ClosedError once the binding or the bus is closed.
        """
        timeout_s = check_optional_seconds("timeout", timeout)
        self._check_here()
        if self._on_accept is not None:
            raise LocalError(f"port {self._port!r} has a handler that accepts its channels")
        try:
            async with asyncio.timeout(timeout_s):
                while not self._waiting:
                    if self._is_closed:
                        raise ClosedError(f"the binding of port {self._port!r} is closed")
                    await self._arrived.wait()
        except TimeoutError:
            if not self._waiting:
                raise self._timeout_error(timeout_s) from None
        return self._waiting.popleft()

    def __aiter__(self) -> Binding:
        return self

    async def __anext__(self) -> Channel:
        try:
            return await self.accept()
        except ClosedError:
            raise StopAsyncIteration from None

    def close(self) -> None:
        """Take no more channels; those that were accepted stay. A second call does nothing."""
        if not self._is_closed and not self._exchange.is_cut_off:
            self._check_here()
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
        elif self._is_closed:
            channel.begin_close()
        else:
            self._waiting.append(channel)
            self._arrived.fire()

    def end(self) -> None:
        self._is_closed = True
        self._arrived.fire()
        while self._waiting:
            self._waiting.popleft().begin_close()
