"""Seldom: what keeps a warning from being written for every client of a bad day."""

from __future__ import annotations

import time

#: Often enough to be seen while it lasts.
PAUSE_S = 60.0


class Seldom:
    """Says for each occasion whether to warn of it: of the first, then once per PAUSE_S."""

    def __init__(self) -> None:
        self._next_at = float("-inf")

    def is_due(self) -> bool:
        now = time.monotonic()
        if now < self._next_at:
            return False
        self._next_at = now + PAUSE_S
        return True
