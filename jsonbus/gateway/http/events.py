"""Server-sent events: `GET /events?pattern=…`, a sink of the hub.

Theory of operation
-------------------
`EventStreams.take`, the sink, hands messages to the fan-out that text clients have, too
(../text/fan_out.py): it encodes each message once as the bytes of an event, and writes the events
of some milliseconds at once. They are in the framing of HTTP already, and go straight to the
transport (`GuardedConnection.hand_over`): waking a task and uvicorn's `send` took 5 µs for each
write, the system call 3. uvicorn writes only the head and the end of such an answer.

A client that does not read fills only its own backlog. When that reaches its bound, the connection
is aborted and counted; a polite end would wait for the very client that does not read. EventSource
reconnects by itself and gets the retained values again; nothing else is repeated. The backlogs of
all streams together are bounded, too: when they exceed the budget, the stream with the most unread
is cut off.

A stream is entered into the store before the hub is asked for its patterns; otherwise messages in
between would be lost. A message may therefore arrive before the retained value that it replaces:
such a value is left out.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass

from starlette.types import Send

import jsonbus
from jsonbus.errors import ClosedError

from ..hub import Hub
from ..rate_limited_log import RateLimitedLog
from ..text.backlog import Chunk, LineBudget
from ..text.fan_out import FanOut
from ..text.outlet import Outlet
from ..values import to_json
from .answers import NO_STORE, Refusal, try_later
from .connection import GuardedConnection

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

_HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"transfer-encoding", b"chunked"),  # which is how streams write, see `_frame`
    (b"x-accel-buffering", b"no"),  # nginx would collect events until its buffer is full
    *((name.encode(), value.encode()) for name, value in NO_STORE.items()),
]
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
        self._fan_out: FanOut[EventStream] = FanOut(encode_event, _frame)
        self._budget = LineBudget(limits.total_backlog_bytes_max)
        self._streams: set[EventStream] = set()
        self._opening: set[EventStream] = set()
        self._is_closed = False
        self._opened = 0
        self._cut = self._cut_for_all = 0
        self._events = 0
        self._cut_warnings = RateLimitedLog(logger)

    def take(self, messages: list[jsonbus.Message]) -> None:
        """Send each message to the streams that want it. The hub calls this."""
        subscribers_of = self._fan_out.store.subscribers_of
        for stream in self._opening:
            topics = {message.topic for message in messages}
            stream.early.update(topic for topic in topics if stream in subscribers_of(topic))
        self._fan_out.take(messages)

    async def open(self, patterns: Sequence[str], connection: GuardedConnection) -> EventStream:
        """Open a stream of the messages that match the patterns. Call `run` next; it also ends it.

        Raises Refusal, InvalidTopicError, ClosedError.
        """
        patterns = _check_patterns(patterns)
        if self._is_closed:
            raise ClosedError("the gateway is closing")
        streams_max = self._limits.streams_max
        if len(self._streams) >= streams_max:
            raise try_later(f"{streams_max:,} streams are open, which is the limit")
        stream = EventStream(self, connection, self._budget, self._limits)
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
        self.keep_budget()
        return stream

    async def run(self, stream: EventStream, send: Send) -> None:
        """Send a stream's events until its client disconnects or is cut off, or `close`."""
        try:
            await send({"type": "http.response.start", "status": 200, "headers": _HEADERS})
            body = _GREETING + _hints(stream.wanted)
            await send({"type": "http.response.body", "body": body, "more_body": True})
            await stream.follow()
        finally:
            self._end(stream)
        await send({"type": "http.response.body"})

    def close(self) -> None:
        """End all streams; clients that read still get their backlog."""
        self._is_closed = True
        self._fan_out.flush()
        for stream in list(self._streams):
            stream.end()

    def stats(self) -> dict[str, int]:
        return {
            "streams": len(self._streams),
            "streams_opened": self._opened,
            "streams_cut": self._cut,
            "streams_cut_for_all": self._cut_for_all,
            "events_sent": self._events + sum(stream.lines_sent for stream in self._streams),
            "events_unwritable": self._fan_out.unwritable,
            "events_waiting": sum(stream.backlog.lines for stream in self._streams),
            "backlog_bytes": self._budget.bytes,
        }

    def _end(self, stream: EventStream) -> None:
        stream.drop()
        self._streams.remove(stream)
        self._fan_out.store.remove(stream)
        self._events += stream.lines_sent
        for pattern in stream.wanted:
            self._hub.unwant(pattern)
        stream.wanted.clear()

    # ---- Called by streams

    def keep_budget(self) -> None:
        """Cut off the streams with the most unread bytes, perhaps the caller."""
        for stream in self._budget.find_furthest(self._streams):
            self._cut_for_all += 1
            stream.cut_off()

    def count_cut(self, stream: EventStream) -> None:
        """Count and log a stream that is cut off because its client did not read."""
        self._cut += 1
        self._fan_out.store.remove(stream)
        self._cut_warnings.warning(
            "an event stream was cut off: its client did not read %d events (%d streams so far)",
            stream.backlog.lines,
            self._cut,
        )


class EventStream(Outlet):
    """One client of /events: its backlog, its heartbeat, and its end."""

    def __init__(
        self,
        streams: EventStreams,
        connection: GuardedConnection,
        budget: LineBudget,
        limits: EventLimits,
    ) -> None:
        super().__init__(budget, limits.backlog_events_max, limits.backlog_bytes_max)
        self.wanted: list[str] = []
        #: Topics of messages that came before `begin`.
        self.early: set[str] = set()
        self._streams = streams
        self._connection = connection
        self._heartbeat_s = limits.heartbeat_s
        self._loop = asyncio.get_running_loop()
        self._wrote_at = 0.0
        self._has_ended = asyncio.Event()

    def begin(self, retained: Sequence[Chunk]) -> None:
        """Put the retained values first.

        They count towards the budget, not towards the limits of the backlog: the client has not
        had time to read yet.
        """
        if self.takes_lines:
            self.backlog.prepend(retained)

    async def follow(self) -> None:
        """Send events and heartbeats until the stream has ended."""
        self._connection.hand_over(self)
        self._wrote_at = self._loop.time()
        self._timer = self._loop.call_later(self._heartbeat_s, self._check_silence)
        try:
            await self._has_ended.wait()
        finally:
            self._timer.cancel()
            self._connection.take_back()

    def write(self, data: bytes, lines: int) -> None:
        self._wrote_at = self._loop.time()
        super().write(data, lines)

    def end(self) -> None:
        """Send the backlog, then end."""
        self.stop()
        if not self._is_choked and not self.backlog:
            self._has_ended.set()

    def has_sent_all(self) -> None:
        if not self.takes_lines:
            self._has_ended.set()

    def drop(self) -> None:
        """Discard the backlog, and end."""
        super().drop()
        self._has_ended.set()

    def cut_off(self) -> None:
        self._streams.count_cut(self)
        self.drop()
        self._connection.abort()

    def keep_budget(self) -> None:
        self._streams.keep_budget()

    def _check_silence(self) -> None:
        # One timer for all waits: a timer for each took a sixth of the CPU of 100 busy streams.
        left_s = self._wrote_at + self._heartbeat_s - self._loop.time()
        if left_s <= 0:
            left_s = self._heartbeat_s
            if self.is_writable:  # otherwise events wait
                self.write(_HEARTBEAT, 0)
        self._timer = self._loop.call_later(left_s, self._check_silence)


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


def _frame(events: Sequence[bytes]) -> bytes:
    """Return events as one chunk of HTTP's chunked transfer coding."""
    data = b"".join(events)
    return b"%x\r\n%b\r\n" % (len(data), data)


_HEARTBEAT = _frame((b":\n\n",))


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
        b": %s has a wildcard of another system: did you mean %s?\n\n"
        % (each.encode(), ours.encode())
        for each, ours in meant.items()
        if ours is not None
    )
