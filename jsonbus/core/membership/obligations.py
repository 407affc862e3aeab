"""Who still misses something, and when this node will tell it.

One timer for all debts: it is armed by the first and, when it ends, one share pays them all. A
share of somebody else pays too, as far as it covers what is owed; when nothing is left, the timer
is cancelled. Which shares count as payment is for agreement.py to say.
"""

from __future__ import annotations

import math

from jsonbus.core.limits import OBLIGATIONS_MAX
from jsonbus.core.wire.frames import ALL_BUCKETS


class Obligations:
    """Debts by node: the buckets of the list that it lacks."""

    __slots__ = ("_is_braked", "_owed", "has_settled_debt", "timer_at")

    def __init__(self) -> None:
        self._owed: dict[str, int] = {}
        self.timer_at = math.inf
        self._is_braked = False
        #: Something is owed to a node that is no joiner.
        self.has_settled_debt = False

    def __len__(self) -> int:
        return len(self._owed)

    def owe(self, node: str, buckets: int) -> None:
        if len(self._owed) >= OBLIGATIONS_MAX and node not in self._owed:
            return  # a storm: whatever is sent for the others will be a full share
        self._owed[node] = self._owed.get(node, 0) | buckets

    def arm(self, at: float, *, is_braked: bool) -> None:
        """Start the timer, unless it is running.

        A running timer stands: a new draw for every joiner of a storm would make a small one, and
        so too many answers, likely. Only one that was put off (braked) yields to one that was not.
        """
        if self.timer_at == math.inf:
            self.timer_at = at
            self._is_braked = is_braked
        elif self._is_braked and not is_braked:
            self.timer_at = min(self.timer_at, at)
            self._is_braked = False

    def release(self, node: str) -> None:
        """The node has what it lacked, or is gone."""
        if self._owed.pop(node, None) is not None:
            self._cancel_if_paid()

    def pay(self, covers: int) -> None:
        """A share with those buckets went out, by this node or another."""
        if covers == ALL_BUCKETS:
            self._owed.clear()
        else:
            for node, buckets in list(self._owed.items()):
                if buckets & ~covers:
                    self._owed[node] = buckets & ~covers
                else:
                    del self._owed[node]
        self._cancel_if_paid()

    def take(self) -> int:
        """The buckets that are owed to anybody; nothing is owed afterwards."""
        buckets = 0
        for owed in self._owed.values():
            buckets |= owed
        self._owed.clear()
        self._cancel_if_paid()
        return buckets

    def _cancel_if_paid(self) -> None:
        if not self._owed:
            self.timer_at = math.inf
            self.has_settled_debt = False
