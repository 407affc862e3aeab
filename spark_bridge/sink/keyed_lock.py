"""KeyedLocks: one lock for each key."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager


class KeyedLocks:
    """Locks by key. Keeps nothing of a key that nobody holds. Any thread."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._held: set[str] = set()
        self._users = 0  # how many hold a lock or wait for one

    @contextmanager
    def hold(self, key: str) -> Iterator[None]:
        """Hold the lock of a key for the duration of the block."""
        with self._changed:
            self._users += 1
            self._changed.wait_for(lambda: key not in self._held)
            self._held.add(key)
        try:
            yield
        finally:
            with self._changed:
                self._held.remove(key)
                self._users -= 1
                self._changed.notify_all()

    def wait_until_free(self, timeout_s: float) -> bool:
        """Wait until nobody holds or awaits a lock; return False if that took too long."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._users, timeout_s)
