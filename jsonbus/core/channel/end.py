"""One end of a channel: bytes and time in, bytes and messages out. No socket, no clock.

Theory of operation. Two ends share a connection: the one that *connects* says hello, the other one
*answers* with a welcome or a refusal (wire.py has the bytes). The owner of an end

- passes on what was read and what failed: `receive`, `receive_end`, `fail`, `write_failed`;
- writes what `output` returns, and reports it by `written`;
- reads only while `wants_input`, and calls `handle_timer` at `timer_at`;
- closes the connection once the end `is_over`.

    opening ──► open ──► closing ──► closed
       └───────────────────────────────┘

**Closing.** `close` writes what was sent before, then C. The other end reads that far, which may
take long if its application is slow, and confirms with E: now everything has arrived, and this end
is closed. Until then it reads on, and discards what it reads: a socket that is closed with unread
bytes takes back what it has sent. The other end keeps the messages that came before C for its
application; what it had not sent itself it drops, since nobody would read it.

**Liveness** (liveness.py). An end that has nothing to write sends beats. One that hears nothing
takes the other for gone, but only if it has been reading: an end whose application does not take
its messages is not read, and cannot know. So a slow reader is not taken for dead. An end that has
closed sends no beats: it is taken for present as long as it accepts bytes.

**Bounds.** INBOX_BYTES_MAX of messages that are not taken yet are read, and the one that exceeds
it; senders check `has_room` before they `send`.
"""

from __future__ import annotations

import math
from collections import deque

from jsonbus.core.channel import wire
from jsonbus.core.channel.limits import (
    ANSWER_S,
    GREETING_BYTES_MAX,
    GREETING_S,
    INBOX_BYTES_MAX,
    MESSAGE_OVERHEAD_BYTES,
    OUTPUT_BYTES_MAX,
    SILENCE_S,
    UNANSWERED_S,
    WHOLE_BYTES_MIN,
)
from jsonbus.core.channel.liveness import Liveness
from jsonbus.core.channel.output import BEGINNING, END_OF_CONTROL, END_OF_MESSAGE, OutputQueue
from jsonbus.core.channel.wire import BEAT_FRAME, MESSAGES, PREFIX, PREFIX_BYTES, SKIPPED, Hello

OPENING, OPEN, CLOSING, CLOSED = "opening", "open", "closing", "closed"


class ChannelEnd:
    """See the head of this file. `node` and `name` are those of the other end."""

    __slots__ = (
        "_greeting_until",
        "_connects",
        "_message_bytes_max",
        "_output",
        "_reader",
        "bytes_received",
        "bytes_sent",
        "discarded",
        "has_opened",
        "hello",
        "inbox",
        "inbox_bytes",
        "is_closed_here",
        "is_confirmed",
        "is_lost",
        "is_paused",
        "is_peer_closed",
        "liveness",
        "name",
        "node",
        "output_bytes",
        "reason",
        "received",
        "refusal",
        "send_bytes_max",
        "sent",
        "skipped",
        "state",
        "unsent",
    )

    def __init__(self, message_bytes_max: int, now: float, *, hello: Hello | None = None) -> None:
        """Make the end that connects, with `hello`, or the one that answers, without."""
        self.state = OPENING
        self.node = hello.to if hello else ""
        self.name = self.node
        #: The greeting of the end that connects; None at the other end until it has come.
        self.hello = hello
        #: The answer of the other end, if it refused the channel.
        self.refusal: wire.Refusal | None = None
        #: Why the channel is closing or closed, in words that follow "is closed: ".
        self.reason = ""
        self.has_opened = False  # and may be closed since
        self.is_lost = False  # neither side has closed it on purpose
        self.is_paused = False  # it is not read now: silence means nothing then
        self.is_closed_here = False  # C was sent, or is in the output
        self.is_peer_closed = False
        self.is_confirmed = False  # the other end has everything that was sent before `close`
        self.inbox: deque[wire.FrameItem] = deque()
        self.inbox_bytes = self.output_bytes = 0
        self.send_bytes_max = 0  # of a message that the other end takes
        self.sent = self.received = 0  # messages
        self.bytes_sent = self.bytes_received = 0  # of messages
        self.skipped = 0  # messages that were too large
        self.discarded = 0  # messages that came and were not taken
        self.unsent = 0  # messages that were not written before the channel ended
        self._connects = hello is not None
        self._message_bytes_max = message_bytes_max
        self._reader = wire.FrameReader(GREETING_BYTES_MAX)
        self._output = OutputQueue()
        self.liveness = Liveness(now)
        self._greeting_until = math.inf if hello else now + GREETING_S
        if hello is not None:
            self._put(wire.encode_hello(hello))

    # --- Called for the application -------------------------------------------------------------

    @property
    def has_room(self) -> bool:
        """Whether `send` may be called without filling the memory."""
        return self.output_bytes < OUTPUT_BYTES_MAX

    def send(self, kind: int, body: bytes) -> None:
        """Send a message of at most `send_bytes_max` bytes; only while the channel is open."""
        assert self.state == OPEN and kind in MESSAGES and len(body) <= self.send_bytes_max
        size = len(body)
        self.sent += 1
        self.bytes_sent += size
        prefix = PREFIX.pack(size, kind)
        if size < WHOLE_BYTES_MIN:
            self._output.append((prefix + body, END_OF_MESSAGE))
        else:
            self._output.append((prefix, BEGINNING))
            self._output.append((body, END_OF_MESSAGE))
        self.output_bytes += PREFIX_BYTES + size

    def take(self) -> wire.FrameItem | None:
        """Return the next message, or the size of a SKIPPED one; None if there is none now."""
        if not self.inbox:
            return None
        item = self.inbox.popleft()
        self.inbox_bytes -= len(item[1]) + MESSAGE_OVERHEAD_BYTES
        return item

    def close(self, now: float) -> None:
        """Stop sending and receiving; see the head of this file. Idempotent."""
        self.discarded += len(self.inbox)
        self.inbox.clear()
        self.inbox_bytes = 0
        if self.state == OPENING:
            self._end("it was closed here")
        elif self.state == OPEN:
            self.state, self.reason = CLOSING, "it was closed here"
            self.is_closed_here = True
            # Messages that still come are discarded: they take no memory.
            self._reader.skip_bodies()
            self._put(wire.encode_frame(wire.CLOSE))
            self.resume(now)
        elif self.is_lost:  # it was kept open only to read the rest
            self._end(self.reason)

    # --- Called by the answering side -----------------------------------------------------------

    def welcome(self, welcome: wire.Welcome) -> None:
        """Answer the hello: accept the channel."""
        assert self.state == OPENING and self.hello is not None
        self._put(wire.encode_welcome(welcome))
        self._open(self.hello)

    def refuse(self, refusal: wire.Refusal) -> None:
        """Answer the hello: refuse the channel. It is over when that has been written."""
        assert self.state == OPENING
        self._put(wire.encode_refusal(refusal))
        self.state, self.reason, self.is_closed_here = CLOSING, f"refused ({refusal.reason})", True
        self.is_peer_closed = self.is_confirmed = True

    # --- Reading --------------------------------------------------------------------------------

    @property
    def wants_input(self) -> bool:
        """Whether to read, by the bound of this channel alone."""
        if self.state == OPEN:
            return self.inbox_bytes < INBOX_BYTES_MAX
        if self.state == CLOSING and not self.is_closed_here:
            # The other end has closed the channel, or writing failed: read the rest.
            return not self.is_peer_closed and self.inbox_bytes < INBOX_BYTES_MAX
        return self.state != CLOSED and not (self.is_peer_closed and self.is_confirmed)

    @property
    def partial_bytes(self) -> int:
        """Bytes of a message that is not complete yet."""
        return self._reader.held_bytes

    def receive(self, data: memoryview, now: float) -> bool:
        """Take bytes. They are copied: the owner may reuse their memory.

        Returns False if they are only a beat: nothing has changed for anybody.
        """
        if self.state == CLOSED:
            return True
        if len(data) == PREFIX_BYTES and data == BEAT_FRAME and self.state == OPEN:
            if self._reader.is_between_frames:
                self.liveness.hear(now, self.output_bytes)
                return False
        self.liveness.hear_news(now, self.output_bytes)
        try:
            for kind, body in self._reader.feed(data):
                if self.state == OPENING:
                    self._receive_greeting(kind, body)
                elif kind in MESSAGES or kind == SKIPPED:
                    self._receive_message(kind, body)
                elif kind == wire.CLOSE:
                    self._receive_close()
                elif kind == wire.END and self.is_closed_here:
                    self.is_confirmed = True
                if self.state == CLOSED:
                    return True
            if self.state == OPENING and self._reader.is_skipping:
                raise ValueError("its greeting is too long")
        except ValueError as error:
            self.fail(f"what came from {self.name or 'an unknown node'} is no channel ({error})")
        if self.state == CLOSING:
            self._settle()
        return True

    def receive_end(self, now: float) -> None:
        """The other end has closed the connection: nothing comes any more."""
        self.fail(f"{self.name or 'the other side'} is gone: its end of the connection closed")

    def fail(self, reason: str) -> None:
        """The connection cannot be used any more."""
        if self.state == CLOSED:
            return
        # A channel that was closed on purpose is not lost, even if the connection fails now. Of two
        # failures the first says more.
        if not (self.is_closed_here or self.is_peer_closed or self.is_lost):
            self.reason, self.is_lost = reason, True
        self._end(self.reason)

    def write_failed(self, reason: str) -> None:
        """Writing is impossible from now on; what has come can still be read."""
        if self.state in (OPENING, CLOSED) or self.is_closed_here or self.is_peer_closed:
            self.fail(reason)
        else:
            self.state, self.reason, self.is_lost = CLOSING, reason, True
            self._drop_output()

    # --- Writing --------------------------------------------------------------------------------

    def output(self, pieces_max: int) -> list[bytes | memoryview]:
        """Return what to write next, in this order. Call `written` before anything else."""
        output = self._output
        return [output[0][0]] if len(output) == 1 else output.peek(pieces_max)

    def written(self, count: int, now: float) -> None:
        """Note that so many bytes of `output` were written."""
        if count:
            self.liveness.speak(now)
        if count == self.output_bytes:  # as nearly always
            self._output.clear()
            self._output.is_amid_frame = False
            self.output_bytes = 0
            if self.state == CLOSING:
                self._settle()
            return
        self.output_bytes -= count
        self._output.remove_written(count)

    @property
    def is_over(self) -> bool:
        """Whether the connection can be closed."""
        return self.state == CLOSED

    def pause(self) -> None:
        """The owner does not read now: silence of the other end means nothing."""
        self.is_paused = True

    def resume(self, now: float) -> None:
        """The owner reads again."""
        if self.is_paused:
            self.is_paused = False
            self.liveness.hear(now, self.output_bytes)

    def timer_at(self) -> float:
        if self.state == OPENING:
            return self._greeting_until
        if self.state == CLOSED:
            return math.inf
        return min(self.silent_at(), self._beat_at())

    def handle_timer(self, now: float) -> None:
        if self.state == CLOSED:
            return
        if self.state == OPENING:
            if now >= self._greeting_until:
                self.fail(f"it said nothing for {GREETING_S:g} s")
        elif now >= self.silent_at():
            self.fail(f"{self.name} was not heard for {now - self.liveness.heard_at:.0f} s")
        elif now >= self._beat_at():
            self.beat(now)

    def beat(self, now: float) -> None:
        """Send a beat, which is due."""
        self.liveness.beat(now)
        self._put(BEAT_FRAME)

    def silent_at(self) -> float:
        """Return when to take the other end for gone."""
        if self.state == CLOSING and (self.is_peer_closed or not self.is_paused):
            # An end that has closed sends no beats, but it reads: accepting bytes is a sign of
            # life, too. The other one answers C, or is not read any more; it does not know if
            # writing has failed, and has only its beats to say.
            bears_s = SILENCE_S if self.is_lost else UNANSWERED_S
            return max(self.liveness.heard_at, self.liveness.spoken_at) + bears_s
        return math.inf if self.is_paused else self.liveness.silent_at

    def _beat_at(self) -> float:
        if self._output or self.is_closed_here or self.is_peer_closed or self.is_lost:
            return math.inf
        return self.liveness.spoken_at + ANSWER_S if self.is_paused else self.liveness.beat_at

    # --- Inside ---------------------------------------------------------------------------------

    def _receive_greeting(self, kind: int, body: bytes) -> None:
        """Raises ValueError."""
        if self._connects and kind == wire.WELCOME:
            welcome = wire.decode_welcome(body)
            self._open(welcome)
        elif self._connects and kind == wire.REFUSED:
            self.refusal = wire.decode_refusal(body)
            self._end(f"{self.refusal.name} refused it ({self.refusal.reason})")
        elif kind == wire.HELLO and self.hello is None:
            self.hello = wire.decode_hello(body)
        else:
            raise ValueError("no greeting")

    def _receive_message(self, kind: int, body: bytes) -> None:
        if self.is_peer_closed:
            return  # nothing counts after C
        if self.is_closed_here:
            self.discarded += 1
            return
        if kind == SKIPPED:
            self.skipped += 1
        else:
            self.received += 1
            self.bytes_received += len(body)
        self.inbox.append((kind, body))
        self.inbox_bytes += len(body) + MESSAGE_OVERHEAD_BYTES

    def _receive_close(self) -> None:
        if self.is_peer_closed:
            return
        self.is_peer_closed = True
        if not self.is_closed_here:
            self.state, self.reason = CLOSING, f"{self.name} closed it"
            if self.is_lost:  # writing is impossible, even of E
                self.is_lost = False
                self._end(self.reason)
                return
            self._drop_output()
        self._put(wire.encode_frame(wire.END))

    def _open(self, peer: Hello | wire.Welcome) -> None:
        self.state = OPEN
        self.has_opened = True
        self.node, self.name = peer.node, peer.name or peer.node
        self.send_bytes_max = min(peer.message_bytes_max, self._message_bytes_max)
        self.liveness.suit(peer.silence_s)
        self._reader.body_bytes_max = self._message_bytes_max
        self._greeting_until = math.inf

    def _put(self, frame: bytes) -> None:
        self._output.append((frame, END_OF_CONTROL))
        self.output_bytes += len(frame)

    def _drop_output(self) -> None:
        """Drop what nobody reads any more; but end a frame that has begun, if that is possible."""
        self.unsent += self._output.drop(keeps_frame=not self.is_lost)
        self.output_bytes = sum(len(piece) for piece, _ in self._output)

    def _settle(self) -> None:
        """End the channel if both sides are done."""
        if self.state != CLOSING or self._output or self.is_lost:
            return
        # Everything is confirmed, on both sides: E is written where one is owed.
        if self.is_confirmed if self.is_closed_here else self.is_peer_closed:
            self._end(self.reason)

    def _end(self, reason: str) -> None:
        self.state, self.reason = CLOSED, reason
        self._output.is_amid_frame = False
        self._drop_output()
        self._reader = wire.FrameReader(0)  # drop what came of an incomplete message
