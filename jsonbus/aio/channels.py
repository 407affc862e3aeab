"""The channels of an `AsyncBus`: bind a port, connect to a port of another node."""

from __future__ import annotations

import asyncio

from jsonbus.aio.channel import Channel
from jsonbus.aio.channel_io import ChannelIO
from jsonbus.aio.loop import Loop
from jsonbus.aio.signal import Signal
from jsonbus.errors import ClosedError
from jsonbus.frontend.channels.binding import BaseBinding
from jsonbus.frontend.channels.channel import Handler
from jsonbus.frontend.channels.channels import BaseChannels
from jsonbus.frontend.checks import check_optional_seconds


class Binding(BaseBinding[Channel]):
    """A port of this node that other nodes connect to. Close it to take no more channels.

    Without `on_accept`, call `accept` or iterate. All methods belong to the event loop of the bus.
    """

    def __init__(
        self, channels: Channels, port: str, on_accept: Handler | None, exclusive: bool
    ) -> None:
        super().__init__(channels, port, on_accept, exclusive)
        self._arrived = Signal(channels.loop.event_loop)

    async def accept(self, timeout: float | None = None) -> Channel:
        timeout_s = check_optional_seconds("timeout", timeout)
        self._check_acceptable()
        try:
            async with asyncio.timeout(timeout_s):
                while not self._waiting:
                    if self._is_closed:
                        raise self._closed_error()
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

    def _notify(self) -> None:
        self._arrived.fire()


class Channels(BaseChannels[Channel, Binding]):
    """The channels of one bus, from its first `bind` or `connect` on."""

    loop: Loop
    _channel_type = Channel
    _binding_type = Binding

    def __init__(self, loop: Loop, bus: object) -> None:
        super().__init__(loop, bus)
        self._io = ChannelIO(self.manager, loop.event_loop, loop.log)

    async def connect(
        self, node: str, port: object, timeout_s: float, *, retry: bool, wait: bool
    ) -> Channel:
        """Do what `AsyncBus.connect` promises."""
        channel, call = self._make_call(node, port, timeout_s, retry=retry)
        self.manager.post(lambda: self.manager.connector.begin(call))
        if wait:
            await channel.wait_until_open()
        return channel

    async def close(self, deadline: float) -> None:
        """Close all channels, and let their handlers finish."""
        await self._io.close(deadline)
        if not self.loop.workers.are_current():
            for channel in tuple(self.manager.busy):
                assert isinstance(channel, Channel)
                await channel.wait_until_handled(deadline)

    def end_now(self) -> None:
        """Close all channels without waiting."""
        self._io.end_now()

    def cut_off(self) -> None:
        self.manager.cut_off()
