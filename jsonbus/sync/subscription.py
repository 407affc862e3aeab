"""A subscription with threads: iterate over it, or have a handler called.

Each has its own lock, held while messages move into or out of the mailbox and for nothing else. A
reader waits on the lock's condition. For a handler, `schedule` is called once; the thread pool then
runs it until the mailbox is empty. Messages for a quick handler may bypass an empty mailbox:
`begin` makes sure that none is before them, and messages that come meanwhile wait behind them.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Self

from jsonbus.core.message import Message, V_co
from jsonbus.errors import ClosedError
from jsonbus.frontend.checks import check_count, check_optional_seconds
from jsonbus.frontend.lifetime import forked_error
from jsonbus.frontend.limits import BATCH_MAX, READER_CHECK_S
from jsonbus.frontend.options import SubscribeOptions
from jsonbus.frontend.subscription import BaseSubscription
from jsonbus.sync.thread_pool import current_subscription

if TYPE_CHECKING:
    from jsonbus.sync.loop import Loop

#: A handler that takes less per message is run in place: waking a thread for it takes about as
#: long.
QUICK_S = 50e-6

#: A handler is quick after QUICK_CREDIT quick batches; a slow one takes SLOW_COSTS back. On a busy
#: machine any batch may be interrupted, so a handler that was quick for long is forgiven one slow
#: batch, but not two in a row.
QUICK_CREDIT = 3
SLOW_COSTS = 3
CREDIT_MAX = 8


class Subscription(BaseSubscription[V_co]):
    """Messages to one topic or pattern, in the order each node sent them.

        with bus.subscribe("sensors/*") as subscription:
            for message in subscription:
                print(message.topic, message.value)

    Without a handler, iterate over it, or call `get`; if several threads do, each message goes to
    one of them. Any thread may call any method, also in handlers.
    """

    def __init__(self, options: SubscribeOptions, loop: Loop, bus: object) -> None:
        """Raises ConfigError."""
        super().__init__(options, loop, bus)
        self._schedule = loop.workers.schedule
        self._will_wait = loop.workers.will_wait  # to be called before waiting for messages
        self._lock = threading.Lock()
        self._arrived = threading.Condition(self._lock)
        self._readers = 0  # threads that wait in get()
        self._left = threading.Condition(self._lock)
        self._publishers = 0  # threads that wait in wait_for_room()
        self._credit = 0  # grows with batches that its handler handled quickly
        #: True if running the handler has recently been cheaper than waking a thread for it.
        self.is_quick = False
        self._last_reader: threading.Thread | None = None
        self._is_cut_off = False

    def get(self, timeout: float | None = None) -> Message[V_co]:
        timeout_s = check_optional_seconds("timeout", timeout)
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        self._check_readable()
        self._will_wait()
        while True:
            message = self._as_wanted(self._next_batch(1, deadline)[0])
            if message is not None:
                return message

    def get_many(self, count_max: int, timeout: float | None = None) -> list[Message[V_co]]:
        check_count(count_max)
        timeout_s = check_optional_seconds("timeout", timeout)
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        self._check_readable()
        self._will_wait()
        while True:
            batch = self._next_batch(count_max, deadline)
            if self._convert is not None:
                batch = [each for each in map(self._as_wanted, batch) if each is not None]
            if batch:
                return batch

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Message[V_co]:
        try:
            return self.get()
        except ClosedError:
            raise StopIteration from None

    # What follows is for the loop and the workers.

    def deliver(self, messages: Sequence[Message]) -> bool:
        """Put messages into the mailbox; False if there is no room for more (overflow="block")."""
        with self._lock:
            self._put(messages)
            if self._readers:
                self._arrived.notify(len(messages))
            is_due = self._handler is not None and not self._is_scheduled and not self._is_closed
            if is_due:
                self._is_scheduled = True
            has_room = not self._blocks_receiving
        if self._mailbox.dropped:
            self._tell_of_drops()
        if is_due:
            self._schedule(self)
        return has_room

    def wait_for_room(self) -> None:
        """After `deliver`, in a publisher's thread: wait until its messages are in the mailbox.

        Waits only if another thread can end the wait. Not in a handler of any bus: handlers would
        wait for each other. Not in the thread that read last, nor before any thread did: it may be
        the one that reads. Messages are kept even if nobody waits.
        """
        if not self._excess or current_subscription() is not None:
            return
        with self._lock:
            while self._excess and not self._is_closed:
                if self._handler is None:
                    reader = self._last_reader
                    if reader is None or reader is threading.current_thread():
                        return
                    if not reader.is_alive():
                        return
                self._publishers += 1
                try:
                    self._left.wait(READER_CHECK_S)
                finally:
                    self._publishers -= 1

    def begin(self) -> bool:
        """Return whether `run_handler` may run now, for messages that are not in the mailbox."""
        with self._lock:
            if self._is_scheduled or self._is_closed or self._mailbox.pending:
                return False
            self._is_scheduled = True
            return True

    def run_handler(self, batch: list[Message] | None = None) -> bool:
        """Handle a batch, taken from the mailbox unless given; True if the mailbox has more.

        Only in the thread that has the subscription.
        """
        if batch is None:
            batch = self._take_for_handler()
        if self.is_service:
            self._release()
        began_at = time.monotonic()
        if self._is_handled_in_batches:
            self._handle_batch(batch)
        else:
            self._handle_all(batch)
        was_quick = time.monotonic() - began_at <= QUICK_S * len(batch)
        credit = self._credit + (1 if was_quick else -SLOW_COSTS)
        self._credit = max(0, min(credit, CREDIT_MAX))
        self.is_quick = self._credit >= QUICK_CREDIT
        if self.is_service:
            return False
        with self._lock:
            self._is_scheduled = self._mailbox.pending > 0
            return self._is_scheduled

    def _take_for_handler(self) -> list[Message]:
        with self._lock:
            batch, is_freed = self._take_batch(1 if self.is_service else BATCH_MAX)
            lost = self._mailbox.take_overflow()
        if is_freed:
            self._wake()
        if lost:
            self._warn_of_overflow(lost)
        return batch

    def _release(self) -> None:
        """Before a request is answered: let other workers answer the next ones meanwhile."""
        with self._lock:
            is_due = self._is_scheduled = self._mailbox.pending > 0
        if is_due:
            self._schedule(self)

    def end(self) -> None:
        """Forget pending messages and wake all threads that wait."""
        with self._lock:
            self._end()
            self._arrived.notify_all()
            self._left.notify_all()
        self._wake()

    def cut_off(self) -> None:
        self._is_cut_off = True
        super().cut_off()

    def _check_readable(self) -> None:
        if self._is_cut_off:
            raise forked_error()
        self._check_unhandled()

    def _next_batch(self, count_max: int, deadline: float | None) -> list[Message]:
        """Wait for and take at least one message, of any type."""
        with self._lock:
            if self._is_blocking:
                self._last_reader = threading.current_thread()
            while not self._mailbox.pending:
                self._check_end()
                self._wait_for_message(deadline)
            batch, is_freed = self._take_batch(count_max)
        if is_freed:
            self._wake()
        return batch

    def _wait_for_message(self, deadline: float | None) -> None:
        timeout_s = None
        if deadline is not None:
            timeout_s = deadline - time.monotonic()
            if timeout_s <= 0:
                raise TimeoutError(f"no message to {self.pattern!r} came in time")
        self._readers += 1
        try:
            self._arrived.wait(timeout_s)
        finally:
            self._readers -= 1

    def _take_batch(self, count_max: int) -> tuple[list[Message], bool]:
        """Take messages; return them, and whether the receiver may go on. Lock held."""
        batch = self._take(count_max)
        if self._publishers and not self._excess:
            self._left.notify_all()
        return batch, self._unblocks()

    def _handle_all(self, batch: list[Message]) -> None:
        handler, has_type = self._handler, self._convert is not None
        assert handler is not None
        message = None
        messages = iter(batch)
        while True:
            try:
                for message in messages:
                    if self._is_closed:
                        self._discards.add_unread(1 + len(list(messages)))
                        return
                    wanted = self._as_wanted(message) if has_type else message
                    if wanted is not None:
                        handler(wanted)
                return
            except BaseException:
                # SystemExit too: it would end the thread, and with it every other subscription.
                assert message is not None
                self._log.fail("the handler of %r failed on topic %r", self.pattern, message.topic)

    def _handle_batch(self, batch: list[Message]) -> None:
        handler = self._handler
        assert handler is not None
        if self._is_closed:
            self._discards.add_unread(len(batch))
            return
        if self._convert is not None:
            batch = [each for each in map(self._as_wanted, batch) if each is not None]
        if not batch:
            return
        try:
            handler(batch)
        except BaseException:
            self._log.fail("the handler of %r failed on %d messages", self.pattern, len(batch))

    def _as_wanted(self, message: Message) -> Message | None:
        """Return the message as the type asked for; None, and count it, if it does not fit."""
        if self._convert is None:
            return message
        converted = self._converted(message)
        if converted is None:
            with self._lock:
                self._discard(1)
        return converted
