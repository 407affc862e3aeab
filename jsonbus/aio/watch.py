"""A watch with tasks: the handler runs in a worker, like those of subscriptions."""

from __future__ import annotations

import asyncio
import inspect

from jsonbus.frontend.limits import BATCH_MAX
from jsonbus.frontend.watch import BaseWatch, E


class Watch(BaseWatch[E]):
    """The result of `AsyncBus.on_node` and `on_gap`: close it to stop.

    All methods are for the event loop of the bus, also in handlers.
    """

    async def run_handler(self) -> bool:
        """Handle some events; True if there are more. Only in the worker that has the watch."""
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
        """Note that there is no worker: the next event schedules again."""
        self._is_scheduled = False

    async def _handle(self, event: E) -> None:
        try:
            result = self._handler(event)
            if result is not None and inspect.isawaitable(result):
                await result
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            self._fail(event)  # the handler let a CancelledError escape
        except Exception:
            self._fail(event)
