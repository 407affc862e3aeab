"""Where transport, clock and core meet, in an event loop.

Theory of operation. Everything happens in the thread of one event loop, in short calls that never
wait: a socket is readable (receiving.py), the node's timer is due, or the application calls. After
each of them, `tend` carries out what it caused: datagrams (outgoing.py), messages, events, and the
time of the next timer. There is no lock and no thread. Using the bus from another event loop or
thread is refused, because nothing would protect it there.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import nullcontext, suppress
from time import monotonic
from typing import TYPE_CHECKING, TypeVar

from jsonbus.aio.outgoing import Outgoing
from jsonbus.aio.publishing import Publishing
from jsonbus.aio.receiving import Deliveries, Receiving
from jsonbus.aio.requests import Requests
from jsonbus.aio.signal import Signal
from jsonbus.aio.subscription import Subscription
from jsonbus.aio.timer import Timer
from jsonbus.aio.workers import WORKERS_DEFAULT, NoWorkers, Workers
from jsonbus.config import BusConfig
from jsonbus.core.node import Node
from jsonbus.errors import LocalError
from jsonbus.frontend.lifetime import closed_error, forked_error, note_closed
from jsonbus.frontend.limits import (
    CLOSE_RESERVE_S,
    END_GRACE_S,
    HISTORY_WAIT_S,
    INTERFACES_S,
)
from jsonbus.frontend.loop import BaseLoop
from jsonbus.frontend.opening import transport_figures
from jsonbus.transport.base import Transport

if TYPE_CHECKING:
    from jsonbus.aio.channels import Channels  # noqa: F401 - in the base class

T = TypeVar("T")

#: A timer that comes so late shows a busy event loop: what arrived meanwhile is read first.
LATE_S = 0.01


class Loop(BaseLoop[Subscription, "Channels"]):
    """Drives one node. All methods are for the event loop's thread unless they say otherwise."""

    takes_async_handlers = True
    workers_default = WORKERS_DEFAULT
    workers: Workers
    requests: Requests
    _outgoing: Outgoing

    def __init__(
        self,
        node: Node,
        transport: Transport,
        config: BusConfig,
        event_loop: asyncio.AbstractEventLoop,
        common: Loop | None = None,
    ) -> None:
        super().__init__(node, transport, config, nullcontext(), nullcontext(), common)
        name = node.settings.name
        if common is None:
            self.workers = Workers(name, self.workers_max, event_loop, self.log)
        else:
            self.workers = NoWorkers(name, common.workers, event_loop, self.log)
        self.event_loop = event_loop
        self._changed = Signal(event_loop)  # events came, or the bus is closing
        self._receiving = Receiving(self)
        self._outgoing = Outgoing(self)
        self.publishing = Publishing(self, self._outgoing)
        self.requests = Requests(self)
        self._timer = Timer(event_loop, self._handle_timer)
        self._ended = asyncio.Event()

    def start(self) -> None:
        """Join the bus."""
        self._receiving.start()
        self._join()
        self.node.take_attention()  # `_join` has tended

    def check_here(self) -> None:
        """Raise unless this is the process, thread and event loop that the bus belongs to."""
        if self._is_cut_off:
            raise forked_error()
        try:
            is_here = asyncio.get_running_loop() is self.event_loop
        except RuntimeError:
            is_here = False
        if not is_here:
            raise LocalError(
                "an AsyncBus belongs to the event loop it was opened in: from elsewhere, use "
                "asyncio.run_coroutine_threadsafe, or a Bus"
            )

    def call(self, act: Callable[[Node, float], T]) -> T:
        self.check_here()
        result = act(self.node, monotonic())
        self.tend()
        return result

    async def wait_for(self, condition: Callable[[Node], bool], timeout_s: float) -> bool:
        """Wait until the condition is true; False if the time is over first.

        The condition is checked after every event.
        """
        self.check_here()
        try:
            async with asyncio.timeout(timeout_s):
                await self._wait_until(condition)
        except TimeoutError:
            return condition(self.node)
        return True

    async def flush(self, timeout_s: float) -> bool:
        """See `AsyncBus.flush`."""
        self.check_here()
        try:
            async with asyncio.timeout(timeout_s):
                await self._wait_until(lambda node: not node.held)
                await self._outgoing.wait_until_sent()
        except TimeoutError:
            return False
        return True

    def wake(self) -> None:
        self._receiving.wake()

    async def close(self, timeout_s: float) -> None:
        """See `AsyncBus.close`."""
        if self._is_cut_off:
            return
        self.check_here()
        deadline = monotonic() + timeout_s
        if self._is_closing:
            # A worker must not wait for a task that waits for it.
            if not self.workers.are_current():
                await self._wait_until_ended(timeout_s + END_GRACE_S)
            return
        self._takes_channels = False
        try:
            if self.channels is not None:
                await self.channels.close(deadline - CLOSE_RESERVE_S)
            await self._stay_while_needed(deadline - CLOSE_RESERVE_S)
        except BaseException:
            self.end_now()
            self._ended.set()
            raise
        if self._is_closing:  # another task was faster
            await self._wait_until_ended(timeout_s + END_GRACE_S)
            return
        self._say_goodbye()
        try:
            async with asyncio.timeout(timeout_s):
                await self._outgoing.wait_until_sent()
        except TimeoutError:
            pass  # unsent messages are counted
        finally:
            self._stop()
            try:
                await self.workers.join(deadline)
            finally:
                self._ended.set()

    async def _stay_while_needed(self, deadline: float) -> None:
        """Stay until nodes that missed the last reliable messages could request them."""
        while not self._is_closing:
            now = monotonic()
            pause_s = min(self.node.reliable.needed_until(now), deadline) - now
            if pause_s <= 0:
                return
            await asyncio.sleep(min(pause_s, HISTORY_WAIT_S))

    def end_now(self) -> None:
        """Close without waiting, because nobody refers to the bus any more."""
        if self._is_closing or self._is_cut_off:
            return
        self._is_closing = True
        self._takes_channels = False
        if self.channels is not None:
            self.channels.end_now()
        self.node.close(monotonic())
        self._outgoing.send_now()
        if self.event_loop.is_closed():
            self.transport.close()
            note_closed(self)
        else:
            self._changed.fire()
            self._stop()

    def abandon(self) -> None:
        """End the bus, which nobody refers to any more. Any thread."""
        if self.event_loop.is_running():
            self.event_loop.call_soon_threadsafe(self.end_now)
        else:
            self.end_now()

    def close_at_once(self) -> None:
        self.end_now()

    # `cut_off` calls no remove_reader: the parent's event loop has the same kernel object.

    def notify(self) -> None:
        self._changed.fire()

    def tend(self) -> None:
        """Carry out what a call to the node caused, and set the timer."""
        node = self.node
        events = self._take_events()
        deliveries: Deliveries = node.take_deliveries()  # type: ignore[assignment]
        if deliveries:
            self.publishing.deliver_own(deliveries)
        if node.outbox.has_output:
            self._outgoing.send_due(monotonic())
        timer_at = node.timer_at()
        if timer_at is not None and not self._is_closing:
            self._timer.set(timer_at)
        self._report(events)

    def set_timer(self, at: float) -> None:
        if not self._is_closing:
            self._timer.set(at)

    def tend_soon(self) -> None:
        """Have `tend` called in the next turn of the event loop."""
        self.event_loop.call_soon(self.tend)

    def _handle_timer(self) -> None:
        if self._is_closing:
            return
        now = monotonic()
        # If anything goes wrong below, the node's timers go on.
        self._timer.set(now + INTERFACES_S)
        try:
            self._follow_interfaces(now)
            at = self.node.timer_at()
            if at is not None and at <= now:
                if now - at > LATE_S:
                    self._receiving.read_waiting()
                # The wall clock may have been set.
                self.node.outbox.wall_offset_s = time.time() - now
                self.node.handle_timer(now)
            self.tend()
        except Exception:
            self.log.fail("a timer failed, and goes on: this is a bug")

    async def _wait_until(self, condition: Callable[[Node], bool]) -> None:
        while True:
            if self._is_closing:
                raise closed_error()
            if condition(self.node):
                return
            await self._changed.wait()

    async def _wait_until_ended(self, timeout_s: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self._ended.wait()

    def _say_goodbye(self) -> None:
        now = monotonic()
        self.node.close(now)
        self._is_closing = True
        self._changed.fire()
        self._outgoing.send(now)

    def _stop(self) -> None:
        """End everything that waits or runs, without waiting for it."""
        self._end_all()
        self._receiving.stop()
        self._outgoing.close()
        self._timer.cancel()
        self._figures = transport_figures(self.transport)
        self.transport.close()
        note_closed(self)
