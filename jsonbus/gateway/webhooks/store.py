"""WebhookStore: subscribers, messages and batches in SQLite.

Theory of operation. A message is one row however many subscribers want it, and a row of two numbers
(`deliveries`) for each of them; the message is deleted with its last delivery. `commit` executes a
group of commands in one transaction: all of them, or none.

At most one batch of a subscriber is in flight. It is cut in the transaction that gave it something
to deliver: the first messages of its backlog, up to BATCH_COUNT_MAX and BATCH_BYTES_MAX, but at
least one. The number of its last message is kept as `subscribers.cut`, and since later messages
have higher numbers, "the deliveries up to the cut" is the same batch, with the same body and id,
after any restart, until it is settled.

What a commit must know is kept in memory, so that it reads only the next batch:
- `_in_flight`: subscriber -> numbers of its batch in flight, empty if it has none;
- `_left`: message -> the number of deliveries left, if it began with more than one.
Every change of these goes through `_undo`, which reverts them when a transaction fails: memory and
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
    Command,
    Committed,
    Contents,
    Ended,
    Probe,
    ReadBody,
    Settle,
    StoredSubscriber,
    Subscribe,
    Subscribed,
)
from jsonbus.gateway.webhooks.database import Database, UndoLog
from jsonbus.gateway.webhooks.schema import STEPS

#: The messages and body bytes of one POST; a single message may be larger. Enough to catch up
#: quickly, and little to repeat when a webhook fails halfway.
BATCH_COUNT_MAX = 100
BATCH_BYTES_MAX = 1 << 20

#: The bytes of all bodies that one commit returns; the other bodies are read when they are about to
#: be sent. One message for ten thousand subscribers makes ten thousand bodies.
BODIES_BYTES_MAX = 8 << 20

_ANY = (1 << 63) - 1  # no message has a higher number

# Everything in one row: rows are fetched one by one, and each fetch waits until the event loop
# pauses (see database.py); with them, a batch of 100 took 0.5 s beside a busy loop. All
# columns are collected in the same pass, in the order of the inner query. Sizes come before the
# payloads: SQLite knows the size of a value without reading it.
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
    """The store of one folder; None: in memory. Open and use it in one thread."""

    def __init__(self, folder: Path | None, *, steps: Sequence[Sequence[str]] = STEPS) -> None:
        self._folder = folder
        self._steps = steps
        self._identity = ""
        self._names: dict[int, str] = {}
        self._in_flight: dict[int, tuple[int, ...]] = {}
        self._left: dict[int, int] = {}
        self._last_number = 0
        self._undo = UndoLog()
        # Of the transaction under way: flat rows to insert, subscribers that may get a batch.
        self._new_messages: list[Any] = []
        self._new_deliveries: list[int] = []
        self._touched: dict[int, None] = {}
        self._bodies_bytes = 0
        self._now = 0.0

    def open(self) -> Contents:
        """Lock the folder, open or make the file, and return its contents. Raises StoreError."""
        self._database = Database(self._folder, self._steps)
        self._execute = self._database.execute
        try:
            return self._load()
        except BaseException as error:
            self.close()
            if isinstance(error, sqlite3.Error):
                raise self._database.explain(error) from error
            raise

    def close(self) -> None:
        """Close the file and release the folder; it must have been opened. Idempotent."""
        self._database.close()

    def commit(self, commands: Sequence[Command]) -> Committed:
        """Execute commands in order, in one transaction that is on disk when this returns.

        Raises StoreError: then none was executed. On a full disk, commands that store nothing new
        may use the reserve.
        """
        needs_room = not all(isinstance(command, FREEING) for command in commands)
        try:
            committed = self._commit(commands, needs_room=needs_room)
        except (sqlite3.Error, OSError) as error:
            if needs_room or not self._database.has_made_room(error):
                raise self._database.explain(error) from error
            try:
                committed = self._commit(commands)
            except sqlite3.Error as error:
                raise self._database.explain(error) from error
        self._database.give_back_room()
        return committed

    # ---- The transaction

    def _commit(self, commands: Sequence[Command], *, needs_room: bool = False) -> Committed:
        try:
            with self._database.transaction(needs_room=needs_room):
                self._now = time.time()
                self._bodies_bytes = 0
                results = [self._do(command) for command in commands]
                self._write_messages()
                batches = [each for each in map(self._cut, self._touched) if each is not None]
        except BaseException:
            self._undo.undo()
            self._new_messages.clear()
            self._new_deliveries.clear()
            raise
        finally:
            self._undo.keep()
            self._touched.clear()
        return Committed(results, batches)

    def _do(self, command: Command) -> Any:
        if isinstance(command, Accept):
            return self._accept(command.messages)
        if isinstance(command, Settle):
            return self._settle(*command)
        if isinstance(command, Subscribe):
            return self._subscribe(*command)
        if isinstance(command, ReadBody):
            return self._read_body(*command)
        if isinstance(command, Probe):
            return self._probe()
        return self._unsubscribe(*command)

    def _accept(self, messages: Iterable[tuple[str, bytes, Sequence[int]]]) -> int:
        in_flight = self._in_flight
        stored = 0
        for topic, payload, subscribers in messages:
            # A subscriber may have gone since the message was matched.
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
                self._undo.set(self._left, number, len(alive))
            stored += len(alive)
        return stored

    def _write_messages(self) -> None:
        insert = self._database.insert
        insert("messages (number, topic, payload, accepted_at)", 4, self._new_messages)
        insert("deliveries (subscriber, number)", 2, self._new_deliveries)

    def _settle(self, subscriber: int, last: int) -> int:
        numbers = self._numbers_of(subscriber, last)
        if not numbers:
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
        """Count one delivery less for each message; delete the messages without deliveries."""
        gone = []
        for number in numbers:
            left = self._left.get(number, 1) - 1
            if left:
                self._undo.set(self._left, number, left)
            else:
                gone.append(number)
                self._undo.forget(self._left, number)
        self._database.delete_messages(gone)

    def _cut(self, subscriber: int) -> Batch | None:
        """Return the next batch of a subscriber with a backlog and no batch in flight, or None."""
        if self._in_flight.get(subscriber) != ():  # gone, or busy
            return None
        batch, numbers = self._gather(subscriber, None)
        if batch is None:
            return None
        self._execute("UPDATE subscribers SET cut = ? WHERE id = ?", (batch.last, subscriber))
        self._undo.set(self._in_flight, subscriber, numbers)
        return batch

    def _gather(self, subscriber: int, cut: int | None) -> tuple[Batch | None, tuple[int, ...]]:
        """Return the batch up to a cut, or (None) as long as allowed, and its messages' numbers."""
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
        if not self._numbers_of(subscriber, last):
            return None
        _, topics_hex, _ = self._execute(_LIST, (subscriber, last, -1)).fetchone()
        return self._make_body(subscriber, last, _read_topics(topics_hex))

    def _subscribe(self, name: str, pattern: str, url: str) -> Subscribed:
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
        return Subscribed(subscriber, bool(is_new), has_moved, created_at)

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

    def _probe(self) -> None:
        self._database.check_room()
        self._execute("UPDATE identity SET id = id")  # writes a page, though it changes nothing

    def _remove(self, subscriber: int) -> None:
        """Forget a subscriber with everything that waits for it."""
        self._write_messages()  # so that messages accepted in this transaction are deleted, too
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
        counts = "SELECT {0}, count(*) FROM deliveries GROUP BY {0}"
        self._left = dict(self._execute(counts.format("number") + " HAVING count(*) > 1"))
        backlogs = dict(self._execute(counts.format("subscriber")))
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
                self._touched[subscriber] = None  # another program changed the file
        if self._touched:
            batches += self._commit([]).batches
        return Contents(subscribers, batches)

    # ---- Helpers

    def _numbers_of(self, subscriber: int, last: int) -> tuple[int, ...]:
        """Return the numbers of the batch that ends with `last`, empty if it is not in flight."""
        numbers = self._in_flight.get(subscriber, ())
        return numbers if numbers[-1:] == (last,) else ()

    def _patterns_of(self, subscriber: int) -> tuple[str, ...]:
        rows = self._execute(
            "SELECT pattern FROM subscriptions WHERE subscriber = ? ORDER BY id", (subscriber,)
        )
        return tuple(pattern for (pattern,) in rows)


#: The first message and topic have no comma before them.
_EMPTY_BODY_BYTES = len(b'{"message":[],"topic":[]}') - 2


def _size_of(topic: bytes, payload_bytes: int) -> int:
    """Return the bytes that a message and its topic (JSON) take in a body."""
    return len(topic) + payload_bytes + 2


def _count_fitting(topics: Sequence[bytes], sizes: Sequence[int]) -> int:
    """Return how many messages, with topics (JSON) and payloads of these sizes, fit a body."""
    size_bytes = _EMPTY_BODY_BYTES
    for count, (topic, size) in enumerate(zip(topics, sizes, strict=True)):
        size_bytes += _size_of(topic, size)
        if size_bytes > BATCH_BYTES_MAX:
            return max(count, 1)
    return len(topics)


def _read_topics(listed_hex: str) -> list[bytes]:
    return [values.to_json(bytes.fromhex(each).decode()) for each in listed_hex.split(",")]
