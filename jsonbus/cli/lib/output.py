"""Writes results to standard output: JSON lines for programs, readable lines for people.

Status, errors and the log go to standard error, not through here.
"""

from __future__ import annotations

import os
import select
import shutil
import sys
from collections.abc import Container, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import IO

import click

from .values import printable, to_json

#: A cell of a table: one line, or several, of which the first is the important one.
Cell = str | tuple[str, ...]


class Output:
    """Standard output while one command runs.

    Writing raises BrokenPipeError when the reader has gone, which ends the command cleanly.
    """

    def __init__(self) -> None:
        #: True if people read it, False if a program does.
        self.is_terminal = sys.stdout.isatty()
        self._has_colour = self.is_terminal and not os.environ.get("NO_COLOR")
        self._bytes: IO[bytes] = sys.stdout.buffer

    def write_line(self, line: str) -> None:
        """Add a line, to be flushed later. Always UTF-8, as JSON demands, whatever the locale."""
        self.write_bytes(line.encode("utf-8", "backslashreplace") + b"\n")

    def write_bytes(self, data: bytes) -> None:
        """Add bytes as they are, to be flushed later."""
        with _errors_named():
            self._bytes.write(data)

    def flush(self) -> None:
        with _errors_named():
            self._bytes.flush()

    def let_go(self) -> None:
        """After Ctrl-C: flush if that is possible at once, else discard the rest.

        A reader that does not read would otherwise block the end for ever.
        """
        descriptor = self._descriptor()
        if descriptor is None or _poll(descriptor, select.POLLOUT) & select.POLLOUT:
            self.flush()
        else:
            os.dup2(os.open(os.devnull, os.O_WRONLY), descriptor)

    def write_result(self, result: object) -> None:
        """Add a JSON line."""
        self.write_line(to_json(result))

    def write_results(self, results: Iterable[object]) -> None:
        """Write a JSON line for each, and flush."""
        for each in results:
            self.write_result(each)
        self.flush()

    @property
    def columns(self) -> int:
        """The width of the terminal, in characters."""
        return shutil.get_terminal_size().columns

    def write_table(
        self,
        headings: Sequence[str],
        rows: Iterable[Sequence[Cell]],
        *,
        figures: Container[str] = (),
    ) -> None:
        """Write a table for people. Columns of figures are right-aligned and never wrapped."""
        # Imported only for a table: it takes as long as all other imports together.
        from rich.console import Console
        from rich.table import Table
        from rich.text import Text

        def as_text(cell: Cell) -> Text:
            # Text, since rich would take [brackets] in a name for markup.
            first, *others = (cell,) if isinstance(cell, str) else cell
            return Text("\n").join(
                [Text(printable(first)), *(Text(printable(each), "dim") for each in others)]
            )

        table = Table(box=None, pad_edge=False, header_style="bold")
        for heading in headings:
            is_figure = heading in figures
            table.add_column(
                heading,
                justify="right" if is_figure else "left",
                no_wrap=is_figure,
                overflow="fold",
            )
        for row in rows:
            table.add_row(*map(as_text, row))
        Console(highlight=False).print(table)

    def style(self, text: str, code: str) -> str:
        """Return the text in a colour or weight, by its ANSI code, if the output has colours."""
        return f"\x1b[{code}m{text}\x1b[0m" if self._has_colour else text

    def has_reader(self) -> bool:
        """Return False once the reader of the pipe has gone.

        Writing would show that, too, but only when there is something to write.
        """
        descriptor = self._descriptor()
        if self.is_terminal or descriptor is None:
            return True
        return not _poll(descriptor, 0) & (select.POLLERR | select.POLLHUP)

    def _descriptor(self) -> int | None:
        """Return the file descriptor, or None if it cannot be polled."""
        try:
            return sys.stdout.fileno() if hasattr(select, "poll") else None
        except OSError:
            return None  # standard output was replaced by something in memory


def _poll(descriptor: int, asked: int) -> int:
    poll = select.poll()
    poll.register(descriptor, asked)
    return sum(events for _, events in poll.poll(0))


@contextmanager
def _errors_named() -> Iterator[None]:
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        raise click.ClickException(f"cannot write to standard output: {error.strerror}") from error
