"""Two ends of a channel against each other, over a connection made of two byte strings."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from jsonbus.core.channel.end import OPENING, ChannelEnd
from jsonbus.core.channel.limits import MESSAGE_OVERHEAD_BYTES, SILENCE_S
from jsonbus.core.channel.wire import (
    BEAT,
    BYTES,
    JSON,
    MESSAGES,
    SKIPPED,
    FrameItem,
    FrameReader,
    Hello,
    Refusal,
    Welcome,
    encode_frame,
)

START = 1000.0  # not 0, so that a forgotten `now` is noticed
MAX = 100_000  # bytes of a message, unless a test says otherwise

HELLO = Hello("id-ann", 17, "ann", "id-bob", "door", MAX, int(SILENCE_S))
WELCOME = Welcome("id-bob", 18, "bob", MAX, int(SILENCE_S))
UNBOUND = Refusal("id-bob", "bob", "unbound")

#: How much of what has come to read at once: everything, single bytes, or so that the beginning of
#: a frame lies behind the end of another.
CUTS: dict[str, Callable[[int], int]] = {
    "whole": lambda available: available,
    "byte by byte": lambda available: 1,
    "with trailing bytes": lambda available: max(1, available - 3),
}


class Tally(NamedTuple):
    """What an end has counted."""

    sent: int = 0
    received: int = 0
    skipped: int = 0
    discarded: int = 0
    unsent: int = 0


class Side:
    """An end and its owner, who obeys what the head of end.py says."""

    def __init__(self, end: ChannelEnd) -> None:
        self.end = end
        self.other: Side
        self.arriving = bytearray()  # written by the other side and not read yet
        self.was_read = bytearray()
        self.messages_read = 0  # told by another reader than the end's
        self._reader = FrameReader(1 << 40)
        self.is_cut = False  # this side's half of the connection was closed
        self.has_seen_end = False

    @property
    def tally(self) -> Tally:
        end = self.end
        return Tally(end.sent, end.received, end.skipped, end.discarded, end.unsent)

    def send(self, *texts: str) -> None:
        for text in texts:
            self.end.send(BYTES, text.encode())

    def take_all(self) -> list[str]:
        """The messages that wait, as text."""
        taken = []
        while (item := self.end.take()) is not None:
            assert item[0] in (JSON, BYTES, SKIPPED)
            taken.append(item[1].decode())
        return taken

    def write(self, now: float, count_max: int = 1 << 40) -> int:
        """Give the connection what it has to say, so many bytes at most."""
        count = 0
        while not self.is_cut and (pieces := self.end.output(3)) and count < count_max:
            data = b"".join(pieces)[: count_max - count]
            self.end.written(len(data), now)
            if not self.other.is_cut:
                self.other.arriving += data
            count += len(data)
            self.check()
        return count

    def read(self, now: float, count_max: int = 1 << 40) -> int:
        """Take what the connection has, so many bytes at most."""
        data = bytes(self.arriving[:count_max])
        del self.arriving[:count_max]
        self.was_read += data
        frames = self._reader.feed(memoryview(data))
        self.messages_read += sum(1 for kind, _ in frames if kind in MESSAGES)
        buffer = bytearray(data)
        self.end.receive(memoryview(buffer), now)
        buffer[:] = bytes(len(buffer))  # the owner uses its memory again
        self.check()
        return len(data)

    def cut(self) -> None:
        """Close this side's connection, as its owner does and as a killed process's kernel does."""
        if self.is_cut:
            return
        self.is_cut = True
        if self.arriving:
            # Unread bytes make a kernel reset the connection, which takes back what is under way.
            self.arriving.clear()
            self.other.arriving.clear()

    def check(self) -> None:
        """What always holds."""
        end = self.end
        assert end.output_bytes == sum(map(len, end.output(1 << 40)))
        assert end.inbox_bytes == sum(len(body) + MESSAGE_OVERHEAD_BYTES for _, body in end.inbox)
        assert end.reason or not end.is_over


class ChannelPair:
    """`ann` has called `bob`, who welcomes everybody or has a `refusal`."""

    def __init__(
        self,
        *,
        cut: Callable[[int], int] = CUTS["whole"],
        hello: Hello = HELLO,
        welcome: Welcome = WELCOME,
        refusal: Refusal | None = None,
    ) -> None:
        self.now = START
        self._cut = cut
        self._welcome = welcome
        self._refusal = refusal
        self.ann = Side(ChannelEnd(hello.message_bytes_max, self.now, hello=hello))
        self.bob = Side(ChannelEnd(welcome.message_bytes_max, self.now))
        self.sides = (self.ann, self.bob)
        self.ann.other, self.bob.other = self.bob, self.ann

    def open(self) -> ChannelPair:
        self.move()
        assert [side.end.state for side in self.sides] == ["open", "open"]
        return self

    def move(self) -> None:
        """Bytes to and fro until nothing moves any more."""
        while any([self.step(side) for side in self.sides]):
            pass

    def step(self, side: Side) -> bool:
        """Let one side do what it can do now; whether that was anything."""
        if side.is_cut:
            return False
        moved = side.write(self.now) > 0
        if side.arriving and side.end.wants_input:
            moved = side.read(self.now, self._cut(len(side.arriving))) > 0
        self.attend(side)
        return moved or self.tell_end(side)

    def attend(self, side: Side) -> None:
        """What an owner does after each of its calls."""
        end = side.end
        if side is self.bob and end.state == OPENING and end.hello is not None:
            if self._refusal is not None:
                end.refuse(self._refusal)
            else:
                end.welcome(self._welcome)
        if end.wants_input:
            end.resume(self.now)
        else:
            end.pause()
        if end.is_over:
            side.cut()

    def tell_end(self, side: Side) -> bool:
        """Whether it was told, just now, that the other side's connection is closed."""
        is_due = side.other.is_cut and not side.arriving and side.end.wants_input
        if not is_due or side.is_cut or side.has_seen_end:
            return False
        side.has_seen_end = True
        side.end.receive_end(self.now)
        self.attend(side)
        return True

    def run(self, seconds: float) -> None:
        """Let time pass, timer by timer; both owners do what they should."""
        until = self.now + seconds
        while living := [side for side in self.sides if not side.is_cut]:
            at = min(side.end.timer_at() for side in living)
            if at > until:
                break
            assert at >= self.now
            self.now = at
            for side in living:
                if side.end.timer_at() <= at:
                    side.end.handle_timer(at)
                    assert side.end.timer_at() > at
                self.attend(side)
            self.move()
        self.now = until


def read_frames(data: bytes) -> list[FrameItem]:
    """The frames that these bytes are, to the last."""
    reader = FrameReader(1 << 40)
    *frames, last = reader.feed(memoryview(data + encode_frame(BEAT)))
    assert last == (BEAT, b"")
    return frames
