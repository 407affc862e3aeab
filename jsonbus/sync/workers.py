"""The threads that run handlers.

A subscription is in the queue, or with one worker, or neither; it puts itself back while it has
messages. So its handler never runs twice at once, a busy subscription waits behind the others after
each batch, and the receive loop wakes a worker once for as many messages as come meanwhile.
"""

from __future__ import annotations

import threading
import time
from queue import SimpleQueue
from typing import TYPE_CHECKING

from jsonbus.frontend.events import BusLog

if TYPE_CHECKING:
    from jsonbus.sync.subscription import Subscription


class _Here(threading.local):
    """The subscription whose handler this thread is running."""

    subscription: Subscription | None = None


_here = _Here()


def current_subscription() -> Subscription | None:
    """The subscription, of whichever bus, whose handler made this call; None outside handlers."""
    return _here.subscription


class Workers:
    """A fixed number of threads, started when the first subscription has something to do."""

    def __init__(self, name: str, count: int, log: BusLog) -> None:
        self._name = name
        self._count = count
        self._log = log
        # SimpleQueue: its put() never waits, not even for another put() that a signal interrupted.
        self._queue: SimpleQueue[Subscription | None] = SimpleQueue()
        self._lock = threading.Lock()
        self._threads: list[threading.Thread] = []
        self._is_stopping = False

    def start(self) -> None:
        """Start the threads unless they run. Any thread."""
        with self._lock:
            if self._threads or self._is_stopping:
                return
            for number in range(1, self._count + 1):
                thread = threading.Thread(
                    target=self._run, name=f"jsonbus-worker-{self._name}-{number}", daemon=True
                )
                thread.start()
                self._threads.append(thread)

    def schedule(self, subscription: Subscription) -> None:
        """Have a worker run the subscription's handler. Any thread, never waits."""
        self._queue.put(subscription)

    def are_current(self) -> bool:
        """Whether the calling thread is one of these."""
        return threading.current_thread() in self._threads

    def request_stop(self) -> None:
        """Let each worker end after the handler it is running. Any thread, never waits."""
        self._is_stopping = True
        for _ in range(self._count):
            self._queue.put(None)

    def join(self, deadline: float) -> None:
        """Wait for the workers to end, except for the one that calls."""
        for thread in self._threads:
            if thread is threading.current_thread():
                continue
            thread.join(max(0.0, deadline - time.monotonic()))
            if thread.is_alive():
                self._log.warn_once(("worker", thread.name), "%s still runs a handler", thread.name)

    def _run(self) -> None:
        while not self._is_stopping:
            subscription = self._queue.get()
            if subscription is None:
                return
            _here.subscription = subscription
            try:
                if subscription.run_handler():
                    self._queue.put(subscription)
            except Exception:
                self._log.fail("a worker failed: this is a bug")
            # An idle worker must not keep a subscription, and thereby its bus, alive.
            _here.subscription = None
            del subscription
