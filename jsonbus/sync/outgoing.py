"""Datagrams on their way out, sent by one thread at a time.

Theory of operation. frontend/outgoing.py decides *when* to send, this file *which thread* sends.
Messages wait in the node's outbox. A thread that finds, under the node's lock, the *turn* free
takes it, and the outbox with it, and sends without the lock. A thread that finds it taken leaves
its messages in the outbox and goes on: the holder looks at the outbox again before it stops. So an
idle publish is sent at once by the publishing thread, messages published during a send are batched
in the next datagrams, and the messages of one thread keep their order.

    take_turn   lock held        _holder = this thread; outbox -> _unsent
    send        lock not held    _unsent -> socket; _holder = None; then the outbox again

The turn is given back without taking the lock a second time: the holder first clears `_holder`,
then looks at the outbox; a publisher first fills the outbox, then looks at `_holder`. The second
one sees what the first did, so no message stays behind.

A thread may take the turn that it holds: a log handler may publish when a failed send is logged.
The inner send then empties `_unsent`, in order, and the outer one finds its turn gone.

Messages that are batched and do not fill a datagram are sent by the receive thread, which is woken
once per burst and then comes back (`flush_at`) until nothing is batched any more. While it has
planned that, `FastPublish.limit` lets publishers queue messages without looking at any of this;
when the plan ends, it first takes the limit back, then looks for a message that came just before.

The receive thread never waits for the pacer: it comes back. The pacer is asked when its last answer
is used up, and when a flood begins: much may have changed since.

No thread may be kept sending for others for ever: after ROUNDS_MAX rounds, and whenever the kernel
has no room and the caller does not wait, the rest is left to the receive thread. While something is
unsent the outbox is not taken, so it fills, and `wait_for_room` stops publishers at
OUTPUT_BYTES_MAX, or earlier with a rate limit.
"""

from __future__ import annotations

import math
import threading
import time
from threading import get_ident
from typing import TYPE_CHECKING

from jsonbus.errors import TransportError
from jsonbus.frontend.checks import SECONDS_MAX
from jsonbus.frontend.limits import RETRY_S
from jsonbus.frontend.outgoing import BaseOutgoing
from jsonbus.frontend.throttle import Throttle

if TYPE_CHECKING:
    from jsonbus.sync.loop import Loop

#: How much longer the last messages of a flood may wait for the receive thread. In a flood,
#: datagrams leave because they are full; to look more often costs more than it gains.
FLOOD_LINGER_S = 0.0007


#: The longest wait for room before the thread checks whether the bus was closed.
ROOM_WAIT_S = 0.05

#: Rounds of sending for other threads before the receive thread takes over.
ROUNDS_MAX = 16


class Outgoing(BaseOutgoing):
    """Datagrams of this node, sent by the thread that has the turn."""

    def __init__(self, loop: Loop) -> None:
        throttle = Throttle(loop.transport, loop.config.rate_limit, self._smallest_buffer)
        super().__init__(loop, throttle)
        self._loop = loop
        self._lock = loop.lock
        self._make_single = loop.node.outbox.make_single
        self._holder: int | None = None  # the thread that has the turn
        self._room = threading.Condition(loop.lock)
        self._waiting = 0  # threads in wait_for_room and wait_until_sent
        self._is_flush_planned = False
        self._is_stopping = False  # messages are not batched any more

    @property
    def has_unsent(self) -> bool:
        """True if datagrams wait to be sent and no thread has the turn."""
        return bool(self._unsent) and self._holder is None

    @property
    def retry_s(self) -> float:
        """The pause before the next try to send."""
        is_kernel = self._jammed_at is not None
        return RETRY_S if is_kernel else max(RETRY_S, min(self._throttle.retry_s, ROOM_WAIT_S))

    @property
    def is_busy(self) -> bool:
        """True if a thread is sending, or datagrams wait for the kernel or the pacer."""
        return self._holder is not None or bool(self._unsent)

    @property
    def flush_at(self) -> float:
        """When the receive thread has to send batched messages."""
        if not self._is_flush_planned:
            return math.inf
        return self._window.until + (FLOOD_LINGER_S if self._window.is_flood else 0.0)

    def take_turn_or_wait(self, now: float) -> bool:
        """After a publish: batch, take the turn, or wait for room. Lock held.

        Returns whether the turn was taken: then call `send`.
        """
        if self._batches(now):
            return False
        has_turn = self.take_turn(now)
        if not has_turn:
            self._leave_queued()
            self.wait_for_room()
        return has_turn

    def take_single_turn(self, prefix: bytes, payload: bytes, now: float) -> bytes | None:
        """Take the turn for one message, if no other waits or is being sent. Lock held.

        Returns the datagram to `send_single`; None soon after another one, unless the message fills
        a datagram anyway.
        """
        if self._holder is not None or self._unsent:
            return None
        if now < self._window.until and len(payload) < self._fast_publish.alone_min:
            return None
        datagram = self._make_single(prefix, payload, now)
        if datagram is not None:
            self._holder = get_ident()
        return datagram

    def stop_batching(self) -> None:
        """Send every message at once from now on. Lock held."""
        self._fast_publish.limit = 0
        self._is_stopping = True

    def drop_queued(self) -> None:
        """Count messages that came too late to be sent. Lock held."""
        self._take_output(time.monotonic())

    def _batches(self, now: float) -> bool:
        """Return whether the message just published waits for others. Lock held."""
        if now >= self._window.until or self._is_stopping or self._outbox.has_full_batch:
            return False
        self._fast_publish.limit = self._outbox.typical_count
        if not self._is_flush_planned:
            self._is_flush_planned = True
            self._loop.wake_to_flush()
        return True

    def take_ripe_turn(self, now: float) -> bool:
        """`take_turn` for the receive thread: leaves messages that are still batched. Lock held."""
        if self._is_flush_planned and not self._unsent:
            if now < self.flush_at and not self._outbox.has_full_batch:
                return False
            # While more messages come it looks again, and no thread has to wake it.
            if not self._outbox.has_output:
                self._fast_publish.limit = 0
                self._fast_publish.is_flood = False
                # From now on a publisher flushes what it queues; one may have queued just before.
                self._is_flush_planned = self._outbox.has_output
        return self.take_turn(now)

    def take_turn(self, now: float) -> bool:
        """Take the turn and the outbox, if there is something to send. Lock held."""
        me = get_ident()
        if self._is_closed or (self._holder is not None and self._holder != me):
            return False
        if not self._unsent:
            if not self._outbox.has_output:
                return False
            is_young = self._is_flush_planned and now < self._window.until
            self._open_window(now)
            self._take_output(now, keeps_rest=is_young)
            if self._waiting:
                self._room.notify_all()
        self._holder = me
        return True

    def send(self, wait_until: float) -> bool:
        """Send everything and give the turn back. Only for its holder, without the lock.

        Waits for the kernel until that time. False: the receive thread has to send the rest.
        """
        for _ in range(ROUNDS_MAX):
            try:
                self._send_unsent(wait_until)
            finally:
                self._give_back_turn()
            if self._unsent or not self._outbox.has_output:
                break
            with self._lock:
                now = time.monotonic()
                if self._batches(now) or not self.take_turn(now):
                    return True
        else:
            self._give_back_turn()
        return not (self._unsent or self._outbox.has_output)

    def send_single(self, datagram: bytes, now: float) -> bool:
        """Send one datagram for which the turn was taken, on a shorter way than `send`.

        If it takes more than one try, or more messages came meanwhile, calls `send`. Messages are
        batched from then on: the first one leaves before that is even noted.
        """
        throttle, run = self._throttle, (datagram,)
        is_hindered = throttle.is_limited or self._is_failing or self._jammed_at is not None
        if is_hindered or not throttle.is_open():
            self._open_window(now)
            self._unsent.append(datagram)
            return self.send(math.inf)
        try:
            if self._transport.send(run):
                throttle.let_through(len(datagram))
            else:
                self._unsent.append(datagram)
                self._run = run  # interfaces that took it must not get it twice
        except TransportError as error:
            self._note_refused(error, time.monotonic())
        self._open_window(now)
        if not self._unsent:
            self._give_back_turn()
            if not self._outbox.has_output:
                return True
        return self.send(math.inf)

    def let_go(self) -> None:
        """Give the turn back if this thread has it: Ctrl-C may come between taking and sending."""
        self._give_back_turn()
        if self._unsent or self._outbox.has_output:
            self._loop.wake()

    def wait_for_room(self) -> None:
        """Return once the output is within its bound. Lock held; it is released while waiting."""
        while self._is_over_bound() and not self._is_closed:
            self._help(math.inf)

    def wait_until_sent(self, deadline: float) -> bool:
        """Wait until everything was sent; False if the time is over first. Lock held, as above."""
        while self._holder is not None or self._unsent or self._outbox.has_output:
            if time.monotonic() >= deadline or self._is_closed:
                return False
            self._help(deadline)
        return True

    def close(self, deadline: float) -> None:
        """Send what can be sent in time, then nothing more. Lock not held."""
        with self._lock:
            self.wait_until_sent(deadline)
            self._is_closed = True
            # A thread in the middle of a send must be out before the sockets are closed.
            while self._holder is not None and time.monotonic() < deadline + 2 * ROOM_WAIT_S:
                self._wait(ROOM_WAIT_S)
            self._take_output(time.monotonic())
            self._room.notify_all()

    def _help(self, deadline: float) -> None:
        """Send, or wait for the thread that does. Lock held; released meanwhile."""
        now = time.monotonic()
        if not self.take_turn(now):
            self._wait(min(deadline - now, SECONDS_MAX))
            return
        try:
            self._lock.release()  # inside: Ctrl-C must find it taken again, whenever it comes
            if not self.send(deadline):
                self._loop.wake()
        except BaseException:
            self.let_go()
            raise
        finally:
            self._lock.acquire()

    def _wait(self, timeout_s: float) -> None:
        """Wait until a turn is given back. Lock held; released meanwhile."""
        # Counted before the look: the thread that gives the turn back reads the count after that.
        self._waiting += 1
        try:
            if self._holder is not None:
                self._room.wait(timeout_s)
        finally:
            self._waiting -= 1

    def _give_back_turn(self) -> None:
        if self._holder != get_ident():
            return
        self._holder = None
        if self._waiting:
            with self._lock:
                self._room.notify_all()

    def _send_unsent(self, wait_until: float) -> None:
        unsent, throttle, send, me = self._unsent, self._throttle, self._transport.send, get_ident()
        while unsent and self._holder == me and not self._is_closed:
            if not throttle.is_open():
                now = time.monotonic()
                if now >= wait_until:
                    return
                self._loop.workers.will_wait()
                time.sleep(min(throttle.retry_s, ROOM_WAIT_S, wait_until - now))
                continue
            run = self._next_run()
            try:
                if send(run):
                    self._take_run()
                    throttle.let_through(sum(map(len, run)), len(run))
                    if throttle.is_limited and not throttle.is_open():
                        # Messages published until more may leave are batched.
                        self._window.extend(time.monotonic() + throttle.retry_s)
                    if self._is_failing or self._jammed_at is not None:
                        self._note_sent(time.monotonic())
                    continue
            except TransportError as error:
                self._drop_run(error, time.monotonic())
                continue
            now = time.monotonic()
            if self._note_no_room(now):
                if now >= wait_until:
                    return
                self._transport.wait_writable(min(ROOM_WAIT_S, wait_until - now))

    def _smallest_buffer(self, hosts: frozenset[str]) -> int | None:
        with self._lock:
            return self._node.directory.smallest_buffer(hosts)
