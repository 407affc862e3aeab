"""From the bus into the log, by the public API.

The handler collects messages and makes rows of them, a thousand at a time, in the thread that
received them. To hand messages to another thread would cost more than the rows: two threads that
compute take the interpreter from each other, and messages that live longer meet colder memory and
Python's collector of cycles. A second thread *flushes*: it appends the rows to the log, which
returns when they are on disk, and mostly waits for that. A lone message is flushed at once; while
more come, flushes begin `sync_s` apart, so that the disk is synced a bounded number of times.

Rows that wait for a flush are bounded: beyond, the handler waits, the subscription fills up and
holds up receiving, the kernel's buffer fills, and reliable publishers are asked again for what was
dropped. What a disk refuses, because it is full or broken, is counted by topic and dropped; as soon
as it takes rows again, gap records say what is missing, and where.

Only one thread adds to the lot, the one that runs the handler, and only at its end; whoever takes
from it, takes from its start, and holds the lock.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter, deque
from collections.abc import Callable, Sequence
from time import monotonic, sleep, time

import pyarrow as pa
import pyarrow.compute as pc

import jsonbus

from .errors import LogWriteError
from .offset_log import OffsetLog
from .rows import Gap, RowMaker, combine_rows

logger = logging.getLogger("jsonbus.bridge")

#: Messages that wait for the handler; more than a datagram has.
MAILBOX_MESSAGES_MAX = 16_384

#: Messages that become rows in one go. Fewer make Arrow's overhead felt, more leave the cache.
LOT_MESSAGES = 1_024

#: Rows that wait for a flush: what a flood brings while the disk takes a second.
PLAIN_BYTES_MAX = 128 << 20

#: How long the flusher waits for a message before it looks whether there is something else to do.
IDLE_S = 0.5

#: How long `stop` waits until what was received is recorded.
DRAIN_S = 10.0

#: Topics whose unrecorded messages are counted one by one; of all others, the sum.
UNRECORDED_TOPICS_MAX = 1_000

#: Gaps that wait to be recorded. They come one per topic and outage.
GAPS_MAX = 10_000


class Recorder:
    """Records the messages of some patterns, from `start` until `stop`.

    `appended` is called, in the recorder's thread, when the log has grown.
    """

    def __init__(
        self,
        bus: jsonbus.Bus,
        log: OffsetLog,
        patterns: Sequence[str],
        *,
        sync_s: float,
        appended: Callable[[], None],
    ) -> None:
        self._log = log
        self._sync_s = sync_s
        self._appended = appended
        self._maker = RowMaker(log.partitions)
        self._gaps: deque[Gap] = deque()
        self._unrecorded: Counter[str | None] = Counter()  # by topic, until a gap record tells
        self._lot: list[jsonbus.Message] = []  # until they are rows
        self._changed = threading.Condition()  # guards the rows, and who takes from the lot
        self._rows: dict[int, list[pa.RecordBatch]] = {}  # by partition, until they are flushed
        self._plain_bytes = 0  # that they take
        self._is_idle = False  # the flusher waits for the bell
        self._bell = threading.Event()
        self._is_refused = False
        self._rows_recorded = self._rows_unrecorded = self._gaps_recorded = self._flushes = 0
        self._gaps_dropped = 0
        self._stopping = threading.Event()
        self._watch = bus.on_gap(self._note_gap)
        self._thread = threading.Thread(target=self._run, name="jsonbus-bridge-flusher")
        self._subscription = bus.subscribe(
            patterns, self._handle, maxsize=MAILBOX_MESSAGES_MAX, overflow="block"
        )

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Record what has been received, and end."""
        give_up_at = monotonic() + DRAIN_S
        while self._subscription.pending and monotonic() < give_up_at:
            sleep(0.001)
        self._subscription.close()
        self._watch.close()
        self._stopping.set()
        self._bell.set()
        with self._changed:
            self._changed.notify_all()
        self._thread.join()

    @property
    def is_refused(self) -> bool:
        """Whether the disk did not take the last rows."""
        return self._is_refused

    def stats(self) -> dict[str, int]:
        """Any thread."""
        return {
            "rows_recorded": self._rows_recorded,
            "rows_unrecorded": self._rows_unrecorded,
            "rows_waiting": self._subscription.pending + len(self._lot),
            "gaps_recorded": self._gaps_recorded,
            "gaps_dropped": self._gaps_dropped,
            "flushes": self._flushes,
        }

    def _note_gap(self, event: jsonbus.GapEvent) -> None:
        if len(self._gaps) < GAPS_MAX:
            self._gaps.append(Gap(event.topic, event.node, None, event.count, event.at))
        else:
            self._gaps_dropped += 1

    def _handle(self, message: jsonbus.Message) -> None:
        lot = self._lot
        lot.append(message)
        if self._is_idle:
            self._is_idle = False
            self._bell.set()
        elif len(lot) >= LOT_MESSAGES:
            self._make_rows()
            if self._plain_bytes > PLAIN_BYTES_MAX:
                self._wait_for_room()

    def _make_rows(self) -> None:
        """Make rows of the lot; by the handler, or by the flusher."""
        with self._changed:
            lot = self._lot
            messages = lot[:]
            del lot[: len(messages)]  # one may just have been added
            if not messages:
                return
            try:
                for partition, rows in self._maker.make(messages):
                    self._rows.setdefault(partition, []).append(rows)
                    self._plain_bytes += rows.nbytes
            except Exception:
                # Nothing that comes from the bus may end the recording.
                logger.exception("%d messages were not recorded: this is a bug", len(messages))
                self._rows_unrecorded += len(messages)

    def _wait_for_room(self) -> None:
        with self._changed:
            self._changed.wait_for(
                lambda: self._plain_bytes <= PLAIN_BYTES_MAX or self._stopping.is_set()
            )

    def _run(self) -> None:
        while not self._stopping.is_set():
            self._wait_for_message()
            began_at = monotonic()
            self._make_rows()
            self._flush()
            self._stopping.wait(began_at + self._sync_s - monotonic())
        self._make_rows()
        self._flush()

    def _wait_for_message(self) -> None:
        self._bell.clear()
        self._is_idle = True
        # A message that came before that is seen here; the next one rings.
        if not self._lot and not self._rows and not self._stopping.is_set():
            self._bell.wait(IDLE_S)
        self._is_idle = False

    def _flush(self) -> None:
        if self._gaps or self._unrecorded:
            self._record_gaps()
        with self._changed:
            waiting, self._rows = self._rows, {}
            self._plain_bytes = 0
            self._changed.notify_all()
        if not waiting:
            return
        rows = {partition: combine_rows(each) for partition, each in waiting.items()}
        try:
            self._log.append(rows)
        except LogWriteError as error:
            self._refuse(error, [rows.pop(partition) for partition in error.partitions])
        else:
            self._accept()
        self._flushes += 1
        self._rows_recorded += sum(each.num_rows for each in rows.values())
        self._appended()

    def _record_gaps(self) -> None:
        gaps = list(self._gaps)
        now = time()
        told = [*gaps, *(Gap(topic, None, None, n, now) for topic, n in self._unrecorded.items())]
        refused: tuple[int, ...] = ()
        try:
            self._log.append(self._maker.make_gaps(told))
        except LogWriteError as error:
            refused = error.partitions  # those are told later
        place = self._maker.partition_of
        for _ in gaps:
            self._gaps.popleft()  # others may have come behind them meanwhile
        self._gaps.extendleft(gap for gap in reversed(gaps) if place(gap.topic) in refused)
        for topic in [topic for topic in self._unrecorded if place(topic) not in refused]:
            del self._unrecorded[topic]
        self._gaps_recorded += sum(place(gap.topic) not in refused for gap in told)
        self._appended()

    def _refuse(self, error: LogWriteError, refused: list[pa.RecordBatch]) -> None:
        """Rows of some partitions were not taken: count them, and say so once."""
        for rows in refused:
            for each in pc.value_counts(rows.column("topic")).to_pylist():
                topic, count = each["values"], each["counts"]
                is_known = topic in self._unrecorded
                has_room = len(self._unrecorded) < UNRECORDED_TOPICS_MAX
                self._unrecorded[topic if is_known or has_room else None] += count
            self._rows_unrecorded += rows.num_rows
        if not self._is_refused:
            self._is_refused = True
            logger.error("nothing is recorded: %s", error)

    def _accept(self) -> None:
        if self._is_refused:
            self._is_refused = False
            logger.warning(
                "recording goes on; %s messages were not recorded", f"{self._rows_unrecorded:,}"
            )
