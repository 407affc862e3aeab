"""Wakes all tasks that wait for a change."""

from __future__ import annotations

import asyncio


class Signal:
    """Like asyncio.Event without a state to reset: a wait ends at the next `fire`."""

    def __init__(self, event_loop: asyncio.AbstractEventLoop) -> None:
        self._event_loop = event_loop
        self._waiters: list[asyncio.Future[None]] = []

    async def wait(self) -> None:
        waiter = self._event_loop.create_future()
        self._waiters.append(waiter)
        try:
            await waiter
        finally:
            if waiter in self._waiters:  # cancelled, not fired
                self._waiters.remove(waiter)

    def fire(self) -> None:
        if not self._waiters:
            return
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)
