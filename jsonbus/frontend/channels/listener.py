"""Who calls this node: its listener, callers that have not said yet what they want, its ports.

A part of the exchange (manager.py): what is not marked "any thread" belongs to its operator.
"""

from __future__ import annotations

import math
import socket
import threading
from collections.abc import Callable, Collection
from time import monotonic
from typing import TYPE_CHECKING, Protocol

from jsonbus.core.channel.end import OPENING, ChannelEnd
from jsonbus.core.channel.limits import MESSAGE_BYTES_MAX, STRANGERS_MAX
from jsonbus.core.channel.ports import Ports
from jsonbus.core.channel.wire import Refusal
from jsonbus.core.settings import NodeSettings
from jsonbus.errors import TransportError
from jsonbus.frontend.channels.channel import BaseChannel
from jsonbus.frontend.channels.connection import Line
from jsonbus.frontend.channels.connector import NodeDoor
from jsonbus.frontend.log import BusLog
from jsonbus.frontend.lifetime import closed_error
from jsonbus.transport.tcp import TcpListener

if TYPE_CHECKING:
    from jsonbus.frontend.channels.manager import Exchange

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


class Reception:
    """See the head of this file. `addresses` are those by which the node is on the bus."""

    def __init__(
        self,
        exchange: Exchange,
        own: NodeSettings,
        door: NodeDoor,
        addresses: Callable[[], Collection[str]],
        log: BusLog,
    ) -> None:
        self._exchange = exchange
        self._door = door
        self._addresses = addresses
        self._log = log
        self._ports: Ports[BaseBinding] = Ports(own)
        self._ports_lock = threading.Lock()
        self._tcp: TcpListener | None = None
        self._strangers: dict[Line, None] = {}  # who has not said yet what it wants
        #: When to listen again, after the system had no room.
        self.listens_at = math.inf

    # --- Any thread -----------------------------------------------------------------------------

    def bind(self, port: str, binding: BaseBinding, *, exclusive: bool) -> None:
        """Raises LocalError, ClosedError, TransportError."""
        with self._ports_lock:
            if self._exchange.is_closing:
                raise closed_error()
            self._ports.bind(port, binding, exclusive=exclusive)
            try:
                is_first = self._tcp is None
                if self._tcp is None:
                    self._tcp = TcpListener(self._addresses())
            except TransportError:
                self._ports.unbind(port)
                raise
        if is_first:
            self._door.tell_port(self._tcp.port)
            self._exchange.post(self.listen)

    def unbind(self, port: str) -> None:
        with self._ports_lock:
            self._ports.unbind(port)

    def own_place(self) -> tuple[str, int] | None:
        """Where this node would call itself; None if it takes no channels."""
        tcp = self._tcp
        return None if tcp is None else (tcp.address, tcp.port)

    def follow_addresses(self) -> None:
        """The network changed."""
        if self._tcp is not None:
            self._exchange.post(self._follow)

    # --- The operator ---------------------------------------------------------------------------

    def callers(self, sock: socket.socket) -> None:
        """Somebody has called."""
        tcp = self._tcp
        for _ in range(ACCEPT_AT_ONCE):
            if tcp is None or self._exchange.is_closing:
                return
            try:
                tcp_connection = tcp.accept(sock)
            except TransportError as error:
                self._log.warn_once("accept", "%s", error)
                self.listens_at = monotonic() + FULL_PAUSE_S
                self._exchange.watcher.wake()  # to sleep no longer than that
                for each in tcp.sockets:
                    self._exchange.watcher.forget(each)
                return
            if tcp_connection is None:
                return
            if len(self._strangers) >= STRANGERS_MAX:
                # The one that has been silent for longest: real callers speak at once.
                self._exchange.drop(
                    next(iter(self._strangers)), "too many connections said nothing"
                )
            line = self._exchange.add(
                tcp_connection, ChannelEnd(MESSAGE_BYTES_MAX, monotonic()), threading.Lock()
            )
            self._strangers[line] = None
            self._exchange.watch(line)

    def greet(self, line: Line) -> None:
        """Answer a caller, once it has spoken."""
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
            self._exchange.tally.refused_here += 1
            line.end.refuse(judgement)
            return
        channel = line.channel = judgement.make_channel(hello.name or hello.node, line.lock)
        line.is_answer = True
        self._exchange.tally.opened += 1
        with line.lock:
            line.end.welcome(self._ports.make_welcome())
            channel.opened(line)
        judgement.offer(channel)

    def left(self, line: Line) -> None:
        """A line has ended: an exclusive port may be free again."""
        if line.is_answer and line.channel is not None:
            with self._ports_lock:
                self._ports.closed(line.channel.port)
        if self._strangers.pop(line, line) is None:
            self._exchange.tally.strangers += 1

    def listen(self) -> None:
        self.listens_at = math.inf
        if self._tcp is not None and not self._exchange.is_closing:
            for sock in self._tcp.sockets:
                self._exchange.watcher.watch(sock, None, True, False)

    def _follow(self) -> None:
        if self._tcp is None or self._exchange.is_closing:
            return
        stale, failures = self._tcp.follow(self._addresses())
        for sock in stale:
            self._exchange.watcher.forget(sock)
            sock.close()
        for failure in failures:
            self._log.warn_once(("listen", failure), "no channels by %s", failure)
        self.listen()

    def close(self) -> None:
        """Take no more callers."""
        with self._ports_lock:
            self._exchange.is_closing = True
            bindings = self._ports.bindings()
        for binding in bindings:
            binding.end()
        if self._tcp is not None:
            for sock in self._tcp.sockets:
                self._exchange.watcher.forget(sock)
            self._tcp.close()

    def cut_off(self) -> None:
        """This is a forked child."""
        if self._tcp is not None:
            self._tcp.close()
