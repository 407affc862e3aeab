"""What a share strategy must answer, and basic, which never shares.

A node that hears a list which differs from its own owes its sender what that list lacks. The
strategy says whether this node pays such debts, and after which delay; obligations.py keeps them.
"""

from __future__ import annotations

import random
from typing import Protocol


class ShareStrategy(Protocol):
    """One of basic, master and delayed."""

    #: Whether the node sends lists at all, be it only its own entry.
    takes_part: bool
    #: Whether it answers those who lack something.
    answers: bool

    def draw_delay_s(self, known_nodes: int, rng: random.Random) -> float:
        """How long to wait before answering; drawn anew for every answer."""


class BasicShare:
    """No list is ever sent; every publish goes out, and receivers filter."""

    takes_part = False
    answers = False

    def draw_delay_s(self, known_nodes: int, rng: random.Random) -> float:
        raise AssertionError("a basic node owes nobody a list")
