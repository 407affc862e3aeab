"""Writes JSON lines, plain and compressed by gzip.

A compressed file is one gzip member. After at most SYNC_BYTES of lines, and at every flush, the
compressor puts out all that it has, on a byte boundary (a sync flush): up to there the file can be
read, whatever becomes of the rest. That costs less than 0.5 % of the size.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence

import jsonbus

from .output_file import OutputFile
from .records import Losses, losses_to_line, message_to_line

#: Bytes of lines between two points from which a torn file cannot lose any.
SYNC_BYTES = 128 << 10

#: zlib's default, 6, takes twice the time for files that are a tenth smaller.
GZIP_LEVEL = 3
_GZIP_WINDOW = 31  # the largest window, 15, plus 16 for gzip's header and trailer


class LinesSink:
    """Writes messages as JSON lines."""

    def __init__(self, output: OutputFile) -> None:
        self._output = output

    @property
    def size(self) -> int:
        """Size of the file if it were closed now."""
        return self._output.tell()

    @property
    def is_on_disk(self) -> bool:
        """True if everything written survives the end of this process."""
        return not self._output.has_pending

    def write(self, messages: Sequence[jsonbus.Message], size_max: int | None = None) -> int:
        """Add messages as long as the file does not exceed that size, and return how many."""
        lines = list(map(message_to_line, messages))
        data = b"".join(lines)
        if size_max is None or self.size + len(data) <= size_max:
            self._add(data)
            return len(lines)
        return self._add_fitting(lines, size_max)

    def note_losses(self, losses: Losses) -> None:
        self._add(losses_to_line(losses))

    def flush(self) -> None:
        """Make everything written so far survive the end of this process."""
        self._output.flush()

    def finish(self) -> None:
        """Finish the file."""
        self._output.flush()

    def _add(self, data: bytes) -> None:
        self._output.write(data)

    def _add_fitting(self, lines: list[bytes], size_max: int) -> int:
        count = 0
        while fitting := _fitting(lines[count:], size_max - self.size):
            self._add(b"".join(fitting))
            self._make_room()
            count += len(fitting)
        return count

    def _make_room(self) -> None:
        """Find out how large the file really is."""


class GzipLinesSink(LinesSink):
    """Writes compressed JSON lines."""

    def __init__(self, output: OutputFile) -> None:
        super().__init__(output)
        self._compressor = zlib.compressobj(GZIP_LEVEL, zlib.DEFLATED, _GZIP_WINDOW)
        self._unsynced = 0

    @property
    def size(self) -> int:
        # What the compressor still holds is counted as if it could not be compressed.
        return self._output.tell() + self._unsynced

    @property
    def is_on_disk(self) -> bool:
        return not (self._unsynced or self._output.has_pending)

    def flush(self) -> None:
        self._sync()
        self._output.flush()

    def finish(self) -> None:
        self._output.write(self._compressor.flush(zlib.Z_FINISH))
        self._unsynced = 0
        self._output.flush()

    def _add(self, data: bytes) -> None:
        self._output.write(self._compressor.compress(data))
        self._unsynced += len(data)
        if self._unsynced >= SYNC_BYTES:
            self._sync()

    def _add_fitting(self, lines: list[bytes], size_max: int) -> int:
        self._sync()
        return super()._add_fitting(lines, size_max)

    def _make_room(self) -> None:
        self._sync()

    def _sync(self) -> None:
        if self._unsynced:
            self._output.write(self._compressor.flush(zlib.Z_SYNC_FLUSH))
            self._unsynced = 0


def _fitting(lines: list[bytes], room: int) -> list[bytes]:
    """Return as many of the first lines as there is room for."""
    for index, line in enumerate(lines):
        room -= len(line)
        if room < 0:
            return lines[:index]
    return lines
