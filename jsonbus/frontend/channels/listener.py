"""Take connections of other nodes: listening sockets, nodes that have not said hello, ports.

A part of the manager (manager.py). Methods not marked "any thread" belong to ChannelIO.
"""

from __future__ import annotations

import math
import socket
import threading
from time import monotonic
from typing import TYPE_CHECKING, Any

from jsonbus.core.channel.end import OPENING, ChannelEnd
from jsonbus.core.channel.limits import MESSAGE_BYTES_MAX, UNIDENTIFIED_MAX
from jsonbus.core.channel.ports import Ports
from jsonbus.core.channel.wire import Refusal
from jsonbus.errors import TransportError
from jsonbus.frontend.channels.binding import BaseBinding
from jsonbus.frontend.channels.connection import Connection
from jsonbus.frontend.lifetime import closed_error
from jsonbus.transport.tcp import TcpListener

if TYPE_CHECKING:
    from jsonbus.frontend.channels.manager import ChannelManager
    from jsonbus.frontend.loop import BaseLoop

#: Connections accepted in one go: many at once must not delay the reading of channels.
ACCEPT_AT_ONCE = 64

#: The pause after the system had no room for more connections.
FULL_PAUSE_S = 0.5


class Listener:
    """Listens on the addresses by which the node is on the bus, once a port is bound."""

    def __init__(self, manager: ChannelManager, loop: BaseLoop[Any, Any]) -> None:
        self._manager = manager
        self._loop = loop
        self._log = loop.log
        self._ports: Ports[BaseBinding[Any]] = Ports(loop.node.settings)
        self._ports_lock = threading.Lock()
        self._tcp: TcpListener | None = None
        self._unidentified: dict[Connection, None] = {}  # no hello came yet, oldest first
        #: When to listen again, after the system had no room.
        self.listens_at = math.inf

    # --- Any thread -----------------------------------------------------------------------------

    def bind(self, port: str, binding: BaseBinding[Any], *, exclusive: bool) -> None:
        """Take channels to a port. Raises LocalError, ClosedError, TransportError."""
        with self._ports_lock:
            if self._manager.is_closing:
                raise closed_error()
            self._ports.bind(port, binding, exclusive=exclusive)
            try:
                is_first = self._tcp is None
                if self._tcp is None:
                    self._tcp = TcpListener(self._loop.addresses())
            except TransportError:
                self._ports.unbind(port)
                raise
        if is_first:
            if self._loop.is_closed:
                raise closed_error()
            port_number = self._tcp.port
            self._loop.call(lambda node, now: node.directory.set_channel_port(port_number, now))
            self._manager.post(self.listen)

    def unbind(self, port: str) -> None:
        with self._ports_lock:
            self._ports.unbind(port)

    def own_place(self) -> tuple[str, int] | None:
        """Return where this node can connect to itself; None if no port is bound."""
        tcp = self._tcp
        return None if tcp is None else (tcp.address, tcp.port)

    def follow_addresses(self) -> None:
        """Listen on the addresses that the machine has now."""
        if self._tcp is not None:
            self._manager.post(self._follow)

    # --- ChannelIO ------------------------------------------------------------------------------

    def accept(self, sock: socket.socket) -> None:
        """Accept the connections that wait at a listening socket."""
        tcp = self._tcp
        for _ in range(ACCEPT_AT_ONCE):
            if tcp is None or self._manager.is_closing:
                return
            try:
                tcp_connection = tcp.accept(sock)
            except TransportError as error:
                self._log.warn_once("accept", "%s", error)
                self.listens_at = monotonic() + FULL_PAUSE_S
                self._manager.watcher.wake()  # to sleep no longer than that
                for each in tcp.sockets:
                    self._manager.watcher.forget(each)
                return
            if tcp_connection is None:
                return
            if len(self._unidentified) >= UNIDENTIFIED_MAX:
                # Drop the one that has been silent for longest: real nodes say hello at once.
                self._manager.drop(
                    next(iter(self._unidentified)), "too many connections said nothing"
                )
            connection = self._manager.add(
                tcp_connection, ChannelEnd(MESSAGE_BYTES_MAX, monotonic()), threading.Lock()
            )
            self._unidentified[connection] = None
            self._manager.update(connection)

    def greet(self, connection: Connection) -> None:
        """Answer a node that has said hello: open a channel, or refuse it."""
        hello = connection.end.hello
        if connection not in self._unidentified or hello is None or connection.end.state != OPENING:
            return
        with self._ports_lock:
            judgement: BaseBinding[Any] | Refusal = self._ports.judge(hello)
            if not isinstance(judgement, Refusal) and not judgement.has_room:
                judgement = self._ports.make_busy()
            if not isinstance(judgement, Refusal):
                self._ports.opened(hello.port)
        del self._unidentified[connection]
        if isinstance(judgement, Refusal):
            self._manager.counters.refused_here += 1
            connection.end.refuse(judgement)
            return
        channel = connection.channel = judgement.make_channel(
            hello.name or hello.node, connection.lock
        )
        connection.is_answer = True
        self._manager.counters.opened += 1
        with connection.lock:
            connection.end.welcome(self._ports.make_welcome())
            channel.opened(connection)
        judgement.offer(channel)

    def forget(self, connection: Connection) -> None:
        """Forget a connection that ended: an exclusive port may be free again."""
        if connection.is_answer and connection.channel is not None:
            with self._ports_lock:
                self._ports.closed(connection.channel.port)
        if self._unidentified.pop(connection, connection) is None and not connection.tcp.is_foreign:
            self._manager.counters.unidentified += 1

    def listen(self) -> None:
        """Watch the listening sockets."""
        self.listens_at = math.inf
        if self._tcp is not None and not self._manager.is_closing:
            for sock in self._tcp.sockets:
                self._manager.watcher.watch(sock, None, True, False)

    def _follow(self) -> None:
        if self._tcp is None or self._manager.is_closing:
            return
        stale, failures = self._tcp.follow(self._loop.addresses())
        for sock in stale:
            self._manager.watcher.forget(sock)
            sock.close()
        for failure in failures:
            self._log.warn_once(("listen", failure), "no channels by %s", failure)
        self.listen()

    def close(self) -> None:
        """Take no more connections, and end all bindings."""
        with self._ports_lock:
            self._manager.is_closing = True
            bindings = self._ports.bindings()
        for binding in bindings:
            binding.end()
        if self._tcp is not None:
            for sock in self._tcp.sockets:
                self._manager.watcher.forget(sock)
            self._tcp.close()

    def cut_off(self) -> None:
        """Release the descriptors in a forked child."""
        if self._tcp is not None:
            self._tcp.close()
