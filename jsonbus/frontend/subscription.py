"""The part of a subscription that is the same with threads and tasks: its messages, their fate.

No lock and no waiting here. A method with a leading underscore is called under the subscription's
lock (threads) or in its event loop (tasks).

With overflow "block", messages that do not fit into the mailbox are kept beside it, in order, and
count as pending: the rest of one datagram, after which the receiver reads no more, and messages of
publishers of this process that cannot wait (`Subscription.wait_for_room` says which). Beyond
EXCESS_MAX, new ones are dropped and counted.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Generic, Self

from jsonbus.core.mailbox import Mailbox
from jsonbus.core.message import Message, V_co, make_message, set_position
from jsonbus.errors import ClosedError, LocalError, PayloadError, QueueFullError
from jsonbus.frontend.checks import check_patterns
from jsonbus.frontend.limits import EXCESS_MAX
from jsonbus.frontend.options import SubscribeOptions
from jsonbus.frontend.watch import GapEvent, gaps_of

if TYPE_CHECKING:
    from jsonbus.frontend.loop import BaseLoop


class DiscardCounter:
    """Counts messages that no reader got, over all subscriptions. Any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        #: Dropped, for reasons other than a full mailbox.
        self.dropped = 0
        #: Not read when their subscription was closed.
        self.unread = 0

    def add_dropped(self, count: int) -> None:
        with self._lock:
            self.dropped += count

    def add_unread(self, count: int) -> None:
        with self._lock:
            self.unread += count


class BaseSubscription(ABC, Generic[V_co]):
    """The messages of one subscription; the base of `Subscription` in both front ends."""

    def __init__(self, options: SubscribeOptions, loop: BaseLoop[Any, Any], bus: object) -> None:
        # The patterns, nearly always one; a dict is an ordered set.
        pattern = options.pattern
        given = (pattern,) if isinstance(pattern, str) else check_patterns(pattern)
        self._patterns = dict.fromkeys(given)
        self._handler = options.handler
        self._is_passive = options.passive
        self._is_handled_in_batches = options.in_batches
        self._loop = loop
        # Keeps the bus alive: a subscription is of use only as long as its bus is open.
        self._bus = bus
        #: Whether it gets the requests to a topic that the bus serves.
        self.is_service = options.is_service
        self._log = loop.log
        self._discards = loop.discards
        self._wake = loop.wake_receivers  # makes the receiver check whether it may go on
        self._mailbox: Mailbox[Message] = Mailbox(options.maxsize, options.overflow)
        self._convert: Callable[[Any], Any] | None = None
        if options.as_type is not None:
            # Most programs ask for no type, and need not wait for msgspec at their start.
            from jsonbus.core.values.typed import make_converter

            self._convert = make_converter(options.as_type)
        self._is_blocking = options.overflow == "block"
        self._excess: deque[Message] = deque()
        self._discarded = 0  # not of the type asked for, or beyond EXCESS_MAX
        self._watches = loop.watches
        self._gaps: deque[GapEvent] = deque()  # made by dropping, to be told
        self._is_slow = False  # it dropped messages, and that was told
        self._is_closed = False
        self._is_scheduled = False  # messages wait for the handler, or it runs
        # With overflow "block": the receiver reads nothing until this mailbox is half empty. To go
        # on at the first free place would be too early: it would stop and go for every message.
        self._blocks_receiving = False

    def get(self, timeout: float | None = None) -> Any:
        """Return the next message; wait for one at most `timeout` seconds.

        Raises TimeoutError; ClosedError once the subscription or the bus is closed; QueueFullError,
        with overflow="error", at the place where messages are missing.
        """

    def get_many(self, count_max: int, timeout: float | None = None) -> Any:
        """Return the pending messages, at most `count_max`; wait for the first as `get` does.

        Use it when handling a batch is cheaper than handling messages one by one. Raises what `get`
        raises. Messages that are not of the type asked for are left out.
        """

    def add_pattern(self, pattern: str) -> bool:
        """Subscribe to one more topic or pattern; False if it was subscribed to already.

        A message that several patterns match still arrives once. Raises InvalidTopicError,
        ClosedError, and LocalError if this is what `serve` returned.
        """
        return self._loop.change_pattern(self, pattern, is_wanted=True)

    def remove_pattern(self, pattern: str) -> bool:
        """Unsubscribe from one topic or pattern; False if it was not subscribed to.

        Messages that arrived before can still be read. A subscription without patterns receives
        nothing until one is added. Raises ClosedError, and LocalError if this is what `serve`
        returned.
        """
        return self._loop.change_pattern(self, pattern, is_wanted=False)

    def close(self) -> None:
        """Unsubscribe. Pending messages count as `messages_unread`, waiting readers are woken.

        A call of the handler that has begun is not interrupted. Idempotent.
        """
        self._loop.detach(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def patterns(self) -> tuple[str, ...]:
        """The topics and patterns subscribed to, oldest first."""
        return tuple(self._patterns)

    @property
    def pattern(self) -> str:
        """The topic or pattern subscribed to; several are separated by commas."""
        return ", ".join(self._patterns)

    @property
    def is_passive(self) -> bool:
        """Whether it gets only messages that are sent for other subscribers anyway."""
        return self._is_passive

    @property
    def pending(self) -> int:
        """How many messages wait to be read or handled."""
        return self._mailbox.pending + len(self._excess)

    @property
    def dropped(self) -> int:
        """How many messages were lost here: no room, or the wrong type."""
        return self._mailbox.dropped + self._discarded

    @property
    def overflowed(self) -> int:
        """How many messages were dropped because the mailbox was full."""
        return self._mailbox.dropped

    @property
    def is_closed(self) -> bool:
        """Whether it receives no more messages."""
        return self._is_closed

    @property
    def is_handling(self) -> bool:
        """Whether messages wait for the handler, or it is running."""
        return self._is_scheduled

    @property
    def blocks_receiving(self) -> bool:
        """Whether the receiver has to wait until this mailbox has room."""
        return self._blocks_receiving

    def __repr__(self) -> str:
        state = "closed" if self._is_closed else f"{self.pending} pending"
        return f"<{type(self).__name__} {self.pattern} {state}>"

    def has_pattern(self, pattern: str) -> bool:
        """Whether exactly this pattern is subscribed to."""
        return pattern in self._patterns

    # What follows is for the loop.

    def note_pattern(self, pattern: str, *, is_wanted: bool) -> None:
        """Note that the loop subscribed to a pattern, or unsubscribed from it."""
        if is_wanted:
            self._patterns[pattern] = None
        else:
            del self._patterns[pattern]

    @abstractmethod
    def end(self) -> None:
        """Forget pending messages and wake all callers that wait."""

    def cut_off(self) -> None:
        """Close in a forked child. A thread that does not exist here may hold the lock."""
        self._is_closed = True

    def _check_unhandled(self) -> None:
        """Raise LocalError if a handler gets the messages."""
        if self._handler is not None:
            raise LocalError(f"the subscription to {self.pattern!r} has a handler: it is not read")

    def _check_end(self) -> None:
        """Raise what `get` raises when nothing is pending, if it has to."""
        lost = self._mailbox.take_overflow()
        if lost:
            raise QueueFullError(self.pattern, lost)
        if self._is_closed:
            raise ClosedError(f"the subscription to {self.pattern!r} is closed")

    def _warn_of_overflow(self, lost: int) -> None:
        """Log that messages for the handler are missing, with overflow "error"."""
        error = QueueFullError(self.pattern, lost)
        self._log.warn_program_once(("overflow", self.pattern), "%s", error)

    def _put(self, messages: Sequence[Message]) -> None:
        if self._is_closed:
            self._discards.add_unread(len(messages))
            return
        if not self._is_blocking:
            if len(messages) > self._mailbox.room and self._watches.want_gaps:
                self._gaps += gaps_of(self._mailbox.losing(messages))
            self._mailbox.put_many(messages)
            return
        kept = 0 if self._excess else self._mailbox.put_many(messages)
        if kept < len(messages):
            room = max(0, EXCESS_MAX - len(self._excess))
            self._excess.extend(messages[kept : kept + room])
            self._drop_excess(len(messages) - kept - room)
        if not self._mailbox.room:
            self._blocks_receiving = True

    def _tell_of_drops(self) -> None:
        """After messages were dropped: warn the first time, and tell of gaps. No lock held."""
        if self._gaps:
            gaps: list[GapEvent] = []
            with suppress(IndexError):  # another thread may take them, too
                while True:
                    gaps.append(self._gaps.popleft())
            self._watches.put_gaps(gaps)
        # With "error", the reader gets an error, and a handler's subscription warns by itself.
        if not self._is_slow and self._mailbox.overflow != "error":
            self._is_slow = True
            self._log.warn_program(
                "messages to %r are dropped, because %d wait already: read faster, for example "
                "many at once (get_many, in_batches), or subscribe with a larger maxsize or "
                'overflow="block"; `dropped` of the subscription counts them',
                self.pattern,
                self._mailbox.maxsize,
            )

    def _drop_excess(self, count: int) -> None:
        if count > 0:
            self._discard(count)
            self._log.warn_program_once(
                ("excess", self.pattern),
                "messages to %r are dropped: this program publishes them without reading them",
                self.pattern,
            )

    def _take(self, count_max: int) -> list[Message]:
        """Take up to that many messages, oldest first."""
        taken = self._mailbox.take_many(count_max)
        while self._excess and self._mailbox.room:
            self._mailbox.put_many((self._excess.popleft(),))
        return taken

    def _unblocks(self) -> bool:
        """Whether the receiver may go on, now that messages were taken."""
        if self._blocks_receiving and self.pending <= self._mailbox.maxsize // 2:
            self._blocks_receiving = False
            return True
        return False

    def _end(self) -> None:
        """Forget pending messages and take no more."""
        self._is_closed = True
        self._blocks_receiving = False
        self._discards.add_unread(self._mailbox.clear() + len(self._excess))
        self._excess.clear()

    def _discard(self, count: int) -> None:
        self._discarded += count
        self._discards.add_dropped(count)

    def _converted(self, message: Message) -> Message | None:
        """Return the message with its value as the type asked for; None if it does not fit.

        A message of another node never raises here: the next one may fit. The result is a new
        message, because other subscriptions have the same one.
        """
        assert self._convert is not None
        try:
            value = self._convert(message.value)
        except PayloadError as error:
            self._log.warn_program_once(
                ("type", self.pattern),
                "messages to %r of node %s are dropped, they have the wrong type: %s",
                message.topic,
                message.node,
                error,
            )
            return None
        converted = make_message(message.topic, value, message.sequence, message.origin)
        if message.position is not None:
            set_position(converted, message.position)
        return converted
