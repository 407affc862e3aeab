"""Figures and values as people read them. The cost follows what is shown, not the value."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from typing import Any

#: How deep a value is shown.
DEPTH_MAX = 40

# A browser shows these as nothing, or reverses the direction of the text after them.
_ODD = re.compile("[\x00-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
_ODD_BUT_LINES = re.compile(_ODD.pattern.replace("\x00-\x1f", "\x00-\x09\x0b-\x1f"))


def clean(text: str) -> str:
    """Return text from the bus with invisible characters escaped as in JSON."""
    return _ODD.sub(_escape, text)


def show_count(count: float) -> str:
    """12, 1,234, 98,765, 1.23 M."""
    if count < 100_000:
        return f"{count:,.0f}"
    for unit, size in (("k", 1e3), ("M", 1e6), ("G", 1e9)):
        if count < size * 999.5:
            return f"{count / size:.3g} {unit}"
    return f"{count / 1e12:,.3g} T"


def count_out(count: float, one: str, many: str | None = None) -> str:
    """1 topic, 1,234 topics."""
    return f"{show_count(count)} {one if count == 1 else many or one + 's'}"


def show_rate(per_s: float) -> str:
    """0, 0.4, 12.3, 1,234: per second, without saying so."""
    if per_s >= 99.95:
        return show_count(per_s)
    return f"{per_s:.1f}" if per_s >= 0.05 else "0"


def show_bytes(count: float) -> str:
    """512 B, 1.2 kB, 34 MB."""
    if count < 999.5:
        return f"{count:.0f} B"
    for unit, size in (("kB", 1e3), ("MB", 1e6), ("GB", 1e9)):
        if count < size * 999.5:
            amount = count / size
            return f"{amount:.1f} {unit}" if amount < 99.95 else f"{amount:.0f} {unit}"
    return f"{count / 1e12:,.1f} TB"


def show_share(share: float) -> str:
    """0 %, <0.1 %, 12.3 %, 100 %."""
    percent = share * 100
    if percent <= 0:
        return "0 %"
    if percent < 0.1:
        return "<0.1 %"
    return f"{percent:.1f} %" if percent < 99.95 else "100 %"


def show_ago(seconds: float) -> str:
    """now, 12 s, 3 min, 5 h, 2 d."""
    if seconds < 1.5:
        return "now"
    for unit, size, limit in (("s", 1, 99.5), ("min", 60, 99.5), ("h", 3600, 47.5)):
        if seconds < size * limit:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds / 86_400:.0f} d"


def say_ago(seconds: float) -> str:
    """just now, 12 s ago: in a sentence."""
    ago = show_ago(seconds)
    return "just now" if ago == "now" else f"{ago} ago"


def show_time(at: float) -> str:
    return time.strftime("%H:%M:%S", time.localtime(at))


def show_number(number: float | None) -> str:
    """A number of a message, in at most a dozen characters; "" if there is none."""
    return "" if number is None else f"{number:.6g}"


def shorten(value: Any, characters_max: int = 160) -> str:
    """Return a value as one line of JSON, cut at `characters_max`."""
    return clean(_join(_write(value, None, 0), characters_max))


def write_out(value: Any, characters_max: int = 20_000) -> str:
    """Return a value as indented JSON, cut at `characters_max`."""
    return _ODD_BUT_LINES.sub(_escape, _join(_write(value, "  ", 0), characters_max))


def _join(pieces: Iterator[str], characters_max: int) -> str:
    found = []
    length = 0
    for piece in pieces:
        found.append(piece)
        length += len(piece)
        if length > characters_max:
            return "".join(found)[:characters_max] + " …"
    return "".join(found)


def _write(value: Any, indent: str | None, depth: int) -> Iterator[str]:
    if isinstance(value, str):
        # This much of a long string exceeds every limit.
        yield json.dumps(value[:30_000], ensure_ascii=False)
    elif not isinstance(value, dict | list | tuple):
        yield _write_plain(value)
    elif depth >= DEPTH_MAX:
        yield "…"
    elif isinstance(value, dict):
        yield from _write_members(
            "{}", ((f"{json.dumps(str(k), ensure_ascii=False)}: ", v) for k, v in value.items()),
            indent, depth,
        )  # fmt: skip
    elif indent is not None and _is_row(value):
        yield "[" + ", ".join(map(_write_plain, value)) + "]"
    else:
        yield from _write_members("[]", (("", each) for each in value), indent, depth)


def _write_members(
    brackets: str, members: Iterator[tuple[str, Any]], indent: str | None, depth: int
) -> Iterator[str]:
    yield brackets[0]
    line = "" if indent is None else "\n" + indent * (depth + 1)
    is_first = True
    for name, member in members:
        yield f"{'' if is_first else ',' if line else ', '}{line}{name}"
        yield from _write(member, indent, depth + 1)
        is_first = False
    yield ("" if indent is None or is_first else "\n" + indent * depth) + brackets[1]


def _is_row(value: list[Any] | tuple[Any, ...]) -> bool:
    """Return whether it is a few numbers, which read better in one line."""
    return len(value) <= 16 and all(isinstance(each, int | float | None) for each in value)


def _write_plain(value: Any) -> str:
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) >= 10**300:
        return f"an integer of {value.bit_length():,} bits"
    return json.dumps(value) if isinstance(value, int | float | None) else str(value)[:100]


def _escape(match: re.Match[str]) -> str:
    return f"\\u{ord(match[0]):04x}"
