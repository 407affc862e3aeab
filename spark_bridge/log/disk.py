"""File system operations of the log: whole writes, directories that are on disk, one lock."""

from __future__ import annotations

import errno
import fcntl
import io
import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from ..errors import LogLockedError

#: The errors of a disk that has no room now; more may fit later.
FULL_ERRNOS = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


class LogFile(io.FileIO):
    """A file of the log, open for reading; closed when nobody refers to it any more.

    Several readers share it: use positions (os.pread, sendfile), never the file's own position.
    """

    def __init__(self, path: Path) -> None:
        super().__init__(path, "rb")

    def __del__(self) -> None:
        self.close()


def open_for_writing(path: Path) -> int:
    """Open a file for reading and writing, create it if needed, and return the descriptor."""
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)


def write_at(fd: int, position: int, blocks: Iterable[bytes]) -> None:
    """Write all the bytes. After an OSError, any part of them may have been written."""
    for block in blocks:
        rest = memoryview(block)
        while rest:
            written = os.pwrite(fd, rest, position)
            position += written
            rest = rest[written:]


def cut_back(fd: int, length: int) -> None:
    """Truncate a file to its former length, on disk, too."""
    os.ftruncate(fd, length)
    os.fsync(fd)


def drop_cached(fd: int) -> None:
    """Make the next read come from the disk: after a failed sync the cache shows data that is not
    there.

    This is only a request: pages that the kernel still writes, or that somebody has mapped, may
    stay.
    """
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)


def sync_directory(directory: Path) -> None:
    """Put the names in a directory on disk: new files, and the absence of deleted ones."""
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def make_directory(directory: Path) -> None:
    """Make a directory and its parents, on disk. Does nothing if it exists."""
    if directory.is_dir():
        return
    make_directory(directory.parent)
    directory.mkdir(exist_ok=True)
    sync_directory(directory.parent)


def replace_file(path: Path, content: bytes) -> None:
    """Replace a file atomically: after a crash it is the old one or the new one."""
    temporary = path.with_name(path.name + ".new")
    with open(temporary, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)
    sync_directory(path.parent)


def lock_directory(directory: Path) -> int:
    """Reserve a directory for this process; the lock lasts until the returned descriptor is closed,
    or the process dies.

    Raises LogLockedError if another process has it.
    """
    # The file is never deleted: another process could then lock the deleted file and a third the
    # new one.
    fd = open_for_writing(directory / "lock")
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        owner = os.pread(fd, 32, 0).decode(errors="replace").strip() or "unknown"
        os.close(fd)
        if error.errno not in (errno.EWOULDBLOCK, errno.EACCES):
            raise
        raise LogLockedError(
            f"process {owner} has the log in {directory}: stop it, or use another directory"
        ) from None
    with suppress(OSError):  # A full disk: the lock holds without a process id in it.
        os.ftruncate(fd, 0)
        os.pwrite(fd, f"{os.getpid()}\n".encode(), 0)
    return fd
