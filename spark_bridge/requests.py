"""What the bridge answers to each request of wire.py.

Requests are checked here, field by field: whoever has the token may still be wrong. All of it runs
in the server's event loop, except for what is handed to a worker thread.
"""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import Callable, Iterator
from concurrent.futures import Executor
from time import time
from typing import Any, Protocol, TypeVar

import jsonbus
from jsonbus.errors import InvalidTopicError

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
from .groups import Groups
from .log.block import parse_header
from .log.offset_log import OffsetLog
from .log.pieces import FileRun, Piece
from .sink.sink import Sink

logger = logging.getLogger("jsonbus.bridge")

T = TypeVar("T")

#: A client may wait this long for new rows in one request.
WAIT_MS_MAX = 60_000

#: Of the names that clients give: groups, queries.
NAME_CHARACTERS_MAX = 200


#: The first that fits counts.
_CODES: dict[type[BridgeError], str] = {
    LogFullError: "disk_full",
    StoreFullError: "disk_full",
    BusyError: "busy",
    TooLargeError: "too_large",
    RequestError: "bad_request",
}


class Sending(Protocol):
    """Where the answer to `read` goes."""

    def write(self, data: bytes) -> None: ...

    async def flush(self) -> None: ...

    async def send_file(self, file: Any, position: int, length: int) -> None: ...


class Requests:
    """Answers requests. Used by the server's event loop alone, but for its making."""

    def __init__(
        self,
        log: OffsetLog,
        sink: Sink,
        groups: Groups,
        *,
        name: str,
        readers: Executor,
        publishers: Executor,
        stats: Callable[[], dict[str, Any]],
    ) -> None:
        self._log = log
        self._sink = sink
        self._groups = groups
        self._name = name
        self._readers = readers
        self._publishers = publishers
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

    def welcome(self) -> dict[str, Any]:
        """The answer to `hello`."""
        return {
            "ok": True,
            "version": wire.VERSION,
            "bridge": self._name,
            "log": self._log.id,
            "partitions": self._log.partitions,
            "software": jsonbus.__version__,
        }

    def wake(self) -> None:
        """The log has grown."""
        self._grown.set()
        self._grown = asyncio.Event()

    async def answer(self, request: dict[str, Any], attached: bytes) -> dict[str, Any]:
        """The answer to any request but `hello` and `read`; raises BridgeError."""
        operation = request.get("op")
        answer = self._answers.get(operation) if isinstance(operation, str) else None
        if answer is None:
            raise RequestError(f"there is no request {operation!r:.50}")
        return await answer(request, attached)

    async def read(self, request: dict[str, Any], sending: Sending) -> None:
        """Answer `read`. Raises BridgeError as long as nothing was sent; later it sends that."""
        pieces = await self._in_reader(self._begin_read, request)
        first = await self._in_reader(next, pieces, None)
        sending.write(wire.encode({"ok": True}))
        rows = 0
        try:
            piece = first
            while piece is not None:
                rows += await self._send_piece(piece, sending)
                piece = await self._in_reader(next, pieces, None)
        except (BridgeError, OSError) as error:
            if isinstance(error, ConnectionError | TimeoutError):
                raise
            # The client counts on more: tell it within the stream, and end the connection.
            text = wire.encode(self.refuse(error))[wire.LENGTH.size :]
            sending.write(wire.encode_chunk(wire.BROKEN, len(text)) + text)
            await sending.flush()
            raise ConnectionAbortedError from error
        text = wire.encode({"rows": rows})[wire.LENGTH.size :]
        sending.write(wire.encode_chunk(wire.END, len(text)) + text)
        await sending.flush()

    def refuse(self, error: BaseException) -> dict[str, Any]:
        """The refusal for an error."""
        if isinstance(error, OffsetOutOfRangeError):
            facts = {"partition": error.partition, "offset": error.offset}
            range_ = {"first": error.first, "end": error.end}
            return wire.refusal("out_of_range", str(error), **facts, **range_)
        for kind, code in _CODES.items():
            if isinstance(error, kind):
                return wire.refusal(code, str(error))
        logger.error("a request failed: %s", error)
        return wire.refusal("failed", str(error) or type(error).__name__)

    def _begin_read(self, request: dict[str, Any]) -> Iterator[Piece]:
        partition = _integer(request, "partition")
        if partition >= self._log.partitions:
            raise RequestError(f"there is no partition {partition}")
        start, end = _integer(request, "start"), _integer(request, "end")
        return self._log.read(
            partition,
            start,
            end,
            wants=_make_filter(request.get("topics")),
            gaps=request.get("gaps") is True,
        )

    async def _send_piece(self, piece: Piece, sending: Sending) -> int:
        if isinstance(piece, FileRun):
            sending.write(wire.encode_chunk(wire.BLOCKS, piece.length))
            await sending.send_file(piece.file, piece.position, piece.length)
            return piece.rows
        header = parse_header(piece)
        assert header is not None
        sending.write(wire.encode_chunk(wire.BLOCKS, len(piece)) + piece)
        await sending.flush()
        return header.rows

    async def _poll(self, request: dict[str, Any], attached: bytes) -> dict[str, Any]:
        known, wait_ms = request.get("known"), request.get("wait_ms", 0)
        if type(wait_ms) is not int or not 0 <= wait_ms <= WAIT_MS_MAX:
            raise RequestError(f"wait_ms must be 0 to {WAIT_MS_MAX:,}, not {wait_ms!r:.50}")
        grown = self._grown
        end = self._log.end()
        if known == end and wait_ms:
            try:
                async with asyncio.timeout(wait_ms / 1000):
                    await grown.wait()
            except TimeoutError:
                pass
            end = self._log.end()
        return {"first": self._log.first(), "end": end}

    async def _find(self, request: dict[str, Any], attached: bytes) -> dict[str, Any]:
        time_us = request.get("time_us")
        if type(time_us) is not int or abs(time_us) >= 1 << 63:
            raise RequestError("time_us must be an integer: microseconds since 1970")
        return {"offsets": await self._in_reader(self._log.find, time_us)}

    async def _limit(self, request: dict[str, Any], attached: bytes) -> dict[str, Any]:
        start, end = self._offsets(request, "start"), self._offsets(request, "end")
        bytes_max = _integer(request, "max_bytes")
        return {"offsets": await self._in_reader(self._log.limit, start, end, bytes_max)}

    async def _commit(self, request: dict[str, Any], attached: bytes) -> dict[str, Any]:
        self._groups.commit(_name(request, "group"), self._offsets(request, "offsets"), time())
        return {}

    async def _note(self, request: dict[str, Any], attached: bytes) -> dict[str, Any]:
        self._groups.note_misfits(_name(request, "group"), _integer(request, "misfits"))
        return {}

    async def _stage(self, request: dict[str, Any], attached: bytes) -> dict[str, Any]:
        stage = functools.partial(
            self._sink.stage,
            _name(request, "query"),
            _integer(request, "batch"),
            _integer(request, "partition"),
            _integer(request, "attempt"),
            attached,
            part=_integer(request, "part") if "part" in request else 0,
            run=_name(request, "run") if "run" in request else "",
            skip_bad=request.get("skip_bad") is True,
        )
        return {"rows": await self._in_publisher(stage)}

    async def _publish(self, request: dict[str, Any], attached: bytes) -> dict[str, Any]:
        pairs = request.get("partitions")
        if type(pairs) is not list or not all(
            type(pair) is list and len(pair) == 2 and all(type(each) is int for each in pair)
            for pair in pairs
        ):
            raise RequestError("partitions must be a list of pairs: partition, attempt")
        published, repeated = await self._in_publisher(
            self._sink.publish,
            _name(request, "query"),
            _integer(request, "batch"),
            [(partition, attempt) for partition, attempt in pairs],
        )
        return {"published": published, "repeated": repeated}

    async def _discard(self, request: dict[str, Any], attached: bytes) -> dict[str, Any]:
        query, batch = _name(request, "query"), _integer(request, "batch")
        await self._in_publisher(self._sink.discard, query, batch)
        return {}

    async def _tell_stats(self, request: dict[str, Any], attached: bytes) -> dict[str, Any]:
        return await self._in_reader(self._stats)

    def _offsets(self, request: dict[str, Any], key: str) -> list[int]:
        offsets = request.get(key)
        if (
            type(offsets) is not list
            or len(offsets) != self._log.partitions
            or not all(type(each) is int and each >= 0 for each in offsets)
        ):
            raise RequestError(f"{key} must be {self._log.partitions} offsets, one per partition")
        return offsets

    async def _in_reader(self, work: Callable[..., T], *args: Any) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._readers, work, *args)

    async def _in_publisher(self, work: Callable[..., T], *args: Any) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._publishers, work, *args)


def _integer(request: dict[str, Any], key: str) -> int:
    value = request.get(key)
    if type(value) is not int or not 0 <= value < 1 << 63:
        raise RequestError(f"{key} must be an integer, 0 or more, not {value!r:.50}")
    return value


def _name(request: dict[str, Any], key: str) -> str:
    value = request.get(key)
    if not isinstance(value, str) or not 0 < len(value) <= NAME_CHARACTERS_MAX:
        raise RequestError(f"{key} must be text of 1 to {NAME_CHARACTERS_MAX} characters")
    return value


def _make_filter(patterns: Any) -> Callable[[str], bool] | None:
    """Whether a topic is asked for; None if all are."""
    if patterns is None or patterns == ["**"]:
        return None
    if type(patterns) is not list or not patterns:
        raise RequestError("topics must be a list of patterns")
    try:
        for pattern in patterns:
            jsonbus.topic_matches(pattern, "any")
    except InvalidTopicError as error:
        raise RequestError(str(error)) from error
    wanted = functools.partial(_matches_any, tuple(dict.fromkeys(patterns)))
    return functools.lru_cache(10_000)(wanted)


def _matches_any(patterns: tuple[str, ...], topic: str) -> bool:
    return any(jsonbus.topic_matches(pattern, topic) for pattern in patterns)
