"""Datagrams on their way out of an event loop.

Theory of operation. A lone message leaves at once. After it, messages *gather* in the node's outbox
for LINGER_S, and whatever fills a datagram leaves by then: a burst is batched, be it published in
one turn of the event loop or in several. What does not fill a datagram leaves by a *look*, which
comes at the end of each turn while messages gather:

    more came since the last look, and LINGER_S is not over    look again after the next turn
    else                                                       send what there is

So a message waits for others only as long as others keep coming. That it is looked for turn by turn
rather than by a timer has a reason: a timer of the event loop is only as exact as a millisecond.

`FastPublish.limit` (core/fast_publish.py) is above 0 exactly while a look, or a retry, is planned:
only then may publishers add messages without coming here.

A publisher that never lets go of the loop has to after TURN_BYTES_MAX: others want to run, and this
node has to hear what others send before that fills its receive buffer.

Before a datagram leaves, the pacer may want it to wait (core/pacing.py): for the rate limit, or for
receivers on this host. The same is done as when the kernel has no room: the datagram is kept and
tried again soon. Meanwhile the outbox is not taken, so it fills, and `wait_for_room` stops
publishers at OUTPUT_BYTES_MAX. A datagram that the kernel had no room for during STALL_S counts as
refused: a network that is stuck is like one that is down. Nothing is dropped that is not counted.
"""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import Callable
from time import monotonic

from jsonbus.aio.signal import Signal
from jsonbus.core.node import Node
from jsonbus.errors import TransportError
from jsonbus.frontend.limits import LINGER_S, OUTPUT_BYTES_MAX, RETRY_S, STALL_S
from jsonbus.frontend.log import BusLog
from jsonbus.frontend.throttle import Throttle
from jsonbus.transport.base import Transport

#: What may leave before a publisher has to yield. It takes half a millisecond or so to publish; a
#: turn of the loop, beside that, costs next to nothing.
TURN_BYTES_MAX = 1 << 16

#: A datagram counts as so much of it, however small: it takes its time to be sent, and the many
#: messages that may be in it took theirs.
DATAGRAM_BYTES_COUNTED = 1 << 11


#: An allowance is of no use after this time: a smaller receiver may have come meanwhile.
ALLOWANCE_S = 0.1


class Outgoing:
    """What leaves this node. All methods are for the event loop's thread."""

    def __init__(
        self,
        node: Node,
        transport: Transport,
        event_loop: asyncio.AbstractEventLoop,
        log: BusLog,
        rate_limit: float | None,
        wake: Callable[[], None],
    ) -> None:
        self._node = node
        self._fast_publish = node.fast_publish
        self._queued = node.fast_publish.queued
        self._transport = transport
        self._event_loop = event_loop
        self._log = log
        self._wake = wake  # has somebody look at timers and output soon
        self._throttle = Throttle(transport, rate_limit, node.directory.smallest_buffer)
        self._unsent: deque[bytes] = deque()
        self._queues_until = -math.inf
        self._is_look_planned = False
        self._looked_at_count = 0  # messages that had queued at the last look
        self._retry: asyncio.TimerHandle | None = None
        self._turn_bytes = 0  # left since a publisher last had to yield
        self._progress = Signal(event_loop)
        self._jammed_at: float | None = None  # since when the kernel has had no room
        self._is_failing = False  # the last datagram was refused
        self._is_closed = False
        self._refused = 0

    @property
    def datagrams_unsent(self) -> int:
        """Datagrams that were made and will never leave."""
        return self._refused + (len(self._unsent) if self._is_closed else 0)

    @property
    def figures(self) -> dict[str, int]:
        """What stats() shows of it."""
        return {"datagrams_unsent": self.datagrams_unsent} | self._throttle.figures

    @property
    def is_closed(self) -> bool:
        return self._is_closed

    @property
    def is_full(self) -> bool:
        """Whether publishers have to wait."""
        bytes_max = min(OUTPUT_BYTES_MAX, self._throttle.backlog_bytes_max)
        return bool(self._unsent) and self._node.outbox.size_bytes > bytes_max

    def put(self, prefix: bytes, payload: bytes, now: float) -> bool:
        """A message on the short way: alone, or with those that gather. True: as `attend`."""
        is_large = len(payload) >= self._fast_publish.alone_min
        if not self._unsent and (is_large or now >= self._queues_until):
            datagram = self._node.outbox.make_single(prefix, payload, now)
            if datagram is not None:
                self._unsent.append(datagram)
                self._send_unsent(now)
                self._queues_until = now + LINGER_S
                return self._must_yield()
        self._queued.append(prefix + payload)
        return self.flush_queued(now, is_large=is_large)

    def flush_queued(self, now: float, *, is_large: bool = False) -> bool:
        """After a publish: send what is to leave, and plan when the rest will.

        A large message waits for no others. True: the publisher has to yield, and to wait for room.
        """
        if self._retry is None:
            if now >= self._queues_until:
                self.send(now)
                self._queues_until = now + LINGER_S
            elif is_large or self._node.outbox.has_full_datagram:
                self._send_full(now)
                self._queues_until = now + LINGER_S
            if self._queued and not self._is_look_planned:
                self._is_look_planned = True
                self._looked_at_count = 0
                self._event_loop.call_soon(self._look)
        self._set_limit()
        return self._must_yield()

    def send_due(self, now: float) -> None:
        """After anything but a publish: send what there is, unless it still gathers."""
        if not self._is_look_planned or self._node.outbox.has_full_datagram:
            self.send(now)

    def send(self, now: float) -> None:
        """Send everything there is, as far as the kernel has room and the pacer allows."""
        if self._retry is not None or self._is_closed:
            return
        while self._send_unsent(now):
            if not self._node.outbox.has_output:
                self._progress.fire()
                return
            self._unsent.extend(self._node.outbox.take(now))
            self._progress.fire()

    async def wait_for_room(self) -> None:
        """Return once the output is within its bound."""
        while self.is_full and not self._is_closed:
            await self._progress.wait()

    async def wait_until_sent(self) -> None:
        """Return once everything has left, or nothing will any more."""
        while (self._unsent or self._node.outbox.has_output) and not self._is_closed:
            self.send(monotonic())
            if self._unsent:
                await self._progress.wait()

    def send_now(self) -> None:
        """Send everything there is, and wait for nothing: nobody will come back to it."""
        self._unsent.extend(self._node.outbox.take(monotonic()))
        while self._unsent:
            try:
                if not self._transport.send(self._unsent[0]):
                    return
            except TransportError:
                self._refused += 1
            self._unsent.popleft()

    def close(self) -> None:
        """Send nothing more."""
        self._is_closed = True
        if self._retry is not None:
            self._retry.cancel()
            self._retry = None
        self._is_look_planned = False
        self._set_limit()
        self._unsent.extend(self._node.outbox.take(monotonic()))
        self._progress.fire()

    def _look(self) -> None:
        """At the end of a turn: send what has queued, unless more keeps coming."""
        now, count = monotonic(), len(self._queued)
        if count != self._looked_at_count and now < self._queues_until:
            self._looked_at_count = count
            self._event_loop.call_soon(self._look)
            return
        self._is_look_planned = False
        try:
            if self._node.outbox.has_output:
                self.send(now)
                self._queues_until = now + LINGER_S
        finally:
            self._set_limit()

    def _must_yield(self) -> bool:
        if self._turn_bytes < TURN_BYTES_MAX:
            return self.is_full
        self._turn_bytes = 0
        return True

    def _set_limit(self) -> None:
        """How many messages may gather before somebody has to come here."""
        if self._retry is not None:
            self._fast_publish.limit = len(self._queued) + self._node.outbox.typical_count
        elif self._is_look_planned:
            self._fast_publish.limit = self._node.outbox.typical_count
        else:
            self._fast_publish.limit = 0

    def _try_again(self) -> None:
        self._retry = None
        try:
            self.send(monotonic())
        finally:
            self._set_limit()

    def _send_full(self, now: float) -> None:
        """Send whole datagrams; the rest goes on gathering."""
        if not self._is_closed:
            self._unsent.extend(self._node.outbox.take(now, keeps_rest=True))
            self._send_unsent(now)

    def _send_unsent(self, now: float) -> bool:
        """Whether everything could be sent; if not, it is tried again."""
        unsent, throttle, send = self._unsent, self._throttle, self._transport.send
        while unsent:
            if now - throttle.asked_at > ALLOWANCE_S:
                throttle.doubt()
            if not throttle.is_open():
                self._retry_in(throttle.retry_s)
                return False
            try:
                if send(unsent[0]):
                    size = len(unsent.popleft())
                    throttle.let_through(size)
                    self._turn_bytes += max(size, DATAGRAM_BYTES_COUNTED)
                    if self._is_failing or self._jammed_at is not None:
                        self._works(now)
                    continue
            except TransportError as error:
                unsent.popleft()
                self._failed(error, now)
                continue
            if self._jammed_at is None:
                self._jammed_at = now
            if now - self._jammed_at < STALL_S:
                self._retry_in(RETRY_S)
                return False
            unsent.popleft()
            self._failed(TransportError(f"the network has taken nothing for {STALL_S:g} s"), now)
        return True

    def _retry_in(self, seconds: float) -> None:
        self._retry = self._event_loop.call_later(seconds, self._try_again)

    def _failed(self, error: TransportError, now: float) -> None:
        self._is_failing = True
        self._refused += 1
        self._node.send_failed(now)
        cause = getattr(error.__cause__, "errno", None) or str(error)
        self._log.warn_once(("send", cause), "a datagram was not sent: %s", error)

    def _works(self, now: float) -> None:
        was_failing, self._is_failing, self._jammed_at = self._is_failing, False, None
        if was_failing:
            self._node.send_works(now)
            self._wake()
