"""From the bus into the log, by the public API.

One thread takes what the subscription has, makes rows of it and appends them: a flush. The log
returns when they are on disk. A lone message is flushed at once; while more come, flushes begin
`sync_s` apart, so that each takes many messages and the disk is synced a bounded number of times.
The thread asks for nothing in between: a thread that is woken for every datagram would cost as much
as the rows.

The subscription blocks when it is full: if the disk is slower than the bus, receiving stops, the
kernel's buffer fills, and reliable publishers are asked again for what was dropped. What a disk
refuses, because it is full or broken, is counted by topic and dropped; as soon as it takes rows
again, gap records say what is missing, and where.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter, deque
from collections.abc import Callable, Sequence
from time import monotonic, time

import jsonbus
from jsonbus.errors import ClosedError

from .errors import LogWriteError
from .offset_log import OffsetLog
from .rows import Gap, Messages, RowMaker

logger = logging.getLogger("jsonbus.bridge")

#: Messages that wait for a flush. At a million a second, twice what comes during one that takes
#: 20 ms and a pause of 20 ms.
MAILBOX_MESSAGES_MAX = 65_536

#: Messages in one flush: what comes during a pause, in a flood.
FLUSH_MESSAGES_MAX = 32_768

#: How long the thread waits for a message before it looks whether there is something else to do.
IDLE_S = 0.5

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
        self._is_refused = False
        self._rows_recorded = self._rows_unrecorded = self._gaps_recorded = self._flushes = 0
        self._gaps_dropped = 0
        self._stopping = threading.Event()
        self._watch = bus.on_gap(self._note_gap)
        self._subscription = bus.subscribe(patterns, maxsize=MAILBOX_MESSAGES_MAX, overflow="block")
        self._thread = threading.Thread(target=self._run, name="jsonbus-bridge-recorder")

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Record what has been received, and end."""
        self._stopping.set()
        self._thread.join()
        self._watch.close()
        self._subscription.close()

    @property
    def is_refused(self) -> bool:
        """Whether the disk did not take the last rows."""
        return self._is_refused

    def stats(self) -> dict[str, int]:
        """Any thread."""
        return {
            "rows_recorded": self._rows_recorded,
            "rows_unrecorded": self._rows_unrecorded,
            "rows_waiting": self._subscription.pending,
            "gaps_recorded": self._gaps_recorded,
            "gaps_dropped": self._gaps_dropped,
            "flushes": self._flushes,
        }

    def _note_gap(self, event: jsonbus.GapEvent) -> None:
        if len(self._gaps) < GAPS_MAX:
            self._gaps.append(Gap(event.topic, event.node, None, event.count, event.at))
        else:
            self._gaps_dropped += 1

    def _run(self) -> None:
        while not self._stopping.is_set():
            messages = self._take(IDLE_S)
            began_at = monotonic()
            if not messages and not self._gaps and not self._unrecorded:
                continue
            try:
                self._flush(messages)
            except Exception:
                logger.exception("recording failed, and goes on: this is a bug")
                self._rows_unrecorded += len(messages)
            if len(messages) < FLUSH_MESSAGES_MAX:
                self._stopping.wait(began_at + self._sync_s - monotonic())
        while messages := self._take(0):
            self._flush(messages)

    def _take(self, timeout_s: float) -> list[jsonbus.Message]:
        try:
            return self._subscription.get_many(FLUSH_MESSAGES_MAX, timeout_s)
        except TimeoutError:
            return []
        except ClosedError:
            self._stopping.set()
            return []

    def _flush(self, messages: list[jsonbus.Message]) -> None:
        if self._gaps or self._unrecorded:
            self._record_gaps()
        if not messages:
            return
        for taken, rows in self._maker.make(messages):
            try:
                self._log.append(rows)
            except LogWriteError as error:
                self._refuse(error, taken)
            else:
                self._accept()
        self._flushes += 1
        self._rows_recorded += len(messages)
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

    def _refuse(self, error: LogWriteError, messages: Messages) -> None:
        """Rows of some partitions were not taken: count them, and say so once."""
        refused = set(error.partitions)
        topics = [
            each.topic for each in messages if self._maker.partition_of(each.topic) in refused
        ]
        for topic, count in Counter(topics).items():
            is_known = topic in self._unrecorded or len(self._unrecorded) < UNRECORDED_TOPICS_MAX
            self._unrecorded[topic if is_known else None] += count
        self._rows_unrecorded += len(topics)
        self._rows_recorded -= len(topics)
        if not self._is_refused:
            self._is_refused = True
            logger.error("nothing is recorded: %s", error)

    def _accept(self) -> None:
        if self._is_refused:
            self._is_refused = False
            logger.warning(
                "recording goes on; %s messages were not recorded", f"{self._rows_unrecorded:,}"
            )
