"""The state that keys change: the table, its order, its filter and its first row.

It does no input or output: given keys and rows, it returns the rows to show. A position is
remembered by the identity of its row, because row numbers change with every picture.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import jsonbus
from jsonbus.errors import InvalidTopicError
from jsonbus.survey import Picture

from .columns import NODES, TOPICS, Column, Table

#: Key -> the columns that it sorts by; each table uses the one that it has.
ORDER_KEYS = {
    "t": ("topic",),
    "n": ("name",),
    "r": ("rate", "sent_per_s"),
    "b": ("bytes",),
    "p": ("publishers", "suppressed"),
    "s": ("subscribers", "received_per_s"),
    "l": ("loss", "lost"),
    "a": ("age",),
    "m": ("messages", "mode"),
}


@dataclass
class Place:
    """The choices in one table; kept while the other is shown."""

    table: Table
    order: str
    is_reversed: bool = False
    pattern: str = ""
    #: The identity of the chosen row; None: the first one.
    chosen: str | None = None
    #: The last known number of that row, and the number of the first row that is shown.
    index: int = 0
    first: int = 0

    @property
    def column(self) -> Column:
        return next(each for each in self.table.columns if each.key == self.order)

    def select(self, picture: Picture) -> list[Any]:
        """Return the rows to show, in order."""
        rows = self.table.rows(picture)
        if self.pattern:
            rows = [each for each in rows if self._fits(self.table.words(each))]
        else:
            rows = list(rows)
        rows.sort(key=self.table.identity)
        column = self.column
        rows.sort(key=column.order, reverse=column.is_descending is not self.is_reversed)
        self._follow(rows)
        return rows

    def _follow(self, rows: list[Any]) -> None:
        """Find the chosen row; if it has gone, choose the one in its place."""
        if not rows:
            self.index = self.first = 0
            return
        identity = self.table.identity
        if self.chosen is not None:
            for index, row in enumerate(rows):
                if identity(row) == self.chosen:
                    self.index = index
                    return
            self.chosen = identity(rows[min(self.index, len(rows) - 1)])
        self.index = min(self.index, len(rows) - 1)

    def _fits(self, words: str) -> bool:
        """Return True if the filter is part of the name, ignoring case, or a matching pattern.

        In names of nodes, and in topics if it is not a valid pattern, "*" stands for anything.
        """
        if "*" in self.pattern and self.table is TOPICS:
            try:
                return jsonbus.topic_matches(self.pattern, words)
            except InvalidTopicError:
                pass  # it may still be being typed
        place, words = 0, words.lower()
        for part in self.pattern.lower().split("*"):
            place = words.find(part, place)
            if place < 0:
                return False
            place += len(part)
        return True


@dataclass
class State:
    """Everything that keys can change."""

    order: str = "rate"
    is_paused: bool = False
    is_help_shown: bool = False
    is_detail_shown: bool = False
    is_done: bool = False
    #: Everything must be drawn again.
    is_stale: bool = False
    #: Lines of the detail that are scrolled out at the top.
    detail_first: int = 0
    #: The filter while it is being typed, else None.
    typed: str | None = None
    #: The number of rows that fit; set by the layout.
    page: int = 20
    rows: list[Any] = field(default_factory=list)
    places: list[Place] = field(init=False)

    def __post_init__(self) -> None:
        self.places = [Place(TOPICS, self.order), Place(NODES, NODES.order)]

    @property
    def place(self) -> Place:
        return self.places[0]

    def look(self, picture: Picture) -> None:
        """Choose and sort the rows of a picture."""
        self.rows = self.place.select(picture)

    def scroll(self, page: int) -> list[Any]:
        """Return the rows of the page with the chosen row."""
        self.page = max(1, page)
        place = self.place
        place.first = max(0, min(place.first, len(self.rows) - self.page))
        place.first = min(place.first, place.index)
        place.first = max(place.first, place.index - self.page + 1)
        return self.rows[place.first : place.first + self.page]

    def press(self, key: str) -> None:
        """Handle a key; unknown keys are ignored."""
        if self.typed is not None:
            self._type(key)
        elif key == "redraw":
            self.is_stale = True
        elif self.is_help_shown:
            self.is_help_shown = False
        elif key == "q":
            self.is_done = True
        elif key in ("?", "h"):
            self.is_help_shown = True
        elif key == " ":
            self.is_paused = not self.is_paused
        elif key in ("tab", "backtab"):
            self.is_detail_shown = False
            self.places.reverse()
            self.rows = []  # until the next look
        elif key in ("enter", "escape") and self.is_detail_shown:
            self.is_detail_shown = False
        elif key == "enter":
            self._show_detail()
        elif key == "escape":
            self.place.pattern = ""
        elif key == "/":
            self.is_detail_shown = False
            self.typed = self.place.pattern
        elif self.is_detail_shown:
            self._move_detail(key)
        elif key in ("<", ">", "left", "right"):
            self._shift_order(-1 if key in ("<", "left") else 1)
        elif key == "i":
            self.place.is_reversed = not self.place.is_reversed
        elif key in ORDER_KEYS:
            self._sort_by(key)
        else:
            self._move(key)

    def _type(self, key: str) -> None:
        assert self.typed is not None
        if key == "enter":
            self.typed = None
        elif key == "escape":
            self.typed, self.place.pattern = None, ""
        else:
            if key == "backspace":
                self.typed = self.typed[:-1]
            elif key == "clear":
                self.typed = ""
            elif len(key) == 1:
                self.typed += key
            self.place.pattern = self.typed  # seen at once

    def _move(self, key: str) -> None:
        index = _moved(key, self.place.index, len(self.rows), self.page)
        if index is None or not self.rows:
            return
        self.place.index = index
        self.place.chosen = self.place.table.identity(self.rows[index])

    def _show_detail(self) -> None:
        self.is_detail_shown = bool(self.rows)
        self.detail_first = 0
        if self.rows:  # another row may be the first one in the next picture
            self.place.chosen = self.place.table.identity(self.rows[self.place.index])

    def _move_detail(self, key: str) -> None:
        # The layout knows how many lines there are, and corrects this.
        moved = _moved(key, self.detail_first, 1 << 30, self.page)
        self.detail_first = self.detail_first if moved is None else moved

    def _sort_by(self, key: str) -> None:
        known = {each.key for each in self.place.table.columns}
        for name in ORDER_KEYS[key]:
            if name in known:
                if self.place.order == name:
                    self.place.is_reversed = not self.place.is_reversed
                else:
                    self.place.order, self.place.is_reversed = name, False
                return

    def _shift_order(self, step: int) -> None:
        orders = [each.key for each in self.place.table.columns if each.order is not None]
        at = (orders.index(self.place.order) + step) % len(orders)
        self.place.order, self.place.is_reversed = orders[at], False


def _moved(key: str, index: int, count: int, page: int) -> int | None:
    """Return the index that a key leads to; None if the key does not move."""
    targets = {
        "up": index - 1, "k": index - 1,
        "down": index + 1, "j": index + 1,
        "pageup": index - page,
        "pagedown": index + page,
        "home": 0, "g": 0,
        "end": count - 1, "G": count - 1,
    }  # fmt: skip
    return max(0, min(targets[key], count - 1)) if key in targets else None
