"""The other side of a channel made of bytes: it may do what no node would."""

from __future__ import annotations

import socket
import sys
from pathlib import Path
from typing import Any

from jsonbus.core.channel.wire import (
    BEAT,
    PREFIX,
    PREFIX_BYTES,
    WELCOME,
    Hello,
    encode_frame,
    encode_hello,
)
from jsonbus.sync.channel import Channel
from tests.end_to_end.processes import Desk, Process

TIMEOUT_S = 60.0


class Server:
    """The process of channel_server.py, and a channel by which it is asked."""

    def __init__(self, desk: Desk) -> None:
        path = Path(__file__).with_name("channel_server.py")
        self.process: Process = desk.start_command([sys.executable, str(path)])
        self._control: Channel = desk.observer.connect("server", "control", TIMEOUT_S, retry=True)
        self.node = self._control.node
        host, port = self.ask("place")
        self.address: tuple[str, int] = (host, port)

    def ask(self, *command: Any) -> Any:
        self._control.send(command)
        return self._control.receive(TIMEOUT_S)

    def call(self) -> socket.socket:
        """A connection that has said nothing yet."""
        return socket.create_connection(self.address, TIMEOUT_S)

    def hello(self, number: int, port: str, **other: Any) -> bytes:
        """What a node says that wants a channel."""
        name = f"raw{number:013}"
        hello = Hello(name, 1, name, self.node, port, 64 << 20)
        return encode_hello(hello._replace(**other))

    def connect(self, number: int, port: str) -> socket.socket:
        """A channel; its node is `raw_node(number)`."""
        sock = self.call()
        sock.sendall(self.hello(number, port))
        kind, _ = read_frame(sock)
        assert kind == WELCOME
        return sock


def raw_node(number: int) -> str:
    return f"raw{number:013}"


def read_frame(sock: socket.socket) -> tuple[int, bytes]:
    """The next one that is no beat."""
    while True:
        size, kind = PREFIX.unpack(_read(sock, PREFIX_BYTES))
        body = _read(sock, size)
        if kind != BEAT:
            return kind, body


def echo(sock: socket.socket, kind: int, body: bytes) -> bool:
    """Whether a message to the echo comes back."""
    sock.sendall(encode_frame(kind, body))
    return read_frame(sock) == (kind, body)


def is_hung_up(sock: socket.socket) -> bool:
    """Whether the other side has closed the connection; waits for it."""
    try:
        while sock.recv(65_536):
            pass
    except ConnectionError:
        pass
    return True


def _read(sock: socket.socket, count: int) -> bytes:
    whole = bytearray()
    while len(whole) < count:
        piece = sock.recv(count - len(whole))
        if not piece:
            raise ConnectionError("the connection was closed")
        whole += piece
    return bytes(whole)
