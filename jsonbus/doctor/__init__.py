"""Why nothing arrives: `examine` gathers facts, `judge` makes findings of them.

facts.py is what both share. The echo between two hosts is `examine` here and an `EchoListener`
there; echo.py tells how they talk.
"""

from __future__ import annotations

from .echo import Asking
from .examination import examine
from .facts import Facts
from .finding import LEVELS, Finding, worst
from .judgement import judge
from .listening import EchoListener

__all__ = [
    "LEVELS",
    "Asking",
    "EchoListener",
    "Facts",
    "Finding",
    "examine",
    "judge",
    "worst",
]
