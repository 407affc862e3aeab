"""Bytes from and to one client of the bridge, each with a time limit."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

from . import wire
from .errors import ProtocolError

#: The time in which a client has to introduce itself, to send the rest of a request that it began,
#: and to accept a buffer of data. A client that is sent away has this long to receive the reason.
HELLO_S = 10.0
REQUEST_S = 60.0
STALL_S = 120.0
FAREWELL_S = 2.0

#: The most that waits to be sent before the server waits for the client. Whole blocks; sendfile
#: needs no buffer.
SEND_BUFFER_BYTES = 4 << 20


class SocketSending:
    """The destination of `Requests.send`. Raises TimeoutError if the client accepts nothing,
    OSError.
    """

    def __init__(self, writer: asyncio.StreamWriter) -> None:
        self._writer = writer

    def write(self, data: bytes) -> None:
        """Send it together with what follows."""
        self._writer.write(data)

    async def flush(self) -> None:
        """Wait until there is room for more; TimeoutError if the client accepts nothing."""
        async with asyncio.timeout(STALL_S):
            await self._writer.drain()

    async def send_file(self, file: Any, position: int, length: int) -> None:
        """Send a part of a file, without copying it into this process if the system can."""
        loop = asyncio.get_running_loop()
        while length:
            if self._writer.is_closing():
                raise ConnectionResetError  # sendfile would report that as our mistake
            part = min(length, SEND_BUFFER_BYTES)
            async with asyncio.timeout(STALL_S):
                sent = await loop.sendfile(self._writer.transport, file, position, part)
            if sent < part:
                raise OSError(f"{file.path} ends at byte {position + sent:,}: it was cut")
            position += part
            length -= part


async def read_hello(reader: asyncio.StreamReader) -> dict[str, Any]:
    """Read the first request. Raises ProtocolError, or ConnectionError for a silent client."""
    try:
        async with asyncio.timeout(HELLO_S):
            if await reader.readexactly(len(wire.MAGIC)) != wire.MAGIC:
                raise ProtocolError("it does not begin as a bridge's client does")
            return await read_request(reader, wire.HELLO_BYTES_MAX)
    except asyncio.IncompleteReadError as error:
        if not error.partial and error.expected == len(wire.MAGIC):
            raise ConnectionAbortedError from error  # somebody who checks whether the port is open
        raise ProtocolError("it does not introduce itself") from error
    except TimeoutError as error:
        raise ProtocolError("it does not introduce itself") from error


async def read_request(
    reader: asyncio.StreamReader, bytes_max: int, length: bytes | None = None
) -> dict[str, Any]:
    """Read a request, whose length may have been read already. Raises ProtocolError."""
    if length is None:
        length = await reader.readexactly(wire.LENGTH.size)
    (size,) = wire.LENGTH.unpack(length)
    if size > bytes_max:
        raise ProtocolError(f"a request of {size:,} bytes; at most {bytes_max:,} are taken")
    return wire.decode(await reader.readexactly(size))


@asynccontextmanager
async def request_time() -> AsyncIterator[None]:
    """Return the time limit of a client for the rest of its request."""
    try:
        async with asyncio.timeout(REQUEST_S):
            yield
    except TimeoutError as error:
        raise ProtocolError("it fell silent within a request") from error


async def send(writer: asyncio.StreamWriter, data: bytes) -> None:
    """Send a reply; TimeoutError if the client takes nothing."""
    writer.write(data)
    async with asyncio.timeout(STALL_S):
        await writer.drain()


def set_up(writer: asyncio.StreamWriter) -> None:
    """Prepare a new connection."""
    writer.transport.set_write_buffer_limits(SEND_BUFFER_BYTES)
    sock = writer.get_extra_info("socket")
    # asyncio does so only for sockets whose protocol was named: without, a reply in several parts
    # waits 40 ms for the client to confirm the first.
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    # A client whose machine is gone is noticed in the end, and its connection given back.
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)


async def say_farewell(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Let the last word arrive: the kernel takes it back if bytes of the client were not read."""
    with suppress(OSError):  # TimeoutError is one
        async with asyncio.timeout(FAREWELL_S):
            writer.transport.set_write_buffer_limits(0)
            await writer.drain()
            writer.write_eof()
            while await reader.read(SEND_BUFFER_BYTES):
                pass
