"""Attempts of one bus to reach ports of other nodes (core/connecting.py says how)."""

from __future__ import annotations

import math
from collections.abc import Callable
from time import monotonic
from typing import TYPE_CHECKING, Protocol, TypeVar

from jsonbus.core.channel.connecting import DIALING, DONE, Ask, Attempt, Dial, Fail
from jsonbus.core.channel.end import ChannelEnd
from jsonbus.core.channel.ports import make_hello
from jsonbus.core.membership.directory import Place
from jsonbus.core.node import Node
from jsonbus.core.settings import NodeSettings
from jsonbus.errors import ChannelClosedError, ChannelError, TransportError
from jsonbus.frontend.channels.channel import BaseChannel
from jsonbus.frontend.lifetime import closed_error
from jsonbus.transport.tcp import dial

if TYPE_CHECKING:
    from jsonbus.frontend.channels.connection import Line
    from jsonbus.frontend.channels.manager import Exchange

T = TypeVar("T")


class NodeLoop(Protocol):
    """The loop of a bus, as far as channels need it."""

    @property
    def is_closed(self) -> bool: ...

    def call(self, act: Callable[[Node, float], T]) -> T:
        """Do something with the node, and what that causes."""

    def look(self, see: Callable[[Node, float], T]) -> T:
        """Ask the node something that changes nothing."""


class NodeDoor:
    """What an exchange asks of the bus's node."""

    def __init__(self, loop: NodeLoop) -> None:
        self._loop = loop

    def find(self, who: str) -> list[Place]:
        return self._loop.look(lambda node, now: node.directory.find(who, now))

    def ask(self, who: str) -> None:
        self._loop.call(lambda node, now: node.directory.ask(who, now))

    def start_lookup(self) -> None:
        self._loop.look(lambda node, now: node.directory.start_lookup())

    def stop_lookup(self) -> None:
        self._loop.look(lambda node, now: node.directory.stop_lookup())

    def tell_port(self, port: int) -> None:
        """Raises ClosedError."""
        if self._loop.is_closed:
            raise closed_error()
        self._loop.call(lambda node, now: node.directory.set_channel_port(port, now))


class Call:
    """One attempt, the channel that is to be, and the connection that was made last."""

    __slots__ = ("attempt", "channel", "line", "timer_at", "who")

    def __init__(self, who: str, attempt: Attempt, channel: BaseChannel) -> None:
        self.who = who
        self.attempt = attempt
        self.channel = channel
        self.line: Line | None = None
        self.timer_at = math.inf


class Calls:
    """All of them. Belongs to the operator of the exchange."""

    def __init__(self, exchange: Exchange, own: NodeSettings, door: NodeDoor) -> None:
        self._exchange = exchange
        self._own = own
        self._door = door
        self._calls: set[Call] = set()

    @property
    def are_waiting(self) -> bool:
        """Whether somebody wants to know of nodes that come, go or introduce themselves."""
        return bool(self._calls)

    def begin(self, call: Call) -> None:
        if self._exchange.is_closing:
            call.channel.failed(_closed_error(call))
            return
        self._calls.add(call)
        self._door.start_lookup()
        self.advance(call)

    def look(self) -> None:
        """Nodes came, went, or told where they are."""
        for call in tuple(self._calls):
            if call.attempt.state != DIALING:
                self.advance(call)

    def advance(self, call: Call) -> None:
        """Do what is next."""
        while call in self._calls:
            now = monotonic()
            match call.attempt.step(self._find(call), now):
                case Ask(who):
                    self._door.ask(who)
                case Dial(place):
                    self._dial(call, place)
                case Fail(error):
                    self._fail(call, error)
                case None:
                    self._exchange.plan(call, call.attempt.timer_at())
                    return

    def answered(self, call: Call, line: Line) -> None:
        """Something came on the line of a call."""
        # It may have been closed again in the same breath. If it never opened, it was refused: that
        # line is over, and the exchange drops it.
        if line.end.has_opened and call in self._calls:
            call.attempt.connected()
            line.call = None
            line.channel = call.channel
            self._end(call)
            self._exchange.tally.opened += 1
            with line.lock:
                call.channel.opened(line)
            call.channel.rouse()

    def ended(self, call: Call, end: ChannelEnd) -> None:
        """The line of a call is over: nobody was there, it was refused, or it broke."""
        if call not in self._calls or call.attempt.state == DONE:
            return
        call.line = None
        now = monotonic()
        if end.refusal is not None:
            call.attempt.refused(end.refusal, now)
        else:
            call.attempt.dial_failed(end.reason, now)
        self.advance(call)

    def abandon(self, channel: BaseChannel) -> None:
        """Nobody wants that channel any more."""
        for call in tuple(self._calls):
            if call.channel is channel:
                self._fail(call, _closed_error(call))

    def give_up(self) -> None:
        """The bus is closing."""
        for call in tuple(self._calls):
            self._fail(call, _closed_error(call))

    def _find(self, call: Call) -> list[Place]:
        places = self._door.find(call.who)
        own = self._exchange.reception.own_place()
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
        hello = make_hello(self._own, place.node, call.channel.port)
        end = ChannelEnd(self._exchange.bytes_max, monotonic(), hello=hello)
        line = self._exchange.add(tcp, end, call.channel.lock)
        line.call = call
        line.is_dialing = True
        call.line = line
        self._exchange.watch(line)

    def _fail(self, call: Call, error: ChannelError) -> None:
        line, call.line = call.line, None
        self._end(call)
        self._exchange.tally.refused_there += 1
        if line is not None:
            line.call = None
            self._exchange.drop(line, "nobody waits for it any more")
        call.channel.failed(error)

    def _end(self, call: Call) -> None:
        self._calls.discard(call)
        if not self._exchange.is_closing:  # else the node is about to close, and may not be asked
            self._door.stop_lookup()


def _closed_error(call: Call) -> ChannelClosedError:
    return ChannelClosedError(call.who, call.channel.port, "it was closed before it opened")
