"""A watch with threads: events come under the loop's lock, the handler runs in the thread pool."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from jsonbus.frontend.limits import BATCH_MAX
from jsonbus.frontend.watch import BaseWatch, E

if TYPE_CHECKING:
    pass


class Watch(BaseWatch[E]):
    """The result of `Bus.on_node` and `Bus.on_gap`: close it to stop. Any thread."""

    #: Events are rare, so waking a worker for each is cheap enough.
    is_quick = False

    def run_handler(self, batch: Any = None) -> bool:
        """Handle some events; True if there are more. Only in the thread that has the watch."""
        for _ in range(BATCH_MAX):
            # One by one, so that all events that are dropped at the close are in the mailbox.
            with self._lock:
                if not self._mailbox.pending:
                    break
                event = self._mailbox.take()
            try:
                self._handler(event)
            except BaseException:
                # SystemExit too: it would end the thread, and with it all other subscriptions.
                self._fail(event)
        with self._lock:
            self._is_scheduled = self._mailbox.pending > 0
            return self._is_scheduled
