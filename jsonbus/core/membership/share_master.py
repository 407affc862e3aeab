"""master: the node started as master answers late joiners, at once; the others never do.

Two masters are harmless: both send the same list. Without one a joiner stays uninformed; it says so
and sends everything.
"""

from __future__ import annotations

import random


class MasterShare:
    takes_part = True

    def __init__(self, is_master: bool) -> None:
        self.answers = is_master

    def draw_delay_s(self, known_nodes: int, rng: random.Random) -> float:
        return 0.0
