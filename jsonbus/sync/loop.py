"""Where transport, clock and core meet, with threads.

Theory of operation. One lock guards the node. No thread holds it while sending, receiving, logging
or running code of the application, and no thread holds another lock with it. Three kinds of threads
come to the node:

- **callers**, the application's own threads and those inside handlers, take the lock once per call.
  Then, without it, they send what the call caused (outgoing.py), put messages published here into
  mailboxes of this process, and report events. Most messages of a flood need no lock: `Bus.publish`
  only queues them (core/fast_publish.py), and comes here once per batch;
- **the receive thread** (receiving.py) does the same for each datagram and for each timer;
- **workers** run handlers; they come here only as callers. The thread pool decides which thread of
  the bus receives and which are workers, and may change that at any time (thread_pool.py).

A caller wakes the receive thread if the node now wants an earlier timer than that thread is waiting
for, or if something was left unsent.

The way of a message that comes alone, to a quick handler, 1,000 a second (system calls as strace
shows them; µs by the clock, medians on a busy machine; p publishes, r receives):

    p   0   publish
    p  12   sendto()                              no other thread of the publisher wakes
    p  25   … returns
    p  28   publish returns
    r   0   epoll_wait() = 1 [the group's socket] the only thread switch
    r   3   recvmsg() = 1 datagram                no look for a second one: none came just before
    r   9   Node.receive                          nearly half of the time
    r  24   the handler, in place                 25 calls of Python code from one wait to the next
    r  34   epoll_wait(until the next timer)      nothing was planned, no waker, no clock to set

The same lines, run in a loop, take less than half: what a lone message costs is code and data that
others have pushed out of the processor's cache. So fewer lines help, and faster ones hardly.

An iterating thread adds its own wake-up: the receive thread releases its lock (futex), and it waits
once for that and often once more for the interpreter lock, until the receive thread waits again.
An event loop adds one `epoll_wait` that does not wait: asyncio resumes a task one turn later. (To
resume it in place, by an awaitable of our own, gained 1 µs of 63.)

Each thread takes from the node, under the lock, just what its own call caused, and puts it into
mailboxes itself: so the messages of one thread, and those of another node, arrive in order. Watches
receive events under the lock, because any thread may take them from the node.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
from time import monotonic
from typing import TYPE_CHECKING, TypeVar

from jsonbus.config import BusConfig
from jsonbus.core.events import Event
from jsonbus.core.node import Node
from jsonbus.errors import TransportError
from jsonbus.frontend.lifetime import closed_error, forked_error, note_closed
from jsonbus.frontend.limits import CLOSE_RESERVE_S, CLOSE_S, END_GRACE_S, INTERFACES_S
from jsonbus.frontend.loop import BaseLoop
from jsonbus.frontend.opening import transport_figures
from jsonbus.sync.outgoing import Outgoing
from jsonbus.sync.publishing import Publishing, deliver_own
from jsonbus.sync.receiving import Deliveries, Receiving
from jsonbus.sync.requests import Requests
from jsonbus.sync.subscription import Subscription
from jsonbus.sync.thread_pool import ReceiveThread, ThreadPool
from jsonbus.transport.base import Transport

if TYPE_CHECKING:
    from jsonbus.sync.channels import Channels  # noqa: F401 - in the base class

T = TypeVar("T")


class Loop(BaseLoop[Subscription, "Channels"]):
    """Drives one node. Methods are for any thread unless they say otherwise."""

    takes_async_handlers = False
    workers_default = 1
    workers: ThreadPool
    requests: Requests
    _outgoing: Outgoing
    lock: threading.Lock

    def __init__(
        self, node: Node, transport: Transport, config: BusConfig, common: Loop | None = None
    ) -> None:
        super().__init__(node, transport, config, threading.Lock(), threading.Lock(), common)
        name = node.settings.name
        if common is None:
            self.workers = ThreadPool(name, self.workers_max, self.log)
        else:
            self.workers = ReceiveThread(name, common.workers, self.log)
        self._changed = threading.Condition(self.lock)  # events came, or the bus is closing
        try:
            self._receiving = Receiving(self)
        except OSError as error:
            transport.close()
            raise TransportError(f"the receive thread has nothing to wait by: {error}") from error
        self._outgoing = Outgoing(self)
        self.publishing = Publishing(self, self._outgoing)
        self.requests = Requests(self)
        #: When the receive thread looks at the node's timers again.
        self.tends_at = math.inf
        self._is_abandoned = False
        self._ended = threading.Event()

    def start(self) -> None:
        """Join the bus."""
        try:
            self.workers.start(self._receiving)
        except TransportError:
            self.transport.close()
            self._receiving.close()
            raise
        self._join()

    def check_here(self) -> None:
        """Raise ForkedError in a forked child."""
        if self._is_cut_off:
            raise forked_error()

    def call(self, act: Callable[[Node, float], T]) -> T:
        self.check_here()
        try:
            with self.lock:
                now = monotonic()
                result = act(self.node, now)
                events, deliveries = self._take_effects()
                has_turn = self._outgoing.take_turn(now)
                timer_at = self.node.timer_at()
                if timer_at is not None:
                    self.set_timer(timer_at)
            if has_turn and not self._outgoing.send(math.inf):
                self.wake()
        except BaseException:
            self._outgoing.let_go()
            raise
        deliver_own(deliveries)
        self._report(events)
        return result

    def wait_for(self, condition: Callable[[Node], bool], timeout_s: float) -> bool:
        """Wait until the condition is true; False if the time is over first.

        The condition is checked after every event.
        """
        self.check_here()
        deadline = monotonic() + timeout_s
        self.workers.will_wait()
        with self.lock:
            while True:
                if self._is_closing:
                    raise closed_error()
                if condition(self.node):
                    return True
                remaining_s = deadline - monotonic()
                if remaining_s <= 0:
                    return False
                self._changed.wait(remaining_s)

    def flush(self, timeout_s: float) -> bool:
        """See `Bus.flush`."""
        deadline = monotonic() + timeout_s
        if not self.wait_for(lambda node: not node.held, timeout_s):
            return False
        with self.lock:
            return self._outgoing.wait_until_sent(deadline)

    def wake(self) -> None:
        """Have the receive thread check timers, output, and what blocks it."""
        self._receiving.wake()

    tend_soon = wake

    def set_timer(self, at: float) -> None:
        if at < self.tends_at:
            self.tends_at = at  # once it looks it knows better
            self.wake()

    def wake_to_flush(self) -> None:
        """Have the receive thread check when to send batched messages."""
        self._receiving.wake_to_flush()

    def close(self, timeout_s: float) -> None:
        """See `Bus.close`."""
        if self._is_cut_off:
            return
        deadline = monotonic() + timeout_s
        with self._channels_lock:
            self._takes_channels = False
        if self.channels is not None:
            self.channels.close(deadline - CLOSE_RESERVE_S)
        self.publishing.stay_while_needed(deadline - CLOSE_RESERVE_S)
        with self.lock:
            is_first = not self._is_closing
            if is_first:
                self._outgoing.stop_batching()
                self.node.close(monotonic())
                self._is_closing = self.publishing.is_closing = True
                self._changed.notify_all()
        if not is_first:
            # A thread of this bus must not wait for a thread that waits for it.
            if not self.workers.are_current():
                self._ended.wait(timeout_s + END_GRACE_S)
            return
        try:
            self._outgoing.close(deadline)
        finally:
            self._stop()
            self.workers.join(deadline, END_GRACE_S)
            self._ended.set()

    def abandon(self) -> None:
        """Have the receive thread close the bus, which nobody refers to any more. Takes no lock."""
        self._is_abandoned = True
        self.wake()

    def close_at_once(self) -> None:
        self.close(CLOSE_S)

    def cut_off(self) -> None:
        super().cut_off()
        self.publishing.is_cut_off = self.publishing.is_closing = True
        self._receiving.close()

    def notify(self) -> None:
        self._changed.notify_all()

    def _take_effects(self) -> tuple[list[Event], Deliveries]:
        """Take what a call to the node caused, to carry it out without the lock. Lock held."""
        # Sinks are subscriptions.
        return self._take_events(), self.node.take_deliveries()  # type: ignore[return-value]

    def _stop(self) -> None:
        """End everything that waits or runs, without waiting for it."""
        self._end_all()
        self.wake()
        note_closed(self)

    # In the receiving thread:

    def tend(self) -> float:
        """Serve timers, output and events; return when to come again."""
        node, outgoing = self.node, self._outgoing
        self._follow_interfaces(monotonic())
        with self.lock:
            now = monotonic()
            timer_at = node.timer_at()
            if timer_at is not None and timer_at <= now:
                node.outbox.wall_offset_s = time.time() - now  # the wall clock may have been set
                node.handle_timer(now)
            events, deliveries = self._take_effects()
            has_turn = outgoing.take_ripe_turn(now)
            timer_at = node.timer_at()
            self.tends_at = math.inf if timer_at is None else timer_at
        if has_turn:
            outgoing.send(0.0)
        if deliveries:
            self._receiving.deliver(deliveries)
        self._report(events)
        if self._is_abandoned:
            self.close(CLOSE_S)
        if outgoing.has_unsent:
            return now + outgoing.retry_s
        # Not at `_looks_at`: a heartbeat of this node comes soon after, and one wake-up does both.
        return min(self.tends_at, now + INTERFACES_S)

    def flush_queued(self, now: float) -> float:
        """Send messages that were batched long enough; return when to come again."""
        outgoing = self._outgoing
        flush_at = outgoing.flush_at
        if now < flush_at:
            return flush_at
        if outgoing.is_busy:
            # Another thread is sending, or what it left unsent has to go first, in `tend`.
            return now + outgoing.retry_s
        with self.lock:
            has_turn = outgoing.take_ripe_turn(now)
        if has_turn and not outgoing.send(0.0):
            self.wake()
        return outgoing.flush_at

    def finish(self) -> None:
        """Close the transport and keep its counters."""
        with self.lock:
            self._figures = transport_figures(self.transport)
            self.transport.close()
