"""The work of the receive thread: read datagrams and serve timers.

It waits for datagrams, for the next timer, and for other threads (waiter.py). It gives the node one
datagram or run at a time, up to DRAIN_MAX and for DRAIN_S per wake-up, and delivers the messages in
it before it reads the next: into mailboxes, or straight to a quick handler. The thread pool decides
which thread receives and which threads run other handlers (thread_pool.py).

Before the node acts on a control datagram, the others that wait are read: where many threads share
a processor, they may be many, and the answer may be among them already.

A full mailbox with overflow "block" *blocks* receiving: nothing is read, so the kernel's buffer
fills, then drops and counts; timers, heartbeats and sending go on. The mailbox wakes the thread
when it is half empty.
"""

from __future__ import annotations

import math
import socket
import time
from time import monotonic
from typing import TYPE_CHECKING

from jsonbus.core.message import Message
from jsonbus.errors import TransportError
from jsonbus.frontend.limits import DRAIN_MAX, LULL_S, READ_ON_MAX, TROUBLE_PAUSE_S
from jsonbus.sync.subscription import Subscription
from jsonbus.sync.waiter import Waiter

if TYPE_CHECKING:
    from jsonbus.sync.loop import Loop

Deliveries = list[tuple[Subscription, list[Message]]]


#: How long it reads, and runs handlers in place, before it serves timers: heartbeats are on time,
#: and so are batched messages, of these handlers and of other threads.
DRAIN_S = 0.002

#: How long it reads on after a control datagram, while no message is among what comes: timers that
#: are so late suspect nobody yet. The threads of a hundred buses in one process take turns after
#: nearly every datagram, so that much more comes while a few are read. Messages may never stop
#: coming, and some of them wait for a NAK of this node.
READ_ON_S = 0.5


class Receiving:
    """Waits and reads. For one thread at a time, unless a method says otherwise."""

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self._node = loop.node
        self._transport = loop.transport
        self._workers = loop.workers
        self._log = loop.log
        self._waiter = Waiter()
        self._drain_max = 1  # datagrams to try for at the next wake-up
        self._drained_at = -math.inf
        self._blocked_by: set[Subscription] = set()
        self._blocked_at = 0.0
        self._due = loop.workers.due
        self._needs_tending = True  # timers, output or events may have changed
        self._needs_flushing = True  # so may the time to send batched messages
        self._tends_at = self._flushes_at = -math.inf
        self._listen()

    def wake(self) -> None:
        """Have the thread check timers, output, and what blocks it. Any thread."""
        self._needs_tending = True
        self._waiter.wake()

    def wake_to_flush(self) -> None:
        """Have the thread check when to send batched messages. Any thread."""
        self._needs_flushing = True
        self._waiter.wake()

    def step(self) -> None:
        """Wait for something to do, and do it."""
        try:
            # Work that another thread left when its handler took too long.
            if self._due and not self._workers.run_due():
                return
            for sock in self._waiter.wait(min(self._tends_at, self._flushes_at)):
                if not self._drain(sock):
                    return
            if self._blocked_by:
                self._look_for_room()
            # A flood of messages moves no timer: looking at timers after each would cost more
            # than the messages.
            now = monotonic()
            if self._node.take_attention() or self._needs_tending or now >= self._tends_at:
                self._needs_tending = False
                self._tends_at = self._loop.tend()
            if self._needs_flushing or now >= self._flushes_at:
                self._flush(now)
        except Exception:
            self._log.fail("the receive loop failed, and goes on: this is a bug")
            time.sleep(TROUBLE_PAUSE_S)

    def deliver(self, deliveries: Deliveries) -> bool:
        """Put received messages into mailboxes; False if one of them blocks receiving."""
        full = [each for each, messages in deliveries if not each.deliver(messages)]
        if not full:
            return True
        if not self._blocked_by:
            self._blocked_at = monotonic()
            self._waiter.listen(())
        self._blocked_by.update(full)
        return False

    def finish(self) -> None:
        """Close the transport: no thread receives any more."""
        self._loop.finish()
        self.close()

    def close(self) -> None:
        """Release the descriptors. Alone in a forked child, where no thread receives."""
        self._waiter.close()

    def _drain(self, sock: socket.socket) -> bool:
        """Read what the kernel has; return False if this thread is no longer the receiver.

        Tries for few more datagrams than came last time, and for one only if it had to be waited
        for: one try too many costs as much as a small message.
        """
        lock, take, workers = self._loop.lock, self._node.receive, self._workers
        receive, own_addresses = self._transport.receive, self._transport.own_addresses
        now = began_at = monotonic()
        until = now + DRAIN_S
        if now - self._drained_at > LULL_S:
            self._drain_max = 1
        tries, reads_on, heard = self._drain_max, False, 0
        while tries:
            tries -= 1
            try:
                received = receive(sock)
            except TransportError as error:
                self._log.warn_once(("receive", str(error)), "%s", error)
                time.sleep(TROUBLE_PAUSE_S)
                return True
            if received is None:
                self._drain_max = 1
                return True
            datagrams, sender = received
            if sender in own_addresses:
                continue  # multicast returns what this node sent
            with lock:
                # Sinks are subscriptions.
                deliveries: Deliveries = take(datagrams, sender, now)  # type: ignore[assignment]
            if deliveries:
                has_room = True
                goes_on = workers.run_in_place(*deliveries[0]) if len(deliveries) == 1 else None
                if goes_on is None:
                    has_room = self.deliver(deliveries)
                    goes_on = workers.run_due()
                if not goes_on:
                    return False
                # Release what was handled before more comes: its memory is reused while warm.
                del deliveries
                if reads_on or not has_room:
                    return True
            elif not reads_on and self._node.take_attention():
                self._needs_tending = reads_on = True
                tries, until = READ_ON_MAX, now + READ_ON_S
                began_at, heard = now, self._node.messages_heard
            elif reads_on:
                if self._needs_flushing or now >= self._flushes_at:
                    self._flush(now)
                if self._node.messages_heard != heard:
                    until = min(until, began_at + DRAIN_S)
            self._drained_at = now = monotonic()
            if now >= until:
                return True
        self._drain_max = min(DRAIN_MAX, 4 * self._drain_max)
        return True

    def _flush(self, now: float) -> None:
        """Send messages that were batched long enough."""
        self._needs_flushing = False
        self._flushes_at = self._loop.flush_queued(now)

    def _look_for_room(self) -> None:
        """Listen again if nothing blocks receiving any more."""
        self._blocked_by = {each for each in self._blocked_by if each.blocks_receiving}
        if not self._blocked_by:
            self._listen()
            self._loop.hear_again(monotonic() - self._blocked_at)

    def _listen(self) -> None:
        self._waiter.listen(self._transport.sockets())
