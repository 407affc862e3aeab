"""A file that is written by whole records."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from jsonbus.errors import LocalError, RecordingError

try:
    import fcntl
except ImportError:  # Windows: nothing prevents two recordings into one file
    fcntl = None  # type: ignore[assignment]

#: Bytes that are collected before they are written: a system call for each message would cost more
#: than encoding it.
BUFFER_BYTES = 64 << 10


class OutputFile:
    """Bytes on their way to the disk; each `write` adds whole records.

    After an error, such as a full disk, the file ends where the last successful flush ended, so it
    has whole records only. Raises LocalError if the file exists, unless `force`, and
    RecordingError.
    """

    def __init__(self, path: Path, *, force: bool = False) -> None:
        self.path = path
        self._pending = bytearray()
        self._written = 0
        self._descriptor = self._open(force)

    def _open(self, force: bool) -> int:
        flags = os.O_WRONLY | os.O_CREAT | getattr(os, "O_CLOEXEC", 0)
        try:
            descriptor = os.open(self.path, flags if force else flags | os.O_EXCL, 0o666)
        except FileExistsError:
            raise LocalError(
                f"{self.path} exists: choose another name, or overwrite it (--force, force=True)"
            ) from None
        except OSError as error:
            raise self._error(error) from error
        try:
            self._claim(descriptor)
        except BaseException:
            os.close(descriptor)
            raise
        return descriptor

    def _claim(self, descriptor: int) -> None:
        if fcntl is not None:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise LocalError(f"{self.path} is being recorded into by somebody else") from None
            except OSError:
                pass  # a file system without locks
        if stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.ftruncate(descriptor, 0)

    def tell(self) -> int:
        """Return the number of bytes written so far."""
        return self._written + len(self._pending)

    @property
    def has_pending(self) -> bool:
        """True if some of them are not written yet."""
        return bool(self._pending)

    def write(self, data: bytes) -> int:
        """Add whole records."""
        self._pending += data
        if len(self._pending) >= BUFFER_BYTES:
            self.flush()
        return len(data)

    def flush(self) -> None:
        """Give everything written so far to the system; raises RecordingError."""
        written = 0
        try:
            with memoryview(self._pending) as pending:
                while written < len(pending):
                    written += os.write(self._descriptor, pending[written:])
        except OSError as error:
            self._cut(written)
            raise self._error(error) from error
        self._written += written
        self._pending.clear()

    def close(self) -> None:
        """Close without a flush. Idempotent."""
        if self._descriptor >= 0:
            descriptor, self._descriptor = self._descriptor, -1
            os.close(descriptor)

    def _cut(self, written: int) -> None:
        """Remove the part of a record that was written."""
        try:
            if stat.S_ISREG(os.fstat(self._descriptor).st_mode):
                os.ftruncate(self._descriptor, self._written)
                os.lseek(self._descriptor, self._written, os.SEEK_SET)
        except OSError:
            pass  # readers cope with a torn end
        self._pending.clear()

    def _error(self, error: OSError) -> RecordingError:
        return RecordingError(str(self.path), f"cannot be written: {error.strerror}")
