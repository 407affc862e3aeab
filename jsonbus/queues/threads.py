"""TopicQueue: a bounded queue that many threads read, each at its own pace.

state.py has the messages and positions; here threads wait for each other. Everything happens under
one lock, and nothing under it waits.

Readers share one condition. A reader waits only when it has read everything, so a new message
concerns every waiting reader, and all are woken. Readers that do not wait cost a writer nothing.

Writers that find the queue full wait in order, each with its message and its own condition. The
thread that makes room puts the messages of the first writers into the queue for them, and then
wakes just those: a later writer cannot overtake, and nobody is woken in vain.

Invariant, whenever the lock is free and the queue open: no writer waits while there is room.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar

from jsonbus.queues.base import BaseTopicQueue
from jsonbus.queues.state import CALLER

M = TypeVar("M")


class TopicQueue(BaseTopicQueue[M]):
    """A bounded queue of messages that many subscribers read, each at its own pace.

    Every subscriber gets every message that was put after it subscribed, in the same order. A
    message is gone when the last subscriber has read it, so the slowest one holds up the writers.

        queue = jsonbus.TopicQueue(maxsize=100)
        queue.subscribe("printer")
        queue.put({"page": 1})
        queue.get("printer")

    A subscriber is any hashable object; by default it is the calling `threading.Thread`. A thread
    that ends without `unsubscribe` stays subscribed; any thread can unsubscribe it. Threads that
    read for the same subscriber share its position: each message goes to one of them.

    Timeouts are in seconds: None waits for ever, 0 not at all. All methods may be called from any
    thread, but not from a signal handler or a `__del__`, which may run while the same thread holds
    the lock of the queue. Raises ConfigError for a maxsize that is not a positive integer.
    """

    def __init__(self, maxsize: int) -> None:
        self._mutex = threading.Lock()
        super().__init__(maxsize, self._mutex)
        self._readable = threading.Condition(self._mutex)
        self._writers: OrderedDict[_Writer[M], None] = OrderedDict()  # giving up costs O(1)

    def put(self, message: M, timeout: float | None = None) -> None:
        """Add a message. Wait while the queue is full, behind the writers that wait already.

        Without subscribers the message is gone at once. Raises TimeoutError if there is no room in
        time, and ClosedError if the queue is closed before there is; the message is not in the
        queue then.
        """
        with self._lock:
            self._state.check_open()
            if self._state.has_room:  # then no writer waits
                self._append(message)
                return
            writer = _Writer(message, threading.Condition(self._mutex))
            self._writers[writer] = None
            try:
                writer.condition.wait_for(
                    lambda: writer.is_admitted or self._state.is_closed, _bounded(timeout)
                )
            finally:  # also when interrupted: then the message must not be added later
                if not writer.is_admitted:
                    del self._writers[writer]
            if not writer.is_admitted:
                self._state.check_open()
                raise TimeoutError(f"no room in the topic queue within {timeout:g} s")

    def get(self, subscriber: Hashable = CALLER, timeout: float | None = None) -> M | None:
        """Return the next message of a subscriber, by default the calling thread; wait for it.

        Returns None if it is not subscribed, or is unsubscribed meanwhile. Raises TimeoutError if
        no message arrives in time, and ClosedError if the queue is closed and all is read.
        """
        name = self._name(subscriber)
        with self._lock:
            state = self._state
            reader = state.reader(name)
            if reader is None:
                return None
            self._readable.wait_for(
                lambda: state.unread(reader) or not reader.is_subscribed or state.is_closed,
                _bounded(timeout),
            )
            if not reader.is_subscribed:
                return None
            if not state.unread(reader):
                state.check_open()
                raise TimeoutError(f"no message in the topic queue within {timeout:g} s")
            message = state.take(reader)
            self._room_changed()
            return message

    def _name(self, subscriber: Hashable) -> Hashable:
        # The Thread, not its ident: a later thread may get the same ident.
        return threading.current_thread() if subscriber is CALLER else subscriber

    def _wake_readers(self) -> None:
        self._readable.notify_all()

    def _wake_writers(self) -> None:
        for writer in self._writers:
            writer.condition.notify()

    def _room_changed(self) -> None:
        while self._writers and self._state.has_room and not self._state.is_closed:
            writer, _ = self._writers.popitem(last=False)
            writer.is_admitted = True
            self._append(writer.message)
            writer.condition.notify()


class _Writer(Generic[M]):
    """A call of `put` that waits until its message is in the queue."""

    __slots__ = ("condition", "is_admitted", "message")

    def __init__(self, message: M, condition: threading.Condition) -> None:
        self.message = message
        self.condition = condition
        self.is_admitted = False


def _bounded(timeout: float | None) -> float | None:
    """Bound a timeout, such as infinity, by the longest that locks accept: some centuries."""
    return None if timeout is None else min(timeout, threading.TIMEOUT_MAX)
