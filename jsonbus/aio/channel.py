"""A channel to another node, with tasks: calls that are awaited, and handlers in workers.

Everything happens in one event loop, so nobody contends for the lock of a channel.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from time import monotonic
from typing import TYPE_CHECKING, Any

from jsonbus.aio.signal import Signal
from jsonbus.aio.workers import call_handler
from jsonbus.core.channel.end import CLOSED, OPEN
from jsonbus.core.channel.limits import OUTPUT_BYTES_MAX
from jsonbus.errors import ChannelClosedError
from jsonbus.frontend.channels.channel import CLOSE_S, BaseChannel
from jsonbus.frontend.checks import check_optional_seconds, check_seconds
from jsonbus.frontend.limits import BATCH_MAX

if TYPE_CHECKING:
    from jsonbus.aio.channels import Channels


class Channel(BaseChannel):
    """Messages to and from one other node: in order, none lost while both nodes are there.

    Returned by `AsyncBus.connect`, or by a binding. All methods belong to the event loop of the
    bus. Several tasks may receive; each message goes to one of them. Handlers may be coroutine
    functions.

        async with await bus.connect("printer", "jobs") as channel:
            await channel.send({"file": "a.pdf"})
            print(await channel.receive(timeout=10))
    """

    def __init__(self, port: str, who: str, lock: threading.Lock, channels: Channels) -> None:
        super().__init__(port, who, lock, channels)
        self._changed = Signal(channels.loop.event_loop)  # messages, or its state
        self._room = Signal(channels.loop.event_loop)

    async def send(self, value: Any, timeout: float | None = None) -> None:
        """Send a message: bytes as they are, any other value as JSON.

        Waits, at most `timeout` seconds, while the other node does not take earlier messages; then
        raises ChannelTimeoutError, and nothing of the message was sent. The same holds for a call
        that is cancelled. A message that was sent arrives unless the connection is lost; `close`
        returns whether all did.

        Raises PayloadError, MessageTooLargeError, ChannelClosedError; and ChannelRefusedError on a
        channel that could not be opened.
        """
        timeout_s = check_optional_seconds("timeout", timeout)
        self._check_here()
        item = self._encode(value)
        end = self._end
        if end is None or end.state != OPEN or not end.has_room:
            await self._wait_for_room(timeout_s)
        with self.lock:
            self._put(item)

    async def receive(self, timeout: float | None = None) -> Any:
        """Return the next message; wait for it at most `timeout` seconds.

        Raises ChannelTimeoutError; ChannelClosedError once no message waits and none can arrive;
        MessageTooLargeError in place of a message that was too large: the next call continues
        after it. Raises LocalError if the channel has a handler for messages. Cancelling the call
        loses no message.
        """
        timeout_s = check_optional_seconds("timeout", timeout)
        self._check_here()
        self._check_unhandled()
        while True:
            with self.lock:
                item = self._take()
            if item is not None:
                return self._read(item)
            if timeout_s is None:  # without `_wait`, which costs as much as a small message
                if not self._may_receive():
                    await self._changed.wait()
            elif not await self._wait(self._may_receive, timeout_s):
                raise self._timeout_error("no message came", timeout_s)

    def __aiter__(self) -> Channel:
        return self

    async def __anext__(self) -> Any:
        try:
            return await self.receive()
        except ChannelClosedError as error:
            if error.is_lost:
                raise
            raise StopAsyncIteration from None

    async def close(self, timeout: float = CLOSE_S) -> bool:
        """Send no more and receive no more; messages already sent are delivered.

        Waits at most `timeout` seconds for the other node to confirm that it has read everything,
        and returns whether it did. False means: not yet, and delivery goes on while the bus is
        open; or the connection was lost; or the other node closed first. A second call waits again.
        """
        timeout_s = check_seconds("timeout", timeout)
        if self._manager.is_cut_off:
            return False
        self._check_here()
        self.begin_close()
        await self._wait(lambda: self.state == CLOSED, timeout_s)
        return self._end is not None and self._end.is_confirmed

    async def __aenter__(self) -> Channel:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            await self.close()
        else:
            self.abort()  # the other node must not believe it has got everything

    # What follows is for Channels, the manager and the workers.

    async def wait_until_open(self) -> None:
        """Wait until it is open; raise the error if it could not be opened."""
        try:
            await self._wait(lambda: self._end is not None or self._has_ended(), None)
        except asyncio.CancelledError:
            self.begin_close()
            raise
        if self._end is None:
            raise self._closed_error()

    def notify(self) -> None:
        end = self._end
        self._changed.fire()
        if end is None or end.state != OPEN or end.output_bytes <= OUTPUT_BYTES_MAX // 2:
            self._room.fire()

    async def run_handler(self) -> bool:
        """Run handlers that are due; return whether more are. Called by one worker at a time."""
        is_whole = False
        try:
            for _ in range(BATCH_MAX):
                call = self._next_handler_call()
                if call is None:
                    is_whole = True
                    return False
                event, handler, argument = call
                await call_handler(handler, argument, self._fail_handler, event)
            is_whole = True
            return True
        finally:
            if not is_whole:  # the worker was cancelled: the next event finds another one
                self._release_handlers()

    def put_off(self) -> None:
        """Note that no worker could be started; the next event tries again."""
        self._release_handlers()

    async def wait_until_handled(self, deadline: float) -> None:
        """Wait until the handlers that are due have run."""
        await self._wait(lambda: not self._is_scheduled, max(0.0, deadline - monotonic()))

    async def _wait_for_room(self, timeout_s: float | None) -> None:
        while not self._may_send():
            if not await self._wait(self._may_send, timeout_s, self._room):
                raise self._timeout_error("there was no room for another message", timeout_s)

    def _may_receive(self) -> bool:
        """Return whether a message waits; raise if none will ever come."""
        if self.pending:
            return True
        if self._is_unreadable():
            raise self._closed_error()
        return False

    async def _wait(
        self,
        condition: Callable[[], bool],
        timeout_s: float | None,
        signal: Signal | None = None,
    ) -> bool:
        """Return whether the condition came true in time; look at it after each signal."""
        if condition():
            return True
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                while not condition():
                    await (signal or self._changed).wait()
        return condition()
