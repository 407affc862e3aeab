"""The publisher's side: reliable messages kept for repair, and what says how far a topic is.

Theory of operation. Every message of a reliable topic has a sequence, counted from 1 per topic. It
is kept for a while. A subscriber that misses it asks for it by a NAK, which names ranges of
sequences. Messages still kept are sent again, by multicast, once for all who miss them. A *beat*
answers for the rest: it states the last sequence of a topic and the first that is still kept, so
that subscribers give up at once what is gone. Beats also follow the last message of a topic, at
growing intervals, for an hour: nothing else would reveal that the last message was lost. A NAK
restarts the beats: a subscriber that misses the repair as well learns at least that its publisher
is there.

A message that nobody wants is not sent. But if its topic was sent before, a subscriber may only be
away, and still believe that it has everything. So the message is counted and kept all the same, as
*unsent*, without beats; its number is that of the message sent last, negated. The beats start again
when a node appears that wants the topic: a subscriber that is back asks for what it missed, or
learns how much is gone. A beat also answers a NAK for more than there is.

The history is bounded in messages and bytes, per topic and in all, and by age. A flood would run
through any bound before the first NAK can come. So a message has a *keep time* before which it is
not pushed out to make room, and a publisher that finds no room waits (`room_at`). That is the flow
control: the keep time is so short while no NAKs come that nobody waits; it doubles while they keep
coming, up to the time that all rounds of a subscriber take, and the rate, bound / keep time, falls
until the subscribers keep up; without NAKs it falls back. Repairs are paced as well. The keep time
of a message that was asked for starts again, as it may be asked for once more.

A publisher that does not wait is still bounded: the oldest messages are pushed out, and counted.
"""

from __future__ import annotations

import math
from collections import OrderedDict, deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from jsonbus.core.limits import (
    BEAT_ANNOUNCE_S,
    BEAT_LAST_S,
    BEAT_MAX_S,
    BEAT_MIN_S,
    BEATS_PER_CALL,
    HISTORY_AGE_S,
    HISTORY_BYTES_MAX,
    HISTORY_KEEP_MIN_S,
    HISTORY_MESSAGES_MAX,
    HISTORY_TOPIC_BYTES_MAX,
    HISTORY_TOPIC_MESSAGES_MAX,
    HISTORY_TOPICS_MAX,
    NAK_RANGES_MAX,
    RECORD_OVERHEAD_BYTES,
    REPAIR_IGNORE_S,
    REPAIRS_PER_NAK,
    TIMER_SLACK_S,
)
from jsonbus.core.reliable.pace import Pace, RepairCredit
from jsonbus.core.routing.matching import is_pattern, matches
from jsonbus.core.timers import Deadlines

Range = tuple[int, int]  # first and last sequence
Beat = tuple[str, int, int]  # topic, its last sequence, the first one that is still kept

_EXPIRY_INTERVAL_S = 1.0  # looking for expired records with every message would be a waste


@dataclass(slots=True, eq=False)
class HistoryRecord:
    """A kept message. `text` and `mark` belong to the caller; see above for `number`."""

    topic: str
    sequence: int
    number: int
    text: bytes
    kept_at: float
    mark: bytes = b""
    repaired_at: float = -math.inf
    is_asked: bool = False  # and will be sent again

    def free_at(self, keep_s: float) -> float:
        """When it may be pushed out."""
        kept_until = max(self.kept_at, self.repaired_at) + keep_s
        return min(kept_until, self.kept_at + HISTORY_AGE_S)


class _Topic:
    """The records of one topic: the sequences from `first` to `last`, without holes."""

    __slots__ = (
        "beat_s",
        "beaten_at",
        "beats_until",
        "first",
        "is_unsent",
        "last",
        "name",
        "records",
        "size_bytes",
    )

    def __init__(self, name: str, last: int) -> None:
        self.name = name
        self.first = last + 1
        self.last = last
        self.records: dict[int, HistoryRecord] = {}
        self.size_bytes = 0
        self.beat_s = BEAT_MIN_S
        self.beaten_at = -math.inf
        self.beats_until = -math.inf  # often until then, and as long as it has records
        self.is_unsent = False  # nobody wants it, so nobody needs its beats

    def in_order(self) -> Iterator[HistoryRecord]:
        return map(self.records.__getitem__, range(self.first, self.last + 1))


class History:
    """The reliable topics that one node publishes."""

    def __init__(self) -> None:
        self.topics: dict[str, _Topic] = {}
        #: All records, oldest first. An OrderedDict, as those of one topic leave from the middle.
        self._order: OrderedDict[HistoryRecord, None] = OrderedDict()
        self._beats: Deadlines[_Topic] = Deadlines()
        #: The highest sequence of a forgotten topic. Should it come back, it goes on above: from 1
        #: again, its messages would be taken for repeats.
        self._floor = 0
        self._expiry_at = -math.inf
        self.pace = Pace()
        self._asked: deque[HistoryRecord] = deque()
        self._credit = RepairCredit()
        #: Bytes of all records, with the overhead of keeping them.
        self.size_bytes = 0
        #: Messages sent again; asked for, but gone; pushed out before their keep time was over.
        self.repaired = self.unavailable = self.pushed_out = 0

    def __len__(self) -> int:
        """Messages kept."""
        return len(self._order)

    # --- Publishing ------------------------------------------------------------------------------

    def next_sequence(self, topic: str) -> int:
        """Return the sequence of the topic's next message; `keep`, the very next call, uses it up.

        A caller that fails in between, to encode the message, say, leaves no gap.
        """
        return (self.topics.get(topic) or self._begin(topic)).last + 1

    def keep(
        self,
        topic: str,
        sequence: int,
        number: int,
        text: bytes,
        now: float,
        *,
        is_retained: bool = False,
    ) -> None:
        """Keep a message that has the `next_sequence` of its topic."""
        state = self.topics[topic]
        assert sequence == state.last + 1
        record = HistoryRecord(topic, sequence, number, text, now, b",1" if is_retained else b"")
        state.last = sequence
        state.records[sequence] = record
        self._order[record] = None
        size = len(text) + RECORD_OVERHEAD_BYTES
        state.size_bytes += size
        self.size_bytes += size
        if number > 0:
            state.is_unsent = False
            state.beat_s = BEAT_MIN_S
            self._beats.set(state, now + BEAT_MIN_S)
        else:
            state.is_unsent = True
            self._beats.bring_forward(state, now + BEAT_MAX_S)  # for expiry
        if self.pace.peak_s > HISTORY_KEEP_MIN_S:
            self.pace.count(size, now)
        if (
            self.size_bytes > HISTORY_BYTES_MAX
            or state.size_bytes > HISTORY_TOPIC_BYTES_MAX
            or len(self._order) > HISTORY_MESSAGES_MAX
            or len(state.records) > HISTORY_TOPIC_MESSAGES_MAX
        ):
            self._push_out(state, now)
        if now >= self._expiry_at:
            self._expire(now)

    def room_at(self, topic: str, size_bytes: int, now: float) -> float:
        """When a message of that size may be published on that topic; `now` if at once."""
        state = self.topics.get(topic)
        size = size_bytes + RECORD_OVERHEAD_BYTES
        at = now if self.pace.peak_s == HISTORY_KEEP_MIN_S else self.pace.free_at(now)
        over = self.size_bytes + size - HISTORY_BYTES_MAX
        count = len(self._order) + 1 - HISTORY_MESSAGES_MAX
        if over > 0 or count > 0:
            at = self._free_at(self._order, over, count, at)
        if state is None:
            return at
        over = state.size_bytes + size - HISTORY_TOPIC_BYTES_MAX
        count = len(state.records) + 1 - HISTORY_TOPIC_MESSAGES_MAX
        if over > 0 or count > 0:
            at = self._free_at(state.in_order(), over, count, at)
        return at

    # --- Repairing -------------------------------------------------------------------------------

    def take_nak(self, topic: str, ranges: Sequence[Range], now: float) -> list[HistoryRecord]:
        """Return what to send again now of these ranges; `repairs` returns the rest later.

        Beats answer for what is gone.
        """
        state = self.topics.get(topic)
        if state is None:
            return []
        age_s = -1.0
        gone = 0
        looks = REPAIRS_PER_NAK  # at records, sent again or not: ranges may overlap
        for first, last in ranges[:NAK_RANGES_MAX]:
            gone += max(0, min(last + 1, state.first) - first)
            start = max(first, state.first)
            for sequence in range(start, min(last, state.last, start + looks - 1) + 1):
                looks -= 1
                record = state.records[sequence]
                if not record.is_asked and now - record.repaired_at >= REPAIR_IGNORE_S:
                    record.is_asked = True
                    record.repaired_at = now  # or soon: its keep time starts again
                    age_s = max(age_s, now - record.kept_at)
                    self._asked.append(record)
        # Who asks for more than there is wants to know how far the topic is.
        is_beyond = any(last > state.last for _, last in ranges)
        if gone or age_s >= 0:
            self.pace.lengthen(age_s, now)
        if gone or age_s >= 0 or is_beyond:
            state.is_unsent = False
            state.beat_s = BEAT_MIN_S
            at = now + BEAT_MIN_S
            if gone or is_beyond:  # a beat answers soon, but only once for all who ask
                at = max(now, state.beaten_at + REPAIR_IGNORE_S)
            self._beats.bring_forward(state, at)
        self.unavailable += min(gone, state.last)
        return self.repairs(now)

    def repairs(self, now: float) -> list[HistoryRecord]:
        """Return what to send again by now, of all that was asked for."""
        if not self._asked:
            return []
        records: list[HistoryRecord] = []
        credit = self._credit
        credit.earn(self.pace.keep_s(now), now)
        while self._asked:
            record = self._asked[0]
            if record in self._order:
                if credit.size_bytes <= 0:
                    break
                credit.size_bytes -= len(record.text) + RECORD_OVERHEAD_BYTES
                record.is_asked = False
                record.repaired_at = now
                records.append(record)
            self._asked.popleft()
        self.repaired += len(records)
        return records

    # --- Beats -----------------------------------------------------------------------------------

    def timer_at(self) -> float:
        """When to call `beats` and `repairs`."""
        beat_at = self._beats.next_at()
        return min(beat_at, self._credit.back_at()) if self._asked else beat_at

    def announce(self, patterns: Iterable[str], now: float) -> None:
        """Restart the beats of these topics: a node appeared that may have missed messages."""
        for pattern in patterns:
            names = [pattern]
            if is_pattern(pattern):
                names = [name for name in self.topics if matches(pattern, name)]
            for state in filter(None, map(self.topics.get, names)):
                state.is_unsent = False
                state.beats_until = now + HISTORY_AGE_S
                state.beat_s = min(state.beat_s, BEAT_ANNOUNCE_S)
                at = max(now + BEAT_MIN_S, state.beaten_at + BEAT_ANNOUNCE_S)
                self._beats.bring_forward(state, at)

    def beats(self, now: float) -> list[Beat]:
        """Return the beats to send now, a few at most; if there are more, `timer_at` is not later.

        Expired records are removed: topics with a history always have a beat to come.
        """
        self._expire(now)
        due = now + TIMER_SLACK_S
        beats: list[Beat] = []
        while len(beats) < BEATS_PER_CALL and (state := self._beats.pop(due)) is not None:
            if not state.is_unsent:
                beats.append((state.name, state.last, state.first))
                state.beaten_at = now
            if state.records or now < state.beats_until:
                state.beat_s = min(2 * state.beat_s, BEAT_MAX_S)
            elif state.is_unsent or state.beat_s > BEAT_LAST_S:
                continue
            else:
                state.beat_s *= 2
            self._beats.set(state, now + state.beat_s)
        return beats

    # --- Inside ----------------------------------------------------------------------------------

    def _begin(self, topic: str) -> _Topic:
        if len(self.topics) >= HISTORY_TOPICS_MAX:
            self._forget_idle_topics()
        state = self.topics[topic] = _Topic(topic, self._floor)
        return state

    def _forget_idle_topics(self) -> None:
        """Forget all of them at once: a search for the oldest would cost more."""
        kept = {}
        for name, state in self.topics.items():
            if state.records:
                kept[name] = state
            else:
                self._floor = max(self._floor, state.last)
                self._beats.remove(state)
        self.topics = kept

    def _free_at(self, records: Iterable[HistoryRecord], over: int, count: int, at: float) -> float:
        """When so many bytes and messages of them may be pushed out."""
        keep_s = self.pace.keep_s(at)
        for record in records:
            if over <= 0 and count <= 0:
                break
            over -= len(record.text) + RECORD_OVERHEAD_BYTES
            count -= 1
            at = max(at, record.free_at(keep_s))
        return at

    def _push_out(self, state: _Topic, now: float) -> None:
        """Make room. The message that was kept last stays, however large it is."""
        keep_s = self.pace.keep_s(now)
        while len(state.records) > 1 and (
            state.size_bytes > HISTORY_TOPIC_BYTES_MAX
            or len(state.records) > HISTORY_TOPIC_MESSAGES_MAX
        ):
            oldest = state.records[state.first]
            self.pushed_out += oldest.free_at(keep_s) > now
            self._remove(oldest)
        while len(self._order) > 1 and (
            self.size_bytes > HISTORY_BYTES_MAX or len(self._order) > HISTORY_MESSAGES_MAX
        ):
            oldest = next(iter(self._order))
            self.pushed_out += oldest.free_at(keep_s) > now
            self._remove(oldest)

    def _expire(self, now: float) -> None:
        self._expiry_at = now + _EXPIRY_INTERVAL_S
        while self._order:
            oldest = next(iter(self._order))
            if oldest.kept_at + HISTORY_AGE_S > now:
                break
            self._remove(oldest)

    def _remove(self, oldest: HistoryRecord) -> None:
        """Remove a record that is the oldest of its topic, too."""
        state = self.topics[oldest.topic]
        size = len(oldest.text) + RECORD_OVERHEAD_BYTES
        del self._order[oldest]
        del state.records[oldest.sequence]
        state.first = oldest.sequence + 1
        state.size_bytes -= size
        self.size_bytes -= size
