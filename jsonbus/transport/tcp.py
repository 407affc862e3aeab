"""TCP connections between two nodes: never blocking; OSError becomes TransportError here."""

from __future__ import annotations

import contextlib
import errno
import os
import socket
from collections.abc import Collection, Sequence

from ..errors import TransportError
from . import platforms

#: Connections that wait to be accepted: as many as Linux allows by default. Further callers are
#: told by TCP itself to come again.
_BACKLOG = 4096

#: How often a port that is free on one address may turn out to be taken on another.
_PORT_TRIES = 16

#: Windows cannot send several pieces at once.
_HAS_SENDMSG = hasattr(socket.socket, "sendmsg")


class TcpConnection:
    """One connection, made or being made; reading and writing may go on in two threads at once."""

    __slots__ = ("sock",)

    def __init__(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        # Messages are written whole: nothing is gained by waiting for more.
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.sock = sock

    @property
    def peer(self) -> str:
        """The address at the other end, for people."""
        try:
            return "{}:{}".format(*self.sock.getpeername()[:2])
        except OSError:
            return "an unknown address"

    # Of an open bus these are False; sealed/tcp.py has others.

    @property
    def is_foreign(self) -> bool:
        """Whether the other side has shown that it has no key of this bus."""
        return False

    @property
    def has_heard_part(self) -> bool:
        """Whether `read_into` has just got something of which it can give nothing out yet."""
        return False

    def finish_dialing(self) -> None:
        """Complete `dial`, once the socket is writable: raises TransportError if nobody is
        there.
        """
        code = self.sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if code:
            raise TransportError(os.strerror(code))

    def read_into(self, buffer: memoryview) -> int | None:
        """Return how many bytes came; 0: none will come any more; None: none are here now."""
        try:
            return self.sock.recv_into(buffer)
        except (BlockingIOError, InterruptedError):
            return None
        except OSError as error:
            raise TransportError(f"the connection broke: {error.strerror or error}") from error

    def write(self, pieces: Sequence[bytes | memoryview]) -> int:
        """Return how many bytes of the pieces the kernel took."""
        try:
            if len(pieces) == 1:
                return self.sock.send(pieces[0])
            if _HAS_SENDMSG:
                return self.sock.sendmsg(pieces)
            return self.sock.send(b"".join(pieces))
        except (BlockingIOError, InterruptedError):
            return 0
        except OSError as error:
            raise TransportError(f"the connection broke: {error.strerror or error}") from error

    def unanswered_s(self) -> float:
        """Return for how long the other machine has confirmed nothing, although it should."""
        try:
            return platforms.unanswered_s(self.sock)
        except OSError:
            return 0.0  # it broke: the next read or write raises

    def hang_up(self) -> None:
        """End the connection for whoever waits for it, and close it later."""
        with contextlib.suppress(OSError):
            self.sock.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self.sock.close()


def dial(host: str, port: int) -> TcpConnection:
    """Begin to connect; `finish_dialing` completes it. Raises TransportError."""
    try:
        sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    except OSError as error:
        raise TransportError(f"no connection can be opened: {error.strerror or error}") from error
    try:
        connection = TcpConnection(sock)
        code = sock.connect_ex((host, port))
        if code not in (0, errno.EINPROGRESS, errno.EWOULDBLOCK):
            raise OSError(code, os.strerror(code))
    except OSError as error:
        sock.close()
        raise TransportError(f"{host}:{port}: {error.strerror or error}") from error
    return connection


class TcpListener:
    """One TCP port, on the addresses by which a node is on the bus and on no others.

    Nobody can connect from a network that the node has not joined. The addresses may change; the
    port stays the same, because others know it.
    """

    def __init__(self, addresses: Collection[str]) -> None:
        """Raises TransportError if no port is available."""
        self._sockets: dict[str, socket.socket] = {}
        self.port = 0
        if not addresses:
            raise TransportError("no interface has an address to listen on: bring one up first")
        for _ in range(_PORT_TRIES):
            try:
                for address in addresses:
                    self._sockets[address] = self._listen(address)
                return
            except OSError as error:
                self.close()
                self.port = 0
                failure = error
                if error.errno != errno.EADDRINUSE:
                    break
        raise TransportError(
            f"cannot listen on {', '.join(addresses)}: {failure.strerror or failure}"
        ) from failure

    @property
    def sockets(self) -> tuple[socket.socket, ...]:
        return tuple(self._sockets.values())

    @property
    def address(self) -> str:
        """An address at which this node can connect to itself."""
        return next(iter(self._sockets), "127.0.0.1")

    def follow(self, addresses: Collection[str]) -> tuple[list[socket.socket], list[str]]:
        """Listen on these addresses from now on.

        Returns sockets that are no longer needed, for the caller to close, and why some addresses
        cannot be listened on.
        """
        stale = [self._sockets.pop(each) for each in set(self._sockets) - set(addresses)]
        failures = []
        for address in addresses:
            if address not in self._sockets:
                try:
                    self._sockets[address] = self._listen(address)
                except OSError as error:
                    failures.append(f"{address}:{self.port}: {error.strerror or error}")
        return stale, failures

    def accept(self, sock: socket.socket) -> TcpConnection | None:
        """Return a new connection, if there is one. Raises TransportError if there is no room."""
        try:
            return TcpConnection(sock.accept()[0])
        except (BlockingIOError, InterruptedError, ConnectionError):
            return None  # or it has hung up already
        except OSError as error:
            raise TransportError(
                f"callers cannot be accepted: {error.strerror or error}: raise the limit of open "
                "files (ulimit -n)"
            ) from error

    def close(self) -> None:
        for sock in self._sockets.values():
            with contextlib.suppress(OSError):
                sock.close()
        self._sockets.clear()

    def _listen(self, address: str) -> socket.socket:
        sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        try:
            if self.port:
                # An address that comes back is free, whatever TCP still remembers of it.
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            sock.setblocking(False)
            sock.bind((address, self.port))
            # Its channels inherit it. While one without lasts, the address could not come back.
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            sock.listen(_BACKLOG)
        except OSError:
            sock.close()
            raise
        self.port = sock.getsockname()[1]
        return sock
