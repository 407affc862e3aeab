"""Room on the disk kept for deliveries: what waits can be delivered when the disk is full.

Forgetting a delivered message needs room, too: the WAL grows before the file shrinks. So a file of
zeros stands beside the database, and new messages are accepted only while it does. On a full disk
it is deleted for the sake of those works that free something; it comes back, before anything new
is accepted, when there is room for it again.
"""

from __future__ import annotations

import os
from pathlib import Path

FILE_NAME = "jsonbus-gateway.reserve"

#: A WAL that grows by 4 MiB until it is copied into the file (webhook_file.CHECKPOINT_PAGES), and
#: a file that grows by as much meanwhile. After that both stay within what they have.
RESERVE_BYTES = 8 << 20


class Reserve:
    """The reserve of a folder; without one (None: in memory) there is always room."""

    def __init__(self, folder: Path | None) -> None:
        self._path = None if folder is None else folder / FILE_NAME
        self._is_there = self._path is None

    def take(self) -> None:
        """Make sure that the reserve is there; raises OSError if there is no room for it."""
        if self._is_there or self._path is None:
            return
        fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            os.posix_fallocate(fd, 0, RESERVE_BYTES)  # nothing to do if it is from before
        except OSError:
            self._path.unlink(missing_ok=True)  # a part of it is of no use to anybody
            raise
        finally:
            os.close(fd)
        self._is_there = True

    def release(self) -> bool:
        """Give the room free; False if it was not there."""
        if self._path is None:
            return False
        self._is_there = False
        try:
            self._path.unlink()  # perhaps one of an earlier run, which nobody asked for yet
        except FileNotFoundError:
            return False
        return True
