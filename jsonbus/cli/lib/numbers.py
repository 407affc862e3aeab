"""Formats counts, fractions and ages for people, in few characters."""

from __future__ import annotations


def count(number: float) -> str:
    """Return a number in at most 6 characters: 0, 0.25, 12.5, 1234, 12.3k, 4.56M."""
    if number >= 99_950:
        for unit in "kMGTP":
            number /= 1000
            if number < 999.5 or unit == "P":
                return f"{number:.0f}{unit}" if number >= 99.95 else f"{number:.1f}{unit}"
    if number >= 9_999.5:
        return f"{number / 1000:.1f}k"
    if number >= 99.95 or number == int(number):
        return f"{number:.0f}"
    return f"{number:.1f}" if number >= 9.995 else f"{number:.2f}"


def counted(number: int, noun: str) -> str:
    """Return a whole number with its noun: 1 message, 2,000 messages."""
    return f"1 {noun}" if number == 1 else f"{number:,} {noun}s"


def percent(fraction: float) -> str:
    """Return 0 to 1 as per cent; a little is not shown as 0%, nor almost all as 100%."""
    percent = fraction * 100
    if percent == 0:
        return "0%"
    if percent < 0.1:
        return "<0.1%"
    return f"{percent:.1f}%" if percent < 99.95 or fraction >= 1 else "99.9%"


def age(seconds: float) -> str:
    if seconds < 9.95:
        return f"{max(0.0, seconds):.1f}s"
    if seconds < 100:
        return f"{seconds:.0f}s"
    return f"{seconds / 60:.0f}m" if seconds < 6_000 else f"{seconds / 3600:.0f}h"
