"""Stores the rows that Spark staged, and the fence of each query. database.py has the tables.

A batch is *decided* once it is marked, and out once the fence has reached it. Nothing is staged for
a decided batch any more, and nothing of it is discarded: marking it removes the attempts that did
not win, so that what stays of it is what goes out, in the order of partition and part.

Every method is one transaction, which is on disk when it returns, or has left no trace, and may be
called from any thread.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from ..errors import BusyError, RequestError, StoreError, TooLargeError
from .database import SinkDatabase

#: The most that all queries may have staged, on the same disk as the log.
STAGED_BYTES_MAX = 1 << 30

#: A batch for which nothing was staged for this long belongs to a query that is gone. Spark retries
#: a batch from its start, so a query that comes back later stages it again.
STAGED_AGE_S = 6 * 3600.0

#: Queries whose fence is remembered; the least recently used is forgotten first. A streaming query
#: that comes back after ten thousand others could repeat its last batch.
QUERIES_MAX = 10_000

#: The same for single writes, which come and go by the thousand. Their fence only answers a client
#: that asks again because the reply was lost.
WRITES_MAX = 1_000

#: Prefix of the ids of single writes; a streaming query's id is a bare UUID.
WRITE_PREFIX = "write-"

#: What a part takes on disk besides its rows, roughly; this bounds the number of parts, too.
PART_OVERHEAD_BYTES = 512

#: Free pages that the file keeps for the next batch, and how many are released in one go.
PAGES_FREE_MAX = 16_384  # 64 MiB
PAGES_RETURNED = 4_096


class Part(NamedTuple):
    """Rows that a task stages, and to which task they belong."""

    query: str
    batch: int
    partition: int
    attempt: int  # only one attempt of one task has this number
    part: int = 0  # a task may stage several in order: one that comes again replaces itself
    run: str = ""  # a query that is started again is another run of it


class Publication(NamedTuple):
    """A batch that is marked."""

    query: str
    batch: int
    rows: int
    position: int  # rows that are certainly out
    is_exact: bool  # True if no more than these are out


class SinkStore(SinkDatabase):
    """The file. Methods raise StoreError, StoreFullError if the disk is full, and what they
    name.
    """

    def __init__(
        self,
        path: Path,
        *,
        staged_bytes_max: int = STAGED_BYTES_MAX,
        now: Callable[[], float] = time.time,
    ) -> None:
        super().__init__(path)
        self._staged_bytes_max = staged_bytes_max
        self._now = now

    def stage(self, part: Part, rows: int, body: bytes) -> bool:
        """Keep the rows of a part; return False if the batch is decided and nothing needs to be
        kept.

        A part that comes again replaces itself; a new one has to be the attempt's next. Raises
        BusyError and TooLargeError.
        """
        size_bytes = len(body) + PART_OVERHEAD_BYTES
        with self.transaction():
            if part.batch <= self._decided(part.query):
                return False
            attempt = "query = ? AND batch = ? AND partition = ? AND attempt = ?"
            self._delete(f"{attempt} AND part = ?", part[:5])
            before = self.value(
                f"SELECT count(*) FROM parts WHERE {attempt} AND part < ?", part[:5]
            )
            if before != part.part:
                raise RequestError(
                    f"part {part.part} of {_describe(part)} came, but the parts before it are not "
                    "here: let the task stage its rows again, as another attempt"
                )
            self._make_room(part, size_bytes)
            self.do(
                "INSERT INTO parts (query, batch, partition, attempt, part, run, staged_at, rows, "
                "bytes, body) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                (*part, self._now(), rows, size_bytes, body),
            )
        return True

    def mark(self, query: str, batch: int, partitions: list[tuple[int, int]]) -> Publication | None:
        """Decide that these attempts are the batch; return None if the fence has passed it already.

        Call it when no batch of the query is marked. Raises RequestError if an attempt is not
        staged.
        """
        with self.transaction():
            if batch <= self._decided(query):
                return None
            select = "SELECT DISTINCT partition, attempt FROM parts WHERE query = ? AND batch = ?"
            staged = set(self.do(select, (query, batch)))
            wanted = set(partitions)
            if len({partition for partition, _ in wanted}) < len(partitions):
                raise RequestError(f"batch {batch} of {query} names a partition twice")
            missing = sorted(wanted - staged)
            if missing:
                raise RequestError(
                    f"{_describe(Part(query, batch, *missing[0]))} is not staged here (any more): "
                    "restart the query, which stages the batch again"
                )
            for loser in staged - wanted:
                self._delete(
                    "query = ? AND batch = ? AND partition = ? AND attempt = ?",
                    (query, batch, *loser),
                )
            self._delete("query = ? AND batch < ?", (query, batch))
            rows = self.value(
                "SELECT total(rows) FROM parts WHERE query = ? AND batch = ?", (query, batch)
            )
            publication = Publication(query, batch, rows, 0, True)
            self.do("INSERT INTO publishing VALUES (?, ?, ?, ?, 0)", publication[:4])
        return publication

    def resume(self, query: str) -> Publication | None:
        """Return the marked batch of a query, if there is one, as it was left. It counts as in
        progress.
        """
        with self.transaction():
            found = self.do("SELECT * FROM publishing WHERE query = ?", (query,))
            if not found:
                return None
            self.do("UPDATE publishing SET is_exact = 0 WHERE query = ?", (query,))
        return Publication(*found[0])

    def unfinished(self) -> list[str]:
        """Return the queries that have a marked batch."""
        with self.reading():
            found = self.do("SELECT query FROM publishing ORDER BY query")
        return [query for (query,) in found]

    def parts(self, query: str, batch: int) -> list[tuple[int, int]]:
        """Return (id, rows) of the parts of a marked batch, in the order in which they go out."""
        with self.reading():
            return self.do(
                "SELECT id, rows FROM parts WHERE query = ? AND batch = ? ORDER BY partition, part",
                (query, batch),
            )

    def body(self, part_id: int) -> bytes:
        """Return the rows of a part."""
        with self.reading():
            [(body,)] = self.do("SELECT body FROM parts WHERE id = ?", (part_id,))
        return bytes(body)

    def advance(self, query: str, position: int, *, is_exact: bool = False) -> None:
        """Note that this many rows of the marked batch are out; `is_exact`: and no more will
        follow for now.
        """
        with self.transaction():
            self.do(
                "UPDATE publishing SET position = ?, is_exact = ? WHERE query = ?",
                (position, is_exact, query),
            )

    def finish(self, query: str, batch: int) -> None:
        """Note that the marked batch is out: move the fence, and delete what was staged up to
        it.
        """
        is_write = query.startswith(WRITE_PREFIX)
        with self.transaction():
            self.do(
                "INSERT INTO queries VALUES (?, ?, ?, ?) ON CONFLICT DO UPDATE SET "
                "fence = excluded.fence, used_at = excluded.used_at",
                (query, batch, is_write, self._now()),
            )
            self.do("DELETE FROM publishing WHERE query = ?", (query,))
            self._delete("query = ? AND batch <= ?", (query, batch))
            self.do(
                "DELETE FROM queries WHERE is_write = ? AND query IN (SELECT query FROM queries "
                "WHERE is_write = ? ORDER BY used_at DESC LIMIT -1 OFFSET ?)",
                (is_write, is_write, WRITES_MAX if is_write else QUERIES_MAX),
            )
        with suppress(StoreError):  # the batch is out and noted, whatever happens to free pages
            self.give_back(PAGES_FREE_MAX, PAGES_RETURNED)

    def discard(self, query: str, batch: int) -> None:
        """Forget what was staged for a batch, unless it is decided."""
        with self.transaction():
            if batch > self._decided(query):
                self._delete("query = ? AND batch = ?", (query, batch))

    def expire(self) -> int:
        """Drop batches that were staged long ago and never decided, and return how many rows
        that were.
        """
        with self.transaction():
            return self._expire()

    def fence(self, query: str) -> int:
        """Return the last batch of a query that is on the bus; -1 if none is known."""
        with self.reading():
            found = self.do("SELECT fence FROM queries WHERE query = ?", (query,))
        return found[0][0] if found else -1

    def figures(self) -> dict[str, int]:
        """Return staged_rows, staged_bytes and queries."""
        with self.reading():
            [(rows, size_bytes)] = self.do("SELECT rows, bytes FROM totals")
            return {
                "staged_rows": rows,
                "staged_bytes": size_bytes,
                "queries": self.value("SELECT count(*) FROM queries"),
            }

    def _make_room(self, part: Part, size_bytes: int) -> None:
        """Make room for one more part, if need be from what no living query will ask for."""
        if self._staged_bytes() + size_bytes <= self._staged_bytes_max:
            return
        self._expire()
        self._drop_earlier_runs()
        taken_bytes = self._staged_bytes()
        if taken_bytes + size_bytes <= self._staged_bytes_max:
            return
        own_bytes = self.value(
            "SELECT total(bytes) FROM parts WHERE query = ? AND batch = ? AND run = ?",
            (part.query, part.batch, part.run),
        )
        if own_bytes + size_bytes > self._staged_bytes_max:
            raise TooLargeError(
                f"batch {part.batch} of {part.query} takes more than the "
                f"{self._staged_bytes_max:,} bytes that may be staged: make batches smaller, for "
                "example with maxRowsPerTrigger"
            )
        raise BusyError(
            f"{taken_bytes:,} bytes are staged, at most {self._staged_bytes_max:,} may be: try "
            "again when other queries have published theirs"
        )

    def _expire(self) -> int:
        before = self.value("SELECT rows FROM totals")
        for query, batch in self.do(
            "SELECT query, batch FROM parts GROUP BY query, batch HAVING max(staged_at) < ?",
            (self._now() - STAGED_AGE_S,),
        ):
            if batch > self._decided(query):
                self._delete("query = ? AND batch = ?", (query, batch))
        return before - self.value("SELECT rows FROM totals")

    def _drop_earlier_runs(self) -> None:
        """Drop what a query staged before it was started again: no task of that run can still
        win.
        """
        latest = self.do("SELECT query, run, max(staged_at) FROM parts GROUP BY query")
        for query, run, _ in latest:
            self._delete("query = ? AND batch > ? AND run <> ?", (query, self._decided(query), run))

    def _decided(self, query: str) -> int:
        return self.value(
            "SELECT max(coalesce((SELECT fence FROM queries WHERE query = ?1), -1), "
            "coalesce((SELECT batch FROM publishing WHERE query = ?1), -1))",
            (query,),
        )

    def _staged_bytes(self) -> int:
        return self.value("SELECT bytes FROM totals")

    def _delete(self, condition: str, values: tuple[Any, ...]) -> None:
        self.do(f"DELETE FROM parts WHERE {condition}", values)


def _describe(part: Part) -> str:
    return (
        f"partition {part.partition} (attempt {part.attempt}) of batch {part.batch} of {part.query}"
    )
