"""Bytes from and to one client of the bridge, each with a time limit."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

from . import wire
from .errors import ProtocolError
from .log.disk import LogFile

#: The time in which a client has to introduce itself, to send the rest of a request that it began,
#: and to accept a buffer of data. A client that is sent away has this long to receive the reason.
HELLO_S = 10.0
REQUEST_S = 60.0
STALL_S = 120.0
FAREWELL_S = 2.0

#: The most that waits to be sent before the server waits for the client. Whole blocks; sendfile
#: needs no buffer.
SEND_BUFFER_BYTES = 4 << 20

#: The most of a file that is read and encrypted at a time: others wait for half a millisecond.
ENCRYPTED_BYTES = 1 << 19

#: How a client that speaks TLS begins, and the answer of a bridge that does not.
_TLS_RECORD = b"\x16\x03"
_NO_TLS = wire.encode(wire.refusal("bad_request", "this bridge does not speak TLS"))


class ClientStream:
    """The connection of a client.

    Reading raises ProtocolError for bytes that are no request; sending raises TimeoutError if the
    client accepts nothing. Both raise OSError if the connection breaks.
    """

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self.peer = writer.get_extra_info("peername")
        self._is_encrypted = writer.get_extra_info("sslcontext") is not None
        writer.transport.set_write_buffer_limits(SEND_BUFFER_BYTES)
        sock = writer.get_extra_info("socket")
        # asyncio does so only for sockets whose protocol was named: without, a reply in several
        # parts waits 40 ms for the client to confirm the first.
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        # A client whose machine is gone is noticed in the end, and its connection given back.
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)

    async def read_hello(self) -> dict[str, Any]:
        """Read the first request. Raises ConnectionError for a client that sends nothing."""
        try:
            async with asyncio.timeout(HELLO_S):
                magic = await self._reader.readexactly(len(wire.MAGIC))
                if magic.startswith(_TLS_RECORD):
                    self.write(_NO_TLS)  # bytes that are no TLS tell its client enough
                    raise ProtocolError("it speaks TLS, and this bridge has no --tls-cert")
                if magic != wire.MAGIC:
                    raise ProtocolError("it does not begin as a bridge's client does")
                length = await self._reader.readexactly(wire.LENGTH.size)
                return await self._read_body(length, wire.HELLO_BYTES_MAX)
        except (asyncio.IncompleteReadError, TimeoutError) as error:
            if isinstance(error, asyncio.IncompleteReadError) and not error.partial:
                if error.expected == len(wire.MAGIC):  # somebody checks whether the port is open
                    raise ConnectionAbortedError from error
            raise ProtocolError("it does not introduce itself") from error

    async def read_request(self) -> dict[str, Any]:
        """Read a request, for which the client may take any time to begin."""
        length = await self._reader.readexactly(wire.LENGTH.size)
        async with _request_time():
            return await self._read_body(length, wire.REQUEST_BYTES_MAX)

    async def read_attached(self, size: int) -> bytes:
        """Read the bytes that follow a request."""
        async with _request_time():
            return await self._reader.readexactly(size)

    def write(self, data: bytes) -> None:
        """Send it together with what follows."""
        self._writer.write(data)

    async def send(self, data: bytes) -> None:
        """Send it, and wait until there is room for more."""
        self._writer.write(data)
        async with asyncio.timeout(STALL_S):
            await self._writer.drain()

    async def send_file(self, file: LogFile, position: int, length: int) -> None:
        """Send a part of a file, without copying it into this process unless it is encrypted."""
        loop = asyncio.get_running_loop()
        while length:
            if self._writer.is_closing():
                raise ConnectionResetError  # sendfile would report that as our mistake
            if self._is_encrypted:
                part = min(length, ENCRYPTED_BYTES)
                data = os.pread(file.fileno(), part, position)
                sent = len(data)
                await self.send(data)
            else:
                part = min(length, SEND_BUFFER_BYTES)
                async with asyncio.timeout(STALL_S):
                    sent = await loop.sendfile(self._writer.transport, file, position, part)
            if sent < part:
                raise OSError(f"{file.name} ends at byte {position + sent:,}: it was cut")
            position += part
            length -= part

    async def say_farewell(self) -> None:
        """Let the last word arrive: the kernel takes it back if bytes of the client were not
        read.
        """
        with suppress(OSError):  # TimeoutError is one
            async with asyncio.timeout(FAREWELL_S):
                self._writer.transport.set_write_buffer_limits(0)
                await self._writer.drain()
                self._writer.write_eof()
                while await self._reader.read(SEND_BUFFER_BYTES):
                    pass

    async def _read_body(self, length: bytes, bytes_max: int) -> dict[str, Any]:
        (size,) = wire.LENGTH.unpack(length)
        if size > bytes_max:
            raise ProtocolError(f"a request of {size:,} bytes; at most {bytes_max:,} are taken")
        return wire.decode(await self._reader.readexactly(size))


@asynccontextmanager
async def _request_time() -> AsyncIterator[None]:
    """Limit the time of a client for the rest of its request."""
    try:
        async with asyncio.timeout(REQUEST_S):
            yield
    except TimeoutError as error:
        raise ProtocolError("it fell silent within a request") from error
