"""Turns: one at a time for each name, and as many at once as there are names."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager


class Turns:
    """Locks by name, which are there only while somebody holds or awaits them. Any thread."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._turns: dict[str, _Turn] = {}

    @contextmanager
    def take(self, name: str) -> Iterator[None]:
        """Wait for one's turn; it ends with the block."""
        with self._changed:
            turn = self._turns.setdefault(name, _Turn())
            turn.users += 1
        try:
            with turn.lock:
                yield
        finally:
            with self._changed:
                turn.users -= 1
                if not turn.users:
                    del self._turns[name]
                    self._changed.notify_all()

    def wait_until_all_ended(self, timeout_s: float) -> bool:
        """Whether nobody has a turn, or waits for one, in time."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._turns, timeout_s)


class _Turn:
    """A lock, and how many hold it or wait for it."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.users = 0
