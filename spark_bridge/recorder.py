"""From the bus into the log, by the public API.

The handler collects messages in a lot, in the thread that received them; rows.py tells why. A
second thread *flushes*: it makes rows of the lot and appends them to the log, which returns when
they are on disk. A lone message is flushed at once; while more come, flushes begin `sync_s` apart,
in a flood FLOOD_SYNC_S, or when there is no room for more, so that the disk is synced a bounded
number of times.

Lots that wait for a flush are bounded: beyond, the handler waits, the subscription fills up and
holds up receiving, the kernel's buffer fills, and reliable publishers are asked again for what was
dropped. What a disk refuses, because it is full or broken, is counted by topic and dropped; as soon
as it takes rows again, gap records say what is missing, and where. Nothing but `stop` ends the
recording.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from time import monotonic, sleep, time

import pyarrow as pa
import pyarrow.compute as pc

import jsonbus

from .errors import LogWriteError
from .log.offset_log import OffsetLog
from .rows import Gap, Lot, RowMaker
from .state import Trouble

logger = logging.getLogger("jsonbus.bridge")

#: Messages that wait for the handler when all lots are full. Lots are the real buffer: they are
#: bounded in bytes, too.
MAILBOX_MESSAGES_MAX = 1_024

#: The most messages that the handler holds at once: those of one datagram.
HANDLED_MAX = 10_000

#: Lots that wait for a flush. One is enough for a flood and a disk that takes most of a second;
#: large values fill several.
LOTS_MAX = 2

#: With so many rows to flush after `sync_s`, flushes begin FLOOD_SYNC_S apart: what a flush costs
#: besides its rows is worth that of some thousand rows, and large ones are written once, not twice.
FLOOD_ROWS = 1_000
FLOOD_SYNC_S = 0.1

#: The handler waits while rows are made, if there are no more than this: that takes some 10 ms, for
#: which the kernel buffers what comes.
TURN_ROWS_MAX = 50_000

#: How long the flusher waits for a message before it checks whether there is something else to do.
IDLE_S = 0.5

#: How long a disk that refused rows is left alone: each try costs it two syncs per partition.
REFUSED_PAUSE_S = 1.0

#: How long `stop` waits until everything received is recorded.
DRAIN_S = 10.0

#: Topics whose unrecorded messages are counted one by one; of all others, the sum is counted.
UNRECORDED_TOPICS_MAX = 1_000

#: Gaps that wait to be recorded. There is one per topic and outage.
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
        self._changed = threading.Condition()  # guards the lots
        self._lots = [Lot()]  # until they are flushed; the last one is being filled
        self._is_idle = False  # the flusher waits for the bell
        self._bell = threading.Event()
        self._is_full = threading.Event()  # the handler waits for a flush; or this one ends
        self.is_refused = False  # by the disk, the last rows
        self.trouble: Trouble | None = None  # why something was not recorded, the last time
        self._messages = 0  # that were handled
        self._rows_flushing = 0
        self._rows_recorded = self._rows_unrecorded = self._gaps_recorded = self._flushes = 0
        self._gaps_dropped = 0
        self._stopping = threading.Event()
        self._watch = bus.on_gap(self._note_gap)
        self._thread = threading.Thread(target=self._run, name="jsonbus-bridge-flusher")
        self._subscription = bus.subscribe(
            patterns,
            self._handle,
            maxsize=MAILBOX_MESSAGES_MAX,
            overflow="block",
            in_batches=True,
        )

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Record everything that has been received, and end."""
        # Everything that came before now has been handled once nothing waits, or once as many
        # messages were handled as waited then: others go on publishing.
        enough = self._messages + self._subscription.pending + HANDLED_MAX
        give_up_at = monotonic() + DRAIN_S
        while (
            self._subscription.is_handling and self._messages < enough and monotonic() < give_up_at
        ):
            sleep(0.001)
        self._subscription.close()
        self._watch.close()
        with self._changed:
            self._stopping.set()
            self._changed.notify_all()
        self._bell.set()
        self._is_full.set()
        self._thread.join()

    def stats(self) -> dict[str, int]:
        """Return the counters. May be called from any thread."""
        return {
            "rows_recorded": self._rows_recorded,
            "rows_unrecorded": self._rows_unrecorded,
            "rows_waiting": self._subscription.pending
            + sum(len(each.topics) for each in self._lots)
            + self._rows_flushing,
            "gaps_recorded": self._gaps_recorded,
            "gaps_dropped": self._gaps_dropped,
            "flushes": self._flushes,
            "is_failing": int(self.is_refused),
        }

    def _note_gap(self, event: jsonbus.GapEvent) -> None:
        if len(self._gaps) < GAPS_MAX:
            self._gaps.append(Gap(event.topic, event.node, event.count, event.at))
        else:
            self._gaps_dropped += 1

    def _handle(self, messages: list[jsonbus.Message]) -> None:
        with self._changed:
            taken = self._lots[-1].add(messages)
            while taken < len(messages):
                self._bell.set()
                self._is_full.set()
                self._changed.wait_for(
                    lambda: len(self._lots) < LOTS_MAX or self._stopping.is_set()
                )
                lot = Lot()
                taken += lot.add(messages[taken:])
                self._lots.append(lot)
            self._messages += len(messages)
        if self._is_idle:
            self._is_idle = False
            self._bell.set()

    def _run(self) -> None:
        while not self._stopping.is_set():
            self._wait_for_message()
            began_at = monotonic()
            if not self._flush():
                continue
            if self.is_refused:
                # A full disk is not asked as often.
                self._stopping.wait(began_at + REFUSED_PAUSE_S - monotonic())
            else:
                self._is_full.wait(began_at + self._sync_s - monotonic())
                if len(self._lots[-1].topics) >= FLOOD_ROWS:
                    self._is_full.wait(began_at + FLOOD_SYNC_S - monotonic())
        self._flush()
        self._record_gaps()

    def _wait_for_message(self) -> None:
        self._bell.clear()
        self._is_idle = True
        # A message that came before that is seen here; the next one rings.
        if not self._lots[-1].topics and not self._stopping.is_set():
            self._bell.wait(IDLE_S)
        self._is_idle = False

    def _flush(self) -> bool:
        """Give the log everything there is; return False if there was nothing."""
        with self._changed:
            lots = [each for each in self._lots if each.topics]
            self._lots = [Lot()]
            if not self._stopping.is_set():  # `stop` has set it to end the wait
                self._is_full.clear()
            self._rows_flushing = sum(len(each.topics) for each in lots)
            self._changed.notify_all()
        for lot in lots:
            self._record_gaps()  # before what came after them
            try:
                self._append(self._make_rows(lot))
            except Exception as error:
                logger.exception("%d messages were not recorded: this is a bug", len(lot.topics))
                self.trouble = Trouble(monotonic(), f"{type(error).__name__}: {error}")
                self._note_unrecorded(Counter(lot.topics))
            self._rows_flushing -= len(lot.topics)
        if not lots:
            return self._record_gaps()
        self._flushes += 1
        self._appended()
        return True

    def _make_rows(self, lot: Lot) -> dict[int, pa.RecordBatch]:
        if len(lot.topics) > TURN_ROWS_MAX:
            return self._maker.make(lot)
        # Both threads want the interpreter all the time, and to hand it over at each call of Arrow
        # costs as much as the call: so the handler waits. It never waits for the disk.
        with self._changed:
            return self._maker.make(lot)

    def _append(self, rows: dict[int, pa.RecordBatch]) -> None:
        try:
            self._log.append(rows)
        except LogWriteError as error:
            self._refuse(error, [rows.pop(partition) for partition in error.partitions])
        else:
            self._accept()
        self._rows_recorded += sum(each.num_rows for each in rows.values())

    def _record_gaps(self) -> bool:
        """Record what is missing, as far as the disk takes it; the rest is recorded later.

        Returns False if nothing is missing.
        """
        gaps = list(self._gaps)
        now = time()
        told = [*gaps, *(Gap(topic, None, n, now) for topic, n in self._unrecorded.items())]
        if not told:
            return False
        refused: tuple[int, ...] = ()
        try:
            self._log.append(self._maker.make_gaps(told))
        except LogWriteError as error:
            refused = error.partitions
        except Exception:
            logger.exception("%d gaps were not recorded: this is a bug", len(told))
            self._gaps_dropped += len(told)
            told = []
        place = self._maker.partition_of
        for _ in gaps:
            self._gaps.popleft()  # others may have been added meanwhile
        self._gaps.extendleft(gap for gap in reversed(gaps) if place(gap.topic) in refused)
        for topic in [topic for topic in self._unrecorded if place(topic) not in refused]:
            del self._unrecorded[topic]
        recorded = sum(place(gap.topic) not in refused for gap in told)
        if recorded:
            self._gaps_recorded += recorded
            self._appended()
        return True

    def _refuse(self, error: LogWriteError, refused: list[pa.RecordBatch]) -> None:
        """Count rows that some partitions refused, and log it once."""
        self.trouble = Trouble(monotonic(), str(error))
        for rows in refused:
            counts = pc.value_counts(rows.column("topic")).to_pylist()
            self._note_unrecorded({each["values"]: each["counts"] for each in counts})
        if not self.is_refused:
            self.is_refused = True
            logger.error("nothing is recorded: %s", error)

    def _note_unrecorded(self, counts: Mapping[str, int]) -> None:
        """Count messages by topic; gap records will report them."""
        for topic, count in counts.items():
            is_known = topic in self._unrecorded
            has_room = len(self._unrecorded) < UNRECORDED_TOPICS_MAX
            self._unrecorded[topic if is_known or has_room else None] += count
        self._rows_unrecorded += sum(counts.values())

    def _accept(self) -> None:
        if self.is_refused:
            self.is_refused = False
            logger.warning(
                "recording goes on; %s messages were not recorded", f"{self._rows_unrecorded:,}"
            )
