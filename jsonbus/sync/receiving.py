"""The receive thread: datagrams in, and whatever has its time.

It waits for datagrams, for the next timer and for the bell. It gives the node one datagram at a
time, up to DRAIN_MAX per wake-up, and puts what the datagram brought into mailboxes before it reads
the next. It never runs a handler and never waits for a subscription.

A full mailbox with overflow "block" *holds up* the thread: it stops reading, so the kernel's buffer
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
from jsonbus.frontend.events import BusLog
from jsonbus.sync.bell import Bell
from jsonbus.sync.subscription import Subscription
from jsonbus.transport.base import Sender, Transport

Deliveries = list[tuple[Subscription, list[Message]]]

#: Datagrams read before the thread looks at its timers again: enough that a flood is not slowed by
#: selecting, few enough (a millisecond or two) that heartbeats are on time.
DRAIN_MAX = 64

#: Waits shorter than this are not for the selector.
SHORT_WAIT_S = 0.001

#: The pause after an error that would come again at once.
TROUBLE_PAUSE_S = 0.1


class Receiving:
    """The thread, and what it waits for.

    `take` gives a datagram to the node and returns what it brought for subscriptions; `tend` does
    what has its time and returns when to come again; `flush` sends what has gathered and returns
    when to come again for that; `hear_again` is told for how long the thread was held up; `finish`
    is the last thing it does. All are called in the thread alone.
    """

    def __init__(
        self,
        name: str,
        transport: Transport,
        log: BusLog,
        *,
        take: Callable[[bytes, Sender], Deliveries],
        tend: Callable[[], float],
        flush: Callable[[float], float],
        hear_again: Callable[[float], None],
        finish: Callable[[], None],
    ) -> None:
        self._transport = transport
        self._log = log
        self._take = take
        self._tend = tend
        self._flush = flush
        self._hear_again = hear_again
        self._finish = finish
        self._bell = Bell()
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._bell.socket, selectors.EVENT_READ)
        self._descriptors: dict[int, socket.socket | None] = {self._bell.socket.fileno(): None}
        self._held_up_by: set[Subscription] = set()
        self._held_up_at = 0.0
        self._needs_tending = True  # timers, output or events may have changed
        self._is_stopping = False
        self._thread = threading.Thread(
            target=self._run, name=f"jsonbus-receive-{name}", daemon=True
        )

    def start(self) -> None:
        """Raises TransportError, with everything released, if the system has no thread left."""
        self._listen()
        try:
            self._thread.start()
        except RuntimeError as error:
            self._transport.close()
            self._selector.close()
            self._bell.close()
            raise TransportError(f"the receive thread cannot be started: {error}") from error

    def is_current(self) -> bool:
        """Whether the calling thread is this one."""
        return threading.current_thread() is self._thread

    def wake(self) -> None:
        """Have the thread look at its timers, its output, and who holds it up. Any thread."""
        self._needs_tending = True
        self._bell.ring()

    def wake_to_flush(self) -> None:
        """Have the thread look at what gathers. Any thread."""
        self._bell.ring()

    def stir(self) -> None:
        """What was just taken may have moved timers or caused output. In the thread."""
        self._needs_tending = True

    def request_stop(self) -> None:
        """Let the thread end. Any thread, never waits."""
        self._is_stopping = True
        self._bell.ring()

    def join(self, timeout_s: float) -> None:
        """Wait for the thread to end, unless it is the one that calls."""
        if not self.is_current():
            self._thread.join(timeout_s)

    def deliver(self, deliveries: Deliveries) -> bool:
        """Put received messages into mailboxes; False if one of them holds up. In the thread."""
        full = [each for each, messages in deliveries if not each.deliver(messages)]
        if not full:
            return True
        if not self._held_up_by:
            self._held_up_at = monotonic()
            for sock in self._transport.sockets():
                self._selector.unregister(sock)
                del self._descriptors[sock.fileno()]
        self._held_up_by.update(full)
        return False

    def cut_off(self) -> None:
        """This is a forked child: release the descriptors, there is no thread."""
        # Closing leaves the parent's selector alone; unregistering would reach into it.
        self._selector.close()
        self._bell.close()

    def _run(self) -> None:
        tends_at = flushes_at = -math.inf
        while not self._is_stopping:
            try:
                self._wait_and_read(min(tends_at, flushes_at))
                # A flood of messages moves no timer: looking at timers after each would cost more
                # than the messages.
                now = monotonic()
                if self._needs_tending or now >= tends_at:
                    self._needs_tending = False
                    tends_at = self._tend()
                flushes_at = self._flush(now)
            except Exception:
                self._log.fail("the receive loop failed, and goes on: this is a bug")
                time.sleep(TROUBLE_PAUSE_S)
        self._finish()
        self._selector.close()
        self._bell.close()

    def _wait_and_read(self, until: float) -> None:
        timeout_s = None if until == math.inf else max(0.0, until - monotonic())
        for sock in self._wait(timeout_s):
            if sock is None:
                self._bell.answer()
            else:
                self._drain(sock)
        if self._held_up_by:
            self._look_for_room()

    def _wait(self, timeout_s: float | None) -> list[socket.socket | None]:
        """The sockets with something to read; None is the bell."""
        if timeout_s is not None and timeout_s < SHORT_WAIT_S:
            # The selector counts in milliseconds and rounds up.
            try:
                ready = select.select(self._descriptors, (), (), timeout_s)[0]
            except ValueError:
                pass  # a descriptor beyond what select() can hold: the selector it is
            else:
                return [self._descriptors[descriptor] for descriptor in ready]
        return [key.data for key, _ in self._selector.select(timeout_s)]

    def _drain(self, sock: socket.socket) -> None:
        """Read what the kernel has; stop early when a subscription holds up."""
        take, receive = self._take, self._transport.receive
        own_addresses = self._transport.own_addresses
        for _ in range(DRAIN_MAX):
            try:
                received = receive(sock)
            except TransportError as error:
                self._log.warn_once(("receive", str(error)), "%s", error)
                time.sleep(TROUBLE_PAUSE_S)
                return
            if received is None:
                return
            if received[1] in own_addresses:
                continue  # multicast brings back what this node sent
            deliveries = take(*received)
            if deliveries and not self.deliver(deliveries):
                return

    def _look_for_room(self) -> None:
        """Listen again if nobody holds up any more."""
        self._held_up_by = {each for each in self._held_up_by if each.holds_up}
        if not self._held_up_by and not self._is_stopping:
            self._listen()
            self._hear_again(monotonic() - self._held_up_at)

    def _listen(self) -> None:
        for sock in self._transport.sockets():
            self._selector.register(sock, selectors.EVENT_READ, data=sock)
            self._descriptors[sock.fileno()] = sock
