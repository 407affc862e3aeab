"""The webhooks' database as their store uses it: many rows at once, room made and given back.

sqlite3 lets other threads run during each step of a statement and then has to get its turn back,
which takes up to 5 ms beside a busy event loop: hence one statement for many rows.
"""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from jsonbus.errors import StoreError
from jsonbus.gateway.webhooks import schema as webhook_file
from jsonbus.gateway.webhooks.reserve import Reserve

log = logging.getLogger("jsonbus.gateway.store")

#: Rows per statement. More are no faster, and each count has a prepared statement of its own.
ROWS_MAX = 64

#: Free pages the file may keep for the next backlog (16 MiB); what a longer one took beyond that
#: goes back to the disk in parts of 1 MiB, one every so many commits, so that none takes long.
FREE_PAGES_MAX = 4096
FREED_PAGES = 256
COMMITS_PER_LOOK = 16


class Database:
    """The locked folder and the connection of one store, from open to close. For one thread."""

    def __init__(self, folder: Path | None, steps: Sequence[Sequence[str]]) -> None:
        """Lock the folder, open or make the file, bring it to the newest version; StoreError."""
        self._path = None if folder is None else folder / webhook_file.FILE_NAME
        self._lock = None if folder is None else webhook_file.FolderLock(folder)
        self._reserve = Reserve(folder)
        self._commits = 0
        try:
            self._connection = webhook_file.connect(folder, steps)
            self._files = None if self._path is None else webhook_file.OpenFiles(self._path)
        except BaseException:
            if self._lock is not None:
                self._lock.release()
            raise

    def close(self) -> None:
        """Close the file and give the folder free; again is nothing."""
        self._connection.close()
        if self._lock is not None:
            self._lock.release()

    def execute(self, statement: str, parameters: Sequence[Any] = ()) -> sqlite3.Cursor:
        return self._connection.execute(statement, parameters)

    def insert(self, table: str, width: int, flat_rows: list[Any]) -> None:
        """Insert rows of so many values, given one after the other, and clear their list."""
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

    def begin(self, *, needs_room: bool) -> None:
        """Begin a transaction.

        One that `needs_room` raises OSError if the disk has no reserve left, and StoreError if
        what it stored would be gone at the next start.
        """
        if needs_room:
            if self._files is not None:
                self._files.check()
            self._reserve.take()
        self._connection.execute("BEGIN IMMEDIATE")

    def commit(self) -> None:
        """End the transaction; it is on disk when this returns."""
        self._connection.execute("COMMIT")

    def roll_back(self) -> None:
        """End the transaction, if SQLite did not end it itself, as if it had never begun."""
        if self._connection.in_transaction:
            self._connection.execute("ROLLBACK")

    def has_made_room(self, error: Exception) -> bool:
        """Whether a transaction that failed on a full disk and frees something may succeed now."""
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF  # an error of the module has none
        return code == sqlite3.SQLITE_FULL and self._reserve.release()

    def give_back_room(self) -> None:
        """Now and then, after a commit, return free pages to the disk. Never raises."""
        self._commits += 1
        if self._commits % COMMITS_PER_LOOK:
            return
        try:
            (free_pages,) = self._connection.execute("PRAGMA freelist_count").fetchone()
            if free_pages > FREE_PAGES_MAX:
                part = min(FREED_PAGES, free_pages - FREE_PAGES_MAX)
                # Not execute(): each page is a step without a result, and it would stop at one.
                self._connection.executescript(f"PRAGMA incremental_vacuum({part})")
        except sqlite3.Error as error:
            log.debug("! free pages are kept for now: %s", error)

    def explain(self, error: sqlite3.Error | OSError) -> StoreError:
        """What went wrong, as one sentence."""
        return webhook_file.explain(error, self._path)
