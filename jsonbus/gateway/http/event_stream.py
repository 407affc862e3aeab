"""One client of /events: what waits for it, and the loop that sends it. See event_streams.py."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Iterator
from typing import Protocol

from starlette.types import Receive, Send

import jsonbus
from jsonbus.errors import PayloadError

from ..text.backlog import Chunk, LineBacklog, LineBudget, join_spared
from ..values import to_json

logger = logging.getLogger("jsonbus.gateway.events")

_HEARTBEAT = b":\n\n"


class Connection(Protocol):
    """What a stream needs of its connection; a transport of asyncio is one."""

    def abort(self) -> None: ...

    def get_write_buffer_size(self) -> int: ...


class EventStream:
    """The backlog of one client, and the loop that sends it.

    What is on its way to the client counts for `budget` as well: what the connection has not sent,
    as it was when something was last given to it.
    """

    def __init__(
        self,
        connection: Connection | None,
        budget: LineBudget,
        backlog_events_max: int,
        backlog_bytes_max: int,
        heartbeat_s: float,
    ) -> None:
        self.wanted: list[str] = []
        self.sent = 0
        self._connection = connection
        self._budget = budget
        self._events_max = backlog_events_max
        self._bytes_max = backlog_bytes_max
        self._heartbeat_s = heartbeat_s
        self._backlog = LineBacklog(budget)
        self._unsent_bytes = 0  # on their way, as far as the budget counts them
        self._wake = asyncio.Event()
        self._is_ended = False
        self._is_gone = False
        self._is_silent = False  # for so long that a heartbeat is due
        # Topics of what came before the stream began; None from then on.
        self._early: set[str] | None = set()

    @property
    def waiting(self) -> int:
        return self._backlog.lines

    @property
    def unread_bytes(self) -> int:
        """What the client has not read, as far as it is in this process."""
        return self._backlog.bytes + self._unsent_bytes

    def add(self, events: Chunk, topics: Iterable[str]) -> bool:
        """Keep events of those topics to be sent; False if there is no more room."""
        if self._is_gone:
            return True  # it was cut off a moment ago
        if not self._backlog.append(events, self._events_max, self._bytes_max):
            return False
        if self._early is not None:
            self._early.update(topics)
        self._wake.set()
        return True

    def begin(self, retained: Iterable[jsonbus.Message]) -> None:
        """Put the retained values first, but those that a message has replaced already.

        They are bounded by the budget, not by the limits of the backlog: a client that asks for
        them has not had the time to read.
        """
        assert self._early is not None
        early, self._early = self._early, None
        if self._is_gone:
            return
        events = _encode_all(each for each in retained if each.topic not in early)
        self._backlog.prepend(join_spared(events))
        self._wake.set()

    def end(self) -> None:
        """Send what waits, and no more."""
        self._is_ended = True
        self._wake.set()

    def cut_off(self) -> None:
        self.drop()
        if self._connection is not None:
            self._connection.abort()

    def drop(self) -> None:
        """Nothing is sent any more, and nothing kept."""
        self._is_gone = True
        self._backlog.clear()
        self._count_unsent(0)
        self.end()

    async def notice_disconnect(self, receive: Receive) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        self._is_gone = True
        self.end()

    async def send_events(self, send: Send) -> None:
        """Send what comes until the stream has ended."""
        self._loop = asyncio.get_running_loop()
        self._await_silence()
        try:
            while not self._is_gone:
                if self._backlog:
                    count = self._backlog.lines
                    data = self._backlog.take_piece()
                    count -= self._backlog.lines
                    await self._send(send, data)
                    self.sent += count
                elif self._is_ended:
                    break
                elif self._is_silent:
                    await self._send(send, _HEARTBEAT)
                else:
                    self._wake.clear()
                    await self._wake.wait()
        finally:
            self._timer.cancel()

    async def _send(self, send: Send, data: bytes) -> None:
        """Send some data; returns when the connection has room again."""
        self._wrote_at = self._loop.time()
        self._is_silent = False
        self._count_unsent(self._unsent_bytes + len(data))
        await send({"type": "http.response.body", "body": data, "more_body": True})
        if self._connection is not None and not self._is_gone:
            self._count_unsent(self._connection.get_write_buffer_size())

    def _await_silence(self) -> None:
        # One timer that runs on, not one for each wait: a sixth of a profile of 100 busy streams.
        self._wrote_at = self._loop.time()
        self._timer = self._loop.call_later(self._heartbeat_s, self._look)

    def _look(self) -> None:
        left_s = self._wrote_at + self._heartbeat_s - self._loop.time()
        if left_s > 0:
            self._timer = self._loop.call_later(left_s, self._look)
            return
        self._is_silent = True
        self._wake.set()
        self._await_silence()

    def _count_unsent(self, size_bytes: int) -> None:
        self._budget.bytes += size_bytes - self._unsent_bytes
        self._unsent_bytes = size_bytes


def encode_event(message: jsonbus.Message) -> bytes:
    """A message as an event; its JSON has no line breaks, so it takes one line of data."""
    data = to_json(
        {
            "topic": message.topic,
            "message": message.value,
            "node": message.node,
            "retained": message.retained,
        }
    )
    return b"event: message\ndata: " + data + b"\n\n"


def _encode_all(messages: Iterable[jsonbus.Message]) -> Iterator[bytes]:
    for message in messages:
        try:
            yield encode_event(message)
        except PayloadError as error:  # nested deeper than can be written
            logger.debug("! a retained value of %r: %s", message.topic, error)
