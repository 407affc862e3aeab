"""One timer of the event loop for all timers of a node."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from time import monotonic


class Timer:
    """Calls `ring` at the time it was last set to, or earlier.

    Setting it to a later time costs nothing: it rings early, and the caller finds nothing due and
    sets it again. That happens rarely, while the node's next timer moves with every datagram.
    """

    def __init__(self, event_loop: asyncio.AbstractEventLoop, ring: Callable[[], None]) -> None:
        self._event_loop = event_loop
        self._ring = ring
        self._handle: asyncio.TimerHandle | None = None
        self._at = 0.0

    def set(self, at: float) -> None:
        if self._handle is not None:
            if self._at <= at:
                return
            self._handle.cancel()
        self._at = at
        self._handle = self._event_loop.call_later(max(0.0, at - monotonic()), self._call)

    def cancel(self) -> None:
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def _call(self) -> None:
        self._handle = None
        self._ring()
