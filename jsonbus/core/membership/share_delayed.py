"""delayed: each node waits its share delay; the first answers, the others cancel.

On a list that, after merging, differs from its own, a node arms its timer; when it ends, the node
publishes everything it knows. An identical list heard meanwhile cancels: somebody else was faster.
So nobody has to be elected, and nobody is missed when it disappears.

The delay is random by default, so that few answer at once however many nodes there are (timers.py).
It may be fixed instead, by `--subs-share-delay`: then the live node with the lowest delay answers,
and those with longer ones stand by.
"""

from __future__ import annotations

import random

from jsonbus.core.timers import share_delay_s


class DelayedShare:
    takes_part = True
    answers = True

    def __init__(self, fixed_delay_s: float | None) -> None:
        self._fixed_delay_s = fixed_delay_s

    def draw_delay_s(self, known_nodes: int, rng: random.Random) -> float:
        if self._fixed_delay_s is not None:
            return self._fixed_delay_s
        return share_delay_s(known_nodes, rng.random())
