"""The subscriber's side: messages in order and exactly once, or a reported gap.

Theory of operation. gaps.py has the state of one stream; here are all streams of a node. A message
that is next in its stream is delivered at once. A message beyond a gap waits until the gap is
filled or given up. What waits is bounded; a message that finds no room is dropped as if it had been
lost, and asked for when its turn comes. The first missing message needs no room, so that a stream
never stands still.

Every stream with gaps has one timer: the instant at which its first gap is ready to be asked for,
plus a random delay among all subscribers, so that one asks and the others, hearing it, need not
(core.timers). All gaps that are ready by then go into one NAK.

A sequence so far away that no history could bridge it is believed when a second one confirms it: a
single forged datagram would make everything that the real node sends look old.

Streams outlive their publisher for a while. It may only have been unreachable, and what it then
repairs for others must not be delivered here a second time.

A publisher that was gone for this node may never have lost sight of it, and so not announce how far
its topics are. When it is back, the node asks for the message after the last one that it knows of,
a few times, until something is heard of the stream.

The number of streams is bounded, and so is the time that a silent one is kept whose publisher is
gone. A message must not pay for that: streams are not kept in the order in which they were heard.
They are checked in turn, and dropped if nothing was heard since the last check: at once when room
is needed, so that forged streams, heard once, go before those in use; otherwise only after many
checks, as a publisher may be back after a long absence, and the place in its stream tells how much
was missed.
"""

from __future__ import annotations

import random
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from operator import attrgetter
from typing import Generic, NamedTuple, TypeVar

from jsonbus.core.limits import (
    GAP_WAIT_S,
    NAK_BYTES_MAX,
    NAK_DELAY_MAX_S,
    NAK_RANGES_MAX,
    NAK_WAITS_S,
    SLICE_WAIT_S,
    STREAM_BACK_S,
    STREAM_IDLE_CHECKS,
    STREAM_IDLE_S,
    STREAM_JUMP,
    STREAMS_MAX,
    TIMER_SLACK_S,
)
from jsonbus.core.reliable.gaps import Gap, Key, Range, Stream, Waiting
from jsonbus.core.timers import Deadlines, suppression_delay_s
from jsonbus.core.wire.frames import MissingOfTopic

T = TypeVar("T")

_ready_at_of = attrgetter("ready_at")

#: What became of a message: deliver it now; it waits or is ready; it came again, found no room, or
#: was not believed.
IN_TURN, OUT_OF_TURN, REFUSED = "in turn", "out of turn", "refused"

_CHANCES = 16  # streams in use that are passed over when one must make room


class LostRange(NamedTuple):
    """Messages first … last, which were given up."""

    node: str
    incarnation: int
    topic: str
    first: int
    last: int


class Nak(NamedTuple):
    """One datagram's worth of what this node misses of another node's topics."""

    node: str
    incarnation: int
    topics: list[MissingOfTopic]


class Streams(Generic[T]):
    """All streams of one node. `subscribers` returns how many nodes may miss the same message, and
    `is_here` whether this incarnation of a node is on the bus.

    A message that is IN_TURN is to be delivered at once; others come out of `take_ready`, which the
    caller must call whenever `ready` is not empty. The order holds even if that is late.
    """

    def __init__(
        self,
        subscribers: Callable[[], int],
        rng: random.Random,
        nak_bytes_max: int = NAK_BYTES_MAX,
        is_here: Callable[[str, int], bool] = lambda node, incarnation: False,
    ) -> None:
        self._subscribers = subscribers
        self._is_here = is_here
        self._rng = rng
        #: All streams, the one that was checked longest ago first.
        self.by_key: OrderedDict[Key, Stream[T]] = OrderedDict()
        self._by_node: dict[str, dict[Key, Stream[T]]] = {}
        self._timers: Deadlines[Stream[T]] = Deadlines()
        #: Publishers that are gone; those that are back: since when, and how often they were asked.
        self._gone: set[str] = set()
        self._back: dict[tuple[str, int], tuple[float, int]] = {}
        self._back_timers: Deadlines[tuple[str, int]] = Deadlines()
        self._nak_bytes_max = nak_bytes_max
        #: Messages and bytes that wait behind gaps.
        self.waiting = Waiting()
        #: Messages to be delivered, in order.
        self.ready: list[T] = []
        #: Ranges that were given up and are still to be reported.
        self.lost: list[LostRange] = []
        self.given_up = 0  # messages
        self.naks_sent = 0  # one for each stream in a NAK

    # --- Receiving -------------------------------------------------------------------------------

    def open(self, key: Key, next_sequence: int, now: float) -> Stream[T]:
        """Begin a stream in which everything from `next_sequence` on is wanted."""
        if len(self.by_key) >= STREAMS_MAX:
            self._make_room(now)
        stream: Stream[T] = Stream(key, next_sequence, self.waiting, now)
        self.by_key[key] = stream
        self._by_node.setdefault(key[0], {})[key] = stream
        return stream

    def receive(self, stream: Stream[T], sequence: int, item: T, size: int, now: float) -> str:
        """Take a message; return IN_TURN, OUT_OF_TURN or REFUSED."""
        gaps = stream.gaps
        if sequence == stream.top and not gaps and not self.ready:
            stream.top = sequence + 1
            stream.heard_at = now
            return IN_TURN
        distance = sequence - (gaps[0].first if gaps else stream.top)
        if abs(distance) >= STREAM_JUMP:
            if not self._jump(stream, sequence, stream.far, now):
                return REFUSED
            distance = sequence - stream.next
        stream.heard_at = now
        if distance == 0:
            self.ready.append(item)
            if not gaps:
                stream.top += 1
                return OUT_OF_TURN
            stream.fill(0, sequence)
            stream.release(sequence + 1, self.ready)
            if not gaps:
                self._timers.remove(stream)
        elif sequence >= stream.top:
            if not stream.add(sequence, item, size):
                return REFUSED
            if sequence > stream.top:
                self._miss(stream, sequence - 1, now)
            stream.top = sequence + 1
        else:
            index = stream.find(sequence)
            if index < 0 or not stream.add(sequence, item, size):
                return REFUSED
            stream.fill(index, sequence)
        return OUT_OF_TURN

    def hear_beat(self, stream: Stream[T], last: int, first: int, now: float) -> None:
        """The publisher's last message was `last`; `first` and later ones can still be repaired."""
        if not 0 <= last + 1 - first <= STREAM_JUMP:
            return  # no publisher of ours says so
        if abs(last - stream.next) > STREAM_JUMP and not self._jump(stream, last, first, now):
            return
        stream.heard_at = now
        if first > stream.next:
            self._give_up_below(stream, first)
        if last >= stream.top and not stream.is_full:
            self._miss(stream, last, now)

    def touch(self, key: Key, sequence: int, now: float) -> None:
        """Slices of that message keep arriving: it is not lost."""
        stream = self.by_key.get(key)
        if stream is not None:
            stream.heard_at = now
            stream.postpone(sequence, now + SLICE_WAIT_S)

    def take_ready(self) -> list[T]:
        ready = self.ready
        self.ready = []
        return ready

    def take_lost(self) -> list[LostRange]:
        """Return what was given up since the last call."""
        lost = self.lost
        self.lost = []
        return lost

    # --- Asking ----------------------------------------------------------------------------------

    def hear_nak(self, key: Key, ranges: Sequence[Range], now: float) -> None:
        """Another subscriber asked for these: this node need not."""
        stream = self.by_key.get(key)
        # The timer stays: when it ends there is nothing to ask for yet, and it is set again.
        if stream is not None:
            stream.hear_nak(ranges, now)

    def welcome(self, node: str, incarnation: int, now: float) -> None:
        """A node that was gone is back: ask whether it published what was not heard here."""
        if node in self._gone:
            self._gone.remove(node)
            self._back[node, incarnation] = now, 0
            self._back_timers.set((node, incarnation), now + GAP_WAIT_S + self._delay_s())

    def timer_at(self) -> float:
        return min(self._timers.next_at(), self._back_timers.next_at())

    def handle_timer(self, now: float) -> list[Nak]:
        """Ask, or give up: see `take_lost` and `ready`.

        Returns the NAKs to send, to all nodes, so that the other subscribers hear them.
        """
        due = now + TIMER_SLACK_S
        missing: list[tuple[Key, list[Range]]] = []
        while (publisher := self._back_timers.pop(due)) is not None:
            missing += self._ask_after(publisher, now)
        while (stream := self._timers.pop(due)) is not None:
            start = stream.gaps[0].first
            asked, hopeless = stream.ask(now, due)
            if asked:
                self.naks_sent += 1
                missing.append((stream.key, asked))
            if hopeless:
                stream.release(start, self.ready)
                self._report(stream, hopeless)
            if stream.gaps:
                self._arm(stream, now)
        return pack_naks(missing, self._nak_bytes_max) if missing else []

    # --- Ending ----------------------------------------------------------------------------------

    def forget(self, node: str) -> None:
        """The node is gone and cannot repair anything. Messages that wait become ready."""
        if node in self._by_node:
            self._gone.add(node)
        for stream in self._by_node.get(node, {}).values():
            self._settle(stream)

    def close(self, is_over: Callable[[str], bool]) -> None:
        """Forget the streams of these topics without reporting what they miss.

        Messages that wait become ready, for passive subscriptions.
        """
        for stream in [each for each in self.by_key.values() if is_over(each.key[2])]:
            stream.cut(stream.top, self.ready)
            self._disarm(stream)
            self._drop(stream)

    def expire(self, now: float) -> None:
        """Drop streams that were idle for long; to be called every few seconds."""
        while self.by_key:
            stream = next(iter(self.by_key.values()))
            if stream.checked_at + STREAM_IDLE_S > now:
                break
            is_idle = stream.heard_at <= stream.checked_at and not self._is_here(*stream.key[:2])
            stream.idle_checks = stream.idle_checks + 1 if is_idle else 0
            if stream.idle_checks >= STREAM_IDLE_CHECKS:
                self._drop(stream)
            else:
                self._pass_over(stream, now)

    # --- Inside ----------------------------------------------------------------------------------

    def _jump(self, stream: Stream[T], sequence: int, start: int | None, now: float) -> bool:
        """Whether to believe a sequence that far away; then the stream goes on at `start`."""
        far = stream.far
        stream.far = sequence
        if far is None or start is None or not 0 <= sequence - far < STREAM_JUMP:
            return False
        if sequence < stream.next:
            # It was the stream's first sequence that was forged; or this is an echo from long ago.
            if now - stream.heard_at < STREAM_BACK_S:
                return False
            self._settle(stream)
            stream.top = start
        else:
            self._give_up_below(stream, start)
        return True

    def _miss(self, stream: Stream[T], last: int, now: float) -> None:
        """Everything from `top` to `last` is missing."""
        stream.gaps.append(Gap(stream.top, last, now, now + GAP_WAIT_S))
        stream.top = last + 1
        if len(stream.gaps) == 1:  # else the timer is running
            self._arm(stream, now)

    def _give_up_below(self, stream: Stream[T], sequence: int) -> None:
        self._report(stream, stream.cut(sequence, self.ready))
        self._disarm(stream)

    def _settle(self, stream: Stream[T]) -> None:
        self._give_up_below(stream, stream.top)

    def _report(self, stream: Stream[T], ranges: Iterable[Range]) -> None:
        for first, last in ranges:
            self.given_up += last - first + 1
            self.lost.append(LostRange(*stream.key, first, last))

    def _ask_after(self, publisher: tuple[str, int], now: float) -> list[tuple[Key, list[Range]]]:
        """Return what may come next in the publisher's streams of which nothing was heard yet."""
        since, asked = self._back.pop(publisher)
        silent = [
            (key, [(stream.top, stream.top)])
            for key, stream in self._by_node.get(publisher[0], {}).items()
            if key[1] == publisher[1] and stream.heard_at <= since and not stream.gaps
        ]
        if silent and asked < len(NAK_WAITS_S):
            self._back[publisher] = since, asked + 1
            self._back_timers.set(publisher, now + NAK_WAITS_S[asked] + self._delay_s())
        return silent

    def _arm(self, stream: Stream[T], now: float) -> None:
        ready_at: float = min(map(_ready_at_of, stream.gaps))
        self._timers.set(stream, max(now, ready_at) + self._delay_s())

    def _delay_s(self) -> float:
        # Without other subscribers there is nobody whose NAK could be spared.
        count = self._subscribers()
        if count <= 1:
            return 0.0
        return suppression_delay_s(NAK_DELAY_MAX_S, count, self._rng.random())

    def _disarm(self, stream: Stream[T]) -> None:
        if not stream.gaps:
            self._timers.remove(stream)

    def _make_room(self, now: float) -> None:
        for _ in range(_CHANCES):
            stream = next(iter(self.by_key.values()))
            if stream.heard_at <= stream.checked_at:
                break
            self._pass_over(stream, now)
        self._drop(next(iter(self.by_key.values())))

    def _pass_over(self, stream: Stream[T], now: float) -> None:
        stream.checked_at = now
        self.by_key.move_to_end(stream.key)

    def _drop(self, stream: Stream[T]) -> None:
        self._settle(stream)
        del self.by_key[stream.key]
        of_node = self._by_node[stream.key[0]]
        del of_node[stream.key]
        if not of_node:
            del self._by_node[stream.key[0]]
            self._gone.discard(stream.key[0])


def pack_naks(missing: Iterable[tuple[Key, Iterable[Range]]], bytes_max: int) -> list[Nak]:
    """Pack ranges, stream by stream, into as few NAKs of at most `bytes_max` of JSON as hold them.

    One range of one topic makes a NAK, however long the topic is.
    """
    naks: list[Nak] = []
    #: Per publisher its latest NAK, with the number of its ranges and its bytes.
    latest: dict[tuple[str, int], tuple[Nak, int, int]] = {}
    for (node, incarnation, topic), ranges in missing:
        topic_bytes = 2 * len(topic.encode()) + 8  # should all of it be escaped: ["…",[]],
        nak, count, size = latest.get((node, incarnation), (None, 0, 0))
        listed: list[Range] | None = None
        for first, last in ranges:
            range_bytes = len(f"[{first},{last}],")
            needed = range_bytes + (topic_bytes if listed is None else 0)
            is_full = count >= NAK_RANGES_MAX or size + needed > bytes_max
            if nak is None or (count and is_full):
                nak, count, size, listed = Nak(node, incarnation, []), 0, 0, None
                naks.append(nak)
                needed = range_bytes + topic_bytes
            if listed is None:
                listed = []
                nak.topics.append(MissingOfTopic(topic, listed))
            listed.append((first, last))
            count += 1
            size += needed
        if nak is not None:
            latest[node, incarnation] = (nak, count, size)
    return naks
