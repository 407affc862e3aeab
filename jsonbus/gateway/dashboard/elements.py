"""Our own elements of a page. Their JavaScript is in assets/.

An element is sent as a whole when something in it has changed, and only in its newest state: a slow
browser skips what it did not get in time. Data goes as tuples, which NiceGUI does not watch for
changes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from nicegui import events, ui

ASSETS = Path(__file__).parent / "assets"

#: Rows that a browser may ask for at once: twice the largest screen.
ROWS_MAX = 300

#: (key, label, figure, unit, note, class)
Tile = tuple[str, str, str, str, str, str]
#: (name, text, class)
Fact = tuple[str, str, str]
#: (key, label, figure, colour or "")
Chip = tuple[str, str, str, str]
#: The text, or the text and its class.
Cell = str | tuple[str, str]


class Row(NamedTuple):
    key: str
    cells: tuple[Cell, ...]
    depth: int = 0
    #: Whether the rows below it are shown; None: there are none.
    is_open: bool | None = None
    style: str = ""

    def to_json(self) -> dict[str, Any]:
        return {
            "k": self.key,
            "d": self.depth,
            "x": self.is_open,
            "s": self.style,
            "c": self.cells,
        }


class Rows(ui.element, component=ASSETS / "rows.js"):
    """A list of any length; the browser holds only the rows in sight."""

    def __init__(
        self,
        label: str,
        columns: Sequence[tuple[str, str]],
        *,
        empty: str,
        on_pick: Callable[[str], None],
        on_scroll: Callable[[], None],
        is_tree: bool = False,
    ) -> None:
        """`on_pick` gets the key of a row that was clicked; `on_scroll` is called when other rows
        come into sight."""
        super().__init__()
        self.first = 0
        self.count = 60
        self._on_pick = on_pick
        self._on_scroll = on_scroll
        self._shown: object = None
        for name, value in {
            "columns": tuple(tuple(column) for column in columns),
            "rows": (),
            "first": 0,
            "total": 0,
            "chosen": "",
            "empty": empty,
            "label": label,
            "tree": is_tree,
        }.items():
            self._props[name] = value
        self.on("pick", self._pick)
        self.on("look", self._scroll)

    def show(
        self, total: int, rows: Sequence[Row], *, first: int, chosen: str = "", empty: str = ""
    ) -> None:
        """Show these rows of `total`; `first` is the number of the first one."""
        shown = (total, tuple(rows), first, chosen, empty)
        if shown == self._shown:
            return
        self._shown = shown
        with self._props.suspend_updates():
            self._props["rows"] = tuple(row.to_json() for row in rows)
            self._props["first"] = first
            self._props["total"] = total
            self._props["chosen"] = chosen
            if empty:
                self._props["empty"] = empty
        self.update()

    def window(self, total: int) -> range:
        """Return the numbers of the rows in sight."""
        first = max(0, min(self.first, total - self.count))
        return range(first, min(total, first + self.count))

    def scroll_to_top(self) -> None:
        self.first = 0
        self.run_method("to_top")

    def _pick(self, event: events.GenericEventArguments) -> None:
        if isinstance(event.args, str):
            self._on_pick(event.args)

    def _scroll(self, event: events.GenericEventArguments) -> None:
        match event.args:
            case [int(first), int(count)] if first >= 0 and count >= 0:
                self.first, self.count = first, min(count, ROWS_MAX)
                self._on_scroll()


class Tiles(ui.element, component=ASSETS / "tiles.js"):
    """Figures in large type."""

    def __init__(self) -> None:
        super().__init__()
        self._props["tiles"] = ()

    def show(self, tiles: Sequence[Tile]) -> None:
        _set(self, "tiles", tuple(tiles))


class Facts(ui.element, component=ASSETS / "facts.js"):
    """Names and values in two columns."""

    def __init__(self) -> None:
        super().__init__()
        self._props["facts"] = ()

    def show(self, facts: Sequence[Fact]) -> None:
        _set(self, "facts", tuple(facts))


class Chips(ui.element, component=ASSETS / "chips.js"):
    """Items that can be switched on and off."""

    def __init__(self, on_pick: Callable[[str], None]) -> None:
        super().__init__()
        self._props["chips"] = ()
        self._on_pick = on_pick
        self.on("pick", self._pick)

    def show(self, chips: Sequence[Chip]) -> None:
        _set(self, "chips", tuple(chips))

    def _pick(self, event: events.GenericEventArguments) -> None:
        if isinstance(event.args, str):
            self._on_pick(event.args)


class Shell(ui.element, component=ASSETS / "shell.js"):
    """The colour switch, and whether the page is visible."""

    def __init__(self, on_visible: Callable[[bool], None]) -> None:
        """`on_visible` is called when the browser shows or hides the page."""
        super().__init__()
        self._on_visible = on_visible
        self.on("visible", self._note)

    def _note(self, event: events.GenericEventArguments) -> None:
        self._on_visible(event.args is True)


def _set(element: ui.element, name: str, value: object) -> None:
    if element._props[name] != value:
        element._props[name] = value
