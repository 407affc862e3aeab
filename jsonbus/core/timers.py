"""How long to wait: suppression delays, the brake and Trickle.

Many nodes learn at the same instant that somebody should speak. Each draws a delay; the first to
speak is heard by the others, which then stay silent. A uniform draw among N nodes gives about
N·d/T answers where d is the network's delay and T the longest delay: hundreds, for thousands of
nodes. So the draw is exponential (Nonnenmacher and Biersack): most delays are near T, few are
short, and the expected number of answers hardly grows with N.
"""

from __future__ import annotations

import math
import random

from jsonbus.core.limits import (
    SHARE_DELAY_MAX_S,
    SHARE_UNIFORM_NODES,
    TRICKLE_MAX_S,
    TRICKLE_MIN_S,
)


def suppression_delay_s(longest_s: float, known_nodes: int, u: float) -> float:
    """The delay, up to the longest, for a uniform draw `u` of [0, 1) among `known_nodes`."""
    if known_nodes <= SHARE_UNIFORM_NODES:
        return longest_s * u
    rate = math.log(known_nodes / SHARE_UNIFORM_NODES)
    return longest_s / rate * math.log1p(u * math.expm1(rate))


def share_delay_s(known_nodes: int, u: float) -> float:
    """How long a node waits before it shares its list."""
    return suppression_delay_s(SHARE_DELAY_MAX_S, known_nodes, u)


class Brake:
    """Waits twice as long each time, until all is well again.

    What two nodes differ in is usually gone after one exchange. Should it ever stay (a full list, a
    node of a later version), they must not repeat themselves as fast as they can.
    """

    __slots__ = ("_first_s", "_free_at", "_stepped_at", "_wait_s")

    def __init__(self, first_s: float) -> None:
        self._first_s = first_s
        self._wait_s = first_s
        self._free_at = -math.inf
        self._stepped_at = -math.inf

    @property
    def is_free(self) -> bool:
        return self._free_at == -math.inf

    def at(self, wanted_at: float) -> float:
        """The instant, or a later one if that is too soon after the last time."""
        return max(wanted_at, self._free_at)

    def step(self, now: float) -> None:
        """It was done once more."""
        self._stepped_at = now
        self._free_at = now + self._wait_s
        self._wait_s = min(2 * self._wait_s, TRICKLE_MAX_S)

    def release(self, now: float) -> None:
        """Reset the wait once nothing was done for four times the wait.

        Not at once: of two groups that differ, each agrees within itself, not with the other.
        """
        if now - self._stepped_at > 4 * self._wait_s:
            self._wait_s = self._first_s
            self._free_at = -math.inf


class Trickle:
    """RFC 6206 with k = 1: speak once an interval unless somebody else said the same.

    The interval doubles while all agree and falls back to its minimum when somebody does not.
    """

    __slots__ = ("_begun_at", "_rng", "_speak_at", "_was_heard", "interval_s")

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self.interval_s = TRICKLE_MIN_S
        self._was_heard = False
        self._begun_at = math.inf
        self._speak_at = math.inf

    @property
    def is_running(self) -> bool:
        return self._begun_at != math.inf

    @property
    def is_eager(self) -> bool:
        """Whether a mismatch was seen lately."""
        return self.interval_s <= TRICKLE_MIN_S

    def start(self, now: float, interval_s: float = TRICKLE_MIN_S) -> None:
        self.interval_s = interval_s
        self._begin(now)

    def stop(self) -> None:
        self._speak_at = self._begun_at = math.inf

    def hear_agreement(self) -> None:
        self._was_heard = True

    def hear_mismatch(self, now: float) -> None:
        """Begin anew with the shortest interval, unless that is the one under way."""
        if self.is_running and self.interval_s > TRICKLE_MIN_S:
            self.start(now)

    def timer_at(self) -> float:
        return self._speak_at if self._speak_at != math.inf else self._begun_at + self.interval_s

    def expire(self, now: float) -> bool:
        """To be called at `timer_at`; whether to speak now."""
        if self._speak_at != math.inf:
            self._speak_at = math.inf
            return not self._was_heard
        self.interval_s = min(2 * self.interval_s, TRICKLE_MAX_S)
        self._begin(now)
        return False

    def _begin(self, now: float) -> None:
        self._begun_at = now
        self._was_heard = False
        self._speak_at = now + self.interval_s * (0.5 + 0.5 * self._rng.random())
