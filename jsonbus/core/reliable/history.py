"""What a publisher keeps of its reliable topics, to send it again.

Theory of operation. Every message of a reliable topic has a sequence, from 1 on per topic. It is
kept for a while, and whoever misses it asks for it by a NAK, which names ranges of sequences. What
is still here is sent again, by multicast, once for all who miss it; a beat answers for the rest: it
tells the last sequence of a topic and the first that is still here, so that subscribers give up at
once what is gone. Beats also follow the last message of a topic, at growing intervals: nothing else
would tell a subscriber that the last one was lost. Whoever is asked beats anew: a subscriber that
misses the repair as well hears at least that its publisher is there.

What is kept is bounded in messages and bytes, per topic and in all, and by age. A flood would run
through any bound before the first NAK can come. So a message has a *hold time* before which it is
not pushed out to make room, and a publisher that finds no room waits (`room_at`). That is the flow
control: the hold time is so short while no NAKs come that nobody waits; it doubles while they keep
coming, up to the time that all tries of a subscriber take, and the rate, bound / hold time, falls
until the subscribers keep up; without NAKs it falls back. Repairs keep a pace as well. A message
that was asked for is held anew, as it may be asked for again.

Whoever does not wait is still bounded: the oldest are pushed out, and counted.
"""

from __future__ import annotations

import math
from collections import OrderedDict, deque
from collections.abc import Iterable, Sequence

from jsonbus.core.deadlines import Deadlines
from jsonbus.core.limits import (
    BEAT_MAX_S,
    BEAT_MIN_S,
    BEATS_PER_CALL,
    HISTORY_AGE_S,
    HISTORY_BYTES_MAX,
    HISTORY_HOLD_MIN_S,
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
from jsonbus.core.reliable.kept import KeptTopic, Record
from jsonbus.core.reliable.pace import HoldTime, PublishPace, RepairCredit

Range = tuple[int, int]  # first and last sequence
Beat = tuple[str, int, int]  # topic, its last sequence, the first one that is still kept

_EXPIRY_INTERVAL_S = 1.0  # looking for the expired with every message would be a waste


class History:
    """All reliable topics of one node."""

    __slots__ = (
        "_asked",
        "_beats",
        "_credit",
        "_expiry_at",
        "_floor",
        "_hold",
        "_order",
        "_pace",
        "_topics",
        "pushed_out",
        "repaired",
        "size_bytes",
        "unavailable",
    )

    def __init__(self) -> None:
        self._topics: dict[str, KeptTopic] = {}
        #: All records, oldest first. Ordered, since those of one topic leave from the middle.
        self._order: OrderedDict[Record, None] = OrderedDict()
        self._beats: Deadlines[KeptTopic] = Deadlines()
        #: The highest sequence of a topic that was forgotten: should it come back, it goes on above
        #: it. From 1 again, its messages would be taken for repeats.
        self._floor = 0
        self._expiry_at = -math.inf
        self._hold = HoldTime()
        self._pace = PublishPace()
        self._asked: deque[Record] = deque()
        self._credit = RepairCredit()
        #: What is kept, with what keeping it takes.
        self.size_bytes = 0
        #: Messages sent again; asked for, but gone; pushed out before their hold time was over.
        self.repaired = self.unavailable = self.pushed_out = 0

    def __len__(self) -> int:
        """Messages kept."""
        return len(self._order)

    # --- Publishing ------------------------------------------------------------------------------

    def next_sequence(self, topic: str) -> int:
        """The sequence of the topic's next message; `keep`, the very next call, uses it up.

        Whoever fails in between, to encode the message, say, leaves no gap.
        """
        return (self._topics.get(topic) or self._begin(topic)).last + 1

    def keep(
        self,
        topic: str,
        sequence: int,
        number: int,
        text: bytes,
        now: float,
        mark: bytes = b"",
    ) -> None:
        """Keep a message that is sent under the `next_sequence` of its topic."""
        state = self._topics[topic]
        assert sequence == state.last + 1
        record = Record(topic, sequence, number, text, now, mark)
        state.last = sequence
        state.records[sequence] = record
        self._order[record] = None
        size = len(text) + RECORD_OVERHEAD_BYTES
        state.size_bytes += size
        self.size_bytes += size
        state.beat_s = BEAT_MIN_S
        self._beats.set(state, now + BEAT_MIN_S)
        if self._hold.peak_s > HISTORY_HOLD_MIN_S:
            self._pace.count(size, self._hold.at(now), now)
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
        state = self._topics.get(topic)
        size = size_bytes + RECORD_OVERHEAD_BYTES
        at = now if self._hold.peak_s == HISTORY_HOLD_MIN_S else self._pace.free_at(now)
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

    def is_full(self, topic: str, size_bytes: int, now: float) -> bool:
        return self.room_at(topic, size_bytes, now) > now

    def hold_s(self, now: float) -> float:
        """How long a message is not pushed out, as of now."""
        return self._hold.at(now)

    # --- Repairing -------------------------------------------------------------------------------

    def take_nak(self, topic: str, ranges: Sequence[Range], now: float) -> list[Record]:
        """A subscriber asks for these. What to send again now; see `repairs` for the rest.

        Beats answer for what is gone.
        """
        state = self._topics.get(topic)
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
                    record.repaired_at = now  # or soon: from here on it is held anew
                    age_s = max(age_s, now - record.kept_at)
                    self._asked.append(record)
        if gone or age_s >= 0:
            self._hold.lengthen(age_s, now)
            self._beat_anew(state, gone > 0, now)
        self.unavailable += min(gone, state.last)
        return self.repairs(now)

    def repairs(self, now: float) -> list[Record]:
        """What to send again by now, of all that was asked for."""
        records: list[Record] = []
        if not self._asked:
            return records
        self._credit.earn(self._hold.at(now), now)
        while self._asked:
            record = self._asked[0]
            if record in self._order:
                if not self._credit.spend(len(record.text) + RECORD_OVERHEAD_BYTES):
                    break
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

    def beats(self, now: float) -> list[Beat]:
        """The beats to send now: a few at most; while there are more, `timer_at` is not after now.

        What has expired goes: topics with a history always have a beat to come.
        """
        self._expire(now)
        due = now + TIMER_SLACK_S
        beats: list[Beat] = []
        while len(beats) < BEATS_PER_CALL and (state := self._beats.pop(due)) is not None:
            beats.append((state.name, state.last, state.first))
            state.beaten_at = now
            if state.records:
                state.beat_s = min(2 * state.beat_s, BEAT_MAX_S)
                self._beats.set(state, now + state.beat_s)
        return beats

    # --- Inside ----------------------------------------------------------------------------------

    def _begin(self, topic: str) -> KeptTopic:
        if len(self._topics) >= HISTORY_TOPICS_MAX:
            self._forget_idle_topics()
        state = self._topics[topic] = KeptTopic(topic, self._floor)
        return state

    def _forget_idle_topics(self) -> None:
        """All of them at once, at least half: a search for the oldest would cost more."""
        kept = {}
        for name, state in self._topics.items():
            if state.records:
                kept[name] = state
            else:
                self._floor = max(self._floor, state.last)
                self._beats.remove(state)
        self._topics = kept

    def _free_at(self, records: Iterable[Record], over: int, count: int, at: float) -> float:
        """When so many bytes and messages of them may go."""
        hold_s = self._hold.at(at)
        for record in records:
            if over <= 0 and count <= 0:
                break
            over -= len(record.text) + RECORD_OVERHEAD_BYTES
            count -= 1
            at = max(at, record.free_at(hold_s))
        return at

    def _push_out(self, state: KeptTopic, now: float) -> None:
        """Make room; the message kept last stays, however large."""
        hold_s = self._hold.at(now)
        while len(state.records) > 1 and (
            state.size_bytes > HISTORY_TOPIC_BYTES_MAX
            or len(state.records) > HISTORY_TOPIC_MESSAGES_MAX
        ):
            oldest = state.records[state.first]
            self.pushed_out += oldest.free_at(hold_s) > now
            self._remove(oldest)
        while len(self._order) > 1 and (
            self.size_bytes > HISTORY_BYTES_MAX or len(self._order) > HISTORY_MESSAGES_MAX
        ):
            oldest = next(iter(self._order))
            self.pushed_out += oldest.free_at(hold_s) > now
            self._remove(oldest)

    def _expire(self, now: float) -> None:
        self._expiry_at = now + _EXPIRY_INTERVAL_S
        while self._order:
            oldest = next(iter(self._order))
            if oldest.kept_at + HISTORY_AGE_S > now:
                break
            self._remove(oldest)

    def _remove(self, oldest: Record) -> None:
        """Of its topic, too, it is the oldest."""
        state = self._topics[oldest.topic]
        size = len(oldest.text) + RECORD_OVERHEAD_BYTES
        del self._order[oldest]
        del state.records[oldest.sequence]
        state.first = oldest.sequence + 1
        state.size_bytes -= size
        self.size_bytes -= size

    def _beat_anew(self, state: KeptTopic, is_urgent: bool, now: float) -> None:
        state.beat_s = BEAT_MIN_S
        at = now + BEAT_MIN_S
        if is_urgent:  # but once for all who ask
            at = max(now, state.beaten_at + REPAIR_IGNORE_S)
        self._beats.set(state, min(at, self._beats.at(state)))
