"""All channels of one bus: connections watched, callers answered, nodes called.

Theory of operation. One *operator* does everything here that is not marked "any thread": with
threads, the thread of sync/operator.py; with tasks, the event loop (aio/operator.py). It calls
`readable`, `writable` and `callers` when a socket is ready, and `tend` when its time has come or
`wake` was called. Nothing here waits.

Applications' threads come to a channel directly: they send, and take messages, under its lock. What
has to follow from that (watch a socket for something else, close it) they `request`.

What guards what: a line's lock its end, and whether it is read; `_ports_lock` the ports;
`_tally_lock` which lines are counted with `tally.past`; all else belongs to the operator. Nobody
takes one lock inside another, except that these two may be taken inside a line's.
"""

from __future__ import annotations

import heapq
import itertools
import math
import socket
import threading
from collections import deque
from collections.abc import Callable, Collection
from time import monotonic
from typing import Protocol

from jsonbus.core.channel import OPENING, ChannelEnd
from jsonbus.core.channel_budget import Budget
from jsonbus.core.channel_limits import MESSAGE_BYTES_MAX, STRANGERS_MAX
from jsonbus.core.channel_ports import Ports
from jsonbus.core.channel_wire import Refusal
from jsonbus.core.settings import NodeSettings
from jsonbus.errors import TransportError
from jsonbus.frontend.calls import Call, Calls, NodeDoor
from jsonbus.frontend.channel import BaseChannel
from jsonbus.frontend.channel_figures import Tally, channel_figures
from jsonbus.frontend.events import BusLog
from jsonbus.frontend.lifetime import closed_error
from jsonbus.frontend.line import Line
from jsonbus.transport.streams import Listener, Stream

#: What is read from a connection at once: four messages of 64 KB, and what a kernel usually has.
READ_BYTES = 256 << 10

#: Callers accepted in one go: a storm must not keep channels from being read.
ACCEPT_AT_ONCE = 64

#: How long not to accept anybody when the system has no room for more connections.
FULL_PAUSE_S = 0.5


class BaseBinding(Protocol):
    """Who has bound a port. Called by the operator."""

    @property
    def has_room(self) -> bool:
        """Whether one more caller may wait to be accepted."""

    def make_channel(self, who: str, lock: threading.Lock) -> BaseChannel:
        """A channel to that caller, about to open."""

    def offer(self, channel: BaseChannel) -> None:
        """It is open."""

    def end(self) -> None:
        """The bus is closing."""


class Watcher(Protocol):
    """What watches sockets for an operator."""

    def watch(self, sock: socket.socket, line: Line | None, reads: bool, writes: bool) -> None:
        """Call the exchange when the socket is ready; a `line` of None is for callers."""

    def forget(self, sock: socket.socket) -> None:
        """Watch it no more; nothing if it is not watched."""

    def wake(self) -> None:
        """Have `tend` called soon. Any thread."""


class Exchange:
    """See the head of this file. `addresses` are those by which the node is on the bus."""

    #: What one message may have here.
    bytes_max = MESSAGE_BYTES_MAX

    def __init__(
        self,
        own: NodeSettings,
        door: NodeDoor,
        addresses: Callable[[], Collection[str]],
        log: BusLog,
    ) -> None:
        self._own = own
        self._addresses = addresses
        self._door = door
        self._log = log
        self._watcher: Watcher
        self.tally = Tally()
        self._tally_lock = threading.Lock()
        self.calls = Calls(self, own, door)
        self._ports: Ports[BaseBinding] = Ports(own)
        self._ports_lock = threading.Lock()
        self._listener: Listener | None = None
        self._listens_at = math.inf  # again, after the system had no room
        self._lines: set[Line] = set()
        self._strangers: dict[Line, None] = {}  # who has not said yet what it wants
        self._budget = Budget()
        self._waiting: set[Line] = set()  # for others to be done with their memory
        self._has_freed = False  # as was seen when one of them asked
        self._timers: list[tuple[float, int, Line | Call]] = []
        self._numbers = itertools.count()
        self._requested: deque[Line] = deque()
        self._posted: deque[Callable[[], None]] = deque()
        self._buffer = memoryview(bytearray(READ_BYTES))
        #: Channels whose handlers are due, until these were told everything. Any thread adds its
        #: own. Not all that have handlers: nobody would tell when those have ended.
        self.handled: set[BaseChannel] = set()
        self.is_closing = False
        self.is_over = False
        self.is_cut_off = False

    # --- Any thread -----------------------------------------------------------------------------

    @property
    def is_short(self) -> bool:
        """Whether memory is short: then whoever takes a message tells."""
        return self._budget.is_short

    def request(self, line: Line) -> None:
        """Look at a line again. The line's lock is held."""
        if not line.is_requested:
            line.is_requested = True
            self._requested.append(line)
            self._watcher.wake()

    def post(self, act: Callable[[], None]) -> None:
        """Have the operator do something; once there is none any more, it is done here."""
        self._posted.append(act)
        self._watcher.wake()
        if self.is_over:
            # Only this one, if it was not done: what others posted may want a lock that they hold.
            try:
                self._posted.remove(act)
            except ValueError:
                return
            act()

    def bind(self, port: str, binding: BaseBinding, *, exclusive: bool) -> None:
        """Raises LocalError, ClosedError, TransportError."""
        with self._ports_lock:
            if self.is_closing:
                raise closed_error()
            self._ports.bind(port, binding, exclusive=exclusive)
            try:
                is_first = self._listener is None
                if self._listener is None:
                    self._listener = Listener(self._addresses())
            except TransportError:
                self._ports.unbind(port)
                raise
        if is_first:
            self._door.tell_port(self._listener.port)
            self.post(self._listen)

    def unbind(self, port: str) -> None:
        with self._ports_lock:
            self._ports.unbind(port)

    def own_place(self) -> tuple[str, int] | None:
        """Where this node would call itself; None if it takes no channels."""
        listener = self._listener
        return None if listener is None else (listener.address, listener.port)

    def abandon(self, channel: BaseChannel) -> None:
        """Its attempt to open is of no interest any more. The channel's lock is held."""
        self.post(lambda: self.calls.abandon(channel))

    def note_discarded(self, count: int) -> None:
        """Messages were thrown away that a dropped line had still left for the application."""
        self.post(lambda: self.tally.add_discarded(count))

    def look(self) -> None:
        """Nodes came, went, or told where they are."""
        if self.calls.are_waiting:
            self.post(self.calls.look)

    def follow_addresses(self) -> None:
        """The network changed."""
        if self._listener is not None:
            self.post(self._follow)

    def figures(self) -> dict[str, int]:
        """What stats() shows."""
        with self._tally_lock:
            traffic, lines = self.tally.past, tuple(self._lines)
        for line in lines:
            traffic = traffic.plus(line.end)
        count = sum(1 for line in lines if line.channel is not None and line.end.state != OPENING)
        return channel_figures(count, self.tally, traffic)

    # --- The operator ---------------------------------------------------------------------------

    def start(self, watcher: Watcher) -> None:
        self._watcher = watcher

    def readable(self, line: Line) -> None:
        """There is something to read, or the connection has ended."""
        line.read(self._buffer)
        if line.end.state == OPENING or line.channel is None or line.call is not None:
            self._greet(line)
        self._attend(line)

    def writable(self, line: Line) -> None:
        """There is room to write, or dialing is over."""
        if line.is_dialing:
            try:
                line.stream.finish_dialing()
            except TransportError as error:
                self.drop(line, str(error))
                return
            line.is_dialing = False
        self._attend(line)

    def callers(self, sock: socket.socket) -> None:
        """Somebody has called."""
        listener = self._listener
        for _ in range(ACCEPT_AT_ONCE):
            if listener is None or self.is_closing:
                return
            try:
                stream = listener.accept(sock)
            except TransportError as error:
                self._log.warn_once("accept", "%s", error)
                self._listens_at = monotonic() + FULL_PAUSE_S
                for each in listener.sockets:
                    self._watcher.forget(each)
                return
            if stream is None:
                return
            if len(self._strangers) >= STRANGERS_MAX:
                # The one that has been silent for longest: real callers speak at once.
                self.drop(next(iter(self._strangers)), "too many connections said nothing")
            line = self.add(stream, ChannelEnd(self.bytes_max, monotonic()), threading.Lock())
            self._strangers[line] = None
            self._attend(line)

    def tend(self) -> float:
        """Do what was requested and what has its time; returns when to come again."""
        while self._posted:
            self._posted.popleft()()
        while self._requested:
            line = self._requested.popleft()
            line.is_requested = False
            if line in self._lines:
                self._attend(line)
        now = monotonic()
        if now >= self._listens_at:
            self._listen()
        timers = self._timers
        while timers and timers[0][0] <= now:
            at, _, target = heapq.heappop(timers)
            if target.timer_at != at:
                continue  # it was planned anew
            target.timer_at = math.inf
            if isinstance(target, Call):
                self.calls.advance(target)
            elif target in self._lines:
                with target.lock:
                    target.end.handle_timer(now)
                self._attend(target)
        return min(timers[0][0] if timers else math.inf, self._listens_at)

    def plan(self, target: Line | Call, at: float) -> None:
        """Have something done then, unless it is planned for earlier: then it looks again."""
        if at < target.timer_at:
            target.timer_at = at
            heapq.heappush(self._timers, (at, next(self._numbers), target))

    def add(self, stream: Stream, end: ChannelEnd, lock: threading.Lock) -> Line:
        """A connection more."""
        line = Line(stream, end, lock)
        self._lines.add(line)
        return line

    def watch(self, line: Line) -> None:
        """Look after a line that has just been added."""
        self._attend(line)

    def drop(self, line: Line, reason: str = "") -> None:
        """The connection is of no use any more, for that reason unless the end knows better."""
        if line not in self._lines:
            return
        self._waiting.discard(line)
        is_stranger = self._strangers.pop(line, line) is None
        self._watcher.forget(line.stream.sock)
        with line.lock:
            end, channel = line.end, line.channel
            end.fail(reason)
            line.interest = (True, False)  # there is nothing to ask for any more
            line.is_dropped = True
            line.stream.close()
            with self._tally_lock:
                self.tally.past = self.tally.past.plus(end)
                self._lines.remove(line)
            if channel is not None:
                self.tally.lost += end.is_lost
                channel.changed()
        if line.is_answer:
            with self._ports_lock:
                self._ports.closed(channel.port if channel is not None else "")
        if is_stranger:
            self.tally.strangers += 1
        if channel is not None:
            channel.rouse()
        if line.call is not None:
            self.calls.ended(line.call, end)
        if self._budget.note(line, 0, 0):
            self._wake_waiting()

    def close(self) -> None:
        """Take no more callers, and close every channel; what was sent before is delivered."""
        with self._ports_lock:
            self.is_closing = True
            bindings = self._ports.bindings()
        for binding in bindings:
            binding.end()
        if self._listener is not None:
            for sock in self._listener.sockets:
                self._watcher.forget(sock)
            self._listener.close()
        self.calls.give_up()
        for line in tuple(self._lines):
            if line.channel is None:
                self.drop(line, "the bus is closed")
                continue
            with line.lock:
                line.end.close(monotonic())
            self._attend(line)

    @property
    def is_quiet(self) -> bool:
        """Whether all channels have ended."""
        return not self._lines and not self._posted

    def finish(self) -> None:
        """End what is left, delivered or not."""
        if not self.is_closing:
            self.close()
        for line in tuple(self._lines):
            if line.end.output_bytes:
                self._log.warn_once(
                    ("unsent", line), "the channel to %s ended before all was sent", line.end.name
                )
            self.drop(line, "the bus is closed")
        self.is_over = True
        while self._posted:  # by who did not know yet that it is over
            self._posted.popleft()()

    def cut_off(self) -> None:
        """This is a forked child: release the descriptors. A shutdown would be the parent's."""
        self.is_over = self.is_closing = self.is_cut_off = True
        for line in tuple(self._lines):
            line.stream.close()
        if self._listener is not None:
            self._listener.close()

    # --- Inside ---------------------------------------------------------------------------------

    def _attend(self, line: Line) -> None:
        """Write what waits, see what to watch for, and tell whoever waits for it."""
        if line not in self._lines:
            return
        end, now = line.end, monotonic()
        with line.lock:
            if end.output_bytes:
                line.flush()
            is_over = end.is_over
            frees = self._budget.note(line, end.inbox_bytes, end.partial_bytes)
            reads = not line.is_dialing and end.wants_input and self._may_read(line)
            if reads:
                end.resume(now)
            else:
                end.pause()
            before, line.interest = line.interest, (reads, line.is_dialing or end.output_bytes > 0)
            channel = line.channel
            if channel is not None:
                channel.changed()
        if is_over:
            self.drop(line)
        else:
            if line.interest != before:
                self._watcher.watch(line.stream.sock, line, *line.interest)
            self.plan(line, end.timer_at())
        if channel is not None:
            channel.rouse()
        if frees or self._has_freed:
            self._has_freed = False
            self._wake_waiting()

    def _may_read(self, line: Line) -> bool:
        """Whether there is memory for more."""
        budget = self._budget
        if budget.may_read(line):
            self._waiting.discard(line)
            return True
        # Applications may have taken messages since: only who waits is told of that.
        for each in self._lines:
            if budget.note(each, each.end.inbox_bytes, each.end.partial_bytes):
                self._has_freed = True
        if budget.may_read(line):
            self._waiting.discard(line)
            return True
        self._waiting.add(line)
        return False

    def _wake_waiting(self) -> None:
        for line in tuple(self._waiting):
            with line.lock:
                self.request(line)

    def _greet(self, line: Line) -> None:
        """Answer a caller that has spoken; or see what was answered."""
        if line.call is not None:
            self.calls.answered(line.call, line)
            return
        hello = line.end.hello
        if line not in self._strangers or hello is None or line.end.state != OPENING:
            return
        with self._ports_lock:
            judgement: BaseBinding | Refusal = self._ports.judge(hello)
            if not isinstance(judgement, Refusal) and not judgement.has_room:
                judgement = self._ports.make_busy()
            if not isinstance(judgement, Refusal):
                self._ports.opened(hello.port)
        del self._strangers[line]
        if isinstance(judgement, Refusal):
            self.tally.refused_here += 1
            line.end.refuse(judgement)
            return
        channel = line.channel = judgement.make_channel(hello.name or hello.node, line.lock)
        line.is_answer = True
        self.tally.opened += 1
        with line.lock:
            line.end.welcome(self._ports.make_welcome())
            channel.opened(line)
        judgement.offer(channel)

    def _listen(self) -> None:
        self._listens_at = math.inf
        if self._listener is not None and not self.is_closing:
            for sock in self._listener.sockets:
                self._watcher.watch(sock, None, True, False)

    def _follow(self) -> None:
        if self._listener is None or self.is_closing:
            return
        stale, failures = self._listener.follow(self._addresses())
        for sock in stale:
            self._watcher.forget(sock)
            sock.close()
        for failure in failures:
            self._log.warn_once(("listen", failure), "no channels by %s", failure)
        self._listen()
