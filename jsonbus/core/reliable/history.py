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

Messages that leave together are kept together (kept.py), in one step for all of them. A publisher
that is *at ease* need not look for room before each: the next megabyte surely finds it. That is
found out once for half of it, and never while NAKs come.
"""

from __future__ import annotations

import math
from collections import OrderedDict, deque
from collections.abc import Iterable, Sequence

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
from jsonbus.core.outbox import RELIABLE_BYTES_MAX
from jsonbus.core.reliable.kept import HistoryRecord, KeptTopic, Stretch, oldest
from jsonbus.core.reliable.pace import Pace, RepairCredit
from jsonbus.core.routing.matching import is_pattern, matches
from jsonbus.core.timers import Deadlines

Range = tuple[int, int]  # first and last sequence
Beat = tuple[str, int, int]  # topic, its last sequence, the first one that is still kept

_EXPIRY_INTERVAL_S = 1.0  # looking for expired messages with every new one would be a waste

#: How far ahead it looks for room, several times a batch, and how often if there is none.
_LOOK_BYTES = 2 * RELIABLE_BYTES_MAX
_LOOK_AGAIN_S = 0.01


class History:
    """The reliable topics that one node publishes."""

    def __init__(self) -> None:
        self.topics: dict[str, KeptTopic] = {}
        #: All stretches, oldest first. An OrderedDict, as those of one topic leave from the middle.
        self._order: OrderedDict[Stretch, None] = OrderedDict()
        self._count = 0  # messages kept
        self._beats: Deadlines[KeptTopic] = Deadlines()
        #: The highest sequence of a forgotten topic. Should it come back, it goes on above: from 1
        #: again, its messages would be taken for repeats.
        self._floor = 0
        self._expiry_at = -math.inf
        self._slack_bytes = 0
        self.is_tight = False  # the topic that was kept last is not at ease
        self._slack_at = -math.inf  # when to look for slack again
        self.pace = Pace()
        self._asked: deque[tuple[Stretch, int]] = deque()
        self._credit = RepairCredit()
        #: Bytes of all messages, with the overhead of keeping them.
        self.size_bytes = 0
        #: The highest sequence of any topic.
        self.top = 0
        #: Messages sent again; asked for, but gone; pushed out before their keep time was over.
        self.repaired = self.unavailable = self.pushed_out = 0

    def __len__(self) -> int:
        """Messages kept."""
        return self._count

    # --- Publishing ------------------------------------------------------------------------------

    def begin(self, topic: str) -> None:
        """Note that messages of this topic will be kept."""
        if topic not in self.topics:
            self._begin(topic)

    def keep(
        self, topic: str, texts: tuple[bytes, ...], number: int, now: float, mark: bytes = b""
    ) -> int:
        """Keep messages of a topic; return the sequence of the first, the next ones follow.

        `number` is that of the first one, too. A message that is unsent comes alone.
        """
        state = self.topics.get(topic) or self._begin(topic)
        first = state.last + 1
        stretch = Stretch(topic, first, number, texts, now, mark)
        state.stretches.append(stretch)
        self._order[stretch] = None
        count = len(texts)
        state.last += count
        self._count += count
        if state.last > self.top:
            self.top = state.last
        size = sum(map(len, texts)) + RECORD_OVERHEAD_BYTES * count
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
            self.pace.count(size, now, count)
        if (
            self.size_bytes > HISTORY_BYTES_MAX
            or state.size_bytes > HISTORY_TOPIC_BYTES_MAX
            or self._count > HISTORY_MESSAGES_MAX
            or state.last - state.first >= HISTORY_TOPIC_MESSAGES_MAX
        ):
            self._push_out(state, now)
        state.slack_bytes -= size
        self._slack_bytes -= size
        is_over = state.slack_bytes < 0 or self._slack_bytes < 0
        self.is_tight = is_over and not self._find_slack(state, now)
        if now >= self._expiry_at:
            self._expire(now)
        return first

    def room_at(self, topic: str, size_bytes: int, now: float, count: int = 1) -> float:
        """When so many messages of that size in all may be published on that topic; `now` if at
        once.
        """
        state = self.topics.get(topic)
        size = size_bytes + RECORD_OVERHEAD_BYTES * count
        at = now
        if count > HISTORY_TOPIC_MESSAGES_MAX:
            at += self.pace.keep_s(now)  # what waits would push itself out
        if self.pace.peak_s > HISTORY_KEEP_MIN_S:
            at = max(at, self.pace.free_at(now, size, count - 1))
        over = self.size_bytes + size - HISTORY_BYTES_MAX
        too_many = self._count + count - HISTORY_MESSAGES_MAX
        if over > 0 or too_many > 0:
            at = self._free_at(self._order, over, too_many, at)
        if state is None:
            return at
        over = state.size_bytes + size - HISTORY_TOPIC_BYTES_MAX
        too_many = len(state) + count - HISTORY_TOPIC_MESSAGES_MAX
        if over > 0 or too_many > 0:
            at = self._free_at(state.stretches, over, too_many, at)
        return at

    def is_at_ease(self, topic: str, now: float) -> bool:
        """Whether the topic's next messages surely find room, without looking at each of them.

        At most RELIABLE_BYTES_MAX may wait to be kept.
        """
        state = self.topics.get(topic)
        return (
            state is not None
            and state.slack_bytes >= 0
            and self._slack_bytes >= 0
            and self.pace.keep_s(now) == HISTORY_KEEP_MIN_S
        )

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
            stretch = None
            for sequence in range(start, min(last, state.last, start + looks - 1) + 1):
                looks -= 1
                if stretch is None or sequence >= stretch.first + len(stretch.texts):
                    stretch = state.find(sequence)
                if stretch.ask(sequence, now):
                    age_s = max(age_s, now - stretch.kept_at)
                    self._asked.append((stretch, sequence))
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
            stretch, sequence = self._asked[0]
            if sequence >= stretch.first:  # it was not pushed out
                if credit.size_bytes <= 0:
                    break
                record = stretch.repair(sequence, now)
                credit.size_bytes -= len(record.text) + RECORD_OVERHEAD_BYTES
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
            if state.stretches or now < state.beats_until:
                state.beat_s = min(2 * state.beat_s, BEAT_MAX_S)
            elif state.is_unsent or state.beat_s > BEAT_LAST_S:
                continue
            else:
                state.beat_s *= 2
            self._beats.set(state, now + state.beat_s)
        return beats

    # --- Inside ----------------------------------------------------------------------------------

    def _begin(self, topic: str) -> KeptTopic:
        if len(self.topics) >= HISTORY_TOPICS_MAX:
            self._forget_idle_topics()
        state = self.topics[topic] = KeptTopic(topic, self._floor)
        return state

    def _forget_idle_topics(self) -> None:
        """Forget all of them at once: a search for the oldest would cost more."""
        kept = {}
        for name, state in self.topics.items():
            if state.stretches:
                kept[name] = state
            else:
                self._floor = max(self._floor, state.last)
                self._beats.remove(state)
        self.topics = kept

    def _find_slack(self, state: KeptTopic, now: float) -> bool:
        """Find out for many messages ahead whether there will be room.

        What may be pushed out now may also be later, unless NAKs come.
        """
        if now < self._slack_at:
            return False
        ahead = _LOOK_BYTES // RECORD_OVERHEAD_BYTES
        is_small = ahead > HISTORY_TOPIC_MESSAGES_MAX
        if is_small or self.room_at(state.name, _LOOK_BYTES, now, ahead) > now:
            self._slack_at = now + _LOOK_AGAIN_S
            return False
        # Half of it: the batch that takes more than is left of that has the other half.
        state.slack_bytes = self._slack_bytes = RELIABLE_BYTES_MAX
        return True

    def _free_at(self, stretches: Iterable[Stretch], over: int, count: int, at: float) -> float:
        """When so many bytes and messages of them may be pushed out."""
        keep_s = self.pace.keep_s(at)
        for stretch, taken in oldest(stretches, over, count):
            at = max(at, stretch.all_free_at(taken, keep_s))
        return at

    def _push_out(self, state: KeptTopic, now: float) -> None:
        """Make room. The message that was kept last stays, however large it is."""
        over = state.size_bytes - HISTORY_TOPIC_BYTES_MAX
        self._remove_oldest(state.stretches, over, len(state) - HISTORY_TOPIC_MESSAGES_MAX, now)
        over = self.size_bytes - HISTORY_BYTES_MAX
        self._remove_oldest(self._order, over, self._count - HISTORY_MESSAGES_MAX, now)

    def _remove_oldest(
        self, stretches: Iterable[Stretch], over: int, count: int, now: float
    ) -> None:
        """Remove so many bytes and messages of them, but never the very last."""
        if over <= 0 and count <= 0:
            return
        keep_s = self.pace.keep_s(now)
        for stretch, taken in list(oldest(stretches, over, count)):
            taken = min(taken, self._count - 1)
            if stretch is self.topics[stretch.topic].stretches[-1] and stretches is not self._order:
                taken = min(taken, len(stretch.texts) - 1)
            if stretch.all_free_at(taken, keep_s) > now:
                ages = range(stretch.first, stretch.first + taken)
                self.pushed_out += sum(stretch.free_at(each, keep_s) > now for each in ages)
            self._remove(stretch, taken)

    def _expire(self, now: float) -> None:
        self._expiry_at = now + _EXPIRY_INTERVAL_S
        while self._order:
            oldest = next(iter(self._order))
            if oldest.kept_at + HISTORY_AGE_S > now:
                break
            self._remove(oldest, len(oldest.texts))

    def _remove(self, oldest: Stretch, count: int) -> None:
        """Remove messages of a stretch that is the oldest of its topic, too."""
        state = self.topics[oldest.topic]
        size = sum(map(len, oldest.texts[:count])) + RECORD_OVERHEAD_BYTES * count
        if count == len(oldest.texts):
            del self._order[oldest]
            state.stretches.popleft()
        oldest.texts = oldest.texts[count:]
        oldest.first += count
        if oldest.number > 0:
            oldest.number += count
        state.first = oldest.first
        state.size_bytes -= size
        self.size_bytes -= size
        self._count -= count
