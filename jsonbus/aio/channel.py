"""A channel to another node, with tasks: calls that are awaited, and handlers in workers.

Everything happens in one event loop: the lock that a channel has is never contended for.
"""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Callable
from time import monotonic
from types import TracebackType
from typing import Any, TypeVar

from jsonbus.aio.signal import Signal
from jsonbus.core.channel.end import CLOSED, OPEN, OPENING
from jsonbus.core.channel.limits import OUTPUT_BYTES_MAX
from jsonbus.errors import ChannelClosedError, ChannelError, ChannelTimeoutError
from jsonbus.frontend.channels.channel import (
    ACCEPT,
    CLOSE,
    MESSAGE,
    REFUSED,
    BaseChannel,
    Handler,
)
from jsonbus.frontend.channels.manager import Exchange
from jsonbus.frontend.checks import check_handler, check_optional_seconds, check_seconds
from jsonbus.frontend.lifetime import forked_error
from jsonbus.frontend.limits import BATCH_MAX
from jsonbus.frontend.log import BusLog

H = TypeVar("H", bound=Handler)

#: How long `close` waits for the other side to confirm, unless told.
CLOSE_S = 1.0


class Channel(BaseChannel):
    """Messages to and from one other node, in order, none lost while both are there.

    Made by `AsyncBus.connect`, or given by a binding. All methods are for the event loop of the
    bus, handlers included; a message goes to one receiver.
    """

    def __init__(
        self,
        port: str,
        who: str,
        exchange: Exchange,
        log: BusLog,
        lock: threading.Lock,
        *,
        event_loop: asyncio.AbstractEventLoop,
        check_here: Callable[[], None],
        schedule: Callable[[Channel], None],
        bus: object,
    ) -> None:
        super().__init__(port, who, exchange, log, lock)
        self._news = Signal(event_loop)  # messages, or its state
        self._room = Signal(event_loop)
        self._check_loop = check_here
        self._schedule = schedule
        self._bus = bus  # kept alive: a channel is of use only as long as its bus is open

    async def send(
        self,
        value: Any,
        timeout: float | None = None,  # noqa: ASYNC109 - as with threads
    ) -> None:
        """Send a message: bytes as they are, any other value as JSON.

        Waits, at most `timeout` seconds, while the other side does not take what was sent before;
        then raises ChannelTimeoutError, and nothing of the message was sent. So it is with a call
        that is cancelled. One that was sent arrives unless the connection is lost; `close` tells
        whether it did.

        Raises PayloadError, MessageTooLargeError, ChannelClosedError, and ChannelRefusedError on a
        channel that never opened.
        """
        timeout_s = check_optional_seconds("timeout", timeout)
        self._check_here()
        item = self._encode(value)
        end = self._end
        if end is None or end.state != OPEN or not end.has_room:
            await self._wait_for_room(timeout_s)
        with self.lock:
            self._put(item)

    def try_send(self, value: Any) -> bool:
        """`send`, or False where that would wait."""
        self._check_here()
        item = self._encode(value)
        if not self._may_send():
            return False
        with self.lock:
            self._put(item)
        return True

    async def receive(
        self,
        timeout: float | None = None,  # noqa: ASYNC109 - as with threads
    ) -> Any:
        """The next message; waits for one, at most `timeout` seconds.

        Raises ChannelTimeoutError; ChannelClosedError once there is none left and none will come;
        MessageTooLargeError in the place of one that was, and the next call goes on behind it.
        Cancelling it loses no message.
        """
        timeout_s = check_optional_seconds("timeout", timeout)
        self._check_here()
        self._check_unhandled()
        while True:
            with self.lock:
                item = self._take()
            if item is not None:
                return self._read(item)
            if timeout_s is not None:
                await self._wait(self._may_receive, timeout_s, "no message came", self._news)
            elif not self._may_receive():
                await self._news.wait()

    def __aiter__(self) -> Channel:
        return self

    async def __anext__(self) -> Any:
        try:
            return await self.receive()
        except ChannelClosedError as error:
            if error.is_lost:
                raise
            raise StopAsyncIteration from None

    def on_message(self, handler: H) -> H:
        """Have the handler, plain or async, called with each message, instead of receiving them.

        Those that have come already are first. It runs as handlers of subscriptions do, for one
        message after the other; what it raises is logged. While it does not keep up, the other
        side has to wait. Also a decorator, as the three below.
        """
        return self._add_handler(MESSAGE, handler)

    def on_closed(self, handler: H) -> H:
        """Have the handler called, with a ChannelClosedError, behind the last message."""
        return self._add_handler(CLOSE, handler)

    def on_accept(self, handler: H) -> H:
        """Have the handler called, with this channel, when it is open."""
        return self._add_handler(ACCEPT, handler)

    def on_refused(self, handler: H) -> H:
        """Have the handler called, with the error, if it is not going to open."""
        return self._add_handler(REFUSED, handler)

    async def close(self, timeout: float = CLOSE_S) -> bool:  # noqa: ASYNC109 - as with threads
        """Send no more and receive no more; what was sent before is delivered.

        Waits, at most `timeout` seconds, for the other side to confirm that: then it is True. Else
        it has not yet, and delivery goes on while the bus is open; or the connection was lost, or
        the other side closed first. A second call waits again.
        """
        timeout_s = check_seconds("timeout", timeout)
        if self._exchange.is_cut_off:
            return False
        self._check_here()
        self.begin_close()
        try:
            await self._wait(lambda: self.state == CLOSED, timeout_s, "", self._news)
        except ChannelTimeoutError:
            pass
        return self._end is not None and self._end.is_confirmed

    async def __aenter__(self) -> Channel:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if kind is None:
            await self.close()
        else:
            self.abort()  # the other side must not take it for all that was to come

    # What follows is for the bus, the exchange and the workers.

    async def wait_until_open(self) -> None:
        """Wait for the attempt to end; raises what it failed with."""
        try:
            await self._wait(
                lambda: self._end is not None or self._has_ended(), None, "", self._news
            )
        except asyncio.CancelledError:
            self.begin_close()
            raise
        if self._end is None:
            raise self._closed_error()

    def begin_close(self) -> None:
        with self.lock:
            self._begin_close(monotonic())
        self.rouse()  # there may be no message left before the end

    def changed(self) -> None:
        end = self._end
        self._news.fire()
        if end is None or end.state != OPEN or end.output_bytes <= OUTPUT_BYTES_MAX // 2:
            self._room.fire()

    async def run_handler(self) -> bool:
        """Run handlers that are due; True if there are more. Only by the worker it is with."""
        is_whole = False
        try:
            for _ in range(BATCH_MAX):
                duty = self._next_duty()
                if duty is None:
                    self._news.fire()
                    is_whole = True
                    return False
                await self._run_duty(*duty)
            is_whole = True
            return True
        finally:
            if not is_whole:  # the worker was cancelled: whatever comes next finds another
                self._rest()

    def put_off(self) -> None:
        """There is no worker: whatever comes next is to find one."""
        self._rest()

    async def wait_until_handled(self, deadline: float) -> None:
        """Wait for handlers that are due to have run."""
        timeout_s = max(0.0, deadline - monotonic())
        try:
            await self._wait(lambda: not self._is_scheduled, timeout_s, "", self._news)
        except ChannelTimeoutError:
            pass

    async def _run_duty(self, kind: str, handler: Handler, argument: Any) -> None:
        if kind == MESSAGE:
            try:
                argument = self._read(argument)
            except ChannelError as error:  # the other side's failure, not the handler's
                self._log.warn_once(("unreadable", self.node), "%s", error)
                return
        try:
            result = handler(argument)
            if result is not None and inspect.isawaitable(result):
                await result
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            self._fail_handler(kind)  # it cancelled something of its own and let that out
        except Exception:
            self._fail_handler(kind)

    def _fail_handler(self, kind: str) -> None:
        self._log.fail("%s of the channel to %r failed", kind, self.name)
        if kind == ACCEPT:
            self.begin_close()

    def _add_handler(self, kind: str, handler: H) -> H:
        check_handler(handler, may_be_async=True)
        self.handle(kind, handler)
        return handler

    def _schedule_handlers(self) -> None:
        self._schedule(self)

    def _check_here(self) -> None:
        if self._exchange.is_cut_off:
            raise forked_error()
        self._check_loop()

    async def _wait_for_room(self, timeout_s: float | None) -> None:
        while not self._may_send():
            await self._wait(
                self._may_send, timeout_s, "there was no room for another message", self._room
            )

    def _may_send(self) -> bool:
        """Raises if nothing will ever be sent."""
        if self.state != OPENING:
            self._check_open()
        return self._end is not None and self._end.has_room

    def _may_receive(self) -> bool:
        """Raises if nothing will ever be received."""
        if self.pending:
            return True
        if self._is_unreadable():
            raise self._closed_error()
        return False

    async def _wait(
        self,
        condition: Callable[[], bool],
        timeout_s: float | None,
        what: str,
        wakeup: Signal,
    ) -> None:
        """Until the condition is true; ChannelTimeoutError, with what was not done, after that."""
        if timeout_s is None:  # without a timer, which would cost as much as a small message
            while not condition():
                await wakeup.wait()
            return
        if condition():
            return
        try:
            async with asyncio.timeout(timeout_s):
                while not condition():
                    await wakeup.wait()
        except TimeoutError:
            if not condition():
                raise ChannelTimeoutError(self.name, self._port, what, timeout_s) from None
