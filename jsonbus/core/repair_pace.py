"""How a publisher slows down when NAKs come in: it holds messages for longer, and repairs in pace.

core.history says what holding is good for.
"""

from __future__ import annotations

import math

from jsonbus.core.limits import (
    HISTORY_HOLD_FALL_S,
    HISTORY_HOLD_MAX_S,
    HISTORY_HOLD_MIN_S,
    REPAIR_BURST_BYTES,
    REPAIR_BYTES_PER_S,
    REPAIR_IGNORE_S,
)


class HoldTime:
    """How long a message is not pushed out of the history."""

    __slots__ = ("_doubled_at", "_hold_s", "_nak_at")

    def __init__(self) -> None:
        self._hold_s = HISTORY_HOLD_MIN_S
        self._nak_at = self._doubled_at = -math.inf

    def at(self, now: float) -> float:
        """As of now: it halves while no NAKs come."""
        if self._hold_s <= HISTORY_HOLD_MIN_S:
            return HISTORY_HOLD_MIN_S
        halvings = int((now - self._nak_at) / HISTORY_HOLD_FALL_S)
        return max(HISTORY_HOLD_MIN_S, math.ldexp(self._hold_s, -halvings))

    def lengthen(self, age_s: float, now: float) -> None:
        """A NAK came, for a message of that age: the next ones must live to be asked for, too.

        It doubles while NAKs keep coming. One burst of losses makes several at once, which count
        as one.
        """
        hold_s = self.at(now)
        if now - self._doubled_at >= REPAIR_IGNORE_S:
            self._doubled_at = now
            hold_s *= 2
        self._hold_s = min(max(hold_s, 2 * age_s), HISTORY_HOLD_MAX_S)
        self._nak_at = now


class RepairCredit:
    """Bytes that may be sent again: a burst, then as many a second."""

    __slots__ = ("_bytes", "_earned_at")

    def __init__(self) -> None:
        self._bytes: float = REPAIR_BURST_BYTES
        self._earned_at = math.inf

    def earn(self, now: float) -> None:
        """Time has passed."""
        earned = max(0.0, now - self._earned_at) * REPAIR_BYTES_PER_S
        self._bytes = min(REPAIR_BURST_BYTES, self._bytes + earned)
        self._earned_at = now

    def spend(self, size_bytes: int) -> bool:
        """Whether to send so many; more than what is left are sent, and paid for afterwards."""
        if self._bytes <= 0:
            return False
        self._bytes -= size_bytes
        return True
