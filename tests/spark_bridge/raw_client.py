"""A client of the bridge that speaks wire.py and nothing else: well, badly, or not at all."""

from __future__ import annotations

import json
import socket
from types import TracebackType
from typing import Any

from spark_bridge import wire
from tests.spark_bridge.log.log_rows import rows_of

#: How long an answer may take on a machine with more to do than it can.
TIMEOUT_S = 60.0

HELLO = {"op": "hello", "version": wire.VERSION, "client": "test"}


class RawClient:
    """A connection; `hello` introduces it."""

    def __init__(self, address: str | tuple[str, int]) -> None:
        if isinstance(address, str):
            host, _, port = address.rpartition(":")
            address = host, int(port)
        self.socket = socket.create_connection(address, TIMEOUT_S)

    def hello(self, **fields: Any) -> dict[str, Any]:
        self.socket.sendall(wire.MAGIC)
        return self.ask({**HELLO, **fields})

    def ask(self, request: dict[str, Any], attached: bytes = b"") -> dict[str, Any]:
        """The reply, a refusal included."""
        self.socket.sendall(encode(request) + attached)
        return self.receive()

    def receive(self) -> dict[str, Any]:
        (length,) = wire.LENGTH.unpack(self.receive_bytes(wire.LENGTH.size))
        return wire.decode(self.receive_bytes(length))

    def read(self, partition: int, start: int, end: int, **fields: Any) -> list[dict[str, Any]]:
        """The rows of a range, in the order in which they come; it must be granted."""
        reply = self.ask(
            {"op": "read", "partition": partition, "start": start, "end": end, **fields}
        )
        assert reply["ok"], reply
        rows: list[dict[str, Any]] = []
        while True:
            kind, body = self.receive_chunk()
            if kind == wire.BLOCKS:
                rows += rows_of(body)
                continue
            assert kind == wire.END, body
            assert wire.decode(body) == {"rows": len(rows)}
            return rows

    def receive_chunk(self) -> tuple[bytes, bytes]:
        kind, length = wire.CHUNK.unpack(self.receive_bytes(wire.CHUNK.size))
        return kind, self.receive_bytes(length)

    def receive_bytes(self, count: int) -> bytes:
        parts = []
        while count:
            part = self.socket.recv(min(count, 1 << 20))
            if not part:
                raise ConnectionResetError("the bridge closed the connection")
            parts.append(part)
            count -= len(part)
        return b"".join(parts)

    def receive_end(self) -> bytes:
        """What comes until the bridge closes the connection, which it must."""
        parts = []
        try:
            while part := self.socket.recv(1 << 16):
                parts.append(part)
        except ConnectionResetError:
            pass
        return b"".join(parts)

    def close(self) -> None:
        self.socket.close()

    def __enter__(self) -> RawClient:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


def encode(body: object) -> bytes:
    """Any JSON as a request; what UTF-8 cannot carry is written as an escape."""
    text = json.dumps(body).encode()
    return wire.LENGTH.pack(len(text)) + text


def open_client(address: str | tuple[str, int], token: str | None = None) -> RawClient:
    """A connection that was welcomed."""
    client = RawClient(address)
    try:
        reply = client.hello() if token is None else client.hello(token=token)
        assert reply["ok"], reply
    except BaseException:
        client.close()
        raise
    return client
