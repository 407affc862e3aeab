"""Computes rates from what nodes count themselves, and tells when to ask them for it.

A node sends its totals every two seconds, on a large bus less often, so to a more frequent observer
they look like a staircase. A rate is therefore taken between two moments at which the totals
changed, not between two looks. A node that publishes much sends them only every 12 seconds: whoever
wants its rates sooner pings.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

import jsonbus

from .samples import WINDOW_S, per_second

#: A node whose totals have not changed for this long, and for this much longer than between the
#: last two changes, has done nothing, rather than reported nothing.
SILENT_S = 5.0
SILENT_FACTOR = 1.5

#: What a node told before the first look may be older by a whole pause. If the next totals come
#: sooner than this, most of what they add was done before that look, so they begin the rate anew:
#: a dashboard just opened showed 54 a second where 10 were right.
FIRST_PAUSE_S_MIN = 1.5


#: Nodes are asked this often, but on a large bus so that no more answers come in a second.
ASK_S = 2.0
ANSWERS_PER_S = 50


class Asking:
    """When to ask all nodes for their totals: they are in the answer to a ping."""

    def __init__(self) -> None:
        self._asked_at = -math.inf

    def is_due(self, now: float, node_count: int) -> bool:
        """Return whether to ask now; if so, the caller does."""
        is_due = now - self._asked_at >= max(ASK_S, node_count / ANSWERS_PER_S)
        if is_due:
            self._asked_at = now
        return is_due


class Rates(NamedTuple):
    """What a node does per second; None if that is not known."""

    sent: float | None = None
    received: float | None = None
    suppressed: float | None = None
    lost: float | None = None
    repaired: float | None = None


class NodeRates:
    """The rates of all nodes that report their totals."""

    def __init__(self) -> None:
        #: By node and incarnation: when its totals changed, and to what; never empty.
        self._told: dict[tuple[str, int], deque[tuple[float, jsonbus.Totals]]] = {}

    def update(self, now: float, nodes: Sequence[jsonbus.NodeInfo]) -> None:
        """Take the current totals, and forget nodes that have gone."""
        told = {}
        for info in nodes:
            totals = info.totals
            if totals is None:
                continue
            key = (info.node, info.incarnation)
            changes = self._told.get(key) or deque()
            if not changes or changes[-1][1] != totals:
                if len(changes) == 1 and now - changes[0][0] < FIRST_PAUSE_S_MIN:
                    changes.clear()
                changes.append((now, totals))
            while len(changes) > 2 and changes[-1][0] - changes[1][0] >= WINDOW_S:
                changes.popleft()
            told[key] = changes
        self._told = told

    def of(self, now: float, info: jsonbus.NodeInfo) -> Rates:
        """Return the rates; they are known once its totals changed, or it was silent for long."""
        changes = self._told.get((info.node, info.incarnation))
        if changes is None:
            return Rates()
        (since, before), (until, after) = changes[0], changes[-1]
        pause_s = until - changes[-2][0] if len(changes) > 1 else 0.0
        if now - until >= max(SILENT_S, pause_s * SILENT_FACTOR):
            return Rates(0.0, 0.0, 0.0, 0.0, 0.0)
        if len(changes) == 1:
            return Rates()
        return Rates(
            *(
                per_second(getattr(after, name) - getattr(before, name), until - since)
                for name in Rates._fields
            )
        )


def loss_of(received: int, lost: int) -> float:
    """Return the fraction that was lost."""
    return lost / (received + lost) if lost > 0 else 0.0
