"""Our own elements of a page. Their JavaScript is in assets/.

An element is sent as a whole when something in it has changed, and only in its newest state: a slow
browser skips what it did not get in time. Data goes as tuples, which NiceGUI does not watch for
changes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from nicegui import events, ui

ASSETS = Path(__file__).parent / "assets"

#: Rows that a browser may ask for at once: twice the largest screen.
ROWS_MAX = 300

#: (name, text, class)
Fact = tuple[str, str, str]
#: The text, or the text and its class.
Cell = str | tuple[str, str]

T = TypeVar("T")


class Row(NamedTuple):
    key: str
    cells: tuple[Cell, ...]
    depth: int = 0
    #: Whether the rows below it are shown; None: there are none.
    is_open: bool | None = None
    style: str = ""


class Rows(ui.element, component=ASSETS / "rows.js"):
    """A list of any length; the browser holds only the rows in sight."""

    def __init__(
        self,
        label: str,
        columns: str,
        *,
        empty: str,
        on_pick: Callable[[str], None] = lambda key: None,
        on_scroll: Callable[[], None] = lambda: None,
        is_tree: bool = False,
    ) -> None:
        """`columns` are "key: title, key: title …". `on_pick` gets the key of a row that was
        clicked; `on_scroll` is called when other rows come into sight."""
        super().__init__()
        self.first = 0
        self.count = 60
        self._on_scroll = on_scroll
        self._shown: object = None
        self._props.update(
            columns=tuple(tuple(column.split(": ")) for column in columns.split(", ")),
            label=label,
            tree=is_tree,
        )
        self._show((), 0, 0, "", empty)
        _on_pick(self, on_pick)
        self.on("look", self._scroll)

    def show(
        self,
        items: Sequence[T],
        row_of: Callable[[T], Row],
        *,
        chosen: str = "",
        empty: str = "",
    ) -> None:
        """Show these items; `row_of` is called for those in sight.

        `chosen` is the key of a row; `empty` replaces the text that is shown if there are none.
        """
        first = max(0, min(self.first, len(items) - self.count))
        rows = map(row_of, items[first : first + self.count])
        self._show(rows, first, len(items), chosen, empty)

    def show_all(self, rows: Sequence[Row]) -> None:
        """Show these rows, which are few, whether they are in sight or not."""
        self._show(rows, 0, len(rows))

    def scroll_to_top(self) -> None:
        self.first = 0
        self.run_method("to_top")

    def _show(
        self, rows: Iterable[Row], first: int, total: int, chosen: str = "", empty: str = ""
    ) -> None:
        # NiceGUI writes plain tuples as JSON, but none with names.
        shown: dict[str, Any] = {
            "rows": tuple(map(tuple, rows)),
            "first": first,
            "total": total,
            "chosen": chosen,
            "empty": empty or self._props["empty"],
        }
        if shown != self._shown:
            self._shown = shown
            self._props.update(shown)

    def _scroll(self, event: events.GenericEventArguments) -> None:
        match event.args:
            case [int(first), int(count)] if first >= 0 and count >= 0:
                self.first, self.count = first, min(count, ROWS_MAX)
                self._on_scroll()


class _Items(ui.element):
    """Shows tuples of texts."""

    def __init__(self) -> None:
        super().__init__()
        self._props["items"] = ()

    def show(self, items: Iterable[tuple[str, ...]]) -> None:
        shown = tuple(items)
        if self._props["items"] != shown:
            self._props["items"] = shown


class Tiles(_Items, component=ASSETS / "tiles.js"):
    """Figures in large type: (key, label, figure, unit, note, class)."""


class Facts(_Items, component=ASSETS / "facts.js"):
    """Names and values in two columns: (name, text, class)."""


class Chips(_Items, component=ASSETS / "chips.js"):
    """Items that can be switched on and off: (key, label, figure, colour or "")."""

    def __init__(self, on_pick: Callable[[str], None]) -> None:
        super().__init__()
        _on_pick(self, on_pick)


class Shell(ui.element, component=ASSETS / "shell.js"):
    """The colour switch, and whether the page is visible."""

    def __init__(self, on_visible: Callable[[bool], None]) -> None:
        """`on_visible` is called when the browser shows or hides the page."""
        super().__init__()
        self.on("visible", lambda event: on_visible(event.args is True))


def card(classes: str = "") -> ui.element:
    return ui.element("section").classes(f"card {classes}")


def block(classes: str) -> ui.element:
    return ui.element("div").classes(classes)


def card_head(title: str, note: str) -> ui.label:
    """Make the head of a card; return the label of its note."""
    with block("card-head"):
        ui.label(title).classes("card-title")
        return ui.label(note).classes("card-note")


def detail_head(on_close: Callable[[], None]) -> ui.label:
    """Make the head of a detail, with a button that closes it; return its title."""
    with block("card-head"):
        title = ui.label("").classes("card-title topic-title")
        button = ui.button(icon="close", on_click=on_close).props("flat round dense")
        button.props("aria-label=Close").classes("close")
    return title


def count_head(title: str) -> ui.label:
    """Make the head of a list; return the label for the number of its rows."""
    with block("toolbar"):
        ui.label(title).classes("card-title")
        return ui.label("").classes("count")


def _on_pick(element: ui.element, on_pick: Callable[[str], None]) -> None:
    """Call `on_pick` with the key that a browser sends, unless it is not a text."""

    def pick(event: events.GenericEventArguments) -> None:
        if isinstance(event.args, str):
            on_pick(event.args)

    element.on("pick", pick)
