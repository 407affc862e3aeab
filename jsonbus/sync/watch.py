"""A handler of what happens on the bus (frontend/watch.py says what that may be).

Events come to it under the loop's lock, in the step in which the node tells them: whichever threads
take them from the node, they are in order. The handler runs where those of subscriptions do, in the
thread pool, without the lock.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import Any

from jsonbus.core.events import Event
from jsonbus.core.node import Node
from jsonbus.frontend.events import BusLog
from jsonbus.frontend.subscription import BATCH_MAX
from jsonbus.frontend.watch import BaseWatch, E, Subject

EventHandler = Callable[[E], Any]


class Watch(BaseWatch[E]):
    """What `Bus.on_node` and `Bus.on_gap` return: close it to be told no more. Any thread."""

    #: Events are rare: a worker may as well be woken for them.
    is_quick = False

    def __init__(
        self,
        subject: Subject[E],
        handler: EventHandler[E],
        log: BusLog,
        *,
        lock: threading.Lock,
        schedule: Callable[[Watch[E]], None],
        release: Callable[[Watch[E]], None],
    ) -> None:
        super().__init__(subject, handler, log)
        self._lock = lock
        self._schedule = schedule
        # Tells the bus that this one was closed, and keeps it alive, as a subscription does.
        self._release = release

    def close(self) -> None:
        """Tell the handler no more. Pending events are dropped and counted.

        A handler that is just running finishes. A second call does nothing.
        """
        self._release(self)

    # What follows is for the loop and the workers.

    def begin(self, node: Node, now: float) -> None:
        """Start with what is the case already. Lock held."""
        self._begin(node, now)

    def put(self, events: Iterable[Event]) -> None:
        """What the node told. Lock held."""
        self._put(events)

    def rouse(self) -> None:
        """Have the handler run, if there is something for it and nobody sees to it yet."""
        with self._lock:
            is_due = self._is_due()
        if is_due:
            self._schedule(self)

    def run_handler(self, batch: None = None) -> bool:
        """Handle some events; True if there are more. Only by the thread it is with."""
        for _ in range(BATCH_MAX):
            # One by one: what is dropped at the close has all been in the mailbox.
            with self._lock:
                if not self._mailbox.pending:
                    break
                event = self._mailbox.take()
            try:
                self._handler(event)
            except BaseException:
                # SystemExit too: it would end the thread, and with it every subscription.
                self._fail(event)
        with self._lock:
            self._is_scheduled = self._mailbox.pending > 0
            return self._is_scheduled

    def end(self) -> None:
        """Drop what is pending."""
        with self._lock:
            self._end()

    def cut_off(self) -> None:
        """This is a forked child; the lock may be held by a thread that is not here."""
        self._is_closed = True
