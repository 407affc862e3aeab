"""Makes text from the network safe for the cells of a terminal.

It must neither control the terminal nor move what stands beside it. Characters without a width,
such as joiners of emoji, are left out; all others are as wide as rich takes them to be.
"""

from __future__ import annotations

import re

from .values import printable

# Joiners, variation selectors, tags and other signs without a width: terminals differ in what they
# make of them. Combining letters of real scripts stay.
_WIDTHLESS = re.compile("[\u00ad\u034f\u061c\u180b-\u180f\u200b-\u200f\u2060-\u206f"
                        "\u20d0-\u20ff\ufe00-\ufe0f\ufeff\ufff9-\ufffb"
                        "\U0001f3fb-\U0001f3ff\U000e0000-\U000e0fff]")  # fmt: skip


def clean(text: str) -> str:
    """Return the text as one line that every terminal shows alike."""
    if text.isascii() and text.isprintable():
        return text
    return printable(_WIDTHLESS.sub("", text))


def fit(text: str, width: int) -> str:
    """Return the text in exactly this many cells; if it is cut, it ends with "…"."""
    if text.isascii():
        if len(text) <= width:
            return text.ljust(width)
        return f"{text[: width - 1]}…" if width > 0 else ""
    from rich.cells import cell_len, set_cell_size

    # Any number of characters may have no width: do not look at all of them.
    text = text[: 4 * width + 8]
    if cell_len(text) <= width:
        return set_cell_size(text, width)
    return f"{set_cell_size(text, width - 1)}…" if width > 0 else ""
