"""One client of /events: what waits for it, and the loop that sends it. See event_streams.py."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable

from starlette.types import Receive, Send

import jsonbus

from .values import to_json

#: What is sent in one write, so that a long backlog does not become one long string.
WRITE_BYTES_MAX = 65_536

_HEARTBEAT = b":\n\n"


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
        self._abort = abort
        self._events_max = backlog_events_max
        self._bytes_max = backlog_bytes_max
        self._heartbeat_s = heartbeat_s
        self._backlog: deque[bytes] = deque()
        self._bytes = 0
        self._wake = asyncio.Event()
        self._is_ended = False
        self._is_gone = False
        # Topics of what came before the stream began; None from then on.
        self._early: set[str] | None = set()

    @property
    def waiting(self) -> int:
        return len(self._backlog)

    def add(self, topic: str, event: bytes) -> bool:
        """Keep an event to be sent; False if there is no more room."""
        if self._bytes + len(event) > self._bytes_max and self._backlog:
            return False
        if len(self._backlog) >= self._events_max:
            return False
        if self._early is not None:
            self._early.add(topic)
        self._backlog.append(event)
        self._bytes += len(event)
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
        self._backlog.extendleft(reversed(events))
        self._bytes += sum(map(len, events))
        self._wake.set()

    def end(self) -> None:
        """Send what waits, and no more."""
        self._is_ended = True
        self._wake.set()

    def cut_off(self) -> None:
        self._is_gone = True
        self._backlog.clear()
        self._bytes = 0
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
        while not self._is_gone:
            if self._backlog:
                count, data = self._take_some()
                await send({"type": "http.response.body", "body": data, "more_body": True})
                self.sent += count
            elif self._is_ended:
                break
            else:
                self._wake.clear()
                try:
                    async with asyncio.timeout(self._heartbeat_s):
                        await self._wake.wait()
                except TimeoutError:
                    await send(
                        {"type": "http.response.body", "body": _HEARTBEAT, "more_body": True}
                    )

    def _take_some(self) -> tuple[int, bytes]:
        events = []
        size_bytes = 0
        while self._backlog and size_bytes < WRITE_BYTES_MAX:
            event = self._backlog.popleft()
            size_bytes += len(event)
            events.append(event)
        self._bytes -= size_bytes
        return len(events), b"".join(events)


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
