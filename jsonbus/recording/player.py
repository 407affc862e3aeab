"""Publishes recorded messages, each at its time.

The clock is that of the recorder: `received_at`. All messages have it from one clock, and it is the
order and the rhythm in which a subscriber saw them. The publishers' `sent_at` are of as many clocks
as there were machines, and set by them.

A message that is due is published at once; until then the thread sleeps, which Linux ends within
about 0.1 ms. Nothing is spun for: that would take a core, from the subscribers among others. When
publishing falls behind (the network is slow, the machine busy), what is due goes out without a
pause until it has caught up; nothing is left out, and `lag_s_max` tells by how much it was late.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from time import monotonic, sleep
from typing import Any, Protocol

import jsonbus
from jsonbus.errors import ClosedError, ConfigError, LocalError

from .reader import Timed

#: How often `check` is called at least.
CHECK_S = 0.5

#: Pause between two passes of a recording whose messages all came at the same time.
PASS_S = 1.0

#: The most topics named that nobody subscribed to.
UNWANTED_TOPICS_MAX = 4


class Publish(Protocol):
    """`Bus.publish`."""

    def __call__(self, topic: str, value: Any, *, retain: bool = False) -> bool: ...


class Player:
    """Publishes messages at the times at which they were received.

    `speed` 2 is twice as fast, infinity as fast as the bus accepts them. `topic_prefix` is put
    before all topics. When a retained value is played, its topic is retained from then on, as it
    was by its publisher; with `retain`, all topics are. `check` is called before each message, and
    every half second while nothing is due.
    """

    def __init__(
        self,
        publish: Publish,
        *,
        speed: float = 1.0,
        topic_prefix: str = "",
        retain: bool = False,
        check: Callable[[], None] = lambda: None,
        on_refused: Callable[[jsonbus.Message, LocalError], None] | None = None,
    ) -> None:
        if not speed > 0:
            raise ConfigError(f"the speed is {speed!r}: it has to be above 0")
        self._publish = publish
        self._speed = speed
        self._prefix = f"{topic_prefix.rstrip('/')}/" if topic_prefix else ""
        if self._prefix:
            jsonbus.check_topic(self._prefix + "x")
        self._retains_all = retain
        self._retained: set[str] = set()
        self._check = check
        self._on_refused = on_refused
        self._begins_at: float | None = None  # when the first message of this pass is due
        #: Messages that were played; of them, those that nobody wanted, and those that were refused
        #: because their topic or value cannot be published.
        self.played = 0
        self.unwanted = 0
        self.refused = 0
        #: Some topics that nobody wanted.
        self.unwanted_topics: list[str] = []
        #: The position in the recording, in seconds.
        self.position_s = 0.0
        #: By how much the last message was late, and the latest one.
        self.lag_s = 0.0
        self.lag_s_max = 0.0

    def play(self, timed: Iterable[Timed]) -> int:
        """Play messages from `Recording.timed`, and return how many there were.

        Another call continues without a break: its first message follows at the mean interval of
        those before. Raises ClosedError.
        """
        speed, is_paced = self._speed, math.isfinite(self._speed)
        count, first_at, last_at = 0, 0.0, 0.0
        for at, message in timed:
            if not count:
                first_at = at
                if self._begins_at is None:
                    self._begins_at = monotonic()
            assert self._begins_at is not None
            last_at = at
            count += 1
            self._check()
            if is_paced:
                due_at = self._begins_at + (at - first_at) / speed
                self._wait_until(due_at)
                self.lag_s = monotonic() - due_at
                if self.lag_s > self.lag_s_max:
                    self.lag_s_max = self.lag_s
            self.position_s = at - first_at
            self._play(message)
        if self._begins_at is not None and is_paced:
            span_s = last_at - first_at
            pass_s = span_s + span_s / (count - 1) if span_s else PASS_S
            self._begins_at += pass_s / speed
        return count

    def topic_of(self, message: jsonbus.Message) -> str:
        """Return the topic that a message is played to."""
        return self._prefix + message.topic

    def _wait_until(self, due_at: float) -> None:
        while (wait_s := due_at - monotonic()) > 0:
            sleep(min(wait_s, CHECK_S))
            if wait_s > CHECK_S:
                self._check()

    def _play(self, message: jsonbus.Message) -> None:
        topic = self._prefix + message.topic
        if message.origin.is_retained:
            self._retained.add(topic)
        retain = self._retains_all or topic in self._retained
        self.played += 1
        try:
            if not self._publish(topic, message.value, retain=retain):
                self._note_unwanted(topic)
        except ClosedError:
            raise
        except LocalError as error:
            self.refused += 1
            if self._on_refused is not None:
                self._on_refused(message, error)

    def _note_unwanted(self, topic: str) -> None:
        self.unwanted += 1
        topics = self.unwanted_topics
        if len(topics) < UNWANTED_TOPICS_MAX and topic not in topics:
            topics.append(topic)


def select(
    timed: Iterable[Timed],
    *,
    patterns: Sequence[str] = (),
    start: float = -math.inf,
    end: float = math.inf,
    is_from_beginning: tuple[bool, bool] = (False, False),
) -> Iterator[Timed]:
    """Yield the messages that match the patterns (none: all) from `start` to before `end`.

    Both are seconds since 1970, or since the first message if `is_from_beginning`.
    """
    wanted: dict[str, bool] = {}
    first_at: float | None = None
    for at, message in timed:
        if first_at is None:
            first_at = at
            start += first_at if is_from_beginning[0] else 0.0
            end += first_at if is_from_beginning[1] else 0.0
        if at >= end:
            return
        if at < start:
            continue
        if patterns:
            is_wanted = wanted.get(message.topic)
            if is_wanted is None:
                if len(wanted) > 100_000:
                    wanted.clear()
                is_wanted = any(jsonbus.topic_matches(each, message.topic) for each in patterns)
                wanted[message.topic] = is_wanted
            if not is_wanted:
                continue
        yield at, message
