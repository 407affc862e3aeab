"""A finding: what is so, how bad that is, and what to do about it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

#: From good to bad. A note is no trouble by itself, but may explain some.
LEVELS = ("ok", "note", "warning", "problem")


@dataclass(frozen=True, slots=True)
class Finding:
    level: str
    #: What was looked at, in one word: interface, joining, loopback, …
    check: str
    #: One sentence with the facts.
    text: str
    #: What to do; empty where all is well.
    remedy: str = ""

    def __post_init__(self) -> None:
        assert self.level in LEVELS and (self.remedy or self.level == "ok"), self


def worst(findings: Iterable[Finding]) -> str:
    """The worst level of them."""
    return max((each.level for each in findings), key=LEVELS.index, default="ok")
