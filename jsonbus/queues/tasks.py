"""AsyncTopicQueue: the awaitable twin of TopicQueue, for the tasks of one event loop.

Theory of operation
-------------------
core/queue_state.py has the messages and the places; here tasks wait for each other. Tasks take
turns only where one awaits, so there is no lock, and nothing that is read before an `await` is
trusted after it.

Whoever waits does so on a future of its own, and looks again when it is woken: at a message for
it, at room, at a close, at the clock. It takes a message, or adds one, only then and without
another `await`. So a task that is cancelled while it waits, or when it was woken already, has
neither taken a message nor left one behind.

That is why, unlike in TopicQueue, whoever makes room does not put in the message of the first in
line: it only wakes it. Nobody else gets in meanwhile: newcomers stand behind the line, however much
room there is. When the first has left the line, in whatever way, it wakes the next one if there is
room for it, too.

Readers that wait are all woken by a new message, which concerns every one of them.
"""

from __future__ import annotations

import asyncio
import math
from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar

from jsonbus.errors import LocalError
from jsonbus.queues.state import CALLER, QueueState

M = TypeVar("M")


class AsyncTopicQueue(Generic[M]):
    """A bounded list of messages that many subscribers read, each at its own pace.

    Every subscriber gets every message that was put after it subscribed, in the same order. A
    message is gone when the last of them has read it; the slowest subscriber holds up the writers.

    A subscriber is any hashable object; where none is given, it is the task that calls, and
    LocalError is raised outside of one. A task that ends without `unsubscribe` stays subscribed,
    and another one can unsubscribe it. Tasks that read for the same subscriber share its place,
    and each message goes to one of them.

    Timeouts are in seconds: None waits for ever, 0 not at all. A `put` that is cancelled leaves no
    message, a `get` that is cancelled loses none. All methods belong to one event loop and its
    thread; whoever would wait in another loop gets LocalError. Raises ConfigError for a maxsize
    that is not a positive integer.
    """

    def __init__(self, maxsize: int) -> None:
        self._state: QueueState[M] = QueueState(maxsize)
        self._reading: set[asyncio.Future[None]] = set()  # of those who wait in `get`
        self._line: OrderedDict[_Turn, None] = OrderedDict()  # whoever gives up leaves in O(1)
        self._loop: asyncio.AbstractEventLoop | None = None  # of the first who waited

    @property
    def maxsize(self) -> int:
        """How many messages fit."""
        return self._state.maxsize

    @property
    def is_closed(self) -> bool:
        return self._state.is_closed

    def __len__(self) -> int:
        """How many messages at least one subscriber has yet to read."""
        return len(self._state)

    def subscribe(self, subscriber: Hashable = CALLER) -> bool:
        """Let a subscriber, by default this task, read what is put from now on.

        False, and nothing changes, if it is subscribed already. Raises ClosedError.
        """
        return self._state.subscribe(_named(subscriber))

    def unsubscribe(self, subscriber: Hashable = CALLER) -> bool:
        """End a subscription; what the subscriber has not read counts as read.

        Tasks that wait in `get` for it return None. False if it was not subscribed.
        """
        if self._state.unsubscribe(_named(subscriber)) is None:
            return False
        self._wake_readers()
        self._wake_first_writer()
        return True

    async def put(
        self,
        message: M,
        timeout: float | None = None,  # noqa: ASYNC109 - as in Bus
    ) -> None:
        """Add a message; waits while the queue is full, behind the writers that wait already.

        Without subscribers the message is gone at once. Raises TimeoutError if there was no room
        in time, and ClosedError if the queue is closed before there is; the message is not in
        the queue then.
        """
        state = self._state
        state.check_open()
        if state.has_room and not self._line:
            self._append(message)
            return
        patience = _Patience(timeout)
        turn = _Turn()
        self._line[turn] = None
        try:
            while not (state.has_room and next(iter(self._line)) is turn):
                if patience.is_over:
                    raise TimeoutError(f"no room in the topic queue within {timeout:g} s")
                turn.called = self._new_future()
                await patience.wait(turn.called)
                state.check_open()
            self._append(message)
        finally:
            del self._line[turn]
            self._wake_first_writer()

    async def get(
        self,
        subscriber: Hashable = CALLER,
        timeout: float | None = None,  # noqa: ASYNC109 - as in Bus
    ) -> M | None:
        """The next message of a subscriber, by default this task; waits while there is none.

        None for who is not subscribed (any more). Raises TimeoutError if nothing came in time,
        and ClosedError if the queue is closed and everything is read.
        """
        state = self._state
        reader = state.reader(_named(subscriber))
        if reader is None:
            return None
        if not state.unread(reader):
            patience = _Patience(timeout)
            while reader.is_subscribed and not state.unread(reader):
                state.check_open()
                if patience.is_over:
                    raise TimeoutError(f"no message in the topic queue within {timeout:g} s")
                called = self._new_future()
                self._reading.add(called)
                try:
                    await patience.wait(called)
                finally:
                    self._reading.discard(called)
            if not reader.is_subscribed:
                return None
        message = state.take(reader)
        self._wake_first_writer()
        return message

    def available(self, subscriber: Hashable = CALLER) -> int:
        """How many messages a subscriber, by default this task, has yet to read.

        0 for who is not subscribed.
        """
        reader = self._state.reader(_named(subscriber))
        return 0 if reader is None else self._state.unread(reader)

    def remove(self, message: M) -> bool:
        """Take a message out, so that nobody reads it any more; False if it is not there.

        Of equal messages the oldest goes.
        """
        removed = self._state.remove(message)
        self._wake_first_writer()
        return bool(removed)

    def resize(self, maxsize: int) -> int:
        """Change how many messages fit; returns how many of the oldest were dropped for it.

        Raises ConfigError if maxsize is not a positive integer.
        """
        dropped = self._state.resize(maxsize)
        self._wake_first_writer()
        return len(dropped)

    def close(self) -> None:
        """Take no more messages. What is there can still be read.

        Whoever waits in `put`, or in `get` with nothing to read, gets ClosedError. Closing twice
        is fine.
        """
        self._state.is_closed = True
        for turn in self._line:
            _wake(turn.called)
        self._wake_readers()

    def _append(self, message: M) -> None:
        if self._state.append(message):
            self._wake_readers()

    def _wake_readers(self) -> None:
        for called in self._reading:
            _wake(called)
        self._reading.clear()

    def _wake_first_writer(self) -> None:
        if self._line and self._state.has_room:
            _wake(next(iter(self._line)).called)

    def _new_future(self) -> asyncio.Future[None]:
        loop = asyncio.get_running_loop()
        if self._loop is None:
            self._loop = loop
        elif self._loop is not loop:
            # Waking it would set a future of another thread, or of a loop that has ended.
            raise LocalError("the topic queue belongs to another event loop: make one for this")
        return loop.create_future()


class _Turn:
    """A writer's turn, from standing in line until its message is in the queue or it gave up."""

    __slots__ = ("called",)

    def __init__(self) -> None:
        self.called: asyncio.Future[None] | None = None  # before it first waits


class _Patience:
    """How long somebody waits in all, however often it is woken."""

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

    async def wait(self, called: asyncio.Future[None]) -> None:
        """Until somebody calls, or patience is over: whoever waits looks for itself."""
        if self._over_at is None:
            await called
            return
        alarm = self._loop.call_at(self._over_at, _wake, called)
        try:
            await called
        finally:
            alarm.cancel()


def _wake(called: asyncio.Future[None] | None) -> None:
    if called is not None and not called.done():
        called.set_result(None)


def _named(subscriber: Hashable) -> Hashable:
    if subscriber is not CALLER:
        return subscriber
    try:
        task = asyncio.current_task()
    except RuntimeError:  # no event loop runs here
        task = None
    if task is None:
        raise LocalError("no task calls, so nobody is known to subscribe: give a subscriber")
    return task
