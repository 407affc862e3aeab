"""Connect to ports of other nodes: one `Call` per call of `connect`.

`core/channel/connecting.py` decides what to do next (find the node, dial, rest, fail); the
Connector does it. Everything here belongs to ChannelIO.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
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


@dataclass(slots=True, eq=False)
class Call:
    """One call of `connect`: its attempt, its future channel, and the connection dialed last."""

    who: str
    attempt: Attempt
    channel: BaseChannel
    connection: Connection | None = None
    timer_at: float = math.inf


class Connector:
    """All calls of one bus that have not ended."""

    def __init__(self, manager: ChannelManager, loop: BaseLoop[Any, Any]) -> None:
        self._manager = manager
        self._loop = loop
        self.calls: set[Call] = set()

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
                    self._dial(call, place)
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

    def _dial(self, call: Call, place: Place) -> None:
        assert place.host is not None and place.port is not None
        try:
            tcp = dial(place.host, place.port)
        except TransportError as error:
            call.attempt.dial_failed(str(error), monotonic())
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
        if not self._manager.is_closing:  # else the node is about to close, and may not be asked
            self._loop.look(lambda node, now: node.directory.stop_lookup())


def _closed_error(call: Call) -> ChannelClosedError:
    return ChannelClosedError(call.who, call.channel.port, "it was closed before it opened")
