"""What waits for webhooks, in SQLite: subscribers, messages, and batches cut for delivery.

Theory of operation. A message is one row however many subscribers want it, and a row of two numbers
(`deliveries`) for each of them; the message goes with its last delivery. `commit` takes a group of
works and does them all in one transaction, or none.

At most one batch of a subscriber is in flight. It is cut in the transaction that gave it something
to deliver: the first messages of its backlog, up to BATCH_COUNT_MAX and BATCH_BYTES_MAX, but at
least one. The number of its last message is kept as `subscribers.cut`, and since later messages
have higher numbers, "the deliveries up to the cut" is the same batch, with the same body and id,
after any restart, until it is settled.

What a commit must know is kept in memory, so that it reads nothing but the next batch:
- `_in_flight`: subscriber -> numbers of its batch in flight, empty if it has none;
- `_shares`: message -> how many deliveries it has left, if it began with more than one.
Every change of those is written down in `_undo` first; a transaction that fails takes them back, so
memory and file always agree.

One thread only. sqlite3 lets other threads run during each step of a statement and then has to get
its turn back, which takes up to 5 ms beside a busy event loop: hence one statement for many rows.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

from jsonbus.errors import StoreError
from jsonbus.gateway import values, webhook_file
from jsonbus.gateway.webhook_works import (
    Accept,
    Batch,
    Committed,
    Contents,
    Ended,
    Settle,
    StoredSubscriber,
    Subscribe,
    Subscription,
    Work,
)

#: One POST carries at most so many messages, and a body of so many bytes unless one message alone
#: is larger. Enough to catch up quickly, and little to repeat when a webhook fails halfway.
BATCH_COUNT_MAX = 100
BATCH_BYTES_MAX = 1 << 20

#: Rows per statement. More are no faster, and each count has a prepared statement of its own.
ROWS_MAX = 64

_ANY = (1 << 63) - 1  # no message has a higher number

K = TypeVar("K")
V = TypeVar("V")


class WebhookStore:
    """The store of one folder; None keeps everything in memory. Opened and used by one thread."""

    def __init__(
        self, folder: Path | None, *, steps: Sequence[Sequence[str]] = webhook_file.STEPS
    ) -> None:
        self._folder = folder
        self._steps = steps
        self._lock: webhook_file.FolderLock | None = None
        self._database: sqlite3.Connection | None = None
        self._identity = ""
        self._names: dict[int, str] = {}
        self._in_flight: dict[int, tuple[int, ...]] = {}
        self._shares: dict[int, int] = {}
        self._last_number = 0
        self._undo: list[Callable[[], object]] = []
        # Of the transaction under way: flat rows to insert, subscribers that may get a batch.
        self._new_messages: list[Any] = []
        self._new_deliveries: list[int] = []
        self._touched: dict[int, None] = {}
        self._now = 0.0

    def open(self) -> Contents:
        """Lock the folder, open or make the file, and read what waits; raises StoreError."""
        if self._folder is not None:
            self._lock = webhook_file.FolderLock(self._folder)
        try:
            self._database = webhook_file.connect(self._folder, self._steps)
            return self._load()
        except sqlite3.Error as error:
            self.close()
            raise self._explain(error) from error
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Close the file and give the folder free; again is nothing."""
        if self._database is not None:
            self._database.close()
            self._database = None
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def commit(self, works: Sequence[Work]) -> Committed:
        """Do the works in order, in one transaction that is on disk when this returns.

        Raises StoreError: then none of them was done.
        """
        try:
            return self._commit(works)
        except sqlite3.Error as error:
            self._roll_back()
            if not self._has_made_room(error):
                raise self._explain(error) from error
        except BaseException:
            self._roll_back()
            raise
        try:
            return self._commit(works)
        except sqlite3.Error as error:
            self._roll_back()
            raise self._explain(error) from error

    # ---- The transaction

    def _commit(self, works: Sequence[Work]) -> Committed:
        self._execute("BEGIN IMMEDIATE")
        self._now = time.time()
        results: list[Any] = []
        for work in works:
            if isinstance(work, Accept):
                results.append(self._accept(work.messages))
            elif isinstance(work, Settle):
                results.append(self._settle(work.subscriber, work.last))
            elif isinstance(work, Subscribe):
                results.append(self._subscribe(work.name, work.pattern, work.url))
            else:
                results.append(self._unsubscribe(work.name, work.pattern))
        self._write_messages()
        batches = [batch for each in self._touched if (batch := self._cut(each)) is not None]
        self._execute("COMMIT")
        self._undo.clear()
        self._touched.clear()
        return Committed(results, batches)

    def _roll_back(self) -> None:
        assert self._database is not None
        if self._database.in_transaction:
            self._database.execute("ROLLBACK")
        while self._undo:
            self._undo.pop()()
        self._new_messages.clear()
        self._new_deliveries.clear()
        self._touched.clear()

    def _has_made_room(self, error: sqlite3.Error) -> bool:
        """Whether a full disk has room again because the WAL could be copied into the file.

        The WAL then starts over in the blocks it already has.
        """
        if (error.sqlite_errorcode & 0xFF) != sqlite3.SQLITE_FULL or self._folder is None:
            return False
        try:
            row = self._execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
        except sqlite3.Error:
            return False
        is_busy, pages, copied = row
        return not is_busy and 0 < pages == copied

    def _accept(self, messages: Iterable[tuple[str, bytes, Sequence[int]]]) -> int:
        in_flight = self._in_flight
        stored = 0
        for topic, payload, subscribers in messages:
            # A subscriber may have gone after the message was given to it.
            alive = [each for each in subscribers if each in in_flight]
            if not alive:
                continue
            self._last_number += 1
            number = self._last_number
            self._new_messages += (number, topic, payload, self._now)
            for each in alive:
                self._new_deliveries += (each, number)
                self._touched[each] = None
            if len(alive) > 1:
                self._set(self._shares, number, len(alive))
            stored += len(alive)
        return stored

    def _write_messages(self) -> None:
        self._insert("messages (number, topic, payload, accepted_at)", 4, self._new_messages)
        self._insert("deliveries (subscriber, number)", 2, self._new_deliveries)

    def _insert(self, table: str, width: int, flat_rows: list[Any]) -> None:
        """Insert all rows and clear the list."""
        row = f"({','.join('?' * width)})"
        for start in range(0, len(flat_rows), ROWS_MAX * width):
            part = flat_rows[start : start + ROWS_MAX * width]
            rows = ",".join([row] * (len(part) // width))
            self._execute(f"INSERT INTO {table} VALUES {rows}", part)
        flat_rows.clear()

    def _settle(self, subscriber: int, last: int) -> int:
        numbers = self._in_flight.get(subscriber)
        if not numbers or numbers[-1] != last:
            return 0
        self._execute(
            "DELETE FROM deliveries WHERE subscriber = ? AND number <= ?", (subscriber, last)
        )
        self._execute(
            "UPDATE subscribers SET cut = NULL, delivered = delivered + ? WHERE id = ?",
            (len(numbers), subscriber),
        )
        self._release(numbers)
        self._set(self._in_flight, subscriber, ())
        self._touched[subscriber] = None
        return len(numbers)

    def _release(self, numbers: Iterable[int]) -> None:
        """One delivery less of each message; the messages that were for nobody else are deleted."""
        gone = []
        for number in numbers:
            left = self._shares.get(number, 1) - 1
            if left:
                self._set(self._shares, number, left)
            else:
                gone.append(number)
                self._forget(self._shares, number)
        for part in _parts(gone, ROWS_MAX):
            marks = ",".join("?" * len(part))
            self._execute(f"DELETE FROM messages WHERE number IN ({marks})", part)

    def _cut(self, subscriber: int) -> Batch | None:
        """The next batch of a subscriber that has none in flight, if it has a backlog."""
        if self._in_flight.get(subscriber) != ():  # gone, or busy
            return None
        batch, numbers = self._gather(subscriber, None)
        if batch is None:
            return None
        self._execute("UPDATE subscribers SET cut = ? WHERE id = ?", (batch.last, subscriber))
        self._set(self._in_flight, subscriber, numbers)
        return batch

    def _gather(self, subscriber: int, cut: int | None) -> tuple[Batch | None, tuple[int, ...]]:
        """The batch up to a cut, or (None) as much as one may hold, with its messages' numbers."""
        rows = self._execute(
            "SELECT number, topic, payload FROM deliveries JOIN messages USING (number) "
            "WHERE subscriber = ? AND number <= ? ORDER BY number LIMIT ?",
            # A batch cut by an earlier version stays as it is, whatever the limits are now.
            (subscriber, _ANY, BATCH_COUNT_MAX) if cut is None else (subscriber, cut, -1),
        )
        numbers: list[int] = []
        topics: list[bytes] = []
        payloads: list[bytes] = []
        size_bytes = len(b'{"message":[],"topic":[]}') - 2
        for number, topic, payload in rows:
            topic_json = values.to_json(topic)
            size_bytes += len(topic_json) + len(payload) + 2  # and two commas
            if numbers and cut is None and size_bytes > BATCH_BYTES_MAX:
                break
            numbers.append(number)
            topics.append(topic_json)
            payloads.append(payload)
        rows.close()
        if not numbers:
            return None, ()
        body = b'{"message":[%b],"topic":[%b]}' % (b",".join(payloads), b",".join(topics))
        last = numbers[-1]
        delivery_id = f"{self._identity}-{subscriber}-{last}"
        name = self._names[subscriber]
        return Batch(subscriber, name, delivery_id, last, len(numbers), body), tuple(numbers)

    def _subscribe(self, name: str, pattern: str, url: str) -> Subscription:
        row = self._execute(
            "SELECT id, url, created_at FROM subscribers WHERE name = ?", (name,)
        ).fetchone()
        has_moved = False
        if row is None:
            subscriber = self._execute(
                "INSERT INTO subscribers (name, url, created_at) VALUES (?, ?, ?)",
                (name, url, self._now),
            ).lastrowid
            assert subscriber is not None
            created_at = self._now
            self._set(self._names, subscriber, name)
            self._set(self._in_flight, subscriber, ())
        else:
            subscriber, old_url, created_at = row
            has_moved = url != old_url
            if has_moved:
                self._execute("UPDATE subscribers SET url = ? WHERE id = ?", (url, subscriber))
        is_new = self._execute(
            "INSERT OR IGNORE INTO subscriptions (subscriber, pattern) VALUES (?, ?)",
            (subscriber, pattern),
        ).rowcount
        return Subscription(subscriber, bool(is_new), has_moved, created_at)

    def _unsubscribe(self, name: str, pattern: str | None) -> Ended:
        row = self._execute("SELECT id FROM subscribers WHERE name = ?", (name,)).fetchone()
        if row is None:
            return Ended(0, (), False)
        (subscriber,) = row
        patterns = self._patterns_of(subscriber)
        ended = tuple(each for each in patterns if pattern is None or each == pattern)
        for each in ended:
            self._execute(
                "DELETE FROM subscriptions WHERE subscriber = ? AND pattern = ?", (subscriber, each)
            )
        is_gone = len(ended) == len(patterns)
        if is_gone:
            self._remove(subscriber)
        return Ended(subscriber, ended, is_gone)

    def _remove(self, subscriber: int) -> None:
        """Forget a subscriber with everything that waits for it."""
        self._write_messages()  # what this very transaction accepted for it goes, too
        rows = self._execute("SELECT number FROM deliveries WHERE subscriber = ?", (subscriber,))
        numbers = [number for (number,) in rows]
        self._execute("DELETE FROM deliveries WHERE subscriber = ?", (subscriber,))
        self._release(numbers)
        self._execute("DELETE FROM subscribers WHERE id = ?", (subscriber,))
        self._forget(self._names, subscriber)
        self._forget(self._in_flight, subscriber)

    # ---- Opening

    def _load(self) -> Contents:
        (self._identity,) = self._execute("SELECT id FROM identity").fetchone()
        row = self._execute("SELECT seq FROM sqlite_sequence WHERE name = 'messages'").fetchone()
        self._last_number = row[0] if row else 0
        self._shares = dict(
            self._execute(
                "SELECT number, count(*) FROM deliveries GROUP BY number HAVING count(*) > 1"
            )
        )
        backlogs = dict(
            self._execute("SELECT subscriber, count(*) FROM deliveries GROUP BY subscriber")
        )
        subscribers = []
        batches = []
        rows = self._execute(
            "SELECT id, name, url, created_at, delivered, cut FROM subscribers ORDER BY id"
        ).fetchall()
        for subscriber, name, url, created_at, delivered, cut in rows:
            patterns = self._patterns_of(subscriber)
            backlog = backlogs.get(subscriber, 0)
            subscribers.append(
                StoredSubscriber(subscriber, name, url, created_at, delivered, backlog, patterns)
            )
            self._names[subscriber] = name
            self._in_flight[subscriber] = ()
            if cut is not None:
                batch, self._in_flight[subscriber] = self._gather(subscriber, cut)
                if batch is not None:
                    batches.append(batch)
        return Contents(subscribers, batches)

    # ---- Helpers

    def _patterns_of(self, subscriber: int) -> tuple[str, ...]:
        rows = self._execute(
            "SELECT pattern FROM subscriptions WHERE subscriber = ? ORDER BY id", (subscriber,)
        )
        return tuple(pattern for (pattern,) in rows)

    def _set(self, mapping: dict[K, V], key: K, value: V) -> None:
        """Change an entry until the transaction fails."""
        if key in mapping:
            old = mapping[key]
            self._undo.append(lambda: mapping.__setitem__(key, old))
        else:
            self._undo.append(lambda: mapping.pop(key))
        mapping[key] = value

    def _forget(self, mapping: dict[K, V], key: K) -> None:
        """Remove an entry, if it is there, until the transaction fails."""
        if key in mapping:
            old = mapping.pop(key)
            self._undo.append(lambda: mapping.__setitem__(key, old))

    def _execute(self, statement: str, parameters: Sequence[Any] = ()) -> sqlite3.Cursor:
        assert self._database is not None, "the store is not open"
        return self._database.execute(statement, parameters)

    def _explain(self, error: sqlite3.Error) -> StoreError:
        path = None if self._folder is None else self._folder / webhook_file.FILE_NAME
        return webhook_file.explain(error, path)


def _parts(items: Sequence[int], size: int) -> Iterator[Sequence[int]]:
    for start in range(0, len(items), size):
        yield items[start : start + size]
