"""All channels of one bus: watches their connections, and decides what to read and write.

One object, *ChannelIO*, runs everything here that is not marked "any thread": the thread of
sync/channel_io.py, or the event loop (aio/channel_io.py). It calls `readable`, `writable` and
`listener.accept` when a socket is ready, and `tend` when a timer is due or `wake` was called.
Nothing here waits.

Threads of the application use a channel directly: they send and take messages under its lock. If
the connection then needs attention (watch it for something else, close it), they `request` that.

Locks. A connection's lock guards its end and who reads it; the listener's lock guards its ports;
`_counters_lock` guards which connections are counted in `counters.past`. All else belongs to
ChannelIO. Nobody takes one lock inside another, except `_counters_lock` inside a connection's.
"""

from __future__ import annotations

import heapq
import math
import random
import socket
import threading
from collections import deque
from collections.abc import Callable
from time import monotonic
from typing import TYPE_CHECKING, Any, Protocol

from jsonbus.core.channel.budget import Budget
from jsonbus.core.channel.end import OPEN, OPENING, ChannelEnd
from jsonbus.core.channel.limits import INBOX_BYTES_MAX, MESSAGE_BYTES_MAX
from jsonbus.errors import TransportError
from jsonbus.frontend.channels.channel import BaseChannel
from jsonbus.frontend.channels.connection import READING, TICK_S, Connection
from jsonbus.frontend.channels.connector import Call, Connector
from jsonbus.frontend.channels.counters import ChannelCounters, channel_figures
from jsonbus.frontend.channels.listener import Listener
from jsonbus.transport.tcp import TcpConnection

if TYPE_CHECKING:
    from jsonbus.frontend.loop import BaseLoop

#: Read from a connection at once: four messages of 64 KB, and what a kernel usually has.
READ_BYTES = 256 << 10

#: By how much the pauses between beats differ among channels.
BEATS_SPREAD = 0.1


class Watcher(Protocol):
    """The part of ChannelIO that the manager calls."""

    def watch(
        self, sock: socket.socket, connection: Connection | None, reads: bool, writes: bool
    ) -> None:
        """Report when the socket is ready; without a connection, it is a listening socket."""

    def forget(self, sock: socket.socket) -> None:
        """Stop watching a socket. Idempotent."""

    def wake(self) -> None:
        """Have `tend` called soon. Any thread."""


class ChannelManager:
    """Owns the connections of one bus. See the head of this file."""

    #: The largest message that this node takes.
    bytes_max = MESSAGE_BYTES_MAX

    def __init__(self, loop: BaseLoop[Any, Any]) -> None:
        self._log = loop.log
        self.watcher: Watcher  # set by ChannelIO, before anything else
        self.counters = ChannelCounters()
        self._counters_lock = threading.Lock()
        self.connector = Connector(self, loop)
        self.listener = Listener(self, loop)
        seal = loop.transport.describe().seal
        self._seal_connection = None if seal is None else seal.seal_connection
        self._connections: set[Connection] = set()
        #: While memory is short, a receiver that takes a message calls `request`.
        self.budget = Budget()
        self._waiting: set[Connection] = set()  # not read until others free memory
        self._has_freed = False  # memory, noticed while one of them asked for it
        #: What to look at, by time, and these times as a heap: many connections share one.
        self._due: dict[float, list[Connection | Call]] = {}
        self._due_times: list[float] = []
        self._requested: deque[Connection] = deque()
        self._posted: deque[Callable[[], None]] = deque()
        self._buffer = memoryview(bytearray(READ_BYTES))
        #: Channels whose handlers are due or running. Any thread adds and removes channels.
        self.busy: set[BaseChannel] = set()
        self.is_closing = False
        self.is_over = False
        self.is_cut_off = False

    # --- Any thread -----------------------------------------------------------------------------

    def request(self, connection: Connection) -> None:
        """Have `tend` look at a connection. Its lock is held."""
        if not connection.is_requested:
            connection.is_requested = True
            self._requested.append(connection)
            self.watcher.wake()

    def post(self, act: Callable[[], None]) -> None:
        """Have ChannelIO do something. Once it has ended, do it in the calling thread."""
        self._posted.append(act)
        self.watcher.wake()
        if self.is_over:
            # Only this one, if it was not done: what others posted may need a lock they hold.
            try:
                self._posted.remove(act)
            except ValueError:
                return
            act()

    def look(self) -> None:
        """Look for nodes again: some joined, left or announced their address."""
        if self.connector.calls:
            self.post(self.connector.look)

    def figures(self) -> dict[str, int]:
        """Return the part of stats() about channels."""
        with self._counters_lock:
            traffic, connections = self.counters.past, tuple(self._connections)
        for connection in connections:
            traffic = traffic.plus(connection.end)
        count = sum(
            1
            for connection in connections
            if connection.channel is not None and connection.end.state != OPENING
        )
        return channel_figures(count, self.counters, traffic)

    # --- ChannelIO ------------------------------------------------------------------------------

    def readable(self, connection: Connection) -> None:
        """Read what has arrived, or notice that the connection ended."""
        if not connection.read(self._buffer) or self._notify_only(connection):
            return
        if (
            connection.end.state == OPENING
            or connection.channel is None
            or connection.call is not None
        ):
            if connection.call is not None:
                self.connector.answered(connection.call, connection)
            else:
                self.listener.greet(connection)
        self.update(connection)

    def writable(self, connection: Connection) -> None:
        """Finish dialing, and write what waits."""
        if connection.is_dialing:
            try:
                connection.tcp.finish_dialing()
            except TransportError as error:
                self.drop(connection, str(error))
                return
            connection.is_dialing = False
        self.update(connection)

    def tend(self) -> float:
        """Do what was requested and what is due; return when to call again at the latest."""
        while self._posted:
            self._posted.popleft()()
        while self._requested:
            connection = self._requested.popleft()
            connection.is_requested = False
            if connection in self._connections:
                self.update(connection)
        now = monotonic()
        if now >= self.listener.listens_at:
            self.listener.listen()
        times = self._due_times
        while times and times[0] <= now:
            at = heapq.heappop(times)
            for target in self._due.pop(at):
                if target.timer_at != at:
                    continue  # it has another time now
                target.timer_at = math.inf
                if isinstance(target, Call):
                    self.connector.advance(target)
                elif target in self._connections:
                    self._handle_timer(target, now)
        return min(times[0] if times else math.inf, self.listener.listens_at)

    def plan(self, target: Connection | Call, at: float) -> None:
        """Look at a connection or call at that time, unless an earlier time is set already."""
        if at < target.timer_at:
            target.timer_at = at
            if at in self._due:
                self._due[at].append(target)
            else:
                self._due[at] = [target]
                heapq.heappush(self._due_times, at)
                if self._due_times[0] == at:
                    self.watcher.wake()  # ChannelIO sleeps until what was first before

    def add(self, tcp: TcpConnection, end: ChannelEnd, lock: threading.Lock) -> Connection:
        """Add a connection; `update` starts watching it."""
        if self._seal_connection is not None:
            tcp = self._seal_connection(tcp, end.hello is not None)
        end.liveness.beat_s *= 1 - BEATS_SPREAD * random.random()
        connection = Connection(tcp, end, lock)
        self._connections.add(connection)
        return connection

    def drop(self, connection: Connection, reason: str = "") -> None:
        """Close a connection, for that reason unless its end knows a better one."""
        if connection not in self._connections:
            return
        self._waiting.discard(connection)
        self.watcher.forget(connection.tcp.sock)
        with connection.lock:
            end, channel = connection.end, connection.channel
            end.fail(reason)
            connection.interest = (True, False)  # so that no receiver asks for reading again
            connection.is_read_directly = False
            connection.is_dropped = True
            if connection.pollers:
                connection.tcp.hang_up()  # wakes them; the last one closes it
            else:
                connection.tcp.close()
            with self._counters_lock:
                self.counters.past = self.counters.past.plus(end)
                self._connections.remove(connection)
            if channel is not None:
                self.counters.lost += end.is_lost
                channel.notify()
        self.counters.foreign += connection.tcp.is_foreign
        self.listener.forget(connection)
        if channel is not None:
            channel.wake_handlers()
        if connection.call is not None:
            self.connector.ended(connection.call, end)
        if self.budget.note(connection, 0, 0):
            self._wake_waiting()

    def close(self) -> None:
        """Take no more connections and close every channel; messages already sent are delivered."""
        self.listener.close()
        self.connector.close()
        for connection in tuple(self._connections):
            if connection.channel is None:
                self.drop(connection, "the bus is closed")
                continue
            with connection.lock:
                connection.end.close(monotonic())
            self.update(connection)

    @property
    def is_quiet(self) -> bool:
        """Whether all channels have ended."""
        return not self._connections and not self._posted

    def finish(self) -> None:
        """Drop all connections, delivered or not."""
        if not self.is_closing:
            self.close()
        for connection in tuple(self._connections):
            if connection.end.output_bytes:
                self._log.warn_once(
                    ("unsent", connection),
                    "the channel to %s ended before all was sent",
                    connection.end.name,
                )
            self.drop(connection, "the bus is closed")
        self.is_over = True
        while self._posted:  # by threads that did not see yet that it is over
            self._posted.popleft()()

    def cut_off(self) -> None:
        """Release the descriptors in a forked child. A shutdown would end the parent's, too."""
        self.is_over = self.is_closing = self.is_cut_off = True
        self.listener.cut_off()
        for connection in tuple(self._connections):
            connection.tcp.close()

    # --- Inside ---------------------------------------------------------------------------------

    def _notify_only(self, connection: Connection) -> bool:
        """Notify the channel of what arrived, if nothing else has to be done; a short `update`.

        Nearly every read ends here. What is watched for stays. Having heard from the other node
        makes nothing due earlier but the answer to it.
        """
        end, channel, budget = connection.end, connection.channel, self.budget
        if channel is None or budget.is_short:
            return False
        with connection.lock:
            if end.state != OPEN or connection.interest != READING or end.output_bytes:
                return False
            budget.note(connection, end.inbox_bytes, end.partial_bytes)
            if budget.is_short or end.inbox_bytes >= INBOX_BYTES_MAX:
                return False
            channel.notify()
        channel.wake_handlers()
        if end.liveness.beat_at + TICK_S < connection.timer_at:
            self.plan(connection, connection.next_timer_at(monotonic()))
        return True

    def _handle_timer(self, connection: Connection, now: float) -> None:
        """Do what is due; nearly always that is a beat, and then nothing else."""
        with connection.lock:
            next_at = connection.beat(now)
        if next_at is not None:
            self.plan(connection, next_at)
            return
        if connection.end.silent_at() <= now:
            self._hear(connection)
        with connection.lock:
            connection.handle_timer(now)
        self.update(connection)

    def update(self, connection: Connection) -> None:
        """Write what waits, decide what to watch for, set the timer, and notify the channel."""
        if connection not in self._connections:
            return
        end, now = connection.end, monotonic()
        with connection.lock:
            if end.output_bytes:
                connection.flush()
            is_over = end.is_over
            frees = self.budget.note(connection, end.inbox_bytes, end.partial_bytes)
            if connection.is_read_directly or connection.is_direct_read_wanted:
                connection.decide_reader(now)
            reads = False
            if not connection.is_read_directly:
                reads = not connection.is_dialing and end.wants_input and self._may_read(connection)
                if reads:
                    end.resume(now)
                else:
                    end.pause()
            before, connection.interest = (
                connection.interest,
                (reads, connection.is_dialing or end.output_bytes > 0),
            )
            channel = connection.channel
            if channel is not None:
                channel.notify()
        if is_over:
            self.drop(connection)
        else:
            if connection.interest != before:
                self.watcher.watch(connection.tcp.sock, connection, *connection.interest)
            self.plan(connection, connection.next_timer_at(now))
        if channel is not None:
            channel.wake_handlers()
        if frees or self._has_freed:
            self._has_freed = False
            self._wake_waiting()

    def _hear(self, connection: Connection) -> None:
        """Read before calling the other node silent: perhaps this process did not run."""
        with connection.lock:
            is_read_directly = connection.is_read_directly
            if is_read_directly:
                connection.read_directly(self._buffer)
        if not is_read_directly and connection.interest[0]:
            self.readable(connection)

    def _may_read(self, connection: Connection) -> bool:
        """Return whether there is memory to read more."""
        budget = self.budget
        if budget.may_read(connection):
            self._waiting.discard(connection)
            return True
        # Applications may have taken messages since: that is only noticed when memory is asked for.
        for each in self._connections:
            if budget.note(each, each.end.inbox_bytes, each.end.partial_bytes):
                self._has_freed = True
        if budget.may_read(connection):
            self._waiting.discard(connection)
            return True
        self._waiting.add(connection)
        return False

    def _wake_waiting(self) -> None:
        for connection in tuple(self._waiting):
            with connection.lock:
                self.request(connection)
