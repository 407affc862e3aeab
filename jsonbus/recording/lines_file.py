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
from .sink import Sink

#: Bytes of lines between two points from which a torn file cannot lose any.
SYNC_BYTES = 128 << 10

#: zlib's default, 6, takes twice the time for files that are a tenth smaller.
GZIP_LEVEL = 3
_GZIP_WINDOW = 31  # the largest window, 15, plus 16 for gzip's header and trailer


class LinesSink(Sink):
    """Writes messages as JSON lines."""

    def write(self, messages: Sequence[jsonbus.Message], size_max: int | None = None) -> int:
        lines = list(map(message_to_line, messages))
        data = b"".join(lines)
        if size_max is None or self.size + len(data) <= size_max:
            self._add(data)
            return len(lines)
        self._sync()  # compressed, it may leave room
        count = 0
        while fitting := _fitting(lines[count:], size_max - self.size):
            self._add(b"".join(fitting))
            self._sync()
            count += len(fitting)
        return count

    def note_losses(self, losses: Losses) -> None:
        self._add(losses_to_line(losses))

    def _add(self, data: bytes) -> None:
        self._output.write(data)

    def _sync(self) -> None:
        """Do nothing: plain lines are never held."""


class GzipLinesSink(LinesSink):
    """Writes compressed JSON lines."""

    def __init__(self, output: OutputFile) -> None:
        super().__init__(output)
        self._compressor = zlib.compressobj(GZIP_LEVEL, zlib.DEFLATED, _GZIP_WINDOW)

    def finish(self) -> None:
        self._output.write(self._compressor.flush(zlib.Z_FINISH))
        self._held = 0
        self._output.flush()

    def _add(self, data: bytes) -> None:
        self._output.write(self._compressor.compress(data))
        self._held += len(data)
        if self._held >= SYNC_BYTES:
            self._sync()

    def _sync(self) -> None:
        if self._held:
            self._output.write(self._compressor.flush(zlib.Z_SYNC_FLUSH))
            self._held = 0


def _fitting(lines: list[bytes], room: int) -> list[bytes]:
    """Return as many of the first lines as there is room for."""
    for index, line in enumerate(lines):
        room -= len(line)
        if room < 0:
            return lines[:index]
    return lines
