"""Server-sent events: `GET /events?pattern=…` as a sink of the hub.

Theory of operation
-------------------
`take`, the sink, writes each message once as the bytes of an event and puts them into the backlog
of every stream that wants it; it never waits. One task per stream sends what is there, all of it
in one write, and waits for the connection while its buffer is full. So a client that does not read
fills its own backlog and nothing else: when that is at its bound, its connection is aborted (a
polite end would wait for the very reader that does not read) and counted. EventSource connects
again by itself, and gets the retained values once more; nothing else is repeated. What waits for
all streams together is bounded, too: the one with the most is cut off then.

A stream is entered into the store before the hub is asked for its patterns, or what comes in
between would be lost. Then a message may come before the retained value that it replaces: such a
value is left out.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Protocol

from starlette.types import Receive, Send

import jsonbus
from jsonbus.errors import ClosedError, PayloadError

from ..rate_limited_log import RateLimitedLog
from ..text.backlog import PIECE_BYTES, Chunk, LineBudget
from .event_stream import Connection, EventStream, encode_event
from .request import Refusal

logger = logging.getLogger("jsonbus.gateway.events")

#: Proxies end a connection that is silent for a minute, some for half of one.
HEARTBEAT_S = 15.0

#: How long EventSource waits before it connects again; browsers would take 3 to 5 s.
RECONNECT_MS = 1_000

STREAMS_MAX = 1_000
PATTERNS_MAX = 100
BACKLOG_EVENTS_MAX = 10_000
BACKLOG_BYTES_MAX = 1 << 20
#: For all streams: what many of them have not read of the same topics counts once, but what is
#: about to be sent, up to 64 KiB or one event, for each.
TOTAL_BACKLOG_BYTES_MAX = 256 << 20
#: What is put into backlogs in one go, at most PIECE_BYTES and an event. More is not cheaper, and
#: a backlog is full sooner.
CHUNK_EVENTS_MAX = 256

_HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),  # nginx would collect events until its buffer is full
    (b"x-content-type-options", b"nosniff"),
]
_GREETING = b"retry: %d\n\n" % RECONNECT_MS


class Source(Protocol):
    """Where messages come from; `Hub` is one."""

    async def want(self, pattern: str) -> list[jsonbus.Message]: ...

    def unwant(self, pattern: str) -> None: ...


class EventStreams:
    """All streams of a gateway. Everything in its event loop."""

    def __init__(
        self,
        hub: Source,
        *,
        streams_max: int = STREAMS_MAX,
        backlog_events_max: int = BACKLOG_EVENTS_MAX,
        backlog_bytes_max: int = BACKLOG_BYTES_MAX,
        total_backlog_bytes_max: int = TOTAL_BACKLOG_BYTES_MAX,
        heartbeat_s: float = HEARTBEAT_S,
    ) -> None:
        self._hub = hub
        self._streams_max = streams_max
        self._backlog_events_max = backlog_events_max
        self._backlog_bytes_max = backlog_bytes_max
        self._heartbeat_s = heartbeat_s
        # A stream without a backlog has room for any chunk.
        self._chunk_events_max = min(CHUNK_EVENTS_MAX, backlog_events_max)
        self._budget = LineBudget(total_backlog_bytes_max)
        self._store: jsonbus.SubscriptionStore[EventStream] = jsonbus.SubscriptionStore()
        self._streams: set[EventStream] = set()
        self._is_closed = False
        self._opened = 0
        self._cut = self._cut_for_all = 0
        self._events = 0
        self._unwritable = 0
        self._cut_warnings = RateLimitedLog(logger)

    def take(self, messages: list[jsonbus.Message]) -> None:
        """The hub's sink: give each message to the streams that want it."""
        subscribers_of = self._store.subscribers_of
        events: list[bytes] = []
        size_bytes = 0
        topics: set[str] = set()
        receivers: tuple[EventStream, ...] = ()  # of `events`
        for message in messages:
            topic = message.topic
            streams = subscribers_of(topic)
            if not streams:
                continue
            # Topics that only patterns match have a tuple each, though with the same streams.
            is_for_others = streams is not receivers and streams != receivers
            if is_for_others or size_bytes >= PIECE_BYTES or len(events) >= self._chunk_events_max:
                self._spread(events, topics, receivers)
                events, size_bytes, topics = [], 0, set()
            receivers = streams
            try:
                event = encode_event(message)
            except PayloadError:  # nested deeper than can be written
                self._unwritable += 1
                continue
            events.append(event)
            size_bytes += len(event)
            topics.add(topic)
        self._spread(events, topics, receivers)

    async def open(self, patterns: Sequence[str], connection: Connection | None) -> EventStream:
        """A new stream of the patterns' messages; `run` it, which also ends it.

        Raises Refusal, InvalidTopicError, ClosedError, and LocalError for too many patterns.
        """
        patterns = _check_patterns(patterns)
        if self._is_closed:
            raise ClosedError("the gateway is closing")
        if len(self._streams) >= self._streams_max:
            raise Refusal(
                503,
                f"try again later: {self._streams_max:,} streams are open, and no more allowed",
                {"retry-after": "5"},
            )
        stream = EventStream(
            connection,
            self._budget,
            self._backlog_events_max,
            self._backlog_bytes_max,
            self._heartbeat_s,
        )
        self._streams.add(stream)
        self._opened += 1
        retained: dict[tuple[str, str], jsonbus.Message] = {}
        try:
            for pattern in patterns:
                self._store.subscribe(pattern, stream)
                for message in await self._hub.want(pattern):
                    retained[message.topic, message.node] = message
                stream.wanted.append(pattern)
            stream.begin(retained.values())
        except BaseException:
            self._end(stream)
            raise
        if self._budget.is_exceeded:
            self._keep_budget()
        return stream

    async def run(self, stream: EventStream, receive: Receive, send: Send) -> None:
        """Send a stream's events until its client goes, is cut off, or all are closed."""
        gone = asyncio.create_task(stream.notice_disconnect(receive), name="jsonbus-events-client")
        try:
            await send({"type": "http.response.start", "status": 200, "headers": _HEADERS})
            await send({"type": "http.response.body", "body": _GREETING, "more_body": True})
            await stream.send_events(send)
        finally:
            self._end(stream)
            gone.cancel()
        await send({"type": "http.response.body"})

    def close(self) -> None:
        """End all streams; their clients get what waits for them, if they read."""
        self._is_closed = True
        for stream in list(self._streams):
            stream.end()

    def stats(self) -> dict[str, int]:
        return {
            "streams": len(self._streams),
            "streams_opened": self._opened,
            "streams_cut": self._cut,
            "streams_cut_for_all": self._cut_for_all,
            "events_sent": self._events + sum(stream.sent for stream in self._streams),
            "events_unwritable": self._unwritable,
            "events_waiting": sum(stream.waiting for stream in self._streams),
            "backlog_bytes": self._budget.bytes,
        }

    def _spread(
        self, events: list[bytes], topics: set[str], receivers: tuple[EventStream, ...]
    ) -> None:
        if not events:
            return
        chunk = Chunk(b"".join(events), len(events))
        for stream in receivers:
            if not stream.add(chunk, topics):
                self._cut_off(stream)
        if self._budget.is_exceeded:
            self._keep_budget()

    def _end(self, stream: EventStream) -> None:
        stream.drop()
        self._streams.remove(stream)
        self._store.remove(stream)
        self._events += stream.sent
        for pattern in stream.wanted:
            self._hub.unwant(pattern)
        stream.wanted.clear()

    def _keep_budget(self) -> None:
        """Cut off those who have the most unread, until the others' events fit."""
        while self._budget.is_exceeded and self._streams:
            furthest = max(self._streams, key=lambda stream: stream.unread_bytes)
            if not furthest.unread_bytes:
                break
            self._cut_for_all += 1
            self._cut_off(furthest)

    def _cut_off(self, stream: EventStream) -> None:
        self._cut += 1
        waiting = stream.waiting
        stream.cut_off()
        self._store.remove(stream)
        self._cut_warnings.warning(
            "an event stream was cut off: its client did not read %d events (%d streams so far)",
            waiting,
            self._cut,
        )


def _check_patterns(patterns: Sequence[str]) -> list[str]:
    """Each pattern once; raises Refusal and InvalidTopicError."""
    found = list(dict.fromkeys(jsonbus.check_pattern(pattern) for pattern in patterns))
    if not found:
        raise Refusal(400, "the parameter pattern is missing: ** stands for everything")
    if len(found) > PATTERNS_MAX:
        raise Refusal(400, f"{len(found):,} patterns are given, at most {PATTERNS_MAX} are allowed")
    return found
