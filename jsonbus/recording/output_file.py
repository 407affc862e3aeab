"""A file that is written by whole records."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from jsonbus.errors import LocalError, RecordingError

try:
    import fcntl
except ImportError:  # Windows: nobody looks after two recordings into one file
    fcntl = None  # type: ignore[assignment]

#: What is gathered before it is written: a system call for each message would cost more than to
#: encode it.
BUFFER_BYTES = 64 << 10


class OutputFile:
    """Bytes on their way to the disk; each `write` brings whole records.

    After an error, such as a full disk, the file ends where a flush ended that succeeded: so it has
    whole records only. Raises LocalError if the file exists, unless `force`, and RecordingError.
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
                f"{self.path} exists: choose another name, or force it to be overwritten"
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
        """How many bytes were given to it."""
        return self._written + len(self._pending)

    @property
    def has_pending(self) -> bool:
        """Whether some of them are not written yet."""
        return bool(self._pending)

    def write(self, data: bytes) -> int:
        """Add whole records."""
        self._pending += data
        if len(self._pending) >= BUFFER_BYTES:
            self.flush()
        return len(data)

    def flush(self) -> None:
        """Have everything written so far taken by the system; raises RecordingError."""
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
        """Without a flush. A second call does nothing."""
        if self._descriptor >= 0:
            descriptor, self._descriptor = self._descriptor, -1
            os.close(descriptor)

    def _cut(self, written: int) -> None:
        """Take the part of a record back that was written."""
        try:
            if stat.S_ISREG(os.fstat(self._descriptor).st_mode):
                os.ftruncate(self._descriptor, self._written)
                os.lseek(self._descriptor, self._written, os.SEEK_SET)
        except OSError:
            pass  # readers stand a torn end
        self._pending.clear()

    def _error(self, error: OSError) -> RecordingError:
        return RecordingError(str(self.path), f"cannot be written: {error.strerror}")
