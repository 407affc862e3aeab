"""Results on standard output: JSON lines for programs, readable lines for people.

What is not a result (status, errors, the log) goes to standard error and not through here.
"""

from __future__ import annotations

import os
import select
import sys
from collections.abc import Iterable, Sequence
from typing import IO

from .values import printable, to_json


class Output:
    """Standard output, as it is while one command runs.

    Writing raises OSError, BrokenPipeError among them; it is the command's end, not its concern.
    """

    def __init__(self) -> None:
        #: Whether people read it; else a program does.
        self.is_terminal = sys.stdout.isatty()
        self._has_colour = self.is_terminal and not os.environ.get("NO_COLOR")
        self._bytes: IO[bytes] = sys.stdout.buffer

    def write_line(self, line: str) -> None:
        """Add a line; it is seen after `flush`. UTF-8 whatever the locale, as JSON demands."""
        self._bytes.write(line.encode("utf-8", "backslashreplace") + b"\n")

    def flush(self) -> None:
        self._bytes.flush()

    def write_results(self, results: Iterable[object]) -> None:
        """One JSON line for each, and flush."""
        for each in results:
            self.write_line(to_json(each))
        self.flush()

    def write_table(self, headings: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
        """A table for people, and flush."""
        # Imported by those who look at a table: it takes as long as all the rest together.
        from rich.console import Console
        from rich.table import Table
        from rich.text import Text

        table = Table(*headings, box=None, pad_edge=False, header_style="bold")
        for row in rows:
            # Text, since rich would take [brackets] in a name for markup.
            table.add_row(*(Text(printable(cell)) for cell in row))
        Console(highlight=False).print(table)

    def style(self, text: str, code: str) -> str:
        """The text in a colour or weight, by its ANSI code; as it is where colours do not serve."""
        return f"\x1b[{code}m{text}\x1b[0m" if self._has_colour else text

    def has_reader(self) -> bool:
        """False once whoever read the pipe has gone.

        Writing would tell, too, but only when there is something to write.
        """
        if self.is_terminal or not hasattr(select, "poll"):
            return True
        try:
            descriptor = sys.stdout.fileno()
        except OSError:
            return True  # not a file of the system
        poll = select.poll()
        poll.register(descriptor, 0)  # errors are always reported
        return not any(events & (select.POLLERR | select.POLLHUP) for _, events in poll.poll(0))

