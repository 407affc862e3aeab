"""How a publisher slows down when NAKs come in: it keeps messages for longer, and paces itself.

history.py explains the keep time.
"""

from __future__ import annotations

import math

from jsonbus.core.limits import (
    HISTORY_KEEP_FALL_S,
    HISTORY_KEEP_MAX_S,
    HISTORY_KEEP_MIN_S,
    HISTORY_TOPIC_BYTES_MAX,
    HISTORY_TOPIC_MESSAGES_MAX,
    PUBLISH_BURST_S,
    REPAIR_BURST_BYTES,
    REPAIR_BYTES_PER_S,
    REPAIR_IGNORE_S,
    REPAIR_TICK_S,
)


class Pace:
    """The keep time of a history, and the rate at which a publisher may publish because of it."""

    __slots__ = ("_ahead_at", "_doubled_at", "_nak_at", "peak_s")

    def __init__(self) -> None:
        self.peak_s = HISTORY_KEEP_MIN_S  # the keep time as of the last NAK
        self._nak_at = self._doubled_at = self._ahead_at = -math.inf

    def keep_s(self, now: float) -> float:
        """Return how long a message is not pushed out: it halves while no NAKs come."""
        if self.peak_s == HISTORY_KEEP_MIN_S:
            return HISTORY_KEEP_MIN_S
        halvings = int((now - self._nak_at) / HISTORY_KEEP_FALL_S)
        keep_s = math.ldexp(self.peak_s, -halvings)
        if keep_s > HISTORY_KEEP_MIN_S:
            return keep_s
        self.peak_s = HISTORY_KEEP_MIN_S
        return HISTORY_KEEP_MIN_S

    def lengthen(self, age_s: float, now: float) -> None:
        """A NAK came for a message of that age: later ones must be kept until they are asked for.

        The keep time doubles while NAKs keep coming. One burst of losses causes several NAKs at
        once, which count as one.
        """
        keep_s = self.keep_s(now)
        if now - self._doubled_at >= REPAIR_IGNORE_S:
            self._doubled_at = now
            keep_s *= 2
        self.peak_s = min(max(keep_s, 2 * age_s), HISTORY_KEEP_MAX_S)
        self._nak_at = now

    def count(self, size_bytes: int, now: float, messages: int = 1) -> None:
        """Count messages, which take their part of one full history per keep time.

        The keep time alone would let a flood come in bursts, as fast as ever, with long pauses.
        """
        self._ahead_at = self._ahead_by(size_bytes, messages, now)

    def free_at(self, now: float, size_bytes: int = 0, messages: int = 0) -> float:
        """Return when the next message may be sent, after so many that wait."""
        return max(now, self._ahead_by(size_bytes, messages, now) - PUBLISH_BURST_S)

    def _ahead_by(self, size_bytes: int, messages: int, now: float) -> float:
        part = messages and max(
            size_bytes / HISTORY_TOPIC_BYTES_MAX, messages / HISTORY_TOPIC_MESSAGES_MAX
        )
        return max(self._ahead_at, now) + part * self.keep_s(now)


class RepairCredit:
    """Bytes of repairs that may be sent: a burst, then a rate that falls with the keep time.

    `size_bytes` is what is left. A repair may overdraw it; that is made up for afterwards.
    """

    __slots__ = ("_bytes_per_s", "_earned_at", "size_bytes")

    def __init__(self) -> None:
        self.size_bytes: float = REPAIR_BURST_BYTES
        self._bytes_per_s: float = REPAIR_BYTES_PER_S
        self._earned_at = math.inf

    def earn(self, keep_s: float, now: float) -> None:
        """Add what was earned since the last call."""
        self._bytes_per_s = min(REPAIR_BYTES_PER_S, HISTORY_TOPIC_BYTES_MAX / keep_s)
        earned = max(0.0, now - self._earned_at) * self._bytes_per_s
        self.size_bytes = min(REPAIR_BURST_BYTES, self.size_bytes + earned)
        self._earned_at = now

    def back_at(self) -> float:
        """When to go on: not so soon that every message would need its own wake-up."""
        wait_s = max(0.0, -self.size_bytes / self._bytes_per_s)
        return self._earned_at + max(REPAIR_TICK_S, wait_s)
