"""AsyncTopicQueue: the awaitable twin of TopicQueue, for the tasks of one event loop.

state.py has the messages and positions; here tasks wait for each other. Tasks switch only where one
awaits, so there is no lock, and nothing read before an `await` is trusted after it.

A waiting task awaits its own future, and checks again when it is woken: for a message, for room,
for a close, for its timeout. It takes or adds a message only then, without another `await`. So a
task that is cancelled, while it waits or when it was woken already, has neither taken a message nor
left one behind.

That is why, unlike in TopicQueue, a task that makes room does not add the message of the first
waiting writer, but only wakes it. Nobody overtakes meanwhile: new writers wait behind the others,
however much room there is. When the first writer leaves, for whatever reason, it wakes the next one
if there is still room.

A new message wakes all waiting readers, since it concerns every one of them.
"""

from __future__ import annotations

import asyncio
import math
from collections import OrderedDict
from collections.abc import Hashable
from contextlib import nullcontext
from typing import TypeVar

from jsonbus.errors import LocalError
from jsonbus.queues.base import BaseTopicQueue
from jsonbus.queues.state import CALLER

M = TypeVar("M")


class AsyncTopicQueue(BaseTopicQueue[M]):
    """A bounded queue of messages that many subscribers read, each at its own pace.

    Every subscriber gets every message that was put after it subscribed, in the same order. A
    message is gone when the last subscriber has read it, so the slowest one holds up the writers.

        queue = jsonbus.AsyncTopicQueue(maxsize=100)
        queue.subscribe("printer")
        await queue.put({"page": 1})
        await queue.get("printer")

    A subscriber is any hashable object; by default it is the calling task, and LocalError is raised
    outside of a task. A task that ends without `unsubscribe` stays subscribed; any task can
    unsubscribe it. Tasks that read for the same subscriber share its position: each message goes to
    one of them.

    Timeouts are in seconds: None waits for ever, 0 not at all. A cancelled `put` leaves no message,
    a cancelled `get` loses none. All methods belong to one event loop and its thread; a call that
    would wait in another loop raises LocalError. Raises ConfigError for a maxsize that is not a
    positive integer.
    """

    def __init__(self, maxsize: int) -> None:
        super().__init__(maxsize, nullcontext())
        self._reading: set[asyncio.Future[None]] = set()  # of calls that wait in `get`
        self._writers: OrderedDict[_Writer, None] = OrderedDict()  # giving up costs O(1)
        self._loop: asyncio.AbstractEventLoop | None = None  # of the first call that waited

    async def put(self, message: M, timeout: float | None = None) -> None:
        """Add a message. Wait while the queue is full, behind the writers that wait already.

        Without subscribers the message is gone at once. Raises TimeoutError if there is no room in
        time, and ClosedError if the queue is closed before there is; the message is not in the
        queue then.
        """
        state = self._state
        state.check_open()
        if state.has_room and not self._writers:
            self._append(message)
            return
        deadline = _Deadline(timeout)
        writer = _Writer()
        self._writers[writer] = None
        try:
            while not (state.has_room and next(iter(self._writers)) is writer):
                if deadline.is_over:
                    raise TimeoutError(f"no room in the topic queue within {timeout:g} s")
                writer.future = self._new_future()
                await deadline.wait(writer.future)
                state.check_open()
            self._append(message)
        finally:
            del self._writers[writer]
            self._room_changed()

    async def get(self, subscriber: Hashable = CALLER, timeout: float | None = None) -> M | None:
        """Return the next message of a subscriber, by default the calling task; wait for it.

        Returns None if it is not subscribed, or is unsubscribed meanwhile. Raises TimeoutError if
        no message arrives in time, and ClosedError if the queue is closed and all is read.
        """
        state = self._state
        reader = state.reader(self._name(subscriber))
        if reader is None:
            return None
        if not state.unread(reader):
            deadline = _Deadline(timeout)
            while reader.is_subscribed and not state.unread(reader):
                state.check_open()
                if deadline.is_over:
                    raise TimeoutError(f"no message in the topic queue within {timeout:g} s")
                future = self._new_future()
                self._reading.add(future)
                try:
                    await deadline.wait(future)
                finally:
                    self._reading.discard(future)
            if not reader.is_subscribed:
                return None
        message = state.take(reader)
        self._room_changed()
        return message

    def _name(self, subscriber: Hashable) -> Hashable:
        if subscriber is not CALLER:
            return subscriber
        try:
            task = asyncio.current_task()
        except RuntimeError:  # no event loop runs here
            task = None
        if task is None:
            raise LocalError("no task calls, so nobody is known to subscribe: give a subscriber")
        return task

    def _wake_readers(self) -> None:
        for future in self._reading:
            _wake(future)
        self._reading.clear()

    def _wake_writers(self) -> None:
        for writer in self._writers:
            _wake(writer.future)

    def _room_changed(self) -> None:
        if self._writers and self._state.has_room:
            _wake(next(iter(self._writers)).future)

    def _new_future(self) -> asyncio.Future[None]:
        loop = asyncio.get_running_loop()
        if self._loop is None:
            self._loop = loop
        elif self._loop is not loop:
            # Waking it would set a future of another thread, or of a loop that has ended.
            raise LocalError("the topic queue belongs to another event loop: make one for this")
        return loop.create_future()


class _Writer:
    """A call of `put` that waits for room."""

    __slots__ = ("future",)

    def __init__(self) -> None:
        self.future: asyncio.Future[None] | None = None  # before it first waits


class _Deadline:
    """The end of a timeout, however often the waiting call is woken before."""

    __slots__ = ("_loop", "_over_at")

    _over_at: float | None

    def __init__(self, timeout_s: float | None) -> None:
        self._loop = asyncio.get_running_loop()
        if timeout_s is None or timeout_s == math.inf:
            self._over_at = None
        else:
            self._over_at = self._loop.time() + timeout_s

    @property
    def is_over(self) -> bool:
        return self._over_at is not None and self._loop.time() >= self._over_at

    async def wait(self, future: asyncio.Future[None]) -> None:
        """Wait until the future is set or the time is over; the caller checks which."""
        if self._over_at is None:
            await future
            return
        timer = self._loop.call_at(self._over_at, _wake, future)
        try:
            await future
        finally:
            timer.cancel()


def _wake(future: asyncio.Future[None] | None) -> None:
    if future is not None and not future.done():
        future.set_result(None)
