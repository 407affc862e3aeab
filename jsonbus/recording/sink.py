"""The base of what writes messages into a file; one class for each format."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

import jsonbus

from .output_file import OutputFile
from .records import Losses


class Sink(ABC):
    """Writes one file in one format."""

    def __init__(self, output: OutputFile) -> None:
        self._output = output
        self._held = 0  # bytes that were added, but are not in the output yet

    @property
    def size(self) -> int:
        """Size of the file if it were finished now, or somewhat less.

        What is still to be compressed is counted as if it could not be.
        """
        return self._output.tell() + self._held

    @property
    def is_on_disk(self) -> bool:
        """True if everything written survives the end of this process."""
        return not (self._held or self._output.has_pending)

    @abstractmethod
    def write(self, messages: Sequence[jsonbus.Message], size_max: int | None = None) -> int:
        """Add messages as long as the file does not exceed that size, and return how many."""

    @abstractmethod
    def note_losses(self, losses: Losses) -> None: ...

    def flush(self) -> None:
        """Make everything written so far survive the end of this process."""
        self._sync()
        self._output.flush()

    def finish(self) -> None:
        """Finish the file."""
        self.flush()

    @abstractmethod
    def _sync(self) -> None:
        """Put what is held into the output."""


def make_sink(name: str, output: OutputFile) -> Sink:
    """Return what writes that format into the file."""
    if name == "mcap":
        from .mcap_file import McapSink  # few need it, and it may not be installed

        return McapSink(output)
    from .lines_file import GzipLinesSink, LinesSink

    return GzipLinesSink(output) if name == "jsonl.gz" else LinesSink(output)
