"""Sending, as far as it is the same with threads and tasks: when to batch, and what was refused.

When to send. A single message is sent at once. After it, messages are *batched* for LINGER_S, or
until a datagram is full: a publisher that is faster than that shares datagrams although nothing
keeps it from sending. `BatchWindow` is that rule alone: no socket, no thread, no clock. The
engines decide who sends a batch when the window ends: the receive thread (sync/outgoing.py), or a
look at the end of each turn of the event loop (aio/outgoing.py).

Before a datagram leaves, the pacer may want it to wait (throttle.py). A datagram that the kernel
had no room for during STALL_S counts as refused: a network that is stuck is like one that is down.
Nothing is dropped that is not counted.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from jsonbus.errors import TransportError
from jsonbus.frontend.limits import LINGER_S, OUTPUT_BYTES_MAX, STALL_S
from jsonbus.frontend.throttle import Throttle
from jsonbus.transport.offload import first_run

if TYPE_CHECKING:
    from jsonbus.frontend.loop import BaseLoop

#: So many datagrams, each within the window of the one before, are a flood.
FLOOD_MIN = 3

#: In a flood so many leave together: more save little, and would overflow small mailboxes.
BATCH_DATAGRAMS_MAX = 8


class BatchWindow:
    """The time after a datagram in which messages wait for others."""

    __slots__ = ("_in_a_row", "datagrams", "is_flood", "until")

    def __init__(self) -> None:
        #: The end of the window; messages published before it are batched.
        self.until = -math.inf
        #: Whether datagrams leave one after the other, each because it is full.
        self.is_flood = False
        #: How many datagrams a batch should fill, so that it is full within the window.
        self.datagrams = 1
        self._in_a_row = 0

    def open(self, now: float) -> bool:
        """Start the window after a batch; return whether a flood has just begun."""
        left_s = self.until - now
        self._in_a_row = self._in_a_row + 1 if left_s > 0 else 0
        self.is_flood = self._in_a_row >= FLOOD_MIN
        if self.is_flood and left_s > LINGER_S / 2:
            self.datagrams = min(2 * self.datagrams, BATCH_DATAGRAMS_MAX)
        elif self.datagrams > 1 and left_s < LINGER_S / 4:
            self.datagrams //= 2
        self.until = now + LINGER_S
        return self._in_a_row == FLOOD_MIN

    def extend(self, until: float) -> None:
        """Batch at least until then, because no datagram may leave before."""
        self.until = max(self.until, until)


class BaseOutgoing:
    """Datagrams on their way out; the base of `Outgoing` in both front ends."""

    def __init__(self, loop: BaseLoop[Any, Any], throttle: Throttle) -> None:
        self._node = loop.node
        self._outbox = loop.node.outbox
        self._fast_publish = loop.node.fast_publish
        self._transport = loop.transport
        self._throttle = throttle
        self._log = loop.log
        self._node_lock = loop.lock
        self._tend_soon = loop.tend_soon
        self._reliable = loop.node.reliable
        self._set_timer = loop.set_timer
        self._beats_at = self._reliable.beats_at  # what the timer was last set to
        self._window = BatchWindow()
        self._unsent: deque[bytes] = deque()
        self._run: Sequence[bytes] = ()  # the first of them, which leave together
        self._jammed_at: float | None = None  # since when the kernel has had no room
        self._is_failing = False  # the last datagram was refused
        self._is_closed = False
        self._refused = 0
        seal = loop.transport.describe().seal
        self._added_bytes = 0 if seal is None else seal.added_bytes

    @property
    def figures(self) -> dict[str, int]:
        """The entries of stats()."""
        left = len(self._unsent) if self._is_closed else 0
        return {"datagrams_unsent": self._refused + left} | self._throttle.figures

    @property
    def is_closed(self) -> bool:
        return self._is_closed

    def _open_window(self, now: float) -> None:
        """Start to batch: something is about to be sent."""
        window = self._window
        if window.open(now):
            self._throttle.doubt()
        self._fast_publish.is_flood = window.is_flood
        if window.datagrams > 1 or self._outbox.batch_datagrams > 1:
            self._outbox.fill_datagrams(window.datagrams)

    def _take_output(self, now: float, *, keeps_rest: bool = False) -> None:
        """Take what the node wants to send. Lock held."""
        self._unsent.extend(self._outbox.take(now, keeps_rest=keeps_rest))
        beats_at = self._reliable.beats_at
        if beats_at != self._beats_at:  # reliable messages were among it, packed now or before
            self._beats_at = beats_at
            self._set_timer(beats_at)

    def _leave_queued(self) -> None:
        """Note that what is queued cannot be taken now. Lock held."""
        prefixes = self._fast_publish.reliable_prefixes
        if prefixes and not self._outbox.is_at_ease:
            prefixes.clear()  # each reliable message looks for room, and waits if there is none

    def _is_over_bound(self) -> bool:
        """Whether more output waits than may."""
        bytes_max = min(OUTPUT_BYTES_MAX, self._throttle.backlog_bytes_max)
        return self._outbox.size_bytes > bytes_max

    def _note_no_room(self, now: float) -> bool:
        """Note that the kernel has no room; return False if the first datagram was given up."""
        if self._jammed_at is None:
            self._jammed_at = now
        if now - self._jammed_at < STALL_S:
            return True
        self._drop_run(TransportError(f"the network has taken nothing for {STALL_S:g} s"), now)
        return False

    def _next_run(self) -> Sequence[bytes]:
        """Return the datagrams to send next: the same ones until they were sent or dropped."""
        unsent = self._unsent
        if not self._run and unsent:
            alone = len(unsent) == 1
            room_bytes = self._throttle.room_bytes
            self._run = (unsent[0],) if alone else first_run(unsent, room_bytes, self._added_bytes)
        return self._run

    def _take_run(self) -> Sequence[bytes]:
        """Take the datagrams of `_next_run` away, and return them."""
        run, self._run = self._run, ()
        for _ in run:
            self._unsent.popleft()
        return run

    def _drop_run(self, error: TransportError, now: float) -> None:
        """Take away, count and log the datagrams of a run that could not be sent."""
        self._note_refused(error, now, len(self._take_run()))

    def _note_refused(self, error: TransportError, now: float, datagrams: int = 1) -> None:
        """Count and log datagrams that could not be sent."""
        self._is_failing = True
        self._refused += datagrams
        cause = getattr(error.__cause__, "errno", None) or str(error)
        self._log.warn_once(("send", cause), "a datagram was not sent: %s", error)
        with self._node_lock:
            self._node.send_failed(now)

    def _note_sent(self, now: float) -> None:
        """Note that a datagram left, after trouble."""
        was_failing, self._is_failing, self._jammed_at = self._is_failing, False, None
        if was_failing:
            with self._node_lock:
                self._node.send_works(now)
            self._tend_soon()
