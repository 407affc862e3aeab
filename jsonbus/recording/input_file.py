"""Reads a file as it was when it was opened, and bytes that gzip compressed."""

from __future__ import annotations

import io
import os
import stat
import zlib
from pathlib import Path
from typing import Any

from jsonbus.errors import RecordingError

BLOCK_BYTES = 64 << 10
UNKNOWN_BYTES = 1 << 62
_GZIP_WINDOW = 31  # the largest window, 15, plus 16 for gzip's header and trailer


class InputFile(io.RawIOBase):
    """A file as it was when it was opened.

    Bytes that are added later are not read: so the replay of a recording that is still being
    written, perhaps of this very replay, comes to an end.
    """

    def __init__(self, path: Path) -> None:
        try:
            self._file = io.FileIO(path)
        except OSError as error:
            super().close()  # or else Python calls close() below, which needs the file
            raise RecordingError(str(path), f"cannot be read: {error.strerror}") from error
        status = os.fstat(self._file.fileno())
        self._is_bounded = stat.S_ISREG(status.st_mode)
        #: Number of bytes to read; for a pipe, more than there will be.
        self.size = status.st_size if self._is_bounded else UNKNOWN_BYTES
        self._path = path
        self.position = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return self._is_bounded

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self.position, os.SEEK_END: self.size}[whence]
        self.position = self._file.seek(base + offset)
        return self.position

    def readinto(self, buffer) -> int:  # type: ignore[no-untyped-def]
        view = memoryview(buffer)
        if self._is_bounded:
            view = view[: max(0, self.size - self.position)]
        try:
            count = self._file.readinto(view) or 0
        except OSError as error:
            raise RecordingError(str(self._path), f"cannot be read: {error.strerror}") from error
        self.position += count
        return count

    def close(self) -> None:
        if not self.closed:
            self._file.close()
        super().close()


class GunzipFile(io.RawIOBase):
    """Decompresses gzip members one after the other, up to where the file is torn, if it is."""

    def __init__(self, stream: io.BufferedReader[Any], path: Path) -> None:
        self._stream = stream
        self._path = path
        self._read = 0
        self._decompressor = zlib.decompressobj(_GZIP_WINDOW)
        self._ready = b""
        self._damage: RecordingError | None = None
        self._has_begun = False  # the current member
        self._is_at_end = False
        self.is_torn = False

    def readable(self) -> bool:
        return True

    def readinto(self, buffer) -> int:  # type: ignore[no-untyped-def]
        size = len(buffer)
        while not self._ready and not self._is_at_end:
            self._ready = self._decompress(size)
        data, self._ready = self._ready[:size], self._ready[size:]
        buffer[: len(data)] = data
        return len(data)

    def _decompress(self, size: int) -> bytes:
        if self._damage is not None:
            raise self._damage
        if self._decompressor.eof:
            block = self._decompressor.unused_data
            self._decompressor = zlib.decompressobj(_GZIP_WINDOW)
            self._has_begun = False
        else:
            block = self._decompressor.unconsumed_tail
        # The decompressor may still hold bytes that did not fit; it returns them without more
        # input.
        if not block:
            block = self._stream.read1(BLOCK_BYTES)
            self._read += len(block)
        before = self._decompressor.copy()
        try:
            data = self._decompressor.decompress(block, size)
        except zlib.error as error:
            return self._decompress_up_to_damage(before, block, error)
        if block:
            self._has_begun = True
        elif not data:
            self._is_at_end = True
            self.is_torn = self._has_begun
        return data

    def _decompress_up_to_damage(
        self, decompressor: Any, block: bytes, reason: zlib.error
    ) -> bytes:
        """Return what the decompressor lost when it found the damage; the next call raises the
        error.
        """
        data, index = bytearray(), 0
        try:
            for index in range(len(block)):
                data += decompressor.decompress(block[index : index + 1])
        except zlib.error:
            pass  # known by now
        place = self._read - len(block) + index
        self._damage = RecordingError(str(self._path), f"it is damaged at byte {place:,}: {reason}")
        return bytes(data)
