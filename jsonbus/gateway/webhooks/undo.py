"""Changes of dicts that last only if a transaction does."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

K = TypeVar("K")
V = TypeVar("V")


class UndoLog:
    """Remembers what entries were before they changed, until told to keep or to undo all of it."""

    __slots__ = ("_steps",)

    def __init__(self) -> None:
        self._steps: list[Callable[[], object]] = []

    def set(self, mapping: dict[K, V], key: K, value: V) -> None:
        """Change or add an entry."""
        if key in mapping:
            old = mapping[key]
            self._steps.append(lambda: mapping.__setitem__(key, old))
        else:
            self._steps.append(lambda: mapping.pop(key))
        mapping[key] = value

    def forget(self, mapping: dict[K, V], key: K) -> None:
        """Remove an entry, if it is there."""
        if key in mapping:
            old = mapping.pop(key)
            self._steps.append(lambda: mapping.__setitem__(key, old))

    def keep(self) -> None:
        """The transaction is on disk."""
        self._steps.clear()

    def undo(self) -> None:
        """The transaction failed: back to what was, the last change first."""
        while self._steps:
            self._steps.pop()()
