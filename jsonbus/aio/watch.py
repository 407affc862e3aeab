"""A watch with tasks: the handler runs in a worker, like those of subscriptions."""

from __future__ import annotations

from jsonbus.aio.workers import call_handler
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
                event = self._mailbox.take()
                await call_handler(self._handler, event, self._fail, event)
            has_more = self._mailbox.pending > 0
        finally:
            self._is_scheduled = has_more
        return has_more

    def put_off(self) -> None:
        """Note that there is no worker: the next event schedules again."""
        self._is_scheduled = False
