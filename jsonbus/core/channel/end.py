"""One end of a channel: bytes and time in, bytes and messages out. No socket, no clock.

Theory of operation. Two ends share a connection: the *caller* has made it and says hello, the other
*answers* with a welcome or a refusal (channel/wire.py has the bytes). Between an end and its
connection stands an owner, who

- gives it what was read, the end of the connection, and failures: `receive`, `receive_end`, `fail`,
  `write_failed`;
- writes what it has to say: `output` and `written`;
- reads only while `wants_input`, and calls `handle_timer` at `timer_at`;
- closes the connection once the end `is_over`.

    opening ──► open ──► closing ──► closed
       └───────────────────────────────┘

**Closing.** `close` sends what was sent before, then C. The other end reads that far, which may
take long if its application is slow, and confirms with E: now everything has arrived, and this end
is closed. Until then it reads on, and throws away what it reads: a socket that is closed with
unread bytes takes back what it has sent. The other end keeps the messages that came before C for
its application; what it had not sent itself it drops, since nobody would read it.

**Who is still there.** An end that has nothing to say sends a beat every BEAT_S. One that has heard
nothing for SILENCE_S takes the other for gone, but only if it has been listening: an end whose
application does not take its messages is not read, and cannot know. So a slow reader is no dead
one, neither for its sender, who hears its beats, nor the other way round. An end that has closed
sends none: while the channel is closing, the other takes it for present as long as it takes bytes.

**Bounds.** Of messages that are not taken yet, INBOX_BYTES_MAX are read, and the one that exceeds
that; senders look at `has_room` before they `send`.
"""

from __future__ import annotations

import math
from collections import deque

from jsonbus.core.channel.limits import (
    BEAT_S,
    GREETING_BYTES_MAX,
    GREETING_S,
    INBOX_BYTES_MAX,
    MESSAGE_OVERHEAD_BYTES,
    OUTPUT_BYTES_MAX,
    SILENCE_S,
    WHOLE_BYTES_MIN,
)
from jsonbus.core.channel.wire import (
    BEAT,
    CLOSE,
    END,
    HELLO,
    MESSAGES,
    PREFIX,
    PREFIX_BYTES,
    REFUSED,
    SKIPPED,
    WELCOME,
    FrameItem,
    FrameReader,
    Hello,
    Refusal,
    Welcome,
    decode_hello,
    decode_refusal,
    decode_welcome,
    encode_frame,
    encode_hello,
    encode_refusal,
    encode_welcome,
)

OPENING, OPEN, CLOSING, CLOSED = "opening", "open", "closing", "closed"

# What a piece of output is: the beginning of a frame, or its end, be it of a message or not.
_BEGINNING, _END_OF_CONTROL, _END_OF_MESSAGE = range(3)

_Output = deque[tuple[bytes | memoryview, int]]


class ChannelEnd:
    """See the head of this file. `name` is what people call the node at the other end."""

    __slots__ = (
        "_greeting_until",
        "_has_closed",
        "_heard_at",
        "_is_amid_frame",
        "_is_caller",
        "_is_paused",
        "_message_bytes_max",
        "_output",
        "_reader",
        "_spoken_at",
        "bytes_received",
        "bytes_sent",
        "discarded",
        "has_opened",
        "hello",
        "inbox",
        "inbox_bytes",
        "is_confirmed",
        "is_lost",
        "is_peer_closed",
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
        """With `hello`, the end that calls; without, the one that answers."""
        self.state = OPENING
        self.node = hello.to if hello else ""
        self.name = self.node
        #: What the caller said, once it did; for the end that answers.
        self.hello = hello
        #: Why there is no channel, if the other end refused it.
        self.refusal: Refusal | None = None
        #: Why it is closing or closed, in words that follow "is closed: ".
        self.reason = ""
        self.has_opened = False  # whatever became of it since
        self.is_lost = False  # neither side has closed it on purpose
        self.is_peer_closed = False
        self.is_confirmed = False  # the other end has everything that was sent before `close`
        self.inbox: deque[FrameItem] = deque()
        self.inbox_bytes = 0
        self.output_bytes = 0
        self.send_bytes_max = 0  # of a message that the other end takes
        self.sent = self.received = 0  # messages
        self.bytes_sent = self.bytes_received = 0  # of messages
        self.skipped = 0  # messages that were too large
        self.discarded = 0  # messages that came, and nobody took
        self.unsent = 0  # messages that never left, since the channel ended before
        self._is_caller = hello is not None
        self._message_bytes_max = message_bytes_max
        self._reader = FrameReader(GREETING_BYTES_MAX)
        self._output: _Output = deque()
        self._is_amid_frame = False
        self._has_closed = False  # C is on its way
        self._is_paused = False
        self._heard_at = self._spoken_at = now
        self._greeting_until = math.inf if hello else now + GREETING_S
        if hello is not None:
            self._put(encode_hello(hello))

    # --- What an application does ---------------------------------------------------------------

    @property
    def is_closed_here(self) -> bool:
        """Whether `close` was called while it was open."""
        return self._has_closed

    @property
    def has_room(self) -> bool:
        """Whether `send` may be called without filling the memory."""
        return self.output_bytes < OUTPUT_BYTES_MAX

    def send(self, kind: int, body: bytes) -> None:
        """A message, of at most `send_bytes_max` bytes; only while it is open."""
        assert self.state == OPEN and kind in MESSAGES and len(body) <= self.send_bytes_max
        size = len(body)
        self.sent += 1
        self.bytes_sent += size
        prefix = PREFIX.pack(size, kind)
        if size < WHOLE_BYTES_MIN:
            self._output.append((prefix + body, _END_OF_MESSAGE))
        else:
            self._output.append((prefix, _BEGINNING))
            self._output.append((body, _END_OF_MESSAGE))
        self.output_bytes += PREFIX_BYTES + size

    def take(self) -> FrameItem | None:
        """The next message, or a SKIPPED one's size; None if there is none now."""
        if not self.inbox:
            return None
        item = self.inbox.popleft()
        self.inbox_bytes -= len(item[1]) + MESSAGE_OVERHEAD_BYTES
        return item

    def close(self, now: float) -> None:
        """Send and receive no more; see the head of this file. A second call does nothing."""
        self.discarded += len(self.inbox)
        self.inbox.clear()
        self.inbox_bytes = 0
        if self.state == OPENING:
            self._end("it was closed here")
        elif self.state == OPEN:
            self.state, self.reason = CLOSING, "it was closed here"
            self._has_closed = True
            # What still comes is thrown away: it takes no memory, and need not wait for any.
            self._reader.skip_bodies()
            self._put(encode_frame(CLOSE))
            self.resume(now)
        elif self.is_lost:  # it was open only for what could still be read
            self._end(self.reason)

    # --- What the answering side decides --------------------------------------------------------

    def welcome(self, welcome: Welcome) -> None:
        """Answer the hello: connected."""
        assert self.state == OPENING and self.hello is not None
        self._put(encode_welcome(welcome))
        self._open(self.hello.node, self.hello.name, self.hello.message_bytes_max)

    def refuse(self, refusal: Refusal) -> None:
        """Answer the hello: not connected. It is over when that has been written."""
        assert self.state == OPENING
        self._put(encode_refusal(refusal))
        self.state, self.reason, self._has_closed = CLOSING, f"refused ({refusal.reason})", True
        self.is_peer_closed = self.is_confirmed = True

    # --- What the connection brings -------------------------------------------------------------

    @property
    def wants_input(self) -> bool:
        """Whether to read; as far as this channel's own bound goes."""
        if self.state == OPEN:
            return self.inbox_bytes < INBOX_BYTES_MAX
        if self.state == CLOSING and not self._has_closed:
            # The other end has closed it, or writing failed: then the rest is still read.
            return not self.is_peer_closed and self.inbox_bytes < INBOX_BYTES_MAX
        return self.state != CLOSED and not (self.is_peer_closed and self.is_confirmed)

    @property
    def partial_bytes(self) -> int:
        """What is held of a message that is not complete."""
        return self._reader.held_bytes

    def receive(self, data: memoryview, now: float) -> None:
        """Bytes came. They are not kept: the owner may use their memory again."""
        if self.state == CLOSED:
            return
        self._heard_at = now
        try:
            for kind, body in self._reader.feed(data):
                if self.state == OPENING:
                    self._receive_greeting(kind, body)
                elif kind in MESSAGES or kind == SKIPPED:
                    self._receive_message(kind, body)
                elif kind == CLOSE:
                    self._receive_close()
                elif kind == END and self._has_closed:
                    self.is_confirmed = True
                if self.state == CLOSED:
                    return
            if self.state == OPENING and self._reader.is_skipping:
                raise ValueError("its greeting is too long")
        except ValueError as error:
            self.fail(f"what came from {self.name or 'a stranger'} is no channel ({error})")
        if self.state == CLOSING:
            self._settle()

    def receive_end(self, now: float) -> None:
        """The other end's connection was closed: nothing comes any more."""
        self.fail(f"{self.name or 'the other side'} is gone: its end of the connection closed")

    def fail(self, reason: str) -> None:
        """The connection is of no use any more."""
        if self.state == CLOSED:
            return
        # What was closed on purpose is not lost, whatever becomes of the rest; and of two failures
        # the first tells more.
        if not (self._has_closed or self.is_peer_closed or self.is_lost):
            self.reason, self.is_lost = reason, True
        self._end(self.reason)

    def write_failed(self, reason: str) -> None:
        """Nothing can be written any more; what has come can still be read."""
        if self.state in (OPENING, CLOSED) or self._has_closed or self.is_peer_closed:
            self.fail(reason)
        else:
            self.state, self.reason, self.is_lost = CLOSING, reason, True
            self._drop_output()

    # --- What the connection takes --------------------------------------------------------------

    def output(self, pieces_max: int) -> list[bytes | memoryview]:
        """What to write next, in this order; `written`, before anything else, how much was."""
        output = self._output
        if len(output) == 1:
            return [output[0][0]]
        if len(output) <= pieces_max:
            return [piece for piece, _ in output]
        return [output[index][0] for index in range(pieces_max)]

    def written(self, count: int, now: float) -> None:
        """So many bytes of `output` were written."""
        if count:
            self._spoken_at = now
        output = self._output
        if count == self.output_bytes:  # as nearly always
            output.clear()
            self.output_bytes = 0
            self._is_amid_frame = False
            if self.state == CLOSING:
                self._settle()
            return
        self.output_bytes -= count
        while count:
            piece, place = output[0]
            size = len(piece)
            if count < size:
                output[0] = memoryview(piece)[count:], place
                self._is_amid_frame = True
                break
            count -= size
            output.popleft()
            self._is_amid_frame = place == _BEGINNING

    @property
    def is_over(self) -> bool:
        """Whether the connection can be closed."""
        return self.state == CLOSED

    # --- Time -----------------------------------------------------------------------------------

    @property
    def is_paused(self) -> bool:
        """Whether it is not read now: silence tells nothing then."""
        return self._is_paused

    def pause(self) -> None:
        """It is not read: nobody can say whether the other end speaks."""
        self._is_paused = True

    def resume(self, now: float) -> None:
        """It is read again."""
        if self._is_paused:
            self._is_paused = False
            self._heard_at = now

    def timer_at(self) -> float:
        if self.state == OPENING:
            return self._greeting_until
        if self.state == CLOSED:
            return math.inf
        return min(self._silent_at(), self._beat_at())

    def handle_timer(self, now: float) -> None:
        if self.state == CLOSED:
            return
        if self.state == OPENING:
            if now >= self._greeting_until:
                self.fail(f"it said nothing for {GREETING_S:g} s")
        elif now >= self._silent_at():
            self.fail(f"{self.name} was not heard for {SILENCE_S:g} s")
        elif now >= self._beat_at():
            self._spoken_at = now  # should it wait, another one would tell no more
            self._put(encode_frame(BEAT))

    def _silent_at(self) -> float:
        if self.state == CLOSING and (self.is_peer_closed or not self._is_paused):
            # Who has closed sends no beats, but it reads: that it takes what is written tells as
            # much. Who was closed is not read any more; it only has to get rid of its E.
            return max(self._heard_at, self._spoken_at) + SILENCE_S
        return math.inf if self._is_paused else self._heard_at + SILENCE_S

    def _beat_at(self) -> float:
        if self._output or self._has_closed or self.is_peer_closed or self.is_lost:
            return math.inf
        return self._spoken_at + BEAT_S

    # --- Inside ---------------------------------------------------------------------------------

    def _receive_greeting(self, kind: int, body: bytes) -> None:
        """Raises ValueError."""
        if self._is_caller and kind == WELCOME:
            welcome = decode_welcome(body)
            self._open(welcome.node, welcome.name, welcome.message_bytes_max)
        elif self._is_caller and kind == REFUSED:
            self.refusal = decode_refusal(body)
            self._end(f"{self.refusal.name} refused it ({self.refusal.reason})")
        elif not self._is_caller and kind == HELLO and self.hello is None:
            self.hello = decode_hello(body)
        else:
            raise ValueError("no greeting")

    def _receive_message(self, kind: int, body: bytes) -> None:
        if self.is_peer_closed:
            return  # that was its last word
        if self._has_closed:
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
        if not self._has_closed:
            self.state, self.reason = CLOSING, f"{self.name} closed it"
            if self.is_lost:  # nothing can be written, not even E
                self.is_lost = False
                self._end(self.reason)
                return
            self._drop_output()
        self._put(encode_frame(END))

    def _open(self, node: str, name: str, message_bytes_max: int) -> None:
        self.state = OPEN
        self.has_opened = True
        self.node, self.name = node, name or node
        self.send_bytes_max = min(message_bytes_max, self._message_bytes_max)
        self._reader.body_bytes_max = self._message_bytes_max
        self._greeting_until = math.inf

    def _put(self, frame: bytes) -> None:
        self._output.append((frame, _END_OF_CONTROL))
        self.output_bytes += len(frame)

    def _drop_output(self) -> None:
        """Nobody reads it any more; but a frame that has begun is ended, if it can be."""
        kept: _Output = deque()
        while self._is_amid_frame and not self.is_lost and self._output:
            kept.append(self._output.popleft())
            if kept[-1][1] != _BEGINNING:
                break
        self.unsent += sum(1 for _, place in self._output if place == _END_OF_MESSAGE)
        self._output = kept
        self.output_bytes = sum(len(piece) for piece, _ in kept)

    def _settle(self) -> None:
        """See whether the channel is over."""
        if self.state != CLOSING or self._output or self.is_lost:
            return
        # Whatever was to be confirmed is, on both sides: E is written where one is owed.
        if self.is_confirmed if self._has_closed else self.is_peer_closed:
            self._end(self.reason)

    def _end(self, reason: str) -> None:
        self.state, self.reason = CLOSED, reason
        self._is_amid_frame = False
        self._drop_output()
        self._reader = FrameReader(0)  # what came of a message that will never be complete
