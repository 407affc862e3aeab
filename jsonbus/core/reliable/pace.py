"""How a publisher slows down when NAKs come in: it holds messages for longer, and keeps a pace.

core.history says what holding is good for.
"""

from __future__ import annotations

import math

from jsonbus.core.limits import (
    HISTORY_HOLD_FALL_S,
    HISTORY_HOLD_MAX_S,
    HISTORY_HOLD_MIN_S,
    HISTORY_TOPIC_BYTES_MAX,
    HISTORY_TOPIC_MESSAGES_MAX,
    PUBLISH_BURST_S,
    REPAIR_BURST_BYTES,
    REPAIR_BYTES_PER_S,
    REPAIR_IGNORE_S,
    REPAIR_TICK_S,
)


class HoldTime:
    """How long a message is not pushed out of the history."""

    __slots__ = ("_doubled_at", "_nak_at", "peak_s")

    def __init__(self) -> None:
        self.peak_s = HISTORY_HOLD_MIN_S  # as of the last NAK
        self._nak_at = self._doubled_at = -math.inf

    def at(self, now: float) -> float:
        """As of now: it halves while no NAKs come."""
        if self.peak_s == HISTORY_HOLD_MIN_S:
            return HISTORY_HOLD_MIN_S
        halvings = int((now - self._nak_at) / HISTORY_HOLD_FALL_S)
        hold_s = math.ldexp(self.peak_s, -halvings)
        if hold_s > HISTORY_HOLD_MIN_S:
            return hold_s
        self.peak_s = HISTORY_HOLD_MIN_S
        return HISTORY_HOLD_MIN_S

    def lengthen(self, age_s: float, now: float) -> None:
        """A NAK came, for a message of that age: the next ones must live to be asked for, too.

        It doubles while NAKs keep coming. One burst of losses makes several at once, which count
        as one.
        """
        hold_s = self.at(now)
        if now - self._doubled_at >= REPAIR_IGNORE_S:
            self._doubled_at = now
            hold_s *= 2
        self.peak_s = min(max(hold_s, 2 * age_s), HISTORY_HOLD_MAX_S)
        self._nak_at = now


class PublishPace:
    """Spreads messages evenly while the hold time is long.

    Holding alone would let a flood come in bursts, as fast as ever, with long pauses.
    """

    __slots__ = ("_ahead_at",)

    def __init__(self) -> None:
        self._ahead_at = -math.inf

    def count(self, size_bytes: int, hold_s: float, now: float) -> None:
        """A message goes out, and takes its part of a history's worth per hold time."""
        part = max(size_bytes / HISTORY_TOPIC_BYTES_MAX, 1 / HISTORY_TOPIC_MESSAGES_MAX)
        self._ahead_at = max(self._ahead_at, now) + part * hold_s

    def free_at(self, now: float) -> float:
        """When the next one may go."""
        return max(now, self._ahead_at - PUBLISH_BURST_S)


class RepairCredit:
    """Bytes that may be sent again: a burst, then as many a second, fewer while it is hard."""

    __slots__ = ("_bytes", "_bytes_per_s", "_earned_at")

    def __init__(self) -> None:
        self._bytes: float = REPAIR_BURST_BYTES
        self._bytes_per_s: float = REPAIR_BYTES_PER_S
        self._earned_at = math.inf

    def earn(self, hold_s: float, now: float) -> None:
        """Time has passed."""
        self._bytes_per_s = min(REPAIR_BYTES_PER_S, HISTORY_TOPIC_BYTES_MAX / hold_s)
        earned = max(0.0, now - self._earned_at) * self._bytes_per_s
        self._bytes = min(REPAIR_BURST_BYTES, self._bytes + earned)
        self._earned_at = now

    def spend(self, size_bytes: int) -> bool:
        """Whether to send so many; more than what is left are sent, and paid for afterwards."""
        if self._bytes <= 0:
            return False
        self._bytes -= size_bytes
        return True

    def back_at(self) -> float:
        """When some were earned again: not for every message an own awakening."""
        wait_s = max(0.0, -self._bytes / self._bytes_per_s)
        return self._earned_at + max(REPAIR_TICK_S, wait_s)
