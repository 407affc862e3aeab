"""TlsConnection: one connection, between the transport of its socket and the protocol of its port.

To the transport below it is the protocol, to the protocol above it is the transport. It keeps
nothing: what arrives is decrypted at once unless the protocol has paused; what is written is
encrypted at once and handed down. So pausing, limits and sizes of buffers are those of the
transport below, exactly as without TLS.

    shaking hands --> open --write_eof()--> half closed --its end--> closed
          |             |
          |             +-- close(), or the client's end --> closed
          +-- late, failed, or no TLS at all --> closed

The end of each direction is said (close_notify), so a cut is told from an end: when the socket ends
without it, the protocol's connection is lost by CutError. Whole commands and requests that came
before are still carried out, as after any lost connection. Many clients (Python's, MicroPython's)
never say their end; for them a cut is the normal end, so it is neither logged nor counted.
"""

from __future__ import annotations

import asyncio
import ssl
from contextlib import suppress
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from .port import TlsPort

#: The first byte of a client's first record. No HTTP request, command or magic begins with it.
_HANDSHAKE_RECORD = 0x16

#: What is encrypted before it is handed down. OpenSSL never gives back the memory for it.
_OUTGOING_BYTES = 65_536


class CutError(ConnectionResetError):
    """The connection ended without the other side having said so."""


class TlsConnection(asyncio.BufferedProtocol, asyncio.Transport):
    """See the head of this file."""

    def __init__(self, port: TlsPort, protocol: asyncio.BaseProtocol) -> None:
        super().__init__()
        self._port = port
        self._protocol = protocol
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = port.context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        self._below: asyncio.Transport
        self._has_received = False
        self._is_open = False  # the protocol has been told of the connection
        self._is_reading = True
        self._has_input_ended = False
        self._has_output_ended = False
        self._error: Exception | None = None

    @property
    def peer(self) -> str:
        """The client's address, for logs."""
        name = self._below.get_extra_info("peername")
        return f"{name[0]}:{name[1]}" if name else "unknown"

    def give_up(self) -> None:
        """End an unfinished handshake. A client that is silent may be one that does not speak TLS,
        and waits for our greeting.
        """
        if self._has_received:
            self.abort()
        else:
            self._below.write(self._port.plain_answer)
            self._below.close()
        self._port.end(self)

    # ---- The protocol of the transport below

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._below = cast(asyncio.Transport, transport)
        self._port.begin(self)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._port.receive_buffer

    def buffer_updated(self, nbytes: int) -> None:
        if self._has_input_ended or self._has_output_ended or self._below.is_closing():
            return  # nothing more is expected
        data = self._port.receive_buffer[:nbytes]
        if not self._has_received:
            self._has_received = True
            if data[0] != _HANDSHAKE_RECORD:
                self._refuse_plain()
                return
        self._incoming.write(data)
        if not self._is_open:
            self._shake_hands()
        if self._is_open:
            self._read()

    def eof_received(self) -> bool:
        """Called when the socket has ended; returns True if it shall stay open for our part."""
        if not self._is_open:
            if self._port.end(self) and self._has_received:
                self._port.count_failed(self.peer, "it hung up in the handshake")
            return False
        if self._has_input_ended:
            return not self._has_output_ended
        if self._has_output_ended:
            self._take_end()
        else:
            self._fail(CutError("the connection was cut"))
        return False

    def pause_writing(self) -> None:
        if self._is_open:
            self._protocol.pause_writing()

    def resume_writing(self) -> None:
        if self._is_open:
            self._protocol.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        self._port.end(self)
        if self._is_open:
            self._protocol.connection_lost(self._error or exc)

    # ---- The transport of the protocol above

    def write(self, data: bytes | bytearray | memoryview[Any]) -> None:
        if self._has_output_ended or self._below.is_closing():
            return
        rest = memoryview(data)
        try:
            while rest:
                rest = rest[self._tls.write(rest) :]  # a record
                if self._outgoing.pending >= _OUTGOING_BYTES:
                    self._hand_down()
        except ssl.SSLError as error:
            self._fail(error)
        else:
            self._hand_down()

    def write_eof(self) -> None:
        """Say that nothing follows. What the client still sends is dropped."""
        self._say_end()
        self._below.write_eof()

    def can_write_eof(self) -> bool:
        return True

    def close(self) -> None:
        self._say_end()
        self._below.close()

    def abort(self) -> None:
        self._below.abort()

    def is_closing(self) -> bool:
        return self._below.is_closing()

    def pause_reading(self) -> None:
        self._is_reading = False
        self._below.pause_reading()

    def resume_reading(self) -> None:
        self._is_reading = True
        self._below.resume_reading()
        if self._incoming.pending or self._tls.pending():
            asyncio.get_running_loop().call_soon(self._read)

    def is_reading(self) -> bool:
        return self._is_reading and self._below.is_reading()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._below.set_write_buffer_limits(high, low)

    def get_write_buffer_limits(self) -> tuple[int, int]:
        return self._below.get_write_buffer_limits()

    def get_write_buffer_size(self) -> int:
        return self._below.get_write_buffer_size()

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._protocol = protocol

    def get_protocol(self) -> asyncio.BaseProtocol:
        return self._protocol

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        if name == "sslcontext":
            return self._tls.context
        if name == "ssl_object":
            return self._tls
        return self._below.get_extra_info(name, default)

    # ---- Inside

    def _shake_hands(self) -> None:
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            self._hand_down()
        except ssl.SSLError as error:
            self._hand_down()  # the reason, as an alert
            if self._port.end(self):
                reason = str(error.reason or error).lower().replace("_", " ")
                self._port.count_failed(self.peer, reason)
            self._below.close()
        else:
            self._hand_down()
            self._port.end(self)
            self._port.count_done()
            self._is_open = True
            self._protocol.connection_made(self)

    def _refuse_plain(self) -> None:
        self._port.end(self)
        self._port.count_plain(self.peer)
        self._below.write(self._port.plain_answer)
        self._below.close()

    def _read(self) -> None:
        """Give the protocol what has arrived, until it pauses or ends."""
        while self._is_reading and not self._has_output_ended and not self._below.is_closing():
            protocol = self._protocol  # it may give the connection to another one
            if isinstance(protocol, asyncio.BufferedProtocol):
                count = self._decrypt(cast(memoryview, protocol.get_buffer(-1)))
                if not count:
                    return
                protocol.buffer_updated(count)
            else:
                buffer = self._port.receive_buffer
                count = self._decrypt(buffer)
                if not count:
                    return
                cast(asyncio.Protocol, protocol).data_received(bytes(buffer[:count]))

    def _decrypt(self, buffer: memoryview) -> int:
        """Put the content of one record into the buffer, and return how many bytes that are.

        0: none has arrived completely, or none will come any more, and that was dealt with.
        """
        try:
            # With a buffer, it returns a number, which its types do not know.
            count = cast(int, self._tls.read(len(buffer), cast(bytearray, buffer)))
        except ssl.SSLWantReadError:
            self._hand_down()  # an answer to new keys, perhaps
            return 0
        except ssl.SSLZeroReturnError:
            count = 0
        except ssl.SSLError as error:  # forged or broken
            self._hand_down()
            self._fail(error)
            return 0
        if not count:
            self._take_end()
        return count

    def _take_end(self) -> None:
        if self._has_input_ended:
            return
        self._has_input_ended = True
        keeps_open = cast(asyncio.Protocol, self._protocol).eof_received()
        if not keeps_open:
            self.close()

    def _say_end(self) -> None:
        if self._has_output_ended:
            return
        self._has_output_ended = True
        if self._is_open and not self._below.is_closing():
            with suppress(ssl.SSLError):  # it would like to wait for the other side's end
                self._tls.unwrap()
            self._hand_down()

    def _fail(self, error: Exception) -> None:
        self._error = error
        self._below.abort()

    def _hand_down(self) -> None:
        data = self._outgoing.read()
        if data:
            self._below.write(data)
