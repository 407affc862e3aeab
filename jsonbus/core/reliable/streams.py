"""What a subscriber receives of reliable topics: in order, exactly once, or a gap that is told.

Theory of operation. A *stream* is one topic of one publisher's incarnation. Its place is `top`, one
above the highest sequence known of, and its gaps: what is missing below. Nearly always there are
none, and the message that comes is the one at `top`: it is delivered at once.

A message beyond a gap waits until the gap is filled or given up. What waits is bounded; a message
that finds no room is dropped as if it had been lost: it is asked for when its turn comes. The one
that is missing first needs no room, so that a stream never stands still.

Every stream with gaps has one timer: the first of its gaps is ready to be asked for, plus a random
delay among all subscribers, so that one asks and the others, hearing it, do not (core.timers). All
gaps that are ready by then go into one NAK. core.gaps says how often, and when they are given up.

A sequence that no history could bridge is believed when a second one confirms it: a single forged
datagram would make everything that the real node sends look old.

Streams outlive their publisher for a while. It may have been unreachable only, and what it then
repairs for others must not be delivered here a second time.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from typing import Generic, NamedTuple, TypeVar

from jsonbus.core.deadlines import Deadlines
from jsonbus.core.limits import (
    NAK_BYTES_MAX,
    NAK_DELAY_MAX_S,
    SLICE_WAIT_S,
    STREAM_BACK_S,
    STREAM_JUMP,
    TIMER_SLACK_S,
)
from jsonbus.core.reliable.gaps import Range
from jsonbus.core.reliable.naks import Nak, NakPacker
from jsonbus.core.reliable.stream import Key, Stream
from jsonbus.core.reliable.stream_table import StreamTable
from jsonbus.core.timers import suppression_delay_s

T = TypeVar("T")


class Gap(NamedTuple):
    """Messages first … last that will not come any more."""

    node: str
    incarnation: int
    topic: str
    first: int
    last: int


class Streams(Generic[T]):
    """All streams of one node. `subscribers` tells how many nodes may miss the same message.

    Items to deliver come out of `receive`, or out of `take_ready`, to be called whenever `ready` is
    not empty, whatever was called before. The order holds even if that is late.
    """

    __slots__ = (
        "_gaps",
        "_naks",
        "_rng",
        "_streams",
        "_subscribers",
        "_table",
        "_timers",
        "dropped",
        "given_up",
        "naks_sent",
        "naks_spared",
        "ready",
        "repeated",
        "waiting",
    )

    def __init__(
        self,
        subscribers: Callable[[], int],
        rng: random.Random,
        nak_bytes_max: int = NAK_BYTES_MAX,
    ) -> None:
        self._subscribers = subscribers
        self._rng = rng
        self._table: StreamTable[T] = StreamTable(self._settle)
        self._streams = self._table.streams
        self._timers: Deadlines[Stream[T]] = Deadlines()
        self._naks = NakPacker(nak_bytes_max)
        self._gaps: list[Gap] = []
        #: Messages and bytes that wait for their turn.
        self.waiting = self._table.waiting
        #: Items to be delivered, in order.
        self.ready: list[T] = []
        #: Messages that came again; that found no room, or were not believed; that were given up.
        self.repeated = self.dropped = self.given_up = 0
        #: Times that this node asked, and that another one asked first.
        self.naks_sent = self.naks_spared = 0

    def __len__(self) -> int:
        return len(self._streams)

    def __contains__(self, key: Key) -> bool:
        return key in self._streams

    # --- Receiving -------------------------------------------------------------------------------

    def open(self, key: Key, next_sequence: int, now: float, floor: int = 0) -> bool:
        """Begin a stream: everything from that sequence on is wanted. False: it is there already.

        Without this a stream begins with what is heard of it first. `floor_of` gives the floor
        back, as long as the stream lasts.
        """
        if key in self._streams:
            return False
        self._table.begin(key, next_sequence, now).floor = floor
        return True

    def floor_of(self, key: Key) -> int:
        return self._streams[key].floor

    def receive(self, key: Key, sequence: int, item: T, size_bytes: int, now: float) -> bool:
        """Take a message. True: deliver it, there is nothing else. False: see what is `ready`."""
        stream = self._streams.get(key)
        if stream is None:
            stream = self._table.begin(key, sequence, now)
        if sequence != stream.top or stream.gaps is not None:
            self._receive_out_of_turn(stream, sequence, item, size_bytes, now)
            return False
        stream.top = sequence + 1
        stream.heard_at = now
        if self.ready:
            self.ready.append(item)
            return False
        return True

    def hear_beat(self, key: Key, last: int, first: int, now: float) -> None:
        """The publisher's last message was `last`; `first` and later ones can be had again."""
        if not 0 <= last + 1 - first <= STREAM_JUMP:
            return  # no publisher of ours says so
        stream = self._streams.get(key)
        if stream is None:
            self._table.begin(key, last + 1, now)
            return
        if abs(last - stream.next) > STREAM_JUMP and not self._jump(stream, last, first, now):
            return
        stream.heard_at = now
        if first > stream.next:
            self._give_up_below(stream, first)
        if last >= stream.top and not (stream.gaps is not None and stream.gaps.is_full):
            self._note(stream, last, now)

    def touch(self, key: Key, sequence: int, now: float) -> None:
        """Slices of that message keep arriving: it is not lost."""
        stream = self._streams.get(key)
        if stream is not None:
            stream.heard_at = now
            if stream.gaps is not None:
                stream.gaps.touch(sequence, now + SLICE_WAIT_S)

    def take_ready(self) -> list[T]:
        ready = self.ready
        self.ready = []
        return ready

    def take_gaps(self) -> list[Gap]:
        """What was given up; each is told once."""
        gaps = self._gaps
        self._gaps = []
        return gaps

    # --- Asking ----------------------------------------------------------------------------------

    def hear_nak(self, key: Key, ranges: Sequence[Range], now: float) -> None:
        """Another subscriber asked for these: whoever misses the same need not."""
        stream = self._streams.get(key)
        if stream is None or stream.gaps is None:
            return
        # The timer stays: when it comes up there is nothing to ask for yet, and it is set anew.
        if stream.gaps.hear_nak(ranges, stream.heard_at, now):
            self.naks_spared += 1

    def timer_at(self) -> float:
        return self._timers.next_at()

    def handle_timer(self, now: float) -> None:
        """Ask, or give up: see `take_naks`, `take_gaps` and `ready`."""
        due = now + TIMER_SLACK_S
        while (stream := self._timers.pop(due)) is not None:
            assert stream.gaps is not None
            start = stream.gaps.first
            asked, hopeless = stream.gaps.ask(stream.heard_at, now, due)
            if asked:
                self.naks_sent += 1
                self._naks.add(stream.key, asked)
            if hopeless:
                stream.release(start, self.ready)
                self._report(stream, hopeless)
            if stream.gaps is not None:
                self._arm(stream, now)

    def take_naks(self) -> list[Nak]:
        """What to send: to all, so that the other subscribers hear it."""
        return self._naks.take()

    # --- Ending ----------------------------------------------------------------------------------

    def forget(self, node: str) -> None:
        """The node is gone: nothing more can be had from it. What waits is delivered."""
        for stream in self._table.of_node(node):
            self._settle(stream)

    def close(self, is_over: Callable[[str], bool]) -> None:
        """Forget the streams of these topics; what is missing is nobody's loss.

        What waits is ready, for who looks on.
        """
        for stream in [each for each in self._streams.values() if is_over(each.key[2])]:
            stream.cut(stream.top, self.ready)
            self._disarm(stream)
            self._table.drop(stream)

    def expire(self, now: float) -> None:
        """Drop streams that were idle for long; to be called every few seconds."""
        self._table.expire(now)

    # --- Inside ----------------------------------------------------------------------------------

    def _receive_out_of_turn(
        self, stream: Stream[T], sequence: int, item: T, size_bytes: int, now: float
    ) -> None:
        distance = sequence - stream.next
        if abs(distance) >= STREAM_JUMP:
            if not self._jump(stream, sequence, stream.far, now):
                self.dropped += 1
                return
            distance = sequence - stream.next
        stream.heard_at = now
        if distance == 0 and stream.gaps is not None:
            stream.fill_first(item, self.ready)
            self._disarm(stream)
        elif distance == 0:
            stream.top += 1
            self.ready.append(item)
        elif sequence >= stream.top:
            self._wait_at_top(stream, sequence, item, size_bytes, now)
        else:
            self._wait_in_gap(stream, sequence, item, size_bytes)

    def _wait_at_top(
        self, stream: Stream[T], sequence: int, item: T, size_bytes: int, now: float
    ) -> None:
        if not stream.has_room(size_bytes):
            self.dropped += 1
            return
        if sequence > stream.top:
            self._note(stream, sequence - 1, now)
        stream.top = sequence + 1
        stream.wait(sequence, item, size_bytes)

    def _wait_in_gap(self, stream: Stream[T], sequence: int, item: T, size_bytes: int) -> None:
        index = stream.gaps.find(sequence) if stream.gaps is not None else -1
        if index < 0:
            self.repeated += 1
        elif not stream.has_room(size_bytes):
            self.dropped += 1
        else:
            assert stream.gaps is not None
            stream.gaps.fill(index, sequence)
            stream.wait(sequence, item, size_bytes)

    def _jump(self, stream: Stream[T], sequence: int, start: int | None, now: float) -> bool:
        """Whether to believe a sequence that far away; then the stream goes on from `start`."""
        far = stream.far
        stream.far = sequence
        if far is None or start is None or not 0 <= sequence - far < STREAM_JUMP:
            return False
        if sequence < stream.next:
            # It was the stream's begin that was forged; or this is an echo from long ago.
            if now - stream.heard_at < STREAM_BACK_S:
                return False
            self._settle(stream)
            stream.top = start
        else:
            self._give_up_below(stream, start)
        return True

    def _note(self, stream: Stream[T], last: int, now: float) -> None:
        stream.note(last, now)
        if stream not in self._timers:
            self._arm(stream, now)

    def _give_up_below(self, stream: Stream[T], sequence: int) -> None:
        self._report(stream, stream.cut(sequence, self.ready))
        self._disarm(stream)

    def _settle(self, stream: Stream[T]) -> None:
        self._give_up_below(stream, stream.top)

    def _report(self, stream: Stream[T], ranges: Iterable[Range]) -> None:
        for first, last in ranges:
            self.given_up += last - first + 1
            self._gaps.append(Gap(*stream.key, first, last))

    def _arm(self, stream: Stream[T], now: float) -> None:
        assert stream.gaps is not None
        self._timers.set(stream, max(now, stream.gaps.ready_at()) + self._delay_s())

    def _disarm(self, stream: Stream[T]) -> None:
        if stream.gaps is None:
            self._timers.remove(stream)

    def _delay_s(self) -> float:
        """None among one: there is nobody to be spared."""
        count = self._subscribers()
        if count <= 1:
            return 0.0
        return suppression_delay_s(NAK_DELAY_MAX_S, count, self._rng.random())
