"""All channels of one bus: connections watched, callers answered, nodes called.

Theory of operation. One *operator* does everything here that is not marked "any thread": with
threads, the thread of sync/operator.py; with tasks, the event loop (aio/operator.py). It calls
`readable`, `writable` and, of the reception, `callers` when a socket is ready, and `tend` when its
time has come or `wake` was called. Nothing here waits.

Applications' threads come to a channel directly: they send, and take messages, under its lock. What
has to follow from that (watch a socket for something else, close it) they `request`.

What guards what: a line's lock its end, and whether it is read; the reception's own its ports;
`_tally_lock` which lines are counted with `tally.past`; all else belongs to the operator. Nobody
takes one lock inside another, except that the last may be taken inside a line's.
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

from jsonbus.core.channel.budget import Budget
from jsonbus.core.channel.end import OPEN, OPENING, ChannelEnd
from jsonbus.core.channel.limits import INBOX_BYTES_MAX, MESSAGE_BYTES_MAX
from jsonbus.core.settings import NodeSettings
from jsonbus.errors import TransportError
from jsonbus.frontend.channels.channel import BaseChannel
from jsonbus.frontend.channels.connection import Line
from jsonbus.frontend.channels.connector import Call, Calls, NodeDoor
from jsonbus.frontend.channels.figures import Tally, channel_figures
from jsonbus.frontend.channels.listener import Reception
from jsonbus.frontend.log import BusLog
from jsonbus.transport.tcp import TcpConnection

#: What is read from a connection at once: four messages of 64 KB, and what a kernel usually has.
READ_BYTES = 256 << 10

#: The interest of a line that has nothing to write.
READING = (True, False)


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
        self._log = log
        self.watcher: Watcher
        self.tally = Tally()
        self._tally_lock = threading.Lock()
        self.calls = Calls(self, own, door)
        self.reception = Reception(self, own, door, addresses, log)
        self._lines: set[Line] = set()
        self._budget = Budget()
        self._waiting: set[Line] = set()  # for others to be done with their memory
        self._has_freed = False  # as was seen when one of them asked
        self._timers: list[tuple[float, int, Line | Call]] = []
        self._numbers = itertools.count()
        self._requested: deque[Line] = deque()
        self._posted: deque[Callable[[], None]] = deque()
        self._buffer = memoryview(bytearray(READ_BYTES))
        #: Channels whose handlers are due, or running. Any thread adds and takes its own.
        self.busy: set[BaseChannel] = set()
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
            self.watcher.wake()

    def post(self, act: Callable[[], None]) -> None:
        """Have the operator do something; once there is none any more, it is done here."""
        self._posted.append(act)
        self.watcher.wake()
        if self.is_over:
            # Only this one, if it was not done: what others posted may want a lock that they hold.
            try:
                self._posted.remove(act)
            except ValueError:
                return
            act()

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
        self.watcher = watcher

    def readable(self, line: Line) -> None:
        """There is something to read, or the connection has ended."""
        line.read(self._buffer)
        if self._pass_on(line):
            return
        if line.end.state == OPENING or line.channel is None or line.call is not None:
            if line.call is not None:
                self.calls.answered(line.call, line)
            else:
                self.reception.greet(line)
        self._attend(line)

    def writable(self, line: Line) -> None:
        """There is room to write, or dialing is over."""
        if line.is_dialing:
            try:
                line.tcp.finish_dialing()
            except TransportError as error:
                self.drop(line, str(error))
                return
            line.is_dialing = False
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
        if now >= self.reception.listens_at:
            self.reception.listen()
        timers = self._timers
        while timers and timers[0][0] <= now:
            at, _, target = heapq.heappop(timers)
            if target.timer_at != at:
                continue  # it was planned anew
            target.timer_at = math.inf
            if isinstance(target, Call):
                self.calls.advance(target)
            elif target in self._lines:
                if target.end.timer_at() <= now:
                    self._hear(target)
                with target.lock:
                    target.handle_timer(now)
                self._attend(target)
        return min(timers[0][0] if timers else math.inf, self.reception.listens_at)

    def plan(self, target: Line | Call, at: float) -> None:
        """Have something done then, unless it is planned for earlier: then it looks again."""
        if at < target.timer_at:
            target.timer_at = at
            entry = (at, next(self._numbers), target)
            heapq.heappush(self._timers, entry)
            if self._timers[0] is entry:
                self.watcher.wake()  # an event loop would sleep until what was first before

    def add(self, tcp: TcpConnection, end: ChannelEnd, lock: threading.Lock) -> Line:
        """A connection more."""
        line = Line(tcp, end, lock)
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
        self.watcher.forget(line.tcp.sock)
        with line.lock:
            end, channel = line.end, line.channel
            end.fail(reason)
            line.interest = (True, False)  # there is nothing to ask for any more
            line.is_lent = False
            line.is_dropped = True
            if line.pollers:
                line.tcp.hang_up()  # they notice, and the last of them closes it
            else:
                line.tcp.close()
            with self._tally_lock:
                self.tally.past = self.tally.past.plus(end)
                self._lines.remove(line)
            if channel is not None:
                self.tally.lost += end.is_lost
                channel.changed()
        self.reception.left(line)
        if channel is not None:
            channel.rouse()
        if line.call is not None:
            self.calls.ended(line.call, end)
        if self._budget.note(line, 0, 0):
            self._wake_waiting()

    def close(self) -> None:
        """Take no more callers, and close every channel; what was sent before is delivered."""
        self.reception.close()
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
        self.reception.cut_off()
        for line in tuple(self._lines):
            line.tcp.close()

    # --- Inside ---------------------------------------------------------------------------------

    def _pass_on(self, line: Line) -> bool:
        """Tell the channel what came, if nothing else follows from that: `_attend` in brief.

        So it is with nearly every read. What is watched for stays, and so does what is planned:
        having heard something makes nothing due earlier.
        """
        end, channel, budget = line.end, line.channel, self._budget
        if channel is None or budget.is_short:
            return False
        with line.lock:
            if end.state != OPEN or line.interest != READING or end.output_bytes:
                return False
            budget.note(line, end.inbox_bytes, end.partial_bytes)
            if budget.is_short or end.inbox_bytes >= INBOX_BYTES_MAX:
                return False
            channel.changed()
        channel.rouse()
        return True

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
            if line.is_lent or line.is_wanted:
                line.reconsider_lending(now)
            reads = False
            if not line.is_lent:
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
                self.watcher.watch(line.tcp.sock, line, *line.interest)
            self.plan(line, line.next_timer_at(now))
        if channel is not None:
            channel.rouse()
        if frees or self._has_freed:
            self._has_freed = False
            self._wake_waiting()

    def _hear(self, line: Line) -> None:
        """Read what has come before anybody is called silent: it may be us who did not run."""
        with line.lock:
            is_lent = line.is_lent
            if is_lent:
                line.read_lent(self._buffer)
        if not is_lent and line.interest[0]:
            self.readable(line)

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
