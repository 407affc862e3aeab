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
Every change of those goes through `_undo`; a transaction that fails takes them back, so memory and
file always agree.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from jsonbus.gateway import values
from jsonbus.gateway.webhooks.commands import (
    FREEING,
    Accept,
    Batch,
    Committed,
    Contents,
    Ended,
    ReadBody,
    Settle,
    StoredSubscriber,
    Subscribe,
    Subscription,
    Work,
)
from jsonbus.gateway.webhooks.database import Database, UndoLog
from jsonbus.gateway.webhooks.schema import STEPS

#: One POST carries at most so many messages, and a body of so many bytes unless one message alone
#: is larger. Enough to catch up quickly, and little to repeat when a webhook fails halfway.
BATCH_COUNT_MAX = 100
BATCH_BYTES_MAX = 1 << 20

#: Batches of one commit carry bodies of so many bytes together; the others are read when they are
#: about to be sent. One message for ten thousand subscribers is as many bodies.
BODIES_BYTES_MAX = 8 << 20

_ANY = (1 << 63) - 1  # no message has a higher number

# Everything in one row: rows would be fetched one by one, each with a wait for the event loop to
# pause (see database.py); with them, a batch of 100 took 0.5 s beside a busy loop. All
# columns are gathered in the same pass, in the order of the inner query. Sizes come before the
# payloads: SQLite tells the size of a value without reading it.
_INNER = "FROM deliveries JOIN messages USING (number) WHERE subscriber = ? AND number <= ?"
_LIST = f"""
    SELECT group_concat(number), group_concat(hex(topic)), group_concat(size)
    FROM (SELECT number, topic, length(payload) AS size {_INNER} ORDER BY number LIMIT ?)
"""
_PAYLOADS = f"""
    SELECT CAST(group_concat(text) AS BLOB)
    FROM (SELECT CAST(payload AS TEXT) AS text {_INNER} ORDER BY number LIMIT -1)
"""


class WebhookStore:
    """The store of one folder; None keeps everything in memory. Opened and used by one thread."""

    def __init__(self, folder: Path | None, *, steps: Sequence[Sequence[str]] = STEPS) -> None:
        self._folder = folder
        self._steps = steps
        self._opened: Database | None = None
        self._identity = ""
        self._names: dict[int, str] = {}
        self._in_flight: dict[int, tuple[int, ...]] = {}
        self._shares: dict[int, int] = {}
        self._last_number = 0
        self._undo = UndoLog()
        # Of the transaction under way: flat rows to insert, subscribers that may get a batch.
        self._new_messages: list[Any] = []
        self._new_deliveries: list[int] = []
        self._touched: dict[int, None] = {}
        self._bodies_bytes = 0
        self._now = 0.0

    def open(self) -> Contents:
        """Lock the folder, open or make the file, and read what waits; raises StoreError."""
        self._opened = Database(self._folder, self._steps)
        try:
            return self._load()
        except sqlite3.Error as error:
            failure = self._database.explain(error)
            self.close()
            raise failure from error
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Close the file and give the folder free; again is nothing."""
        if self._opened is not None:
            self._opened.close()
            self._opened = None

    def commit(self, works: Sequence[Work]) -> Committed:
        """Do the works in order, in one transaction that is on disk when this returns.

        Raises StoreError: then none of them was done. On a full disk, works that store nothing
        new may use the reserve.
        """
        needs_room = not all(isinstance(work, FREEING) for work in works)
        try:
            committed = self._commit(works, needs_room=needs_room)
        except (sqlite3.Error, OSError) as error:
            if needs_room or not self._database.has_made_room(error):
                raise self._database.explain(error) from error
            try:
                committed = self._commit(works)
            except sqlite3.Error as error:
                raise self._database.explain(error) from error
        self._database.give_back_room()
        return committed

    # ---- The transaction

    def _commit(self, works: Sequence[Work], *, needs_room: bool = False) -> Committed:
        try:
            self._database.begin(needs_room=needs_room)
            self._now = time.time()
            self._bodies_bytes = 0
            results = [self._do(work) for work in works]
            self._write_messages()
            batches = [batch for each in self._touched if (batch := self._cut(each)) is not None]
            self._database.commit()
        except BaseException:
            self._roll_back()
            raise
        self._undo.keep()
        self._touched.clear()
        return Committed(results, batches)

    def _do(self, work: Work) -> Any:
        if isinstance(work, Accept):
            return self._accept(work.messages)
        if isinstance(work, Settle):
            return self._settle(work.subscriber, work.last)
        if isinstance(work, Subscribe):
            return self._subscribe(work.name, work.pattern, work.url)
        if isinstance(work, ReadBody):
            return self._read_body(work.subscriber, work.last)
        return self._unsubscribe(work.name, work.pattern)

    def _roll_back(self) -> None:
        self._undo.undo()
        self._new_messages.clear()
        self._new_deliveries.clear()
        self._touched.clear()
        self._database.roll_back()

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
                self._undo.set(self._shares, number, len(alive))
            stored += len(alive)
        return stored

    def _write_messages(self) -> None:
        insert = self._database.insert
        insert("messages (number, topic, payload, accepted_at)", 4, self._new_messages)
        insert("deliveries (subscriber, number)", 2, self._new_deliveries)

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
        self._undo.set(self._in_flight, subscriber, ())
        self._touched[subscriber] = None
        return len(numbers)

    def _release(self, numbers: Iterable[int]) -> None:
        """One delivery less of each message; the messages that were for nobody else are deleted."""
        gone = []
        for number in numbers:
            left = self._shares.get(number, 1) - 1
            if left:
                self._undo.set(self._shares, number, left)
            else:
                gone.append(number)
                self._undo.forget(self._shares, number)
        self._database.delete_messages(gone)

    def _cut(self, subscriber: int) -> Batch | None:
        """The next batch of a subscriber that has none in flight, if it has a backlog."""
        if self._in_flight.get(subscriber) != ():  # gone, or busy
            return None
        batch, numbers = self._gather(subscriber, None)
        if batch is None:
            return None
        self._execute("UPDATE subscribers SET cut = ? WHERE id = ?", (batch.last, subscriber))
        self._undo.set(self._in_flight, subscriber, numbers)
        return batch

    def _gather(self, subscriber: int, cut: int | None) -> tuple[Batch | None, tuple[int, ...]]:
        """The batch up to a cut, or (None) as much as one may hold, with its messages' numbers."""
        # A batch cut by an earlier version stays as it is, whatever the limits are now.
        up_to = (subscriber, _ANY, BATCH_COUNT_MAX) if cut is None else (subscriber, cut, -1)
        listed, topics_hex, sizes_listed = self._execute(_LIST, up_to).fetchone()
        if listed is None:
            return None, ()
        numbers = [int(number) for number in listed.split(",")]
        sizes = [int(size) for size in sizes_listed.split(",")]
        topics = _read_topics(topics_hex)
        if cut is None:
            count = _count_fitting(topics, sizes)
            numbers, topics = numbers[:count], topics[:count]
        last, count = numbers[-1], len(numbers)
        body_bytes = sum(map(_size_of, topics, sizes[:count])) + _EMPTY_BODY_BYTES
        body = None
        if self._bodies_bytes + body_bytes <= BODIES_BYTES_MAX:
            self._bodies_bytes += body_bytes
            body = self._make_body(subscriber, last, topics)
        delivery_id = f"{self._identity}-{subscriber}-{last}"
        name = self._names[subscriber]
        batch = Batch(subscriber, name, delivery_id, last, count, body_bytes, body)
        return batch, tuple(numbers)

    def _make_body(self, subscriber: int, last: int, topics: Iterable[bytes]) -> bytes:
        (payloads,) = self._execute(_PAYLOADS, (subscriber, last)).fetchone()
        return b'{"message":[%b],"topic":[%b]}' % (payloads, b",".join(topics))

    def _read_body(self, subscriber: int, last: int) -> bytes | None:
        numbers = self._in_flight.get(subscriber)
        if not numbers or numbers[-1] != last:
            return None
        _, topics_hex, _ = self._execute(_LIST, (subscriber, last, -1)).fetchone()
        return self._make_body(subscriber, last, _read_topics(topics_hex))

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
            self._undo.set(self._names, subscriber, name)
            self._undo.set(self._in_flight, subscriber, ())
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
        (listed,) = self._execute(
            "SELECT group_concat(number) FROM deliveries WHERE subscriber = ?", (subscriber,)
        ).fetchone()
        self._execute("DELETE FROM deliveries WHERE subscriber = ?", (subscriber,))
        if listed is not None:
            self._release(int(number) for number in listed.split(","))
        self._execute("DELETE FROM subscribers WHERE id = ?", (subscriber,))
        self._undo.forget(self._names, subscriber)
        self._undo.forget(self._in_flight, subscriber)

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
            if backlog and not self._in_flight[subscriber]:
                self._touched[subscriber] = None  # somebody else changed the file
        if self._touched:
            batches += self._commit([]).batches
        return Contents(subscribers, batches)

    # ---- Helpers

    def _patterns_of(self, subscriber: int) -> tuple[str, ...]:
        rows = self._execute(
            "SELECT pattern FROM subscriptions WHERE subscriber = ? ORDER BY id", (subscriber,)
        )
        return tuple(pattern for (pattern,) in rows)

    @property
    def _database(self) -> Database:
        assert self._opened is not None, "the store is not open"
        return self._opened

    def _execute(self, statement: str, parameters: Sequence[Any] = ()) -> sqlite3.Cursor:
        return self._database.execute(statement, parameters)


#: The first message and topic have no comma before them.
_EMPTY_BODY_BYTES = len(b'{"message":[],"topic":[]}') - 2


def _size_of(topic: bytes, payload_bytes: int) -> int:
    """What a message, with its topic in JSON, takes in a body."""
    return len(topic) + payload_bytes + 2


def _count_fitting(topics: Sequence[bytes], sizes: Sequence[int]) -> int:
    """How many messages, with topics in JSON and payloads of these sizes, make one body."""
    size_bytes = _EMPTY_BODY_BYTES
    for count, (topic, size) in enumerate(zip(topics, sizes, strict=True)):
        size_bytes += _size_of(topic, size)
        if size_bytes > BATCH_BYTES_MAX:
            return max(count, 1)
    return len(topics)


def _read_topics(listed_hex: str) -> list[bytes]:
    return [values.to_json(bytes.fromhex(each).decode()) for each in listed_hex.split(",")]
