"""The tasks that run handlers.

A subscription is in the queue, or with one worker, or neither; it puts itself back while it has
messages. So its handler never runs twice at once, and a busy subscription waits behind the others
after each batch. A service is back in the queue as soon as its handler waits for something: so
requests are answered side by side. A worker is a task that lives while there is something to do.
"""

from __future__ import annotations

import asyncio
import inspect
from collections import deque
from collections.abc import Callable, Hashable
from time import monotonic
from typing import Any, Protocol

from jsonbus.frontend.log import BusLog

#: Workers unless the program asks for another number. Handlers wait for databases and other
#: services, whose clients allow about as many connections; more tasks would only wait there.
WORKERS_DEFAULT = 100

#: How long a handler that was cancelled may take to clean up.
CANCEL_S = 0.5


class Handled(Hashable, Protocol):
    """A subscription, watch or channel, whose handler a worker runs."""

    async def run_handler(self) -> bool:
        """See `Subscription.run_handler`."""

    def put_off(self) -> None:
        """See `Subscription.put_off`."""


#: The subscription whose handler each worker is running, of all buses.
_running: dict[asyncio.Task[None], Handled] = {}


def current_subscription() -> Handled | None:
    """Return the subscription, of any bus, whose handler made this call; None outside handlers.

    A task that a handler started is outside: the handler need not wait for it.
    """
    task = asyncio.current_task()
    return None if task is None else _running.get(task)


async def call_handler(
    handler: Callable[[Any], Any], argument: Any, fail: Callable[[Any], None], what: Any
) -> None:
    """Call a handler, async or not. If it raises, call `fail` with `what`, for the log.

    `Subscription.run_handler` does the same without this call.
    """
    try:
        result = handler(argument)
        if result is not None and inspect.isawaitable(result):
            await result
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise
        fail(what)  # the handler let a CancelledError escape
    except Exception:
        fail(what)


class Workers:
    """A bounded number of tasks. All methods are for the event loop's thread."""

    def __init__(
        self, name: str, count: int, event_loop: asyncio.AbstractEventLoop, log: BusLog
    ) -> None:
        self._name = name
        self._count = count
        self._event_loop = event_loop
        self._log = log
        self._queue: deque[Handled] = deque()
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_stopping = False

    def start_workers(self) -> None:
        """Do nothing: each task is started when it is needed."""

    def schedule(self, subscription: Handled) -> None:
        """Have a worker run the handler."""
        self._queue.append(subscription)
        if len(self._tasks) < self._count and not self._is_stopping:
            task = self._event_loop.create_task(self._run(), name=f"jsonbus-worker-{self._name}")
            self._tasks.add(task)
            task.add_done_callback(self._end)

    def are_current(self) -> bool:
        """Return whether the calling task is one of the workers."""
        return asyncio.current_task() in self._tasks

    def request_stop(self) -> None:
        """Let each worker end after the handler it is running."""
        self._is_stopping = True
        self._queue.clear()

    async def join(self, deadline: float) -> None:
        """Wait for the workers to end, except for the one that calls; cancel those that do not."""
        others = self._tasks - {asyncio.current_task()}
        if not others:
            return
        try:
            _, others = await asyncio.wait(others, timeout=max(0.0, deadline - monotonic()))
        finally:
            for task in others:
                task.cancel()
        if others:
            self._log.warn_once("cancelled", "%d handlers took too long to end", len(others))
            await asyncio.wait(others, timeout=CANCEL_S)

    async def _run(self) -> None:
        task = asyncio.current_task()
        assert task is not None
        try:
            while self._queue and not self._is_stopping:
                subscription = _running[task] = self._queue.popleft()
                if await subscription.run_handler():
                    self._queue.append(subscription)
                    await asyncio.sleep(0)  # a flood must not keep the loop from everything else
        finally:
            _running.pop(task, None)
            # Not only in `_end`, which comes later: a subscription that is scheduled in between
            # would wait for a worker that has gone.
            self._tasks.discard(task)

    def _end(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if self._tasks:
            return
        # The program cancelled all tasks. The next message starts a new worker.
        while self._queue:
            self._queue.popleft().put_off()


class NoWorkers(Workers):
    """Those of a bus that is part of another one, whose workers run the handlers."""

    def __init__(
        self, name: str, handling: Workers, event_loop: asyncio.AbstractEventLoop, log: BusLog
    ) -> None:
        super().__init__(name, 0, event_loop, log)
        self._handling = handling

    def schedule(self, subscription: Handled) -> None:
        self._handling.schedule(subscription)

    def are_current(self) -> bool:
        return self._handling.are_current()
