"""Server-sent events: `GET /events?pattern=…`, a sink of the hub.

Theory of operation
-------------------
`EventStreams.take`, the sink, encodes each message once as the bytes of an event and appends them
to the backlog of every stream that wants it; it never waits. Each stream has one task, which sends
its backlog in large writes and waits while the connection's buffer is full. So a client that does
not read fills only its own backlog. When that backlog reaches its bound, the connection is aborted
and counted; a polite end would wait for the very client that does not read. EventSource reconnects
by itself and gets the retained values again; nothing else is repeated. The backlogs of all streams
together are bounded, too: when they exceed the budget, the stream with the most unread is cut off.

A stream is entered into the store before the hub is asked for its patterns; otherwise messages in
between would be lost. A message may therefore arrive before the retained value that it replaces:
such a value is left out.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass

from starlette.types import Receive, Send

import jsonbus
from jsonbus.errors import ClosedError

from ..hub import Hub
from ..rate_limited_log import RateLimitedLog
from ..text.backlog import Chunk, FanOut, LineBacklog, LineBudget
from ..values import to_json
from .answers import NO_STORE, Refusal, try_later

logger = logging.getLogger("jsonbus.gateway.events")

#: Proxies close a connection that is silent for a minute, some after half a minute.
HEARTBEAT_S = 15.0

#: How long EventSource waits before it reconnects; the default of browsers is 3 to 5 s.
RECONNECT_MS = 1_000

STREAMS_MAX = 1_000
PATTERNS_MAX = 100
BACKLOG_EVENTS_MAX = 10_000
BACKLOG_BYTES_MAX = 1 << 20
#: For all streams together. An event that many streams have not read counts once; data that is
#: being sent, up to 64 KiB or one event, counts for each stream.
TOTAL_BACKLOG_BYTES_MAX = 256 << 20
#: Events appended at once, at most PIECE_BYTES and one event. Larger chunks are not cheaper.
CHUNK_EVENTS_MAX = 256

_HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"x-accel-buffering", b"no"),  # nginx would collect events until its buffer is full
    *((name.encode(), value.encode()) for name, value in NO_STORE.items()),
]
_HEARTBEAT = b":\n\n"
_GREETING = b"retry: %d\n\n" % RECONNECT_MS


@dataclass(frozen=True, slots=True, kw_only=True)
class EventLimits:
    """The limits of event streams."""

    streams_max: int = STREAMS_MAX
    backlog_events_max: int = BACKLOG_EVENTS_MAX
    backlog_bytes_max: int = BACKLOG_BYTES_MAX
    total_backlog_bytes_max: int = TOTAL_BACKLOG_BYTES_MAX
    heartbeat_s: float = HEARTBEAT_S


class EventStreams:
    """All event streams of a gateway. Call everything from its event loop."""

    def __init__(self, hub: Hub, limits: EventLimits | None = None) -> None:
        self._hub = hub
        self._limits = limits = limits or EventLimits()
        # A stream without a backlog has room for any chunk.
        self._chunk_events_max = min(CHUNK_EVENTS_MAX, limits.backlog_events_max)
        self._fan_out: FanOut[EventStream] = FanOut(encode_event)
        self._budget = LineBudget(limits.total_backlog_bytes_max)
        self._streams: set[EventStream] = set()
        self._opening: set[EventStream] = set()
        self._is_closed = False
        self._opened = 0
        self._cut = self._cut_for_all = 0
        self._events = 0
        self._cut_warnings = RateLimitedLog(logger)

    def take(self, messages: list[jsonbus.Message]) -> None:
        """Append each message to the streams that want it. The hub calls this."""
        subscribers_of = self._fan_out.store.subscribers_of
        for stream in self._opening:
            topics = {message.topic for message in messages}
            stream.early.update(topic for topic in topics if stream in subscribers_of(topic))
        step = self._chunk_events_max
        for start in range(0, len(messages), step):
            for chunk, streams in self._fan_out.join(messages[start : start + step]):
                for stream in streams:
                    if not stream.add(chunk):
                        self._cut_off(stream)
                self._keep_budget()

    async def open(
        self, patterns: Sequence[str], connection: asyncio.Transport | None
    ) -> EventStream:
        """Open a stream of the messages that match the patterns. Call `run` next; it also ends it.

        Raises Refusal, InvalidTopicError, ClosedError, and LocalError for too many patterns.
        """
        patterns = _check_patterns(patterns)
        if self._is_closed:
            raise ClosedError("the gateway is closing")
        streams_max = self._limits.streams_max
        if len(self._streams) >= streams_max:
            raise try_later(f"{streams_max:,} streams are open, which is the limit")
        stream = EventStream(connection, self._budget, self._limits)
        self._streams.add(stream)
        self._opening.add(stream)
        self._opened += 1
        retained: dict[tuple[str, str], jsonbus.Message] = {}
        try:
            for pattern in patterns:
                self._fan_out.store.subscribe(pattern, stream)
                for message in await self._hub.want(pattern):
                    retained[message.topic, message.node] = message
                stream.wanted.append(pattern)
        except BaseException:
            self._end(stream)
            raise
        finally:
            self._opening.discard(stream)
        values = (each for each in retained.values() if each.topic not in stream.early)
        stream.begin(self._fan_out.join_retained(values))
        self._keep_budget()
        return stream

    async def run(self, stream: EventStream, receive: Receive, send: Send) -> None:
        """Send a stream's events until its client disconnects or is cut off, or `close`."""
        gone = asyncio.create_task(stream.notice_disconnect(receive), name="jsonbus-events-client")
        try:
            await send({"type": "http.response.start", "status": 200, "headers": _HEADERS})
            body = _GREETING + _hints(stream.wanted)
            await send({"type": "http.response.body", "body": body, "more_body": True})
            await stream.send_events(send)
        finally:
            self._end(stream)
            gone.cancel()
        await send({"type": "http.response.body"})

    def close(self) -> None:
        """End all streams; clients that read still get their backlog."""
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
            "events_unwritable": self._fan_out.unwritable,
            "events_waiting": sum(stream.waiting for stream in self._streams),
            "backlog_bytes": self._budget.bytes,
        }

    def _end(self, stream: EventStream) -> None:
        stream.drop()
        self._streams.remove(stream)
        self._fan_out.store.remove(stream)
        self._events += stream.sent
        for pattern in stream.wanted:
            self._hub.unwant(pattern)
        stream.wanted.clear()

    def _keep_budget(self) -> None:
        for stream in self._budget.find_furthest(self._streams):
            self._cut_for_all += 1
            self._cut_off(stream)

    def _cut_off(self, stream: EventStream) -> None:
        self._cut += 1
        waiting = stream.waiting
        stream.cut_off()
        self._fan_out.store.remove(stream)
        self._cut_warnings.warning(
            "an event stream was cut off: its client did not read %d events (%d streams so far)",
            waiting,
            self._cut,
        )


class EventStream:
    """The backlog of one client of /events, and the loop that sends it.

    Bytes that the connection has not sent count towards `budget`, too, as of the last write.
    """

    def __init__(
        self, connection: asyncio.Transport | None, budget: LineBudget, limits: EventLimits
    ) -> None:
        self.wanted: list[str] = []
        self.sent = 0
        self._connection = connection
        self._budget = budget
        self._limits = limits
        self._backlog = LineBacklog(budget)
        self._unsent_bytes = 0  # given to the connection, as counted in the budget
        self._wake = asyncio.Event()
        self._is_ended = False
        self._is_gone = False
        self._is_silent = False  # long enough that a heartbeat is due
        #: Topics of messages that came before `begin`.
        self.early: set[str] = set()

    @property
    def waiting(self) -> int:
        return self._backlog.lines

    @property
    def held_bytes(self) -> int:
        """Bytes in this process that the client has not read."""
        return self._backlog.bytes + self._unsent_bytes

    def add(self, events: Chunk) -> bool:
        """Append events; False if the backlog is full."""
        if self._is_gone:
            return True  # it was cut off a moment ago
        limits = self._limits
        if not self._backlog.append(events, limits.backlog_events_max, limits.backlog_bytes_max):
            return False
        self._wake.set()
        return True

    def begin(self, retained: Sequence[Chunk]) -> None:
        """Put the retained values first.

        They count towards the budget, not towards the limits of the backlog: the client has not
        had time to read yet.
        """
        if self._is_gone:
            return
        self._backlog.prepend(retained)
        self._wake.set()

    def end(self) -> None:
        """Send the backlog, then end."""
        self._is_ended = True
        self._wake.set()

    def cut_off(self) -> None:
        self.drop()
        if self._connection is not None:
            self._connection.abort()

    def drop(self) -> None:
        """Discard the backlog and send nothing more."""
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
        """Send events and heartbeats until the stream has ended."""
        self._loop = asyncio.get_running_loop()
        self._start_heartbeat_timer()
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
        """Send data; return when the connection has room again."""
        self._wrote_at = self._loop.time()
        self._is_silent = False
        self._count_unsent(self._unsent_bytes + len(data))
        await send({"type": "http.response.body", "body": data, "more_body": True})
        if self._connection is not None and not self._is_gone:
            self._count_unsent(self._connection.get_write_buffer_size())

    def _start_heartbeat_timer(self) -> None:
        # One timer for all waits: a timer for each took a sixth of the CPU of 100 busy streams.
        self._wrote_at = self._loop.time()
        self._timer = self._loop.call_later(self._limits.heartbeat_s, self._check_silence)

    def _check_silence(self) -> None:
        left_s = self._wrote_at + self._limits.heartbeat_s - self._loop.time()
        if left_s > 0:
            self._timer = self._loop.call_later(left_s, self._check_silence)
            return
        self._is_silent = True
        self._wake.set()
        self._start_heartbeat_timer()

    def _count_unsent(self, size_bytes: int) -> None:
        self._budget.bytes += size_bytes - self._unsent_bytes
        self._unsent_bytes = size_bytes


def encode_event(message: jsonbus.Message) -> bytes:
    """Encode a message as an event; its JSON has no line breaks, so one data line suffices."""
    data = to_json(
        {
            "topic": message.topic,
            "message": message.value,
            "node": message.node,
            "retained": message.retained,
        }
    )
    return b"event: message\ndata: " + data + b"\n\n"


def _check_patterns(patterns: Sequence[str]) -> list[str]:
    """Return each pattern once; raises Refusal and InvalidTopicError."""
    found = list(dict.fromkeys(jsonbus.check_pattern(pattern) for pattern in patterns))
    if not found:
        raise Refusal(400, "the parameter pattern is missing: use ** for all topics")
    if len(found) > PATTERNS_MAX:
        raise Refusal(
            400, f"{len(found):,} patterns are given, but at most {PATTERNS_MAX} are allowed"
        )
    return found


def _hints(patterns: Sequence[str]) -> bytes:
    """Return comments, which a person sees and a program passes over, on what matches nothing."""
    meant = {each: jsonbus.translate_pattern(each) for each in patterns}
    return b"".join(
        b": %s has no wildcard of jsonbus: did you mean %s?\n\n" % (each.encode(), ours.encode())
        for each, ours in meant.items()
        if ours is not None
    )
