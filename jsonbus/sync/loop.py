"""Where transport, clock and core meet, with threads.

Theory of operation. One lock guards the node. Nobody holds it while sending, receiving, logging or
running code of the application, and nobody holds another lock with it. Three kinds of threads come
to the node:

- **callers**, the application's own threads and those inside handlers, take the lock once per
  call. Then, without it, they send what the call caused (outgoing.py), put what was published here
  into mailboxes of this process, and pass events on. Most messages of a flood do without the lock:
  `Bus.publish` only adds them to others (core/fast_publish.py), and comes here for every so many;
- **the receive thread** (receiving.py) does the same for each datagram and for each timer;
- **workers** run handlers; they come here only as callers. Which of the bus's threads receives and
  which are workers, the thread pool decides (thread_pool.py), and it changes.

A caller that made the node want an earlier timer than the receive thread is waiting for, or that
left something unsent, wakes the receive thread.

Each thread takes from the node, under the lock, just what its own call caused, and puts it into
mailboxes itself: so what one thread published, and what another node sent, arrives in order. What
watches are told they get under the lock: any thread may take it from the node.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
from time import monotonic
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from jsonbus.config import BusConfig
from jsonbus.core.events import Event
from jsonbus.core.node import Node
from jsonbus.errors import TransportError
from jsonbus.frontend.lifetime import closed_error, forked_error, note_closed, note_open
from jsonbus.frontend.limits import CLOSE_RESERVE_S, CLOSE_S, DEAF_S, END_GRACE_S
from jsonbus.frontend.loop import BaseLoop
from jsonbus.frontend.opening import datagram_bytes, transport_figures
from jsonbus.sync.outgoing import Outgoing
from jsonbus.sync.publishing import Publishing, deliver_own
from jsonbus.sync.receiving import Deliveries, Receiving
from jsonbus.sync.subscription import Subscription
from jsonbus.sync.thread_pool import ThreadPool
from jsonbus.transport.base import Transport

if TYPE_CHECKING:
    from jsonbus.sync.channels import Channels  # noqa: F401 - in the base class

T = TypeVar("T")


class _Outcome(NamedTuple):
    """What a call to the node caused; taken under the lock, carried out without it."""

    events: list[Event]
    deliveries: Deliveries
    has_turn: bool


class Loop(BaseLoop[Subscription, "Channels"]):
    """Drives one node. Methods are for any thread unless they say otherwise."""

    workers: ThreadPool

    def __init__(self, node: Node, transport: Transport, config: BusConfig) -> None:
        self._lock = threading.Lock()
        super().__init__(node, transport, config, self._lock, threading.Lock())
        self.workers = ThreadPool(node.settings.name, config.workers, self.log)
        self._changed = threading.Condition(self._lock)  # events came, or the bus is closing
        self._receiving = Receiving(
            transport,
            self.log,
            lock=self._lock,
            take=node.receive,  # type: ignore[arg-type]  # sinks are subscriptions
            run_at_once=self.workers.run_at_once,
            run_due=self.workers.run_due,
            take_attention=self._node.take_attention,
            tend=self._tend,
            flush=self._flush,
            hear_again=self._hear_again,
            finish=self._finish,
        )
        self._outgoing = Outgoing(
            node,
            transport,
            self._lock,
            self.log,
            config.rate_limit,
            wake=self.wake,
            wake_to_flush=self._receiving.wake_to_flush,
            will_wait=self.workers.will_wait,
        )
        self.publishing = Publishing(
            node,
            self._outgoing,
            self._lock,
            wake=self.wake,
            tends_at=lambda: self._tends_at,
            will_wait=self.workers.will_wait,
        )
        self._tends_at = math.inf  # when the receive thread looks at the node's timers again
        self._is_abandoned = False
        self._ended = threading.Event()

    def start(self) -> None:
        """Join the bus."""
        try:
            self.workers.start(self._receiving)
        except TransportError:
            self._transport.close()
            self._receiving.cut_off()
            raise
        note_open(self)
        self._node.outbox.allow_bytes(*datagram_bytes(self._config, self._transport))
        self.call(Node.open)

    def check_here(self) -> None:
        """Raise ForkedError in a forked child."""
        if self._is_cut_off:
            raise forked_error()

    def call(self, act: Callable[[Node, float], T]) -> T:
        """Do something with the node, and what that causes."""
        if self._is_cut_off:
            raise forked_error()
        try:
            with self._lock:
                now = monotonic()
                result = act(self._node, now)
                outcome = self._collect(now, self._outgoing.take_turn)
                timer_at = self._node.timer_at()
                if timer_at is not None and timer_at < self._tends_at:
                    self.wake()
            if outcome.has_turn and not self._outgoing.send(math.inf):
                self.wake()
        except BaseException:
            self._outgoing.let_go()
            raise
        deliver_own(outcome.deliveries)
        self._report(outcome.events)
        return result

    def wait_for(self, condition: Callable[[Node], bool], timeout_s: float) -> bool:
        """Whether the condition came true in time; looked at after every event."""
        self.check_here()
        deadline = monotonic() + timeout_s
        self.workers.will_wait()
        with self._lock:
            return self._wait_until(condition, deadline)

    def flush(self, timeout_s: float) -> bool:
        """Whether everything published so far left in time, what is held included."""
        self.check_here()
        deadline = monotonic() + timeout_s
        self.workers.will_wait()
        with self._lock:
            return self._wait_until(
                lambda node: not node.held, deadline
            ) and self._outgoing.wait_until_sent(deadline)

    def wake(self) -> None:
        """Have the receive thread look at timers, output, and who holds it up."""
        self._receiving.wake()

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
        with self._lock:
            is_first = not self._is_closing
            if is_first:
                self._outgoing.stop_gathering()
                self._node.close(monotonic())
                self._is_closing = self.publishing.is_closing = True
                self._changed.notify_all()
        if not is_first:
            # A thread of this bus must not wait for the one that waits for it.
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
        """Nobody has the bus any more: let the receive thread close it. Takes no lock."""
        self._is_abandoned = True
        self.wake()

    def close_at_exit(self) -> None:
        self.close(CLOSE_S)

    def cut_off(self) -> None:
        super().cut_off()
        self.publishing.is_cut_off = self.publishing.is_closing = True
        self._receiving.cut_off()

    def _notify(self) -> None:
        self._changed.notify_all()

    def _outgoing_figures(self) -> dict[str, int]:
        return self._outgoing.figures

    def _collect(self, now: float, take_turn: Callable[[float], bool]) -> _Outcome:
        """Take what a call caused. Lock held."""
        events = self._take_events()
        deliveries: Deliveries = self._node.take_deliveries()  # type: ignore[assignment]
        return _Outcome(events, deliveries, take_turn(now))

    def _wait_until(self, condition: Callable[[Node], bool], deadline: float) -> bool:
        """Lock held, and released while waiting."""
        while True:
            if self._is_closing:
                raise closed_error()
            if condition(self._node):
                return True
            remaining_s = deadline - monotonic()
            if remaining_s <= 0:
                return False
            self._changed.wait(remaining_s)

    def _stop(self) -> None:
        """End everything that waits or runs, without waiting for it."""
        self._end_all()
        self.wake()
        note_closed(self)

    # In the receiving thread:

    def _tend(self) -> float:
        """Timers, output, events; returns when to come again."""
        node, outgoing = self._node, self._outgoing
        has_moved = self._follow_interfaces(monotonic())
        with self._lock:
            now = monotonic()
            if has_moved:
                node.outbox.allow_bytes(*datagram_bytes(self._config, self._transport))
                node.doubt_network("the network interfaces changed", now)
            timer_at = node.timer_at()
            if timer_at is not None and timer_at <= now:
                node.outbox.wall_offset_s = time.time() - now  # the clock may be set
                node.handle_timer(now)
            outcome = self._collect(now, outgoing.take_ripe_turn)
            timer_at = node.timer_at()
            self._tends_at = math.inf if timer_at is None else timer_at
        if has_moved and self.channels is not None:
            self.channels.follow_addresses()
        if outcome.has_turn:
            outgoing.send(0.0)
        if outcome.deliveries:
            self._receiving.deliver(outcome.deliveries)
        self._report(outcome.events)
        if self._is_abandoned:
            self.close(CLOSE_S)
        if outgoing.has_unsent:
            return now + outgoing.retry_s
        return min(self._tends_at, self._looks_at)

    def _flush(self, now: float) -> float:
        """Send what has queued long enough; returns when to come again."""
        outgoing = self._outgoing
        if now < outgoing.flush_at:
            return outgoing.flush_at
        if outgoing.is_busy:
            # Another thread is sending, or what it left unsent has to go first: that is _tend's.
            return now + outgoing.retry_s
        with self._lock:
            has_turn = outgoing.take_ripe_turn(now)
        if has_turn and not outgoing.send(0.0):
            self.wake()
        return outgoing.flush_at

    def _hear_again(self, deaf_s: float) -> None:
        if deaf_s >= DEAF_S:
            with self._lock:
                reason = f"this node did not listen for {deaf_s:.1f} s"
                self._node.doubt_network(reason, monotonic())

    def _finish(self) -> None:
        with self._lock:
            self._figures = transport_figures(self._transport)
            self._transport.close()
