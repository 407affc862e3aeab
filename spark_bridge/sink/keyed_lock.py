"""KeyedLocks: a lock for each key that exists only while somebody holds or awaits it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager


class KeyedLocks:
    """Locks by key, which are there only while somebody holds or awaits them. Any thread."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._locks: dict[str, _Entry] = {}

    @contextmanager
    def hold(self, key: str) -> Iterator[None]:
        """Hold the lock of a key for the duration of the block."""
        with self._changed:
            entry = self._locks.setdefault(key, _Entry())
            entry.users += 1
        try:
            with entry.lock:
                yield
        finally:
            with self._changed:
                entry.users -= 1
                if not entry.users:
                    del self._locks[key]
                    self._changed.notify_all()

    def wait_until_free(self, timeout_s: float) -> bool:
        """Wait until nobody holds or awaits a lock; return False if that took too long."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._locks, timeout_s)


class _Entry:
    """A lock, and how many hold it or wait for it."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.users = 0
