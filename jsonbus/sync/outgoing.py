"""Datagrams on their way out, one thread at a time.

Theory of operation. Messages gather in the node's outbox. Whoever finds, under the node's lock,
the *turn* free takes it, and the outbox with it, and sends without the lock. Whoever finds it taken
leaves its messages in the outbox and goes on: the holder looks at the outbox again before it stops.
So an idle publish leaves at once from its own thread, what is published while a send is under way
shares the next datagrams, and one thread's messages keep their order.

    take_turn   lock held        _holder = this thread; outbox -> _unsent
    send        lock not held    _unsent -> socket; _holder = None; then the outbox again

The turn is given back without taking the lock a second time: the holder first clears `_holder`,
then looks at the outbox; a publisher first fills the outbox, then looks at `_holder`. Whoever is
second sees what the other did, so no message stays behind.

A thread may take the turn that it holds: a log handler may publish what it was told of a failed
send. The inner send then empties `_unsent`, in order, and the outer one finds its turn gone.

A lone message leaves at once. After it, messages *gather* for LINGER_S, or until a datagram is
full: a publisher that is faster than that shares datagrams although nothing keeps it from sending.
What queued and did not fill a datagram leaves by the receive thread, which is woken once per burst
and then comes back (`flush_at`) until nothing gathers any more. While it has planned that,
`FastPublish.limit` lets publishers add messages without a look at any of this; when the plan ends,
it first takes the limit back, then looks for a message that came just before.

Before a datagram leaves, the pacer may want it to wait (core/pacing.py): for the rate limit, or for
receivers on this host. The receive thread never waits for that: it comes back. The pacer is asked
when its last answer is used up, and when a flood begins: much may have changed since.

No thread may be kept sending for others for ever: after ROUNDS_MAX rounds, and whenever the kernel
has no room and the caller does not wait, the rest is the receive thread's, which comes back to it.
While something is unsent the outbox is not taken, so it fills, and `wait_for_room` stops publishers
at OUTPUT_BYTES_MAX, or earlier with a rate limit. A datagram that the kernel had no room for during
STALL_S counts as refused: a network that is stuck is like one that is down. Nothing is dropped that
is not counted.
"""

from __future__ import annotations

import math
import threading
import time
from collections import deque
from collections.abc import Callable
from threading import get_ident

from jsonbus.core.node import Node
from jsonbus.errors import TransportError
from jsonbus.frontend.checks import SECONDS_MAX
from jsonbus.frontend.limits import LINGER_S, OUTPUT_BYTES_MAX, RETRY_S, STALL_S
from jsonbus.frontend.log import BusLog
from jsonbus.frontend.throttle import Throttle
from jsonbus.transport.base import Transport

#: So many datagrams in a row are a flood.
BURST_MIN = 3

#: How much longer its last messages may wait for the receive thread. In a flood datagrams leave
#: because they are full; to look more often costs its publisher more than it gains.
FLOOD_LINGER_S = 0.0007


#: A wait for room is this long at most before the thread looks whether the bus was closed.
ROOM_WAIT_S = 0.05

#: Rounds of sending for other threads before the receive thread takes over.
ROUNDS_MAX = 16


class Outgoing:
    """What leaves this node. `lock` is the node's."""

    def __init__(
        self,
        node: Node,
        transport: Transport,
        lock: threading.Lock,
        log: BusLog,
        rate_limit: float | None,
        *,
        wake: Callable[[], None],
        wake_to_flush: Callable[[], None],
        will_wait: Callable[[], None],
    ) -> None:
        self._node = node
        self._fast_publish = node.fast_publish
        self._make_single = node.outbox.make_single
        self._transport = transport
        self._lock = lock
        self._log = log
        self._wake = wake  # makes the receive thread look at timers and output
        self._wake_to_flush = wake_to_flush  # makes it look at `flush_at`
        self._will_wait = will_wait  # to be called before waiting for what others do
        self._throttle = Throttle(transport, rate_limit, self._smallest_buffer)
        self._unsent: deque[bytes] = deque()
        self._holder: int | None = None  # whose turn it is
        self._room = threading.Condition(lock)
        self._waiting = 0  # threads in wait_for_room and wait_until_sent
        self._jammed_at: float | None = None  # since when the kernel has had no room
        self._queues_until = -math.inf
        self._is_flush_planned = False
        self._burst = 0  # datagrams in a row, each within LINGER_S of the one before
        self._is_failing = False  # the last datagram was refused
        self._is_stopping = False  # nothing gathers any more
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
    def has_unsent(self) -> bool:
        """Whether something waits for the kernel, and nobody is at it."""
        return bool(self._unsent) and self._holder is None

    @property
    def retry_s(self) -> float:
        """How soon to come back to what is unsent."""
        is_kernel = self._jammed_at is not None
        return RETRY_S if is_kernel else max(RETRY_S, min(self._throttle.retry_s, ROOM_WAIT_S))

    @property
    def is_busy(self) -> bool:
        """Whether somebody is sending, or something waits for the kernel or the pacer."""
        return self._holder is not None or bool(self._unsent)

    @property
    def flush_at(self) -> float:
        """When the receive thread has to send what has queued."""
        if not self._is_flush_planned:
            return math.inf
        return self._queues_until + (FLOOD_LINGER_S if self._burst >= BURST_MIN else 0.0)

    @property
    def is_closed(self) -> bool:
        return self._is_closed

    def take_turn_or_wait(self, now: float) -> bool:
        """After a publish: gather, or take the turn; who can do neither waits for room. Lock held.

        Whether the turn was taken: then `send`.
        """
        if self._gathers(now):
            return False
        has_turn = self.take_turn(now)
        if not has_turn:
            self.wait_for_room()
        return has_turn

    def take_single_turn(self, prefix: bytes, payload: bytes, now: float) -> bytes | None:
        """Take the turn for one message, if nothing else waits, gathers or is sent. Lock held.

        The datagram to `send_single`. Not so soon after another one, unless it fills one anyway.
        """
        if self._holder is not None or self._unsent:
            return None
        is_burst = now < self._queues_until
        if is_burst and len(payload) < self._fast_publish.alone_min:
            return None
        datagram = self._make_single(prefix, payload, now)
        if datagram is not None:
            self._count_burst(is_burst)
            self._queues_until = now + LINGER_S
            self._holder = get_ident()
        return datagram

    def stop_gathering(self) -> None:
        """From now on every message is attended to. Lock held."""
        self._fast_publish.limit = 0
        self._is_stopping = True

    def drop_queued(self) -> None:
        """Count what came too late to be sent. Lock held."""
        self._unsent.extend(self._node.outbox.take(time.monotonic()))

    def _gathers(self, now: float) -> bool:
        """Whether what was just published waits for more, to share a datagram. Lock held."""
        if now >= self._queues_until or self._is_stopping or self._node.outbox.has_full_datagram:
            return False
        self._fast_publish.limit = self._node.outbox.typical_count
        if not self._is_flush_planned:
            self._is_flush_planned = True
            self._wake_to_flush()
        return True

    def take_ripe_turn(self, now: float) -> bool:
        """The receive thread's `take_turn`: leaves alone what still gathers. Lock held."""
        if self._is_flush_planned and not self._unsent:
            if now < self.flush_at and not self._node.outbox.has_full_datagram:
                return False
            # While messages go on gathering it looks again, and nobody has to wake it.
            if not self._node.outbox.has_output:
                self._fast_publish.limit = 0
                self._fast_publish.is_flood = False
                # Now whoever adds a message attends to it. Who did just before did not.
                self._is_flush_planned = self._node.outbox.has_output
        return self.take_turn(now)

    def take_turn(self, now: float) -> bool:
        """Take turn and outbox, if there is something to send. Lock held."""
        me = get_ident()
        if self._is_closed or (self._holder is not None and self._holder != me):
            return False
        if not self._unsent:
            if not self._node.outbox.has_output:
                return False
            is_burst = now < self._queues_until
            self._count_burst(is_burst)
            is_young = self._is_flush_planned and is_burst
            self._unsent.extend(self._node.outbox.take(now, keeps_rest=is_young))
            self._queues_until = now + LINGER_S
            if self._waiting:
                self._room.notify_all()
        self._holder = me
        return True

    def send(self, wait_until: float) -> bool:
        """Send what there is and give the turn back. Only by the holder of the turn, no lock.

        Waits for the kernel until that instant. False: something is left for the receive thread.
        """
        for _ in range(ROUNDS_MAX):
            try:
                self._send_unsent(wait_until)
            finally:
                self._give_back_turn()
            if self._unsent or not self._node.outbox.has_output:
                break
            with self._lock:
                now = time.monotonic()
                if self._gathers(now) or not self.take_turn(now):
                    return True
        else:
            self._give_back_turn()
        return not (self._unsent or self._node.outbox.has_output)

    def send_single(self, datagram: bytes) -> bool:
        """`send`, without limit, for the message that the turn was taken for, on a shorter way.

        What takes more than one try goes the usual way, and so does what came meanwhile.
        """
        throttle = self._throttle
        if (
            throttle.is_limited
            or self._is_failing
            or self._jammed_at is not None
            or not throttle.is_open()
        ):
            self._unsent.append(datagram)
            return self.send(math.inf)
        try:
            if self._transport.send(datagram):
                throttle.let_through(len(datagram))
            else:
                self._unsent.append(datagram)
        except TransportError as error:
            self._failed(error)
        if not self._unsent:
            self._give_back_turn()
            if not self._node.outbox.has_output:
                return True
        return self.send(math.inf)

    def let_go(self) -> None:
        """Give the turn back if this thread has it: Ctrl-C may fall between taking and sending."""
        self._give_back_turn()
        if self._unsent or self._node.outbox.has_output:
            self._wake()

    def wait_for_room(self) -> None:
        """Return once the output is within its bound. Lock held; it is released while waiting."""
        bytes_max = min(OUTPUT_BYTES_MAX, self._throttle.backlog_bytes_max)
        while self._node.outbox.size_bytes > bytes_max and not self._is_closed:
            self._help(math.inf)

    def wait_until_sent(self, deadline: float) -> bool:
        """Whether everything left in time. Lock held; it is released while waiting."""
        while self._holder is not None or self._unsent or self._node.outbox.has_output:
            if time.monotonic() >= deadline or self._is_closed:
                return False
            self._help(deadline)
        return True

    def close(self, deadline: float) -> None:
        """Send what can be sent in time, then nothing more. No lock held."""
        with self._lock:
            self.wait_until_sent(deadline)
            self._is_closed = True
            # Whoever is in the middle of a send must be out before the sockets are closed.
            while self._holder is not None and time.monotonic() < deadline + 2 * ROOM_WAIT_S:
                self._wait(ROOM_WAIT_S)
            self._unsent.extend(self._node.outbox.take(time.monotonic()))
            self._room.notify_all()

    def _count_burst(self, is_burst: bool) -> None:
        self._burst = self._burst + 1 if is_burst else 0
        self._fast_publish.is_flood = self._burst >= BURST_MIN
        if self._burst == BURST_MIN:
            self._throttle.doubt()

    def _help(self, deadline: float) -> None:
        """Take part in sending, or wait for whoever does. Lock held, and released meanwhile."""
        now = time.monotonic()
        if not self.take_turn(now):
            self._wait(min(deadline - now, SECONDS_MAX))
            return
        try:
            self._lock.release()  # inside: Ctrl-C must find it taken again, whenever it comes
            if not self.send(deadline):
                self._wake()
        except BaseException:
            self.let_go()
            raise
        finally:
            self._lock.acquire()

    def _wait(self, timeout_s: float) -> None:
        """Until a turn is given back. Lock held, and released meanwhile."""
        # Counted before the look: whoever gives the turn back looks at the count after that.
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
                self._will_wait()
                time.sleep(min(throttle.retry_s, ROOM_WAIT_S, wait_until - now))
                continue
            try:
                if send(unsent[0]):
                    throttle.let_through(len(unsent.popleft()))
                    if throttle.is_limited and not throttle.is_open():
                        self._gather_until_allowed()
                    if self._is_failing or self._jammed_at is not None:
                        self._works()
                    continue
            except TransportError as error:
                unsent.popleft()
                self._failed(error)
                continue
            now = time.monotonic()
            if self._jammed_at is None:
                self._jammed_at = now
            if now - self._jammed_at >= STALL_S:
                unsent.popleft()
                self._failed(TransportError(f"the network has taken nothing for {STALL_S:g} s"))
            elif now < wait_until:
                self._transport.wait_writable(min(ROOM_WAIT_S, wait_until - now))
            else:
                return

    def _gather_until_allowed(self) -> None:
        """The rate limit is reached: what is published until more may leave shares datagrams."""
        allowed_at = time.monotonic() + self._throttle.retry_s
        self._queues_until = max(self._queues_until, allowed_at)

    def _smallest_buffer(self, hosts: frozenset[str]) -> int | None:
        with self._lock:
            return self._node.directory.smallest_buffer(hosts)

    def _failed(self, error: TransportError) -> None:
        self._is_failing = True
        self._refused += 1
        cause = getattr(error.__cause__, "errno", None) or str(error)
        self._log.warn_once(("send", cause), "a datagram was not sent: %s", error)
        with self._lock:
            self._node.send_failed(time.monotonic())

    def _works(self) -> None:
        was_failing, self._is_failing, self._jammed_at = self._is_failing, False, None
        if was_failing:
            with self._lock:
                self._node.send_works(time.monotonic())
            self._wake()
