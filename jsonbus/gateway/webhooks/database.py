"""The webhooks' database as the store uses it: a transaction, an undo log, a reserve on the disk.

One statement writes or deletes many rows: sqlite3 lets other threads run during each step of a
statement and then waits for its turn, which takes up to 5 ms beside a busy event loop.

`UndoLog` keeps the store's memory and its file equal: when a transaction fails, the changes of
memory that belong to it are undone.

`Reserve` keeps room on the disk so that messages can be delivered while the disk is full. Deleting
a delivered message needs room, too: the WAL grows before the file shrinks. So a file of zeros
stands beside the database, and new messages are accepted only while it exists. On a full disk it
is deleted for the sake of commands that free room. It is made again, before anything new is
accepted, once there is room for it.
"""

from __future__ import annotations

import logging
import os
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, TypeVar

from jsonbus.errors import StoreError

from . import schema

log = logging.getLogger("jsonbus.gateway.store")

#: Rows per statement. More are no faster, and each number of rows is another prepared statement.
ROWS_MAX = 64

#: Free pages that the file keeps for the next backlog (16 MiB). Pages beyond that go back to the
#: disk, 1 MiB every COMMITS_PER_LOOK commits, so that no commit takes long.
FREE_PAGES_MAX = 4096
FREED_PAGES = 256
COMMITS_PER_LOOK = 16

RESERVE_NAME = "jsonbus-gateway.reserve"
#: The WAL grows by 4 MiB until it is copied into the file (schema.CHECKPOINT_PAGES), and the file
#: grows by as much meanwhile. After that both stay within what they have.
RESERVE_BYTES = 8 << 20
#: What must be free besides, for the disk not to be full: the largest message by default.
ROOM_BYTES = 1 << 20

K = TypeVar("K")
V = TypeVar("V")

_MISSING = object()


class Database:
    """The locked folder and the connection of one store. Use it in one thread."""

    def __init__(self, folder: Path | None, steps: Sequence[Sequence[str]]) -> None:
        """Lock the folder, open or make the file, apply new schema steps. Raises StoreError."""
        self._path = None if folder is None else folder / schema.FILE_NAME
        self._reserve = Reserve(folder)
        self._commits = 0
        with ExitStack() as opened:
            if folder is not None:
                opened.callback(schema.FolderLock(folder).release)
            self._connection = schema.connect(folder, steps)
            opened.callback(self._connection.close)
            self._files = None if self._path is None else schema.OpenFiles(self._path)
            self._opened = opened.pop_all()

    def close(self) -> None:
        """Close the file and release the folder. Idempotent."""
        self._opened.close()

    def execute(self, statement: str, parameters: Sequence[Any] = ()) -> sqlite3.Cursor:
        return self._connection.execute(statement, parameters)

    def insert(self, table: str, width: int, flat_rows: list[Any]) -> None:
        """Insert rows of `width` values each, given in one flat list, and clear that list."""
        row = f"({','.join('?' * width)})"
        for start in range(0, len(flat_rows), ROWS_MAX * width):
            part = flat_rows[start : start + ROWS_MAX * width]
            rows = ",".join([row] * (len(part) // width))
            self._connection.execute(f"INSERT INTO {table} VALUES {rows}", part)
        flat_rows.clear()

    def delete_messages(self, numbers: Sequence[int]) -> None:
        for start in range(0, len(numbers), ROWS_MAX):
            part = numbers[start : start + ROWS_MAX]
            marks = ",".join("?" * len(part))
            self._connection.execute(f"DELETE FROM messages WHERE number IN ({marks})", part)

    @contextmanager
    def transaction(self, *, needs_room: bool) -> Iterator[None]:
        """Run a transaction, which is on disk when this ends, or is rolled back by an exception.

        With `needs_room`: raise OSError if there is no room for the reserve, and StoreError if the
        file was deleted or replaced, since everything stored would be gone at the next start.
        """
        if needs_room:
            if self._files is not None:
                self._files.check()
            self._reserve.take()
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            yield
            self._connection.execute("COMMIT")
        except BaseException:
            if self._connection.in_transaction:  # SQLite may have rolled it back already
                self._connection.execute("ROLLBACK")
            raise

    def check_room(self) -> None:
        """Raise OSError unless the disk has room for a large message.

        A write alone does not tell: the WAL may have room when the disk has none.
        """
        self._reserve.check_room()

    def has_made_room(self, error: Exception) -> bool:
        """Free the reserve if the disk was full; return whether the transaction may succeed now."""
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF  # errors of the module have none
        return code == sqlite3.SQLITE_FULL and self._reserve.release()

    def give_back_room(self) -> None:
        """Return some free pages to the disk, after every few commits. Never raises."""
        self._commits += 1
        if self._commits % COMMITS_PER_LOOK:
            return
        try:
            (free_pages,) = self._connection.execute("PRAGMA freelist_count").fetchone()
            if free_pages > FREE_PAGES_MAX:
                part = min(FREED_PAGES, free_pages - FREE_PAGES_MAX)
                # Not execute(): it stops after one step, and each page is a step.
                self._connection.executescript(f"PRAGMA incremental_vacuum({part})")
        except sqlite3.Error as error:
            log.debug("! free pages stay in the file for now: %s", error)

    def explain(self, error: sqlite3.Error | OSError) -> StoreError:
        """Return a StoreError that says in one sentence what went wrong."""
        return schema.explain(error, self._path)


class UndoLog:
    """The changes of some dicts that last only if the transaction does."""

    __slots__ = ("_steps",)

    def __init__(self) -> None:
        #: Mapping, key, and the value before the change.
        self._steps: list[tuple[dict[Any, Any], Any, Any]] = []

    def set(self, mapping: dict[K, V], key: K, value: V) -> None:
        """Add or change an entry."""
        self._steps.append((mapping, key, mapping.get(key, _MISSING)))
        mapping[key] = value

    def forget(self, mapping: dict[K, V], key: K) -> None:
        """Remove an entry, if it is there."""
        self._steps.append((mapping, key, mapping.pop(key, _MISSING)))

    def keep(self) -> None:
        """Forget the old entries: the transaction is on disk."""
        self._steps.clear()

    def undo(self) -> None:
        """Restore the old entries, the last change first: the transaction failed."""
        for mapping, key, value in reversed(self._steps):
            if value is _MISSING:
                mapping.pop(key, None)
            else:
                mapping[key] = value
        self._steps.clear()


class Reserve:
    """The reserve of one folder. A store in memory (None) always has room."""

    def __init__(self, folder: Path | None) -> None:
        self._path = None if folder is None else folder / RESERVE_NAME
        self._is_there = self._path is None

    def take(self) -> None:
        """Make the reserve unless it exists. Raises OSError if there is no room for it."""
        if self._is_there or self._path is None:
            return
        fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            os.posix_fallocate(fd, 0, RESERVE_BYTES)  # does nothing if the file is complete
        except OSError:
            self._path.unlink(missing_ok=True)  # a part of it is useless
            raise
        finally:
            os.close(fd)
        self._is_there = True

    def check_room(self) -> None:
        """Raise OSError unless there is room beside the reserve, too."""
        if self._path is None:
            return
        path = self._path.with_suffix(".probe")
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            os.posix_fallocate(fd, 0, ROOM_BYTES)
        finally:
            path.unlink(missing_ok=True)
            os.close(fd)

    def release(self) -> bool:
        """Delete the reserve. Return False if there was none."""
        if self._path is None:
            return False
        self._is_there = False
        try:
            self._path.unlink()  # it may be from an earlier run, so `_is_there` may be False
        except FileNotFoundError:
            return False
        return True
