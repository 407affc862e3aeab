"""Sides with threads: a blocking socket, and channels of a `Bus`."""

from __future__ import annotations

import socket
import struct
from time import perf_counter
from typing import Any

from tools.bench.channel.side import HOLD_PORT, NAME, PORT, Side, make_body
from tools.bench.worker import read_commands, write_answer

READY_S = 30.0
LENGTH = struct.Struct(">I")


class SocketLink:
    """Messages as a plain program would cut them out of a stream: a length, then the body."""

    def __init__(self, sock: socket.socket) -> None:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._sock = sock

    def send(self, body: bytes) -> None:
        self._sock.sendall(LENGTH.pack(len(body)) + body)

    def receive(self) -> bytes:
        (size,) = LENGTH.unpack(self._read(LENGTH.size))
        return self._read(size)

    def _read(self, size: int) -> bytes:
        body = self._sock.recv(size, socket.MSG_WAITALL)
        if len(body) < size:
            raise EOFError
        return body


class SocketPlace:
    """Where sockets come from."""

    def __init__(self, side: Side) -> None:
        self._listening: socket.socket | None = None
        self.address = 0
        if side.role == "listener":
            self._listening = socket.create_server(("127.0.0.1", 0))
            self.address = self._listening.getsockname()[1]

    def accept(self) -> SocketLink:
        assert self._listening is not None
        return SocketLink(self._listening.accept()[0])

    def connect(self, address: int) -> SocketLink:
        return SocketLink(socket.create_connection(("127.0.0.1", address)))


class BusPlace:
    """Where channels come from."""

    address = 0

    def __init__(self, side: Side) -> None:
        import jsonbus

        self._make_bus = lambda: jsonbus.Bus(**side.bus_settings())
        self._bus = self._make_bus()
        self._held: list[Any] = []
        if side.role == "listener":
            self._binding = self._bus.bind(PORT)
            self._bus.bind(HOLD_PORT, self._held.append)

    def accept(self) -> Any:
        return self._binding.accept(READY_S)

    def connect(self, address: int) -> Any:
        return self._bus.connect(NAME, PORT, READY_S)

    def connect_as_stranger(self) -> float:
        """From a bus that has heard of nobody yet."""
        with self._make_bus() as bus:
            began_at = perf_counter()
            bus.connect(NAME, HOLD_PORT, READY_S)
            return perf_counter() - began_at

    def hold(self, count: int, address: int) -> None:
        self._held += [self._bus.connect(NAME, HOLD_PORT, READY_S) for _ in range(count)]

    def count_held(self) -> int:
        return sum(not channel.is_closed for channel in self._held)


class ThreadSide:
    """What a side is asked."""

    def __init__(self, side: Side) -> None:
        self._place: Any = SocketPlace(side) if side.system == "socket" else BusPlace(side)
        self._link: Any = None

    def ready(self) -> dict[str, Any]:
        return {"address": self._place.address}

    # The listener:

    def accept(self) -> dict[str, Any]:
        self._link = self._place.accept()
        return {}

    def receive(self, count: int, is_json: bool) -> dict[str, Any]:
        """So many messages, and say when the last one is there."""
        receive = self._link.receive
        for _ in range(count):
            receive()
        self._link.send(b".")
        return {"received": count}

    def echo(self, count: int, is_json: bool) -> dict[str, Any]:
        link = self._link
        for _ in range(count):
            link.send(link.receive())
        return {}

    def echo_by_handler(self) -> dict[str, Any]:
        """All that comes, from now on."""
        self._link.on_message(self._link.send)
        return {}

    # The caller:

    def connect(self, address: int) -> dict[str, Any]:
        began_at = perf_counter()
        self._link = self._place.connect(address)
        return {"seconds": perf_counter() - began_at}

    def connect_as_stranger(self) -> dict[str, Any]:
        return {"seconds": self._place.connect_as_stranger()}

    def hold(self, count: int, address: int) -> dict[str, Any]:
        began_at = perf_counter()
        self._place.hold(count, address)
        return {"seconds": perf_counter() - began_at}

    def count_held(self) -> dict[str, Any]:
        """How many of them are still open."""
        return {"held": self._place.count_held()}

    def send(self, count: int, size_bytes: int, is_json: bool) -> dict[str, Any]:
        """So many messages; the time until the last one is received."""
        body, send = make_body(size_bytes, is_json), self._link.send
        began_at = perf_counter()
        for _ in range(count):
            send(body)
        self._link.receive()
        return {"seconds": perf_counter() - began_at}

    def ping(self, count: int, size_bytes: int, is_json: bool) -> dict[str, Any]:
        body, link = make_body(size_bytes, is_json), self._link
        delays_us = []
        for _ in range(count):
            began_at = perf_counter()
            link.send(body)
            link.receive()
            delays_us.append(1e6 * (perf_counter() - began_at))
        return {"delays_us": delays_us}


def run(side: Side) -> None:
    worker = ThreadSide(side)
    write_answer(worker.ready())
    for command in read_commands():
        write_answer(getattr(worker, command.pop("ask"))(**command))
