"""What tests of channels share: values to send, and peers that are plain sockets."""

from __future__ import annotations

import dataclasses
import os
import socket
from types import TracebackType
from typing import Any

from jsonbus.core.channel.wire import (
    HELLO,
    PREFIX,
    PREFIX_BYTES,
    WELCOME,
    Hello,
    encode_frame,
    encode_hello,
)

#: What any wait of a test may take on a busy machine; one that passes never waits for it.
LONG_S = 30.0

#: What fills a connection soon.
BLOCK = bytes(256 << 10)


@dataclasses.dataclass
class Point:
    x: int
    y: int


#: What is sent, and what is received.
VALUES: list[tuple[Any, Any]] = [
    (None, None),
    (True, True),
    (0, 0),
    (-1.5, -1.5),
    (2**63 - 1, 2**63 - 1),
    ("", ""),
    ("żółw 🐢", "żółw 🐢"),
    ([], []),
    ([1, [2, {"three": None}]], [1, [2, {"three": None}]]),
    ({}, {}),
    ({1: "one"}, {"1": "one"}),
    (Point(1, 2), {"x": 1, "y": 2}),
    ((1, 2), [1, 2]),
    (b"", b""),
    (b"\x00\xff", b"\x00\xff"),
    (bytearray(b"array"), b"array"),
    (memoryview(b"abcdef")[::2], b"ace"),
]

#: What JSON has no form for.
NO_JSON: list[Any] = [object(), float("nan"), {1, 2}, "\ud800", 2**64, {"bytes": b"inside"}]


class SealedSocket:
    """A socket whose plaintext travels in records, as on a sealed bus. Blocks, like the socket."""

    def __init__(self, sock: socket.socket, key_file: Any, *, is_caller: bool) -> None:
        from jsonbus.sealed import keys, records

        ring = keys.KeySource(key_file).ring
        offer = records.Offer(ring, ring.keys[0], os.urandom)
        sock.settimeout(LONG_S)
        self._sock = sock
        self._buffer = memoryview(bytearray(2 * records.SEALED_BYTES_MAX))
        self._cut = records.cut
        self._plaintext = b""  # opened and not read yet
        if is_caller:
            sock.sendall(offer.data)
        theirs = sock.recv(records.OFFER_BYTES, socket.MSG_WAITALL)
        if not is_caller:
            sock.sendall(offer.data)
        self._records = offer.agree(theirs, is_caller=is_caller)

    def sendall(self, data: bytes) -> None:
        for plaintext in self._cut([data]):
            self._sock.sendall(self._records.seal(plaintext))

    def recv(self, size: int) -> bytes:
        while not self._plaintext:
            held_bytes = self._records.resume(self._buffer)
            count = self._sock.recv_into(self._buffer[held_bytes:])
            if not count:
                return b""
            opened = self._records.open(self._buffer, held_bytes + count)
            assert not self._records.failure
            self._plaintext = bytes(self._buffer[:opened])
        data, self._plaintext = self._plaintext[:size], self._plaintext[size:]
        return data

    def __getattr__(self, name: str) -> Any:
        return getattr(self._sock, name)


def count_descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


class Plain:
    """One end of a connection that says what it is told to. Blocks, with a bound."""

    def __init__(
        self, sock: socket.socket, key_file: Any = None, *, is_caller: bool = True
    ) -> None:
        """With a key file, of a sealed bus."""
        sock.settimeout(LONG_S)
        self.sock: Any = sock
        if key_file is not None:
            self.sock = SealedSocket(sock, key_file, is_caller=is_caller)

    def send(self, kind: int, body: bytes = b"") -> None:
        self.sock.sendall(encode_frame(kind, body))

    def read(self) -> tuple[int, bytes]:
        """The next frame, as kind and body; EOFError if the other end has closed."""
        size, kind = PREFIX.unpack(self._read(PREFIX_BYTES))
        return kind, self._read(size)

    def read_kind(self, *kinds: int) -> bytes:
        """The body of the next frame of one of these kinds."""
        while True:
            kind, body = self.read()
            if kind in kinds:
                return body

    def is_ended(self) -> bool:
        """Whether the other end closes the connection, whatever it says before."""
        try:
            while self.sock.recv(1 << 20):
                pass
        except ConnectionError:
            pass
        return True

    def reset(self) -> None:
        """Break the connection, without any goodbye."""
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        self.sock.close()

    def close(self) -> None:
        self.sock.close()

    def __enter__(self) -> Plain:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _read(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            piece = self.sock.recv(size - len(data))
            if not piece:
                raise EOFError
            data += piece
        return data


def call(bus: Any, port: str | None = None, **fields: Any) -> Plain:
    """A connection to a bus that has bound something; with a port's name, hello is said."""
    host, tcp_port = bus._loop.channels.manager.listener.own_place()
    sock = socket.create_connection((host, tcp_port), timeout=LONG_S)
    plain = Plain(sock, bus.config.key_file)
    if port is not None:
        hello = Hello("caller-node-1", 1, "plain", bus.id, port, 64 << 20)._replace(**fields)
        plain.sock.sendall(encode_hello(hello))
    return plain


def join(bus: Any, port: str) -> Plain:
    """The same, and the bus has said welcome."""
    plain = call(bus, port)
    plain.read_kind(WELCOME)
    return plain


class PlainListener:
    """A socket that listens in the place of a bus: whoever connects to that, calls here."""

    def __init__(self, bus: Any) -> None:
        self._sock = socket.create_server(("127.0.0.1", 0))
        self._sock.settimeout(LONG_S)
        port = self._sock.getsockname()[1]
        bus._loop.call(lambda node, now: node.directory.set_channel_port(port, now))
        self._key_file = bus.config.key_file

    def accept(self) -> Plain:
        """Who called, after its hello."""
        plain = Plain(self._sock.accept()[0], self._key_file, is_caller=False)
        plain.read_kind(HELLO)
        return plain

    def accept_silently(self) -> Plain:
        return Plain(self._sock.accept()[0])

    def __enter__(self) -> PlainListener:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._sock.close()
