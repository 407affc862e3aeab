"""Datagrams on their way out of an event loop.

Theory of operation. The first publish of a turn of the event loop is sent at once; what is
published in the rest of that turn gathers in the node's outbox and leaves at its end, sharing
datagrams. So a lone message does not wait, and a burst is batched. For a publisher that never lets
go of the loop, it leaves whenever GATHER_BYTES_MAX have gathered, and the publisher has to yield.

When the kernel has no room, the datagram is kept and tried again every RETRY_S. Meanwhile the
outbox is not taken, so it fills, and `wait_for_room` stops publishers at OUTPUT_BYTES_MAX. A
datagram that the kernel had no room for during STALL_S counts as refused: a network that is stuck
is like one that is down. Nothing is dropped that is not counted.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from time import monotonic

from jsonbus.aio.wakeup import Wakeup
from jsonbus.core.node import Node
from jsonbus.errors import TransportError
from jsonbus.frontend.events import BusLog
from jsonbus.transport.base import Transport

#: Output that may wait while the kernel has no room. Some 750 datagrams: more than any socket
#: buffer takes at once, little enough to leave within a second on a slow network.
OUTPUT_BYTES_MAX = 1 << 20

#: Output that gathers in one turn before it is sent: datagrams are full long before.
GATHER_BYTES_MAX = 1 << 16

#: How long the kernel may have no room for a datagram before it counts as refused.
STALL_S = 5.0

#: How soon to try again when the kernel had no room.
RETRY_S = 0.001


class Outgoing:
    """What leaves this node. All methods are for the event loop's thread."""

    def __init__(
        self,
        node: Node,
        transport: Transport,
        event_loop: asyncio.AbstractEventLoop,
        log: BusLog,
        wake: Callable[[], None],
    ) -> None:
        self._node = node
        self._transport = transport
        self._event_loop = event_loop
        self._log = log
        self._wake = wake  # has somebody look at timers and output soon
        self._unsent: deque[bytes] = deque()
        self._is_gathering = False
        self._retry: asyncio.TimerHandle | None = None
        self._progress = Wakeup(event_loop)
        self._jammed_at: float | None = None  # since when the kernel has had no room
        self._is_failing = False  # the last datagram was refused
        self._is_closed = False
        self._refused = 0

    @property
    def datagrams_unsent(self) -> int:
        """Datagrams that were made and will never leave."""
        return self._refused + (len(self._unsent) if self._is_closed else 0)

    @property
    def is_full(self) -> bool:
        """Whether publishers have to wait."""
        return bool(self._unsent) and self._node.output_bytes > OUTPUT_BYTES_MAX

    def gather(self, now: float) -> bool:
        """After a publish: send at once, or with the rest of this turn.

        True: the publisher has to yield, and to wait for room.
        """
        if not self._is_gathering:
            self._is_gathering = True
            self._event_loop.call_soon(self._end_turn)
            self.send(now)
            return self.is_full
        if self._node.output_bytes < GATHER_BYTES_MAX:
            return False
        self.send(now)
        return True

    def send(self, now: float) -> None:
        """Send everything there is, as far as the kernel has room."""
        if self._retry is not None or self._is_closed:
            return
        while self._send_unsent(now):
            if not self._node.has_output:
                self._progress.fire()
                return
            self._unsent.extend(self._node.datagrams_to_send(now))
            self._progress.fire()
        self._retry = self._event_loop.call_later(RETRY_S, self._try_again)

    async def wait_for_room(self) -> None:
        """Return once the output is within its bound."""
        while self.is_full and not self._is_closed:
            await self._progress.wait()

    async def wait_until_sent(self) -> None:
        """Return once everything has left, or nothing will any more."""
        while (self._unsent or self._node.has_output) and not self._is_closed:
            self.send(monotonic())
            if self._unsent:
                await self._progress.wait()

    def close(self) -> None:
        """Send nothing more."""
        self._is_closed = True
        if self._retry is not None:
            self._retry.cancel()
        self._unsent.extend(self._node.datagrams_to_send(monotonic()))
        self._progress.fire()

    def _end_turn(self) -> None:
        self._is_gathering = False
        if self._node.has_output:
            self.send(monotonic())

    def _try_again(self) -> None:
        self._retry = None
        self.send(monotonic())

    def _send_unsent(self, now: float) -> bool:
        """Whether everything could be sent."""
        unsent, send = self._unsent, self._transport.send
        while unsent:
            try:
                if send(unsent[0]):
                    unsent.popleft()
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
                return False
            unsent.popleft()
            self._failed(TransportError(f"the network has taken nothing for {STALL_S:g} s"), now)
        return True

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
