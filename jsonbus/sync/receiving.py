"""What the receiving thread does: datagrams in, and whatever has its time.

It waits for datagrams, for the next timer and for the bell. It gives the node one datagram at a
time, up to DRAIN_MAX and for DRAIN_S per wake-up, and brings what was in it to its subscriptions
before it reads the next: into their mailboxes, or straight to a quick handler. Which thread that
is, and who runs handlers, is the thread pool's affair (thread_pool.py).

A full mailbox with overflow "block" *holds up* receiving: nothing is read, so the kernel's buffer
fills, then drops and counts; timers, heartbeats and sending go on. The mailbox rings the bell when
it is half empty.
"""

from __future__ import annotations

import math
import select
import selectors
import socket
import threading
import time
from collections.abc import Callable
from time import monotonic

from jsonbus.core.message import Message
from jsonbus.errors import TransportError
from jsonbus.frontend.limits import DRAIN_MAX, TROUBLE_PAUSE_S
from jsonbus.frontend.log import BusLog
from jsonbus.sync.subscription import Subscription
from jsonbus.sync.waker import Waker
from jsonbus.transport.base import Sender, Transport

Deliveries = list[tuple[Subscription, list[Message]]]


#: How long it reads, and runs handlers in place, before that: heartbeats are on time, and so is
#: what gathers, be it from these handlers or from other threads.
DRAIN_S = 0.002


class Receiving:
    """What is waited for, and read. One thread at a time, unless a method says otherwise.

    `take` gives a datagram to the node, with `lock` held, and returns what it brought for
    subscriptions; `run_at_once` and `run_due` run handlers and return whether this thread is to go
    on receiving; `take_attention` returns whether what was taken may have moved timers or caused
    output; `tend` does what is due and returns when to come again; `flush` sends what has queued
    and returns when to come again for that; `hear_again` is told for how long nothing was read.
    """

    def __init__(
        self,
        transport: Transport,
        log: BusLog,
        *,
        lock: threading.Lock,
        take: Callable[[bytes, Sender, float], Deliveries],
        run_at_once: Callable[[Subscription, list[Message], float], bool | None],
        run_due: Callable[[], bool],
        take_attention: Callable[[], bool],
        tend: Callable[[], float],
        flush: Callable[[float], float],
        hear_again: Callable[[float], None],
        finish: Callable[[], None],
    ) -> None:
        self._transport = transport
        self._log = log
        self._lock = lock
        self._take = take
        self._run_at_once = run_at_once
        self._run_due = run_due
        self._take_attention = take_attention
        self._tend = tend
        self._flush = flush
        self._hear_again = hear_again
        self._finish = finish
        self._waker = Waker()
        self._waker_descriptor = self._waker.socket.fileno()
        self._listening: dict[int, socket.socket] = {}
        self._drain_max = 1  # datagrams to try for at the next wake-up
        self._blocked_by: set[Subscription] = set()
        self._blocked_at = 0.0
        self._needs_tending = True  # timers, output or events may have changed
        self._tends_at = self._flushes_at = -math.inf
        self._listen()

    def wake(self) -> None:
        """Have the thread look at its timers, its output, and who holds it up. Any thread."""
        self._needs_tending = True
        self._waker.wake()

    def wake_to_flush(self) -> None:
        """Have the thread look at what gathers. Any thread."""
        self._waker.wake()

    def step(self) -> None:
        """Wait for something to do, and do it."""
        try:
            # What another thread left when it ran into a long handler.
            if not self._run_due():
                return
            if not self._wait_and_read(min(self._tends_at, self._flushes_at)):
                return
            # A flood of messages moves no timer: looking at timers after each would cost more
            # than the messages.
            now = monotonic()
            if self._take_attention() or self._needs_tending or now >= self._tends_at:
                self._needs_tending = False
                self._tends_at = self._tend()
            self._flushes_at = self._flush(now)
        except Exception:
            self._log.fail("the receive loop failed, and goes on: this is a bug")
            time.sleep(TROUBLE_PAUSE_S)

    def deliver(self, deliveries: Deliveries) -> bool:
        """Put received messages into mailboxes; False if one of them holds up."""
        full = [each for each, messages in deliveries if not each.deliver(messages)]
        if not full:
            return True
        if not self._blocked_by:
            self._blocked_at = monotonic()
            self._listening = {}
        self._blocked_by.update(full)
        return False

    def finish(self) -> None:
        """Nobody receives any more."""
        self._finish()
        self._waker.close()

    def cut_off(self) -> None:
        """This is a forked child: release the descriptors, there is no thread."""
        self._waker.close()

    def _wait_and_read(self, until: float) -> bool:
        """False if this thread shall receive no more."""
        timeout_s = None if until == math.inf else max(0.0, until - monotonic())
        listening = self._listening
        ready = self._wait(list(listening), timeout_s)
        for descriptor in ready:
            if not self._drain(listening[descriptor]):
                return False
        if self._blocked_by:
            self._look_for_room()
        return True

    def _wait(self, descriptors: list[int], timeout_s: float | None) -> list[int]:
        """Those with something to read; answers the bell."""
        descriptors.append(self._waker_descriptor)
        try:
            ready: list[int] = select.select(descriptors, (), (), timeout_s)[0]
        except ValueError:  # a descriptor beyond what select() can hold
            ready = _select_any(descriptors, timeout_s)
        if self._waker_descriptor in ready:
            self._waker.clear()
            ready.remove(self._waker_descriptor)
        return ready

    def _drain(self, sock: socket.socket) -> bool:
        """Read what the kernel has; False if this thread shall receive no more.

        Not more than before, though: to try once too often costs as much as a small message.
        """
        lock, take, run_at_once = self._lock, self._take, self._run_at_once
        receive, own_addresses = self._transport.receive, self._transport.own_addresses
        now = monotonic()
        until = now + DRAIN_S
        for _ in range(self._drain_max):
            try:
                received = receive(sock)
            except TransportError as error:
                self._log.warn_once(("receive", str(error)), "%s", error)
                time.sleep(TROUBLE_PAUSE_S)
                return True
            if received is None:
                self._drain_max = 1
                return True
            datagram, sender = received
            if sender in own_addresses:
                continue  # multicast brings back what this node sent
            with lock:
                deliveries = take(datagram, sender, now)
            if deliveries:
                has_room = True
                goes_on = run_at_once(*deliveries[0], now) if len(deliveries) == 1 else None
                if goes_on is None:
                    has_room = self.deliver(deliveries)
                    goes_on = self._run_due()
                if not goes_on:
                    return False
                # What was handled goes before more comes: its memory is used while it is warm.
                del deliveries
                if not has_room:
                    return True
            now = monotonic()
            if now >= until:
                return True
        self._drain_max = min(DRAIN_MAX, 4 * self._drain_max)
        return True

    def _look_for_room(self) -> None:
        """Listen again if nobody holds up any more."""
        self._blocked_by = {each for each in self._blocked_by if each.blocks_receiving}
        if not self._blocked_by:
            self._listen()
            self._hear_again(monotonic() - self._blocked_at)

    def _listen(self) -> None:
        self._listening = {sock.fileno(): sock for sock in self._transport.sockets()}


def _select_any(descriptors: list[int], timeout_s: float | None) -> list[int]:
    """select() for descriptors of any number; only as exact as a millisecond."""
    with selectors.DefaultSelector() as selector:
        for descriptor in descriptors:
            selector.register(descriptor, selectors.EVENT_READ)
        return [key.fd for key, _ in selector.select(timeout_s)]
