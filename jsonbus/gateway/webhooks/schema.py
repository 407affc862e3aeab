"""The file of the webhooks' store: its folder, its lock, its settings and its schema steps.

The folder holds `jsonbus-gateway.db` (with SQLite's own `-wal` beside it), a reserve (see
database.py) and `jsonbus-gateway.lock`, which one process locks for as long as it has the
store open, so that a second gateway can say which process has it.

The schema's version is SQLite's `user_version`: the number of STEPS taken. A step and its new
version are one transaction, so a step that fails or is killed leaves no trace.
"""

from __future__ import annotations

import errno
import os
import sqlite3
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from jsonbus.errors import StoreError

FILE_NAME = "jsonbus-gateway.db"
LOCK_NAME = "jsonbus-gateway.lock"

#: Tells our file from any other SQLite database: "jbgw".
APPLICATION_ID = 0x6A626777

#: After this many pages SQLite copies the WAL into the file, within a commit: 4 MiB, some 10 ms of
#: writing. There are no other readers, so the WAL starts over each time.
CHECKPOINT_PAGES = 1000
#: A WAL that a long transaction made longer than this is cut when it starts over.
WAL_BYTES_MAX = 8 << 20

#: How long opening waits for a program that uses the file, such as a backup.
BUSY_TIMEOUT_S = 5.0

#: The statements that make each version out of the one before. A released step is never edited.
STEPS: tuple[tuple[str, ...], ...] = (
    (
        # The name of this file's deliveries: another file counts from 1, too.
        "CREATE TABLE identity (id TEXT NOT NULL)",
        "INSERT INTO identity VALUES (lower(hex(randomblob(6))))",
        # `cut`: last message of the batch in flight. AUTOINCREMENT: no number comes back.
        """CREATE TABLE subscribers (
            id INTEGER PRIMARY KEY AUTOINCREMENT,
            name TEXT NOT NULL UNIQUE,
            url TEXT NOT NULL,
            created_at REAL NOT NULL,
            delivered INTEGER NOT NULL DEFAULT 0,
            cut INTEGER
        )""",
        """CREATE TABLE subscriptions (
            id INTEGER PRIMARY KEY,
            subscriber INTEGER NOT NULL REFERENCES subscribers,
            pattern TEXT NOT NULL,
            UNIQUE (subscriber, pattern)
        )""",
        """CREATE TABLE messages (
            number INTEGER PRIMARY KEY AUTOINCREMENT,
            topic TEXT NOT NULL,
            payload BLOB NOT NULL,
            accepted_at REAL NOT NULL
        )""",
        """CREATE TABLE deliveries (
            subscriber INTEGER NOT NULL,
            number INTEGER NOT NULL,
            PRIMARY KEY (subscriber, number)
        ) WITHOUT ROWID""",
    ),
)


def connect(folder: Path | None, steps: Sequence[Sequence[str]] = STEPS) -> sqlite3.Connection:
    """Return the database of a folder (None: in memory) at the newest version; or StoreError."""
    path = None if folder is None else folder / FILE_NAME
    try:
        if path is not None:
            # Readable by its owner only: it holds urls with secrets, and messages. SQLite gives
            # the WAL the same permissions.
            os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
        with ExitStack() as failing:
            database = sqlite3.connect(
                ":memory:" if path is None else path,
                timeout=BUSY_TIMEOUT_S,
                isolation_level=None,  # the store begins transactions itself
                cached_statements=512,
            )
            failing.callback(database.close)
            _set_up(database)
            _migrate(database, path, steps)
            failing.pop_all()
        return database
    except (sqlite3.Error, OSError) as error:
        raise explain(error, path) from error


class DiskFullError(StoreError):
    """The disk of the store is full."""


def explain(error: sqlite3.Error | OSError, path: Path | None) -> StoreError:
    """Return a StoreError that says in one sentence what went wrong and what to do."""
    name = "the store in memory" if path is None else str(path)
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    if code == sqlite3.SQLITE_FULL or getattr(error, "errno", 0) in (errno.ENOSPC, errno.EDQUOT):
        return DiskFullError(
            f"the disk is full: {name} cannot be written; make room, and try again later"
        )
    if code == sqlite3.SQLITE_BUSY:
        text = f"another program has locked {name}: try again later, or stop it"
    elif code == sqlite3.SQLITE_NOTADB:
        text = f"{name} is not a SQLite database: move it away, or use another folder"
    elif code == sqlite3.SQLITE_CORRUPT:
        text = f"{name} is damaged ({error}): restore it, or move it away"
    elif code in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM) or (
        isinstance(error, PermissionError) or getattr(error, "errno", 0) == errno.EROFS
    ):
        text = f"{name} cannot be opened for writing ({error})"
        text += ": let the gateway write there, or use another folder"
    else:
        text = f"{name} cannot be used ({error}): check its disk, and try again later"
    return StoreError(text)


class FolderLock:
    """Locks a folder for one process; the kernel releases the lock when the process dies."""

    def __init__(self, folder: Path) -> None:
        """Make the folder if it is missing, and lock it. Raises StoreError if that fails."""
        import fcntl  # not on Windows

        path = folder / LOCK_NAME
        try:
            _make_folder(folder)
            # Never deleted: another process could then lock the deleted file, a third the new one.
            self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise explain(error, path) from error
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            owner = os.pread(self._fd, 32, 0).decode(errors="replace").strip() or "unknown"
            os.close(self._fd)
            if not isinstance(error, BlockingIOError):
                raise explain(error, path) from error
            raise StoreError(
                f"another gateway (process {owner}) keeps its webhooks in {folder}: stop it, "
                "or use another folder"
            ) from None
        try:
            os.ftruncate(self._fd, 0)
            os.pwrite(self._fd, f"{os.getpid()}\n".encode(), 0)
        except OSError:
            pass  # The disk is full: the lock works without a process number in it.

    def release(self) -> None:
        """Release the folder; once."""
        os.close(self._fd)


class OpenFiles:
    """Notices when an open database was deleted or replaced, or its disk unmounted.

    SQLite would go on writing to a file that nobody will find again. A check takes 4 µs.
    """

    def __init__(self, path: Path) -> None:
        """The database must be open."""
        # The WAL is made by the first commit at the latest, and stays until the database is closed.
        self._known: dict[str, tuple[int, int] | None] = {str(path): None, f"{path}-wal": None}
        self.check()

    def check(self) -> None:
        """Raise StoreError if a file is not the one that was opened."""
        for path, known in self._known.items():
            try:
                found = os.stat(path)
                identity = (found.st_dev, found.st_ino)
            except OSError:
                identity = None
            if known is None:
                self._known[path] = identity
            elif identity != known:
                raise StoreError(
                    f"{path} was deleted or replaced while the gateway used it: put it back, "
                    "or restart the gateway without it"
                )


def _make_folder(folder: Path) -> None:
    """Make a folder and its parents, readable by their owner only, and sync them to disk.

    SQLite syncs the names inside it.
    """
    if folder.is_dir():
        return
    _make_folder(folder.parent)
    folder.mkdir(mode=0o700, exist_ok=True)
    fd = os.open(folder.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _set_up(database: sqlite3.Connection) -> None:
    # No other program can open it until we close: none can delay a commit, or the WAL's restart.
    # SQLite then needs no `-shm` file, either, for which a full disk would have no room.
    database.execute("PRAGMA locking_mode = EXCLUSIVE")
    # No temporary files, which would be on another disk (/var/tmp) that may be full: one statement
    # changes little.
    database.execute("PRAGMA temp_store = MEMORY")
    if database.execute("PRAGMA page_count").fetchone() == (0,):
        # Pages of an old backlog can be returned to the disk. This takes effect in a new file only.
        database.execute("PRAGMA auto_vacuum = INCREMENTAL")
    database.execute("PRAGMA journal_mode = WAL")
    database.execute("PRAGMA synchronous = FULL")  # a commit is on disk when it returns
    database.execute(f"PRAGMA wal_autocheckpoint = {CHECKPOINT_PAGES}")
    database.execute(f"PRAGMA journal_size_limit = {WAL_BYTES_MAX}")


def _migrate(
    database: sqlite3.Connection, path: Path | None, steps: Sequence[Sequence[str]]
) -> None:
    (application,) = database.execute("PRAGMA application_id").fetchone()
    (version,) = database.execute("PRAGMA user_version").fetchone()
    (tables,) = database.execute("SELECT count(*) FROM sqlite_master").fetchone()
    if tables and application != APPLICATION_ID:
        raise StoreError(
            f"{path} is a database of another program: move it away, or use another folder"
        )
    if version > len(steps):
        raise StoreError(
            f"{path} was written by a newer gateway (version {version} of its format, this one "
            f"knows {len(steps)}): start the newer one, or use another folder"
        )
    for step in range(version, len(steps)):
        try:
            database.execute("BEGIN IMMEDIATE")
            for statement in steps[step]:
                database.execute(statement)
            database.execute(f"PRAGMA application_id = {APPLICATION_ID}")
            database.execute(f"PRAGMA user_version = {step + 1}")
            database.execute("COMMIT")
        except sqlite3.Error as error:
            if database.in_transaction:
                database.execute("ROLLBACK")
            if version == 0:
                raise
            raise StoreError(
                f"{path} stays at version {step} of its format, the step to {step + 1} failed: "
                f"{explain(error, path)}"
            ) from error
