"""A connection to one bridge, and the pool that keeps one for the next task.

A connection is *idle* when nothing of a reply is outstanding. Only an idle one goes back into the
pool: a stream that was not drained (a LIMIT, a killed task), a timeout or any other failure closes
it. A pooled one may have died of age meanwhile; that is looked at before it is used again.
"""

from __future__ import annotations

import json
import os
import socket
import ssl
import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import pyarrow as pa

from .errors import CorruptBlockError, ProtocolError, RefusedError, UnreachableError
from .process_pool import process_wide
from .protocol import (
    BLOCKS,
    BROKEN,
    CHUNK_BYTES,
    CHUNK_FORMAT,
    END,
    HEADER_BYTES,
    LENGTH_FORMAT,
    MAGIC,
    REPLY_BYTES_MAX,
    VERSION,
    Block,
    decode_rows,
    parse_block,
)
from .tls import Trust, encrypt

#: The most that is received at once: a chunk may be a whole segment of the log, and the first rows
#: must not wait for the last ones.
WINDOW_BYTES = 2 << 20
#: The time limit of one try to connect; a host that does not answer must not use up the whole
#: timeout.
CONNECT_TRY_S = 5.0
PAUSE_MIN_S, PAUSE_MAX_S = 0.05, 1.0


class Connection:
    """A connection that was welcomed. Used by one thread at a time.

    Methods raise OSError when the connection broke or nothing came for `timeout_s`, RefusedError
    when the bridge refused, and ProtocolError when its bytes make no sense. With `trust` it speaks
    TLS, and raises TlsError if the bridge does not, or is not to be trusted.
    """

    def __init__(
        self, address: str, token: str | None, timeout_s: float, trust: Trust | None = None
    ) -> None:
        self.address = address
        self.idle = False
        self._timeout_s = timeout_s
        host, _, port = address.rpartition(":")
        host = host.removeprefix("[").removesuffix("]")  # around an IPv6 address
        self._socket = socket.create_connection(
            (host, int(port)), timeout=min(timeout_s, CONNECT_TRY_S)
        )
        try:
            if trust is not None:
                self._socket = encrypt(self._socket, address, host, trust)
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._socket.settimeout(timeout_s)
            welcome = self._greet(token)
        except BaseException:
            self._socket.close()
            raise
        #: The log that the bridge serves, and its number of partitions.
        self.log_id = str(welcome.get("log"))
        self.partitions = int(welcome.get("partitions", 0))

    def close(self) -> None:
        self.idle = False
        self._socket.close()

    def fileno(self) -> int:
        return self._socket.fileno()

    def is_alive(self) -> bool:
        """Return whether an idle connection can be used: the bridge neither closed it nor sent
        anything.
        """
        try:
            self._socket.setblocking(False)
            self._socket.recv(1)
        except (BlockingIOError, ssl.SSLWantReadError):
            self._socket.settimeout(self._timeout_s)
            return True
        except OSError:
            pass
        return False

    def request(
        self, body: dict[str, Any], wait_s: float = 0.0, attached: bytes = b""
    ) -> dict[str, Any]:
        """Send a request and return the reply, which may take `wait_s` longer than usual."""
        self.send(body, attached)
        return self.receive(wait_s)

    def send(self, body: dict[str, Any], attached: bytes = b"") -> None:
        """Send a request, and the bytes that follow it; fetch the reply with `receive`."""
        self.idle = False
        self._socket.sendall(_encode(body))
        if attached:
            self._socket.sendall(attached)

    def receive(self, wait_s: float = 0.0) -> dict[str, Any]:
        """Return the reply to what was sent."""
        self._socket.settimeout(self._timeout_s + wait_s)
        (length,) = struct.unpack(LENGTH_FORMAT, self._receive_exactly(4))
        if length > REPLY_BYTES_MAX:
            raise _no_bridge(self.address)
        reply = self._receive_json(length)
        self.idle = reply.get("error") != "bad_token"  # after which the bridge closes it
        if reply.get("ok") is not True:
            raise RefusedError(self.address, reply)
        return reply

    def read(
        self, partition: int, start: int, end: int, topics: tuple[str, ...], gaps: bool
    ) -> Iterator[tuple[Block, pa.RecordBatch]]:
        """Yield the rows of a range that match, block by block; idle again when all were taken."""
        place = {"partition": partition, "start": start, "end": end}
        self.request({"op": "read", **place, "topics": list(topics), "gaps": gaps})
        self.idle = False
        rows = 0
        while True:
            kind, length = struct.unpack(CHUNK_FORMAT, self._receive_exactly(CHUNK_BYTES))
            if kind == BLOCKS:
                for block, batch in self._receive_blocks(length):
                    rows += batch.num_rows
                    yield block, batch
                continue
            if kind not in (END, BROKEN) or length > REPLY_BYTES_MAX:
                raise ProtocolError(f"the bridge at {self.address} sent a chunk of kind {kind!r}")
            reply = self._receive_json(length)
            if kind == BROKEN:
                raise RefusedError(self.address, reply)
            if reply.get("rows") != rows:
                raise ProtocolError(
                    f"the bridge at {self.address} announced {reply.get('rows')} rows, sent {rows}"
                )
            self.idle = True
            return

    def _greet(self, token: str | None) -> dict[str, Any]:
        client = f"spark source, process {os.getpid()} on {socket.gethostname()}"
        hello = {"op": "hello", "version": VERSION, "client": client}
        if token is not None:
            hello["token"] = token
        self._socket.sendall(MAGIC + _encode(hello))
        return self.receive()

    def _receive_blocks(self, remaining: int) -> Iterator[tuple[Block, pa.RecordBatch]]:
        """Yield the blocks of one chunk. Each window has separate memory: batches may point
        into it.
        """
        rest = memoryview(b"")
        need = HEADER_BYTES
        while remaining or rest:
            missing = min(max(WINDOW_BYTES, need) - len(rest), remaining)
            if len(rest) + missing < need:
                raise ProtocolError(f"the bridge at {self.address} cut a block short")
            buffer = pa.allocate_buffer(len(rest) + missing)
            view = memoryview(buffer).cast("B")
            view[: len(rest)] = rest
            self._receive_into(view[len(rest) :])
            remaining -= missing
            position, need = 0, HEADER_BYTES
            while len(view) - position >= HEADER_BYTES:
                block = parse_block(view[position:])
                if len(view) - position < block.size_bytes:
                    need = block.size_bytes
                    break
                yield block, decode_rows(buffer.slice(position, block.size_bytes), block)
                position += block.size_bytes
            rest = view[position:]

    def _receive_json(self, length: int) -> dict[str, Any]:
        try:
            reply = json.loads(self._receive_exactly(length))
        except (ValueError, RecursionError):
            reply = None
        if type(reply) is not dict:
            raise _no_bridge(self.address)
        return reply

    def _receive_exactly(self, length: int) -> bytearray:
        data = bytearray(length)
        self._receive_into(memoryview(data))
        return data

    def _receive_into(self, view: memoryview) -> None:
        while view:
            count = self._socket.recv_into(view)
            if not count:
                raise ConnectionResetError(f"the bridge at {self.address} closed the connection")
            view = view[count:]


class Endpoint(NamedTuple):
    """Where a bridge listens, and what it takes to talk to it."""

    address: str
    token: str | None
    timeout_s: float
    trust: Trust | None = None  # None: without TLS

    @contextmanager
    def borrow(self) -> Iterator[Connection]:
        """Borrow the pooled connection of this process, or a new one; it is kept if it ends up
        idle.

        One try: raises as Connection does.
        """
        pool = process_wide("connections")
        # What a fork inherited is the parent's.
        key = (os.getpid(), self.address, self.token, self.trust)
        connection = pool.pop(key, None)
        if connection is not None and not connection.is_alive():
            connection.close()
            connection = None
        if connection is None:
            connection = Connection(*self)
        try:
            yield connection
        finally:
            if not connection.idle or pool.setdefault(key, connection) is not connection:
                connection.close()

    def tell(
        self,
        body: dict[str, Any],
        log_id: str | None = None,
        wait_s: float = 0.0,
        attached: bytes = b"",
    ) -> dict[str, Any]:
        """Return the reply to one request, tried once. Raises as Connection does, and
        ProtocolError if the bridge has another log than `log_id`.
        """
        with self.borrow() as connection:
            if log_id not in (None, connection.log_id):
                raise ProtocolError(f"the log of the bridge at {self.address} was just replaced")
            return connection.request(body, wait_s, attached)

    def ask(self, body: dict[str, Any], *args: Any) -> dict[str, Any]:
        """Return the reply to a request that may be repeated, tried for `timeout_s`; takes the
        arguments of `tell`.

        Raises UnreachableError, RefusedError, ProtocolError.
        """
        patience = Patience(self)
        while True:
            try:
                return self.tell(body, *args)
            except (OSError, RefusedError) as error:
                time.sleep(patience.failed(error))


class Patience:
    """Limits how long failures are endured: until the timeout after the first one in a row."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self.succeeded()

    def succeeded(self) -> None:
        self._failing_since: float | None = None
        self._pause_s = PAUSE_MIN_S

    def failed(self, error: Exception) -> float:
        """Note a failure, and return the seconds to pause before the next try.

        Raises the error if a later try cannot succeed, and UnreachableError, or CorruptBlockError,
        if the time is over.
        """
        is_corrupt = isinstance(error, CorruptBlockError)
        if not is_corrupt and not _is_passing(error):
            raise error
        now = time.monotonic()
        if self._failing_since is None:
            self._failing_since = now
        address, _, timeout_s, _ = self._endpoint
        left_s = self._failing_since + timeout_s - now
        if left_s <= 0:
            if is_corrupt:
                raise error
            raise UnreachableError(
                f"no bridge at {address} for {timeout_s:g} s ({error}): start it with `jsonbus "
                f"bridge --listen {address}`, or correct the option `bridge`, or raise "
                "`connectTimeoutMs`"
            ) from error
        pause_s = min(self._pause_s, left_s)
        self._pause_s = min(2 * self._pause_s, PAUSE_MAX_S)
        return pause_s


def _is_passing(error: BaseException) -> bool:
    """Return whether a later try may succeed: the bridge is down, starting, or busy."""
    if isinstance(error, RefusedError):
        return error.code == "busy"
    return isinstance(error, OSError) and not isinstance(error, UnreachableError)


def _encode(body: dict[str, Any]) -> bytes:
    text = json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode()
    return struct.pack(LENGTH_FORMAT, len(text)) + text


def _no_bridge(address: str) -> ProtocolError:
    return ProtocolError(f"what answers at {address} is no jsonbus bridge")
