"""A subscription with tasks: iterate over it, or have a handler called.

Everything happens in one event loop, so there is no lock: between two awaits nothing else runs. A
reader takes a message without awaiting afterwards, so cancelling it loses none.
"""

from __future__ import annotations

import asyncio
import inspect
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Self

from jsonbus.aio.signal import Signal
from jsonbus.aio.workers import call_handler, current_subscription
from jsonbus.core.message import Message, V_co
from jsonbus.errors import ClosedError
from jsonbus.frontend.checks import check_count, check_optional_seconds
from jsonbus.frontend.limits import READER_CHECK_S
from jsonbus.frontend.options import SubscribeOptions
from jsonbus.frontend.subscription import BaseSubscription

if TYPE_CHECKING:
    from jsonbus.aio.loop import Loop

#: Messages that a worker gives to a handler before it lets other tasks run. More than a turn of the
#: loop receives (receiving.py), else a flood would fill the mailbox of a handler that keeps up.
HANDLED_MAX = 256


class Subscription(BaseSubscription[V_co]):
    """Messages to one topic or pattern, in the order each node sent them.

        with bus.subscribe("sensors/*") as subscription:
            async for message in subscription:
                print(message.topic, message.value)

    Without a handler, iterate over it, or call `get`; if several tasks do, each message goes to one
    of them. All methods are for the event loop of the bus, also in handlers.
    """

    def __init__(self, options: SubscribeOptions, loop: Loop, bus: object) -> None:
        """Raises ConfigError."""
        super().__init__(options, loop, bus)
        self._event_loop = loop.event_loop
        self._check_here = loop.check_here  # raises in a wrong thread, loop or process
        self._schedule = loop.workers.schedule
        self._readers: deque[asyncio.Future[None]] = deque()  # tasks that wait in get()
        self._left = Signal(loop.event_loop)  # messages were taken that publishers wait for
        self._last_reader: asyncio.Task[Any] | None = None
        # Takes the next message; raises IndexError if there is none. Most subscriptions want
        # nothing done with it.
        is_special = self._is_blocking or self._convert is not None
        self._pop = self._pop_special if is_special else self._mailbox.take
        self._pop_for_handler = self._pop_batch if options.in_batches else self._pop
        self._turns = 1 if options.in_batches else HANDLED_MAX

    async def get(self, timeout: float | None = None) -> Message[V_co]:
        timeout_s = check_optional_seconds("timeout", timeout)
        self._check_readable()
        try:
            return self._pop()
        except IndexError:
            self._check_end()
        try:
            async with asyncio.timeout(timeout_s):
                return await self._wait_for_next()
        except TimeoutError:
            raise TimeoutError(f"no message to {self.pattern!r} came in time") from None

    async def get_many(self, count_max: int, timeout: float | None = None) -> list[Message[V_co]]:
        check_count(count_max)
        return self._fill([await self.get(timeout)], count_max)

    def __aiter__(self) -> Self:
        self._check_readable()
        return self

    async def __anext__(self) -> Message[V_co]:
        try:
            return self._pop()
        except IndexError:
            pass
        try:
            self._check_end()
            return await self._wait_for_next()
        except ClosedError:
            raise StopAsyncIteration from None

    # What follows is for the loop and the workers.

    def deliver(self, messages: Sequence[Message]) -> bool:
        """Put messages into the mailbox; False if there is no room for more (overflow="block")."""
        self._put(messages)
        if self._mailbox.dropped:
            self._tell_of_drops()
        if self._readers:
            self._wake_readers(len(messages))
        if self._handler is not None and not self._is_scheduled and not self._is_closed:
            self._is_scheduled = True
            self._schedule(self)
        return not self._blocks_receiving

    async def wait_for_room(self) -> None:
        """After `deliver`, in a publisher's task: wait until its messages are in the mailbox.

        Waits only if another task can end the wait. Not in a handler of any bus: handlers would
        wait for each other. Not in the task that read last, nor before any task did: it may be the
        one that reads. Messages are kept even if nobody waits.
        """
        if current_subscription() is not None:
            return
        while self._excess and not self._is_closed:
            if self._handler is None:
                reader = self._last_reader
                if reader is None or reader is asyncio.current_task() or reader.done():
                    return
            with suppress(TimeoutError):
                async with asyncio.timeout(READER_CHECK_S):
                    await self._left.wait()

    async def run_handler(self) -> bool:
        """Handle some messages; True if there are more. Only in the worker that has it."""
        if self.is_service:
            return await self._serve()
        handler, pop, has_more = self._handler, self._pop_for_handler, False
        assert handler is not None
        try:
            for _ in range(self._turns):
                try:
                    message = pop()
                except IndexError:
                    break
                try:
                    result = handler(message)
                    if result is not None and inspect.isawaitable(result):
                        await result
                except asyncio.CancelledError:
                    task = asyncio.current_task()
                    if task is not None and task.cancelling():
                        raise
                    self._fail(message)  # the handler let a CancelledError escape
                except Exception:
                    self._fail(message)
            lost = self._mailbox.take_overflow()
            if lost:
                self._warn_of_overflow(lost)
            has_more = self._mailbox.pending > 0
        finally:
            self._is_scheduled = has_more
        return has_more

    async def _serve(self) -> bool:
        """Answer requests; while one waits for something, another worker answers the next."""
        assert self._handler is not None
        is_passed_on = False

        def pass_on() -> None:
            nonlocal is_passed_on
            is_passed_on = True
            self._is_scheduled = self._mailbox.pending > 0
            if self._is_scheduled:
                self._schedule(self)

        has_more = False
        try:
            for _ in range(self._turns):
                try:
                    request = self._pop()
                except IndexError:
                    break
                passing_on = self._event_loop.call_soon(pass_on)
                try:
                    await call_handler(self._handler, request, self._fail, request)
                finally:
                    passing_on.cancel()
                if is_passed_on:
                    return False
            has_more = self._mailbox.pending > 0
        finally:
            if not is_passed_on:
                self._is_scheduled = has_more
        return has_more

    def put_off(self) -> None:
        """Note that there is no worker: the next message schedules again."""
        self._is_scheduled = False

    def end(self) -> None:
        """Forget pending messages and wake all tasks that wait."""
        self._end()
        self._wake_readers(len(self._readers))
        self._left.fire()
        self._wake()

    def _check_readable(self) -> None:
        self._check_here()
        self._check_unhandled()

    def _pop_special(self) -> Message:
        """Take the next message of the type asked for, and let waiting publishers go on."""
        if self._is_blocking:
            self._last_reader = asyncio.current_task()
        while self._mailbox.pending:
            message: Message | None
            (message,) = self._take(1)
            if self._is_blocking:
                self._make_way()
            if self._convert is None:
                return message
            message = self._converted(message)
            if message is not None:
                return message
            self._discard(1)
        raise IndexError

    def _pop_batch(self) -> list[Message]:
        """Take all messages for one call of the handler; raises IndexError if there is none."""
        return self._fill([self._pop()], HANDLED_MAX)

    def _fill(self, batch: list[Message], count_max: int) -> list[Message]:
        """Add pending messages, up to that many in all."""
        if self._convert is None:  # all at once: one by one cost a text client a fifth more
            batch += self._take(count_max - len(batch))
            if self._is_blocking:
                self._make_way()
            return batch
        with suppress(IndexError):
            while len(batch) < count_max:
                batch.append(self._pop())
        return batch

    def _make_way(self) -> None:
        """After taking a message: wake publishers and the receiver if they waited for it."""
        if not self._excess:
            self._left.fire()
        if self._unblocks():
            self._wake()

    async def _wait_for_next(self) -> Message:
        while True:
            waiter = self._event_loop.create_future()
            self._readers.append(waiter)
            try:
                await waiter
            except BaseException:
                if waiter in self._readers:
                    self._readers.remove(waiter)
                elif self._mailbox.pending:
                    self._wake_readers(1)  # pass the wake-up on to another task
                raise
            try:
                return self._pop()
            except IndexError:
                self._check_end()

    def _wake_readers(self, count: int) -> None:
        while count > 0 and self._readers:
            waiter = self._readers.popleft()
            if not waiter.done():
                waiter.set_result(None)
                count -= 1

    def _fail(self, handled: Message | list[Message]) -> None:
        if isinstance(handled, list):
            self._log.fail("the handler of %r failed on %d messages", self.pattern, len(handled))
        else:
            self._log.fail("the handler of %r failed on topic %r", self.pattern, handled.topic)
