"""Datagrams on their way out of an event loop.

Theory of operation. frontend/outgoing.py says how long messages are batched after a datagram; a
batch that fills a datagram is sent at once. A batch that does not is sent by a *look*, which comes
at the end of each turn of the event loop while messages are batched:

    more came since the last look, and the window is open    look again after the next turn
    else                                                     send what there is

So a message waits for others only as long as others keep coming. The look comes turn by turn rather
than by a timer, because a timer of the event loop is only exact to a millisecond.

`FastPublish.limit` (core/fast_publish.py) is above 0 exactly while a look, or a retry, is planned:
only then may publishers queue messages without coming here.

A publisher that never awaits anything else has to yield after TURN_BYTES_MAX: others want to run,
and this node has to receive what others send before that fills its receive buffer.

When the pacer wants a datagram to wait, or the kernel has no room, the datagram is kept and tried
again soon. Meanwhile the outbox is not taken, so it fills, and `wait_for_room` stops publishers at
OUTPUT_BYTES_MAX.
"""

from __future__ import annotations

import asyncio
from time import monotonic
from typing import TYPE_CHECKING

from jsonbus.aio.signal import Signal
from jsonbus.errors import TransportError
from jsonbus.frontend.limits import RETRY_S
from jsonbus.frontend.outgoing import BaseOutgoing
from jsonbus.frontend.throttle import Throttle

if TYPE_CHECKING:
    from jsonbus.aio.loop import Loop

#: Bytes that may leave before a publisher has to yield. To publish them takes half a millisecond or
#: so; a turn of the loop, beside that, costs next to nothing.
TURN_BYTES_MAX = 1 << 16

#: A datagram counts as at least this many bytes: sending it takes its time, and so did publishing
#: the many messages that may be in it.
DATAGRAM_BYTES_COUNTED = 1 << 11


#: An allowance of the pacer expires after this time: a smaller receiver may have come meanwhile.
ALLOWANCE_S = 0.1


class Outgoing(BaseOutgoing):
    """The datagrams of this node on their way out. For the event loop's thread only."""

    def __init__(self, loop: Loop) -> None:
        find_buffer = loop.node.directory.smallest_buffer
        throttle = Throttle(loop.transport, loop.config.rate_limit, find_buffer)
        super().__init__(loop, throttle)
        self._event_loop = loop.event_loop
        self._queued = loop.node.fast_publish.queued
        self._is_look_planned = False
        self._looked_at_count = 0  # messages that were queued at the last look
        self._retry: asyncio.TimerHandle | None = None
        self._turn_bytes = 0  # sent since a publisher last had to yield
        self._progress = Signal(loop.event_loop)

    @property
    def is_full(self) -> bool:
        """True if publishers have to wait."""
        return bool(self._unsent) and self._is_over_bound()

    def put(self, prefix: bytes, payload: bytes, now: float) -> bool:
        """Send or queue an encoded message; return whether the publisher has to wait."""
        # One that fills a datagram waits for no others; but in a flood, several leave together.
        is_large = not self._window.is_flood and len(payload) >= self._fast_publish.alone_min
        if not self._unsent and (is_large or now >= self._window.until):
            datagram = self._outbox.make_single(prefix, payload, now)
            if datagram is not None:
                self._unsent.append(datagram)
                self._send_unsent(now)
                self._open_window(now)
                return self._must_yield()
        self._queued.append(prefix + payload)
        return self.flush_queued(now, is_large=is_large)

    def flush_queued(self, now: float, *, is_large: bool = False) -> bool:
        """After a publish: send what is due, and plan when the rest will be sent.

        A large message waits for no others. Returns whether the publisher has to yield, and to wait
        for room.
        """
        if self._retry is None:
            if now >= self._window.until:
                self.send(now)
                self._open_window(now)
            elif is_large or self._outbox.has_full_batch:
                self._send_full(now)
                self._open_window(now)
            if self._queued and not self._is_look_planned:
                self._is_look_planned = True
                self._looked_at_count = 0
                self._event_loop.call_soon(self._look)
        else:
            self._leave_queued()
        self._set_limit()
        return self._must_yield()

    def send_due(self, now: float) -> None:
        """After anything but a publish: send what there is, unless it is still batched."""
        if not self._is_look_planned or self._outbox.has_full_batch:
            self.send(now)

    def send(self, now: float) -> None:
        """Send everything there is, as far as the kernel has room and the pacer allows."""
        if self._retry is not None or self._is_closed:
            return
        while self._send_unsent(now):
            if not self._outbox.has_output:
                self._progress.fire()
                return
            self._take_output(now)
            self._progress.fire()

    async def wait_for_room(self) -> None:
        """Return once the output is within its bound."""
        while self.is_full and not self._is_closed:
            await self._progress.wait()

    async def wait_until_sent(self) -> None:
        """Return once everything has left, or nothing will any more."""
        while (self._unsent or self._outbox.has_output) and not self._is_closed:
            self.send(monotonic())
            if self._unsent:
                await self._progress.wait()

    def send_now(self) -> None:
        """Send everything there is without waiting, because there will be no retry."""
        self._take_output(monotonic())
        while run := self._next_run():
            try:
                if not self._transport.send(run):
                    return
            except TransportError:
                self._refused += len(run)
            self._take_run()

    def close(self) -> None:
        """Send nothing more."""
        self._is_closed = True
        if self._retry is not None:
            self._retry.cancel()
            self._retry = None
        self._is_look_planned = False
        self._set_limit()
        self._take_output(monotonic())
        self._progress.fire()

    def _look(self) -> None:
        """At the end of a turn: send the batch, unless more messages keep coming."""
        now, count = monotonic(), len(self._queued)
        if count != self._looked_at_count and now < self._window.until:
            self._looked_at_count = count
            self._event_loop.call_soon(self._look)
            return
        self._is_look_planned = False
        try:
            if self._outbox.has_output:
                self.send(now)
                self._open_window(now)
        finally:
            self._set_limit()

    def _must_yield(self) -> bool:
        if self._turn_bytes < TURN_BYTES_MAX:
            return self.is_full
        self._turn_bytes = 0
        return True

    def _set_limit(self) -> None:
        """Set how many messages publishers may queue before they come here."""
        if self._retry is not None:
            self._fast_publish.limit = len(self._queued) + self._outbox.typical_count
        elif self._is_look_planned:
            self._fast_publish.limit = self._outbox.typical_count
        else:
            self._fast_publish.limit = 0

    def _try_again(self) -> None:
        self._retry = None
        try:
            self.send(monotonic())
        finally:
            self._set_limit()

    def _send_full(self, now: float) -> None:
        """Send full datagrams; the rest stays batched."""
        if not self._is_closed:
            self._take_output(now, keeps_rest=True)
            self._send_unsent(now)

    def _send_unsent(self, now: float) -> bool:
        """Return whether everything was sent; if not, it is tried again."""
        unsent, throttle, send = self._unsent, self._throttle, self._transport.send
        while unsent:
            if now - throttle.asked_at > ALLOWANCE_S:
                throttle.doubt()
            if not throttle.is_open():
                self._retry_in(throttle.retry_s)
                return False
            run = self._next_run()
            try:
                if send(run):
                    self._take_run()
                    size = sum(map(len, run))
                    throttle.let_through(size, len(run))
                    self._turn_bytes += max(size, DATAGRAM_BYTES_COUNTED * len(run))
                    if self._is_failing or self._jammed_at is not None:
                        self._note_sent(now)
                    continue
            except TransportError as error:
                self._drop_run(error, now)
                continue
            if self._note_no_room(now):
                self._retry_in(RETRY_S)
                return False
        return True

    def _retry_in(self, seconds: float) -> None:
        self._retry = self._event_loop.call_later(seconds, self._try_again)
