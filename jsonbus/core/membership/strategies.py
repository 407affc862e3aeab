"""The share strategies: which node sends the list to one that lacks something, and when.

A node that hears a list which differs from its own owes the sender what that list lacks. The
strategy decides whether this node pays such debts, and after which delay; sharing.py keeps them.

- **basic**: no list is ever sent. Every publish goes out, and receivers filter.
- **master**: the node started as master answers late joiners at once; the others never do. Two
  masters are harmless: both send the same list. Without one a joiner stays uninformed; it says so,
  and sends everything.
- **delayed**: each node waits its share delay; the first answers, the others cancel, because they
  hear a list identical to theirs. So nobody has to be elected, and nobody is missed when it
  disappears. The delay is random by default, so that few answer at once however many nodes there
  are (core.timers). With `--subs-share-delay` it is fixed: then the live node with the lowest delay
  answers, and those with longer ones stand by.
"""

from __future__ import annotations

import random

from jsonbus.core.settings import NodeSettings
from jsonbus.core.timers import share_delay_s


class ShareStrategy:
    """The strategy of the mode that a node is set to."""

    def __init__(self, settings: NodeSettings) -> None:
        #: Whether the node sends lists at all, even if only its own entry.
        self.takes_part = settings.mode != "basic"
        #: Whether it answers nodes that lack something.
        self.answers = settings.mode == "delayed" or settings.is_master
        self._fixed_delay_s = 0.0 if settings.is_master else settings.share_delay_s

    def draw_delay_s(self, known_nodes: int, rng: random.Random) -> float:
        """Return how long to wait before answering; called once per answer."""
        if self._fixed_delay_s is not None:
            return self._fixed_delay_s
        return share_delay_s(known_nodes, rng.random())
