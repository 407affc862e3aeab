"""Answers each request of wire.py.

fields.py checks what they say. All of it runs in the server's event loop, except for what is handed
to a worker thread.
"""

from __future__ import annotations

import asyncio
import functools
import itertools
import logging
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from time import monotonic
from typing import Any, TypeVar

import jsonbus

from . import wire
from .errors import (
    BridgeError,
    BusyError,
    LogFullError,
    OffsetOutOfRangeError,
    RequestError,
    StoreFullError,
    TooLargeError,
)
from .fields import INTEGER_MAX, WAIT_MS_MAX, Request
from .groups import Groups
from .log.block import parse_header
from .log.offset_log import OffsetLog
from .log.range_reader import FileRun, Piece
from .sink.sink import Sink
from .sink.store import Part
from .streams import ClientStream

logger = logging.getLogger("jsonbus.bridge")

T = TypeVar("T")

#: Threads that read the log, and threads that stage and publish, which may take long.
READERS = 4
PUBLISHERS = 4

#: The first that fits counts.
_CODES: dict[type[BridgeError], str] = {
    LogFullError: "disk_full",
    StoreFullError: "disk_full",
    BusyError: "busy",
    TooLargeError: "too_large",
    RequestError: "bad_request",
}


class StreamBrokenError(Exception):
    """The answer to `read` ended early, and the client was told so; the connection ends, too."""


class Requests:
    """Answers requests. Used only by the server's event loop, apart from its construction."""

    def __init__(
        self,
        log: OffsetLog,
        sink: Sink,
        groups: Groups,
        *,
        name: str,
        stats: Callable[[], dict[str, Any]],
    ) -> None:
        self._log = log
        self._sink = sink
        self._groups = groups
        self._name = name
        self._readers = ThreadPoolExecutor(READERS, "jsonbus-bridge-reader")
        self._publishers = ThreadPoolExecutor(PUBLISHERS, "jsonbus-bridge-publisher")
        self._stats = stats
        self._grown = asyncio.Event()  # replaced each time the log grows
        self._answers = {
            "poll": self._poll,
            "find": self._find,
            "limit": self._limit,
            "commit": self._commit,
            "note": self._note,
            "stage": self._stage,
            "publish": self._publish,
            "discard": self._discard,
            "stats": self._tell_stats,
        }

    def close(self) -> None:
        """End the threads, once they have done what they were given."""
        self._readers.shutdown()
        self._publishers.shutdown()

    def welcome(self) -> dict[str, Any]:
        """Return the answer to `hello`."""
        return {
            "ok": True,
            "version": wire.VERSION,
            "bridge": self._name,
            "log": self._log.id,
            "partitions": self._log.partitions,
            "software": jsonbus.__version__,
        }

    def wake(self) -> None:
        """Wake those who wait for new rows: the log has grown."""
        self._grown.set()
        self._grown = asyncio.Event()

    async def answer(self, request: dict[str, Any], attached: bytes) -> dict[str, Any]:
        """Return the answer to any request but `hello` and `read`; raise what `refuse` accepts."""
        operation = request.get("op")
        answer = self._answers.get(operation) if isinstance(operation, str) else None
        if answer is None:
            raise RequestError(f"there is no request {operation!r:.50}")
        return await answer(Request(request), attached)

    async def begin_read(self, request: dict[str, Any]) -> Iterator[Piece]:
        """Return what `send` needs, if `read` can be granted."""
        pieces = await self._in_reader(self._find_pieces, Request(request))
        first = await self._in_reader(next, pieces, None)
        return pieces if first is None else itertools.chain((first,), pieces)

    async def send(self, pieces: Iterator[Piece], client: ClientStream) -> None:
        """Send what was asked for, after the reply. Raises StreamBrokenError and OSError."""
        rows = 0
        while True:
            try:
                piece = await self._in_reader(next, pieces, None)
            except Exception as error:
                # The client expects more: report the error within the stream.
                client.write(_encode_chunk(wire.BROKEN, self.refuse(error)))
                raise StreamBrokenError from error
            if piece is None:
                break
            rows += await self._send_piece(piece, client)
        await client.send(_encode_chunk(wire.END, {"rows": rows}))

    def refuse(self, error: BaseException) -> dict[str, Any]:
        """Return the refusal for an error."""
        if isinstance(error, OffsetOutOfRangeError):
            return wire.refusal("out_of_range", str(error), **vars(error))  # its facts
        for kind, code in _CODES.items():
            if isinstance(error, kind):
                return wire.refusal(code, str(error))
        if isinstance(error, BridgeError | OSError):
            logger.error("a request failed: %s", error)
        else:
            logger.error("a request failed: this is a bug", exc_info=error)
        return wire.refusal("failed", str(error) or type(error).__name__)

    def _find_pieces(self, request: Request) -> Iterator[Piece]:
        partition = request.integer("partition")
        if partition >= self._log.partitions:
            raise RequestError(f"there is no partition {partition}")
        start, end = request.integer("start"), request.integer("end")
        if start > end:
            raise RequestError(f"start is {start:,}, behind end, which is {end:,}")
        wants, gaps = request.topic_filter(), request.flag("gaps")
        return self._log.read(partition, start, end, wants=wants, gaps=gaps)

    async def _send_piece(self, piece: Piece, client: ClientStream) -> int:
        if isinstance(piece, FileRun):
            client.write(wire.encode_chunk(wire.BLOCKS, piece.length))
            await client.send_file(piece.file, piece.position, piece.length)
            return piece.rows
        header = parse_header(piece)
        assert header is not None
        await client.send(wire.encode_chunk(wire.BLOCKS, len(piece)) + piece)
        return header.rows

    async def _poll(self, request: Request, attached: bytes) -> dict[str, Any]:
        known, wait_ms = request.known(), request.integer("wait_ms", high=WAIT_MS_MAX, default=0)
        with suppress(TimeoutError):
            async with asyncio.timeout(wait_ms / 1000):
                while True:
                    # Taken before checking, so that nothing appended meanwhile is missed.
                    grown = self._grown
                    if self._log.end() != known or not wait_ms:
                        break
                    await grown.wait()
        return {"first": self._log.first(), "end": self._log.end()}

    async def _find(self, request: Request, attached: bytes) -> dict[str, Any]:
        time_us = request.integer("time_us", low=-INTEGER_MAX)
        return {"offsets": await self._in_reader(self._log.find, time_us)}

    async def _limit(self, request: Request, attached: bytes) -> dict[str, Any]:
        partitions = self._log.partitions
        start, end = request.offsets("start", partitions), request.offsets("end", partitions)
        bytes_max = request.integer("max_bytes")
        return {"offsets": await self._in_reader(self._log.limit, start, end, bytes_max)}

    async def _commit(self, request: Request, attached: bytes) -> dict[str, Any]:
        offsets = request.offsets("offsets", self._log.partitions)
        self._groups.commit(request.name("group"), offsets, monotonic())
        return {}

    async def _note(self, request: Request, attached: bytes) -> dict[str, Any]:
        self._groups.note_misfits(request.name("group"), request.integer("misfits"))
        return {}

    async def _stage(self, request: Request, attached: bytes) -> dict[str, Any]:
        part = Part(
            request.name("query"),
            request.integer("batch"),
            request.integer("partition"),
            request.integer("attempt"),
            request.integer("part", default=0),
            request.name("run", default=""),
        )
        stage = functools.partial(self._sink.stage, skip_bad=request.flag("skip_bad"))
        return {"rows": await self._in_publisher(stage, part, attached)}

    async def _publish(self, request: Request, attached: bytes) -> dict[str, Any]:
        query, batch, attempts = request.name("query"), request.integer("batch"), request.attempts()
        published, repeated = await self._in_publisher(self._sink.publish, query, batch, attempts)
        return {"published": published, "repeated": repeated}

    async def _discard(self, request: Request, attached: bytes) -> dict[str, Any]:
        query, batch = request.name("query"), request.integer("batch")
        await self._in_publisher(self._sink.discard, query, batch)
        return {}

    async def _tell_stats(self, request: Request, attached: bytes) -> dict[str, Any]:
        return await self._in_reader(self._stats)

    async def _in_reader(self, work: Callable[..., T], *args: Any) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._readers, work, *args)

    async def _in_publisher(self, work: Callable[..., T], *args: Any) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._publishers, work, *args)


def _encode_chunk(kind: bytes, body: dict[str, Any]) -> bytes:
    text = wire.encode(body)[wire.LENGTH.size :]
    return wire.encode_chunk(kind, len(text)) + text
