"""From Spark onto the bus: tasks stage their rows, the driver has the batch published.

A batch that Spark retries goes out once, since the fence of each query, the last batch that is on
the bus, is on disk. In detail:

    1. stage: rows are checked and kept on disk; nothing goes out.
    2. publish: the batch is marked, on disk, before its first message goes out. From here on it
       *will* go out, whatever the client says; another request for it only waits.
    3. Every PROGRESS_ROWS rows, once the bus has sent them, the place is noted on disk.
    4. At the end the fence moves to the batch, on disk, and the client is told.

When the process dies between 2 and 4, `recover` goes on behind the last place noted: every row goes
out, and at most PROGRESS_ROWS of them a second time. These are counted and logged, since no one can
tell which: neither the network nor a disk can be asked what was sent. An orderly end, or an error,
in the middle of a batch notes the very place, and nothing goes out twice.

Nobody confirms a message on this bus. Rows go out as reliable messages: a subscriber that misses
one asks for it again, and a later subscriber gets only what is retained.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from jsonbus.errors import ClosedError, InvalidTopicError, PayloadError

from ..errors import BusyError, StoreError
from .keyed_lock import KeyedLocks
from .rows import check_rows, read_rows
from .store import Part, Publication, SinkStore

FILE_NAME = "sink.sqlite"

#: The position is noted after this many rows: a crash repeats at most these. Noting it takes less
#: than a millisecond, little beside the tens that publishing them takes.
PROGRESS_ROWS = 1000

#: How often batches that nobody will ask for are looked for.
_EXPIRY_S = 600.0

#: How long `close` waits for a batch to stop between two messages.
_CLOSE_S = 5.0

_COUNTERS = (
    "batches_published",
    "rows_published",
    "rows_suppressed",
    "rows_refused",
    "rows_skipped",
    "batches_repeated",
    "rows_possibly_repeated",
)

_log = logging.getLogger("jsonbus.bridge")


class Sink:
    """Stages and publishes. Every method may be called from any thread.

    `publish` and `flush` are those of a Bus; `flush` is awaited before a position is noted.
    `value_bytes_max` is that of the bus's settings. Methods raise StoreError and StoreFullError.
    """

    def __init__(
        self,
        directory: Path,
        publish: Callable[..., bool],
        *,
        flush: Callable[[], bool] | None = None,
        value_bytes_max: int = 16 << 20,
        progress_rows: int = PROGRESS_ROWS,
    ) -> None:
        self._publish_row = publish
        self._flush_bus = flush
        self._value_bytes_max = value_bytes_max
        self._progress_rows = progress_rows
        self._store = SinkStore(directory / FILE_NAME)
        self._locks = KeyedLocks()  # one publisher per query at a time
        self._lock = threading.Lock()  # guards all below
        #: Where a batch stopped, by query, if the disk did not take it.
        self._stopped: dict[str, tuple[int, int]] = {}
        self._counters = dict.fromkeys(_COUNTERS, 0)
        self._warned: set[str] = set()
        self._is_closing = False
        self._expires_at = time.monotonic()

    def stage(self, part: Part, rows: bytes, *, skip_bad: bool = False) -> int:
        """Keep rows of a task, an Arrow IPC stream, on disk when this returns; return how many are
        kept.

        `skip_bad` leaves out rows that the bus would refuse. Rows of a batch that is already out
        are checked and forgotten. Raises RequestError (with row, topic and reason), TooLargeError,
        BusyError, StoreError, StoreFullError.
        """
        self._expire()
        checked = check_rows(rows, value_bytes_max=self._value_bytes_max, skip_bad=skip_bad)
        self._count("rows_skipped", checked.skipped)
        self._store.stage(part, checked.rows, checked.body)
        return checked.rows

    def publish(
        self, query: str, batch: int, partitions: list[tuple[int, int]]
    ) -> tuple[int, bool]:
        """Publish what these attempts, (partition, attempt), staged: (rows published, repeated).

        Returns when the batch is on the bus. `repeated` means that it was before, and nothing was
        sent. A caller that asks for a batch that another thread is publishing waits for it. After
        an error in the middle, the next call continues where this one stopped. Raises RequestError
        if an attempt is not staged, BusyError while the bridge is closing, StoreError,
        StoreFullError.
        """
        with self._locks.hold(query):
            self._go_on(query)
            publication = self._store.mark(query, batch, partitions)
            if publication is None:
                self._note_repeated(query, batch)
                return 0, True
            return self._send(publication), False

    def discard(self, query: str, batch: int) -> None:
        """Forget what was staged for a batch, unless it is being published or is out."""
        self._store.discard(query, batch)

    def recover(self) -> None:
        """Publish the rest of batches that were being published when the process ended.

        Call it before the first request, once the bus is open.
        """
        for query in self._store.unfinished():
            with self._locks.hold(query):
                self._go_on(query)
        self._expire()

    def stats(self) -> dict[str, int]:
        """Return what is staged and remembered, and what happened since the start.

        rows_published were given to the bus; of these, nobody wanted rows_suppressed, and the bus
        refused rows_refused. rows_skipped are bad rows that were left out when they were staged.
        """
        with self._lock:
            counted = dict(self._counters)
        return {**self._store.figures(), **counted}

    def close(self) -> None:
        """Stop batches in progress between two messages, and close the file."""
        self._is_closing = True
        self._locks.wait_until_free(_CLOSE_S)
        self._store.close()

    def _go_on(self, query: str) -> None:
        """Publish the rest of a batch that stopped in the middle, if there is one."""
        publication = self._store.resume(query)
        if publication is None:
            return
        with self._lock:
            batch, position = self._stopped.pop(query, (-1, 0))
        if batch == publication.batch:
            publication = publication._replace(position=position, is_exact=True)
        if not publication.is_exact:
            self._note_crash(publication)
        self._send(publication)

    def _send(self, publication: Publication) -> int:
        """Publish the rows after the position, and return the number of all rows."""
        position = publication.position
        try:
            for topic, value, retain in self._rows(publication):
                if self._is_closing:
                    raise BusyError("the bridge is being closed: ask again when it is back")
                self._send_row(topic, value, retain)
                position += 1
                if position % self._progress_rows == 0:
                    self._flush()
                    self._store.advance(publication.query, position)
            self._flush()
            self._store.finish(publication.query, publication.batch)
        except BaseException:
            self._note_place(publication, position)
            raise
        finally:
            self._count("rows_published", position - publication.position)
        self._count("batches_published")
        return publication.rows

    def _rows(self, publication: Publication) -> Iterator[tuple[str, Any, bool]]:
        """Yield the rows after the position, in order."""
        to_skip = publication.position
        for part_id, rows in self._store.parts(publication.query, publication.batch):
            if to_skip >= rows:
                to_skip -= rows
                continue
            for row in read_rows(self._store.body(part_id)):
                if to_skip:
                    to_skip -= 1
                else:
                    yield row

    def _send_row(self, topic: str, value: Any, retain: bool) -> None:
        try:
            if not self._publish_row(topic, value, retain=retain, reliable=True):
                self._count("rows_suppressed")
        except ClosedError as error:
            raise BusyError("the bridge has left the bus: ask again when it is back") from error
        except (InvalidTopicError, PayloadError) as error:
            # Rows are checked when they are staged. If the bus refuses one all the same, it must
            # not stop the query: it would be retried for ever.
            self._count("rows_refused")
            self._warn_once("a staged row was refused by the bus, and is lost: %s", error)

    def _flush(self) -> None:
        """Wait until the rows have left: only then may they be noted as out."""
        if self._flush_bus is not None and not self._flush_bus():
            self._warn_once("rows of a query have not left in time: is the network down?")

    def _note_place(self, publication: Publication, position: int) -> None:
        """Remember where a batch stopped, on disk if possible."""
        query, batch = publication.query, publication.batch
        with self._lock:
            self._stopped[query] = batch, position
        try:
            self._flush()
            self._store.advance(query, position, is_exact=True)
        except StoreError as error:
            _log.debug("= batch %d of %s stopped at row %d: %s", batch, query, position, error)

    def _note_crash(self, publication: Publication) -> None:
        repeated = min(self._progress_rows, publication.rows - publication.position)
        self._count("rows_possibly_repeated", repeated)
        _log.warning(
            "batch %d of query %s was being published when the bridge ended: going on behind row "
            "%d of %d; up to %d rows may be sent twice",
            publication.batch,
            publication.query,
            publication.position,
            publication.rows,
            repeated,
        )

    def _note_repeated(self, query: str, batch: int) -> None:
        self._count("batches_repeated")
        fence = self._store.fence(query)
        if batch < fence:
            # Spark retries the last batch only.
            _log.warning(
                "query %s came with batch %d, but %d is on the bus already: nothing is sent until "
                "it is beyond that. Was an old checkpoint restored?",
                query,
                batch,
                fence,
            )

    def _expire(self) -> None:
        now = time.monotonic()
        with self._lock:
            if now < self._expires_at:
                return
            self._expires_at = now + _EXPIRY_S
        dropped = self._store.expire()
        if dropped:
            _log.warning("%d rows were staged long ago and never published: dropped", dropped)

    def _count(self, counter: str, number: int = 1) -> None:
        with self._lock:
            self._counters[counter] += number

    def _warn_once(self, text: str, *values: object) -> None:
        with self._lock:
            is_first = text not in self._warned
            self._warned.add(text)
        _log.log(logging.WARNING if is_first else logging.DEBUG, text, *values)
