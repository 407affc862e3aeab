"""A handler of what happens on the bus (frontend/watch.py says what that may be).

The handler runs where those of subscriptions do, in a worker. Everything happens in one event loop,
so there is no lock: between two awaits nobody else is there.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

from jsonbus.core.events import Event
from jsonbus.core.node import Node
from jsonbus.frontend.events import BusLog
from jsonbus.frontend.subscription import BATCH_MAX
from jsonbus.frontend.watch import BaseWatch, E, Subject

EventHandler = Callable[[E], Any] | Callable[[E], Awaitable[Any]]


class Watch(BaseWatch[E]):
    """What `AsyncBus.on_node` and `on_gap` return: close it, and the handler is told no more.

    All methods are for the event loop of the bus, handlers included.
    """

    def __init__(
        self,
        subject: Subject[E],
        handler: EventHandler[E],
        log: BusLog,
        *,
        schedule: Callable[[Watch[E]], None],
        release: Callable[[Watch[E]], None],
    ) -> None:
        super().__init__(subject, handler, log)
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
        """Start with what is the case already."""
        self._begin(node, now)

    def put(self, events: Iterable[Event]) -> None:
        """What the node told."""
        self._put(events)

    def rouse(self) -> None:
        """Have the handler run, if there is something for it and nobody sees to it yet."""
        if self._is_due():
            self._schedule(self)

    async def run_handler(self) -> bool:
        """Handle some events; True if there are more. Only by the worker it is with."""
        has_more = False
        try:
            for _ in range(BATCH_MAX):
                if not self._mailbox.pending:
                    break
                await self._handle(self._mailbox.take())
            has_more = self._mailbox.pending > 0
        finally:
            self._is_scheduled = has_more
        return has_more

    def put_off(self) -> None:
        """There is no worker: the next event is to find one."""
        self._is_scheduled = False

    def end(self) -> None:
        """Drop what is pending."""
        self._end()

    def cut_off(self) -> None:
        """This is a forked child."""
        self._is_closed = True

    async def _handle(self, event: E) -> None:
        try:
            result = self._handler(event)
            if result is not None and inspect.isawaitable(result):
                await result
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            self._fail(event)  # it cancelled something of its own and let that out
        except Exception:
            self._fail(event)
