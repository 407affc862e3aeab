"""Connect to ports of other nodes: one `Call` per call of `connect`.

`core/channel/connecting.py` decides what to do next (find the node, dial, rest, fail); the
Connector does it. Everything here belongs to ChannelIO.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field
from time import monotonic
from typing import TYPE_CHECKING, Any

from jsonbus.core.channel.connecting import DIALING, DONE, Ask, Attempt, Dial, Fail
from jsonbus.core.channel.end import ChannelEnd
from jsonbus.core.channel.ports import make_hello
from jsonbus.core.membership.directory import Place
from jsonbus.errors import ChannelClosedError, ChannelError, TransportError
from jsonbus.frontend.channels.channel import BaseChannel
from jsonbus.transport.tcp import dial

if TYPE_CHECKING:
    from jsonbus.frontend.channels.connection import Connection
    from jsonbus.frontend.channels.manager import ChannelManager
    from jsonbus.frontend.loop import BaseLoop

#: Connections to one place that have not been answered yet: further ones wait. A node drops the
#: oldest of UNIDENTIFIED_MAX, and on a sealed bus callers say hello only when they were answered.
DIALED_MAX = 256


@dataclass(slots=True, eq=False)
class Line:
    """The calls to one place: those that were dialed, and those that wait for their turn."""

    place: tuple[str, int]
    dialed: set[Call] = field(default_factory=set)
    waiting: deque[tuple[Call, Place]] = field(default_factory=deque)


@dataclass(slots=True, eq=False)
class Call:
    """One call of `connect`: its attempt, its future channel, and the connection dialed last."""

    who: str
    attempt: Attempt
    channel: BaseChannel
    connection: Connection | None = None
    line: Line | None = None  # while it is dialed, or waits for that
    timer_at: float = math.inf


class Connector:
    """All calls of one bus that have not ended."""

    def __init__(self, manager: ChannelManager, loop: BaseLoop[Any, Any]) -> None:
        self._manager = manager
        self._loop = loop
        self.calls: set[Call] = set()
        self._lines: dict[tuple[str, int], Line] = {}

    def begin(self, call: Call) -> None:
        if self._manager.is_closing:
            call.channel.failed(_closed_error(call))
            return
        self.calls.add(call)
        self._loop.look(lambda node, now: node.directory.start_lookup())
        self.advance(call)

    def look(self) -> None:
        """Look again at every call that searches: nodes joined, left or announced their address."""
        for call in tuple(self.calls):
            if call.attempt.state != DIALING:
                self.advance(call)

    def advance(self, call: Call) -> None:
        """Do the next steps of a call, until it has to wait."""
        while call in self.calls:
            now = monotonic()
            match call.attempt.step(self._find(call), now):
                case Ask(who):
                    self._ask(who)
                case Dial(place):
                    self._line_up(call, place)
                case Fail(error):
                    self._fail(call, error)
                case None:
                    self._manager.plan(call, call.attempt.timer_at())
                    return

    def answered(self, call: Call, connection: Connection) -> None:
        """Open the channel if the other node has said welcome."""
        # The channel may have been closed again in the same read, so ask whether it ever opened. If
        # it did not, the node refused: the connection is over, and the manager drops it.
        if connection.end.has_opened and call in self.calls:
            call.attempt.connected()
            connection.call = None
            connection.channel = call.channel
            self._end(call)
            self._manager.counters.opened += 1
            with connection.lock:
                call.channel.opened(connection)
            call.channel.wake_handlers()

    def ended(self, call: Call, end: ChannelEnd) -> None:
        """Go on after a connection ended: nobody was there, the node refused, or it broke."""
        if call not in self.calls or call.attempt.state == DONE:
            return
        call.connection = None
        self._leave_line(call)
        now = monotonic()
        if end.refusal is not None:
            call.attempt.refused(end.refusal, now)
        else:
            call.attempt.dial_failed(end.reason, now)
        self.advance(call)

    def abandon(self, channel: BaseChannel) -> None:
        """End the call of a channel that was closed before it opened."""
        for call in tuple(self.calls):
            if call.channel is channel:
                self._fail(call, _closed_error(call))

    def close(self) -> None:
        """End all calls: the bus is closing."""
        for call in tuple(self.calls):
            self._fail(call, _closed_error(call))

    def _ask(self, who: str) -> None:
        self._loop.call(lambda node, now: node.directory.ask(who, now))

    def _find(self, call: Call) -> list[Place]:
        places = self._loop.look(lambda node, now: node.directory.find(call.who, now))
        own = self._manager.listener.own_place()
        if own is None:
            return places
        return [
            place._replace(host=own[0], port=own[1]) if place.is_self else place for place in places
        ]

    def _line_up(self, call: Call, place: Place) -> None:
        """Dial, as soon as few others wait for an answer from that place."""
        assert place.host is not None and place.port is not None
        at = place.host, place.port
        line = call.line = self._lines.setdefault(at, Line(at))
        line.waiting.append((call, place))
        self._dial_next(line)

    def _dial_next(self, line: Line) -> None:
        while line.waiting and len(line.dialed) < DIALED_MAX:
            call, place = line.waiting.popleft()
            if call.line is line:  # else it has ended meanwhile
                line.dialed.add(call)
                self._dial(call, place)

    def _leave_line(self, call: Call) -> None:
        """Note that a call waits no more: it was answered, or has ended."""
        line, call.line = call.line, None
        if line is None:
            return
        line.dialed.discard(call)
        if line.waiting:
            self._manager.post(lambda: self._dial_next(line))
        elif not line.dialed:
            self._lines.pop(line.place, None)

    def _dial(self, call: Call, place: Place) -> None:
        assert place.host is not None and place.port is not None
        try:
            tcp = dial(place.host, place.port)
        except TransportError as error:
            self._leave_line(call)
            call.attempt.dial_failed(str(error), monotonic())
            self._manager.post(lambda: self.advance(call))
            return
        hello = make_hello(self._loop.node.settings, place.node, call.channel.port)
        end = ChannelEnd(self._manager.bytes_max, monotonic(), hello=hello)
        connection = self._manager.add(tcp, end, call.channel.lock)
        connection.call = call
        connection.is_dialing = True
        call.connection = connection
        self._manager.update(connection)

    def _fail(self, call: Call, error: ChannelError) -> None:
        connection, call.connection = call.connection, None
        self._end(call)
        self._manager.counters.refused_there += 1
        if connection is not None:
            connection.call = None
            self._manager.drop(connection, "nobody waits for it any more")
        call.channel.failed(error)

    def _end(self, call: Call) -> None:
        self.calls.discard(call)
        self._leave_line(call)
        if not self._manager.is_closing:  # else the node is about to close, and may not be asked
            self._loop.look(lambda node, now: node.directory.stop_lookup())


def _closed_error(call: Call) -> ChannelClosedError:
    return ChannelClosedError(call.who, call.channel.port, "it was closed before it opened")
