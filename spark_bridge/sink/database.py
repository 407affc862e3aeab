"""The SQLite file below the sink's store: tables, opening, transactions, errors.

    queries     the fence of each query: the last batch that is on the bus
    parts       staged rows, as Arrow IPC streams, by query, batch, partition, attempt and part
    publishing  the mark of a batch that is on its way out, with the rows that are out for sure
    totals      rows and bytes of all parts, kept by triggers

One connection for all threads, with one lock. The file is held exclusively: a second bridge on it
is refused.
"""

from __future__ import annotations

import shutil
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ..errors import StoreError, StoreFullError

_SCHEMA_1 = """
    CREATE TABLE queries (
        query TEXT PRIMARY KEY, fence INTEGER NOT NULL, is_write INTEGER NOT NULL,
        used_at REAL NOT NULL
    ) WITHOUT ROWID;
    CREATE INDEX queries_by_use ON queries (is_write, used_at);
    CREATE TABLE parts (
        id INTEGER PRIMARY KEY, query TEXT NOT NULL, batch INTEGER NOT NULL,
        partition INTEGER NOT NULL, attempt INTEGER NOT NULL, part INTEGER NOT NULL,
        run TEXT NOT NULL, staged_at REAL NOT NULL, rows INTEGER NOT NULL, bytes INTEGER NOT NULL,
        body BLOB NOT NULL, UNIQUE (query, batch, partition, attempt, part)
    );
    CREATE TABLE publishing (
        query TEXT PRIMARY KEY, batch INTEGER NOT NULL, rows INTEGER NOT NULL,
        position INTEGER NOT NULL, is_exact INTEGER NOT NULL
    ) WITHOUT ROWID;
    CREATE TABLE totals (rows INTEGER NOT NULL, bytes INTEGER NOT NULL);
    INSERT INTO totals VALUES (0, 0);
    CREATE TRIGGER part_added AFTER INSERT ON parts BEGIN
        UPDATE totals SET rows = rows + new.rows, bytes = bytes + new.bytes;
    END;
    CREATE TRIGGER part_removed AFTER DELETE ON parts BEGIN
        UPDATE totals SET rows = rows - old.rows, bytes = bytes - old.bytes;
    END;
"""

#: Step n turns version n into version n + 1. Released steps are never edited: new ones are added.
_STEPS = (_SCHEMA_1,)


class SinkDatabase:
    """The open file. Its methods raise StoreError, and StoreFullError if the disk is full."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.RLock()
        with self._translated():
            self._connection = sqlite3.connect(
                path, isolation_level=None, check_same_thread=False, timeout=0
            )
            try:
                self._prepare()
            except BaseException:
                self._connection.close()
                raise

    def do(self, statement: str, values: tuple[Any, ...] = ()) -> list[Any]:
        """Execute a statement and return all rows; only inside `reading` or `transaction`."""
        return self._connection.execute(statement, values).fetchall()

    def value(self, statement: str, values: tuple[Any, ...] = ()) -> int:
        """Execute a statement whose result is one number."""
        return int(self.do(statement, values)[0][0])

    def give_back(self, pages_free_max: int, pages: int) -> None:
        """Shrink the file by that many pages if more than the first number are free."""
        with self.reading():
            if self.value("PRAGMA freelist_count") > pages_free_max:
                # As a script: a single statement would be stepped, and so shrink the file, only
                # once.
                self._connection.executescript(f"PRAGMA incremental_vacuum({pages})")

    @contextmanager
    def reading(self) -> Iterator[None]:
        """For statements that change no row."""
        with self._lock, self._translated():
            yield

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """On disk at the end, or without a trace if something is raised."""
        with self._lock, self._translated():
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield
                self._connection.execute("COMMIT")
            except BaseException:
                # A full disk may have ended it already.
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
                raise

    def close(self) -> None:
        """Close the file. Idempotent."""
        with self._lock:
            self._connection.close()

    def _prepare(self) -> None:
        # Before anything is read: then no index is mapped into memory, which would take room on
        # disk.
        self.do("PRAGMA locking_mode = EXCLUSIVE")
        version = self.value("PRAGMA user_version")
        if version > len(_STEPS):
            raise StoreError(
                f"{self._path} was made by a newer jsonbus (version {version} of the file, "
                f"{len(_STEPS)} is known here): use that one, or another data directory"
            )
        if not version:
            self.do("PRAGMA auto_vacuum = INCREMENTAL")  # must come before the first table
        self.do("PRAGMA journal_mode = WAL")
        self.do("PRAGMA synchronous = FULL")
        self.do("PRAGMA journal_size_limit = 67108864")
        for number in range(version, len(_STEPS)):
            self._connection.executescript(
                f"BEGIN IMMEDIATE; {_STEPS[number]}; PRAGMA user_version = {number + 1}; COMMIT;"
            )
        # Takes the lock now rather than at the first request.
        self._connection.executescript("BEGIN IMMEDIATE; COMMIT;")

    @contextmanager
    def _translated(self) -> Iterator[None]:
        """Translate SQLite's errors into ours."""
        try:
            yield
        except sqlite3.Error as error:
            code = getattr(error, "sqlite_errorcode", 0) & 0xFF
            # Where SQLite cannot even begin, it reports a full disk like any other failure.
            if code == sqlite3.SQLITE_FULL or (code == sqlite3.SQLITE_IOERR and self._is_full()):
                raise StoreFullError(
                    f"no room on the disk for {self._path}, nothing was kept: free some"
                ) from error
            if code == sqlite3.SQLITE_BUSY:
                raise StoreError(
                    f"{self._path} is in use: another bridge has this data directory"
                ) from error
            raise StoreError(f"{self._path} cannot be used: {error}") from error

    def _is_full(self) -> bool:
        """Return whether the disk has no room for a page."""
        try:
            return shutil.disk_usage(self._path.parent).free < 4096
        except OSError:
            return False
