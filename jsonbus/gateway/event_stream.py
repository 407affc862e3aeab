"""One client of /events: what waits for it, and the loop that sends it. See event_streams.py."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from typing import NamedTuple

from starlette.types import Receive, Send

import jsonbus

from .values import to_json

#: What is sent in one write, so that a long backlog does not become one long string.
WRITE_BYTES_MAX = 65_536

_HEARTBEAT = b":\n\n"


class Piece(NamedTuple):
    """Whole events as bytes, and how many; one object for all streams that get them."""

    data: bytes
    events: int


class EventStream:
    """The backlog of one client, and the loop that sends it."""

    def __init__(
        self,
        abort: Callable[[], None] | None,
        backlog_events_max: int,
        backlog_bytes_max: int,
        heartbeat_s: float,
    ) -> None:
        self.wanted: list[str] = []
        self.sent = 0
        self.waiting = 0
        self._abort = abort
        self._events_max = backlog_events_max
        self._bytes_max = backlog_bytes_max
        self._heartbeat_s = heartbeat_s
        self._backlog: deque[Piece] = deque()
        self._bytes = 0
        self._wake = asyncio.Event()
        self._is_ended = False
        self._is_gone = False
        self._is_silent = False  # for so long that a heartbeat is due
        # Topics of what came before the stream began; None from then on.
        self._early: set[str] | None = set()

    def add(self, piece: Piece, topics: Iterable[str]) -> bool:
        """Keep events of those topics to be sent; False if there is no more room."""
        if self._is_gone:
            return True  # it was cut off a moment ago
        waiting = self.waiting + piece.events
        size_bytes = self._bytes + len(piece.data)
        if self._backlog and (waiting > self._events_max or size_bytes > self._bytes_max):
            return False
        if self._early is not None:
            self._early.update(topics)
        self._backlog.append(piece)
        self.waiting = waiting
        self._bytes = size_bytes
        self._wake.set()
        return True

    def begin(self, retained: Iterable[jsonbus.Message]) -> None:
        """Put the retained values first, but those that a message has replaced already.

        They are bounded by what a node keeps, not by the backlog: a client that asks for them has
        not had the time to read.
        """
        assert self._early is not None
        events = [encode_event(each) for each in retained if each.topic not in self._early]
        self._early = None
        self._backlog.extendleft(Piece(event, 1) for event in reversed(events))
        self.waiting += len(events)
        self._bytes += sum(map(len, events))
        self._wake.set()

    def end(self) -> None:
        """Send what waits, and no more."""
        self._is_ended = True
        self._wake.set()

    def cut_off(self) -> None:
        self._is_gone = True
        self._backlog.clear()
        self.waiting = self._bytes = 0
        self.end()
        if self._abort is not None:
            self._abort()

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
                    data, count = self._take_some()
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
        self._wrote_at = self._loop.time()
        self._is_silent = False
        await send({"type": "http.response.body", "body": data, "more_body": True})

    def _await_silence(self) -> None:
        # One timer that runs on, not one for each wait: those took a sixth of a busy stream's time.
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

    def _take_some(self) -> Piece:
        piece = self._backlog.popleft()
        if self._backlog:
            pieces, size_bytes = [piece], len(piece.data)
            while self._backlog and size_bytes < WRITE_BYTES_MAX:
                pieces.append(self._backlog.popleft())
                size_bytes += len(pieces[-1].data)
            piece = Piece(b"".join(each.data for each in pieces), sum(e.events for e in pieces))
        self.waiting -= piece.events
        self._bytes -= len(piece.data)
        return piece


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
