"""The part of a subscription that is the same with threads and tasks: its messages, their fate.

No lock and no waiting here. A method with a leading underscore is called under the subscription's
lock (threads) or in its event loop (tasks).

With overflow "block", messages that the mailbox cannot take are kept beside it, in order, and count
as pending: the rest of one datagram, after which the receive loop reads no more, and what
publishers of this process brought that cannot wait (`Subscription.wait_for_room` says who). Beyond
EXCESS_MAX of them, new ones are dropped and counted.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from jsonbus.core.mailbox import Mailbox
from jsonbus.core.message import Message, make_message
from jsonbus.errors import PayloadError
from jsonbus.frontend.checks import check_patterns
from jsonbus.frontend.events import BusLog

MAXSIZE_DEFAULT = 1024

#: Messages taken from a mailbox under one lock. Fewer cost more locking; with many more, other
#: subscriptions would wait for a worker too long.
BATCH_MAX = 128


class DiscardCounter:
    """Messages that all subscriptions of a bus dropped, open or closed, but for want of room."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.count = 0

    def add(self, count: int) -> None:
        """Any thread."""
        with self._lock:
            self.count += count


#: Messages kept beside a full mailbox with overflow "block", when their publisher cannot wait. More
#: than one datagram brings; a program that publishes to itself without ever reading fills it.
EXCESS_MAX = 10_000


class BaseSubscription:
    """The messages of one subscription; the base of `Subscription` in both front ends."""

    def __init__(
        self,
        pattern: str | Sequence[str],
        *,
        maxsize: int,
        overflow: str,
        as_type: Any,
        is_passive: bool,
        log: BusLog,
        discards: DiscardCounter,
    ) -> None:
        # What was subscribed to, nearly always one; a dict is an ordered set.
        given = (pattern,) if isinstance(pattern, str) else check_patterns(pattern)
        self._patterns = dict.fromkeys(given)
        self._is_passive = is_passive
        self._log = log
        self._discards = discards
        self._mailbox: Mailbox[Message] = Mailbox(maxsize, overflow)
        self._convert = None if as_type is None else _make_converter(as_type)
        self._is_blocking = overflow == "block"
        self._excess: deque[Message] = deque()
        self._discarded = 0  # pending when it was closed, or not of the type asked for
        self._is_closed = False
        self._is_scheduled = False  # for the handler: messages wait for it, or it runs
        # Policy block: the receive loop reads nothing until this mailbox is half empty. At the
        # first free place would be too early: the loop would stop and go for every message.
        self._blocks_receiving = False

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
        """Whether it gets only what travels for others anyway."""
        return self._is_passive

    @property
    def pending(self) -> int:
        """How many messages wait to be read or handled."""
        return self._mailbox.pending + len(self._excess)

    @property
    def dropped(self) -> int:
        """How many messages were lost here: no room, the wrong type, or pending at the close."""
        return self._mailbox.dropped + self._discarded

    @property
    def overflowed(self) -> int:
        """How many of the dropped ones there was no room for."""
        return self._mailbox.dropped

    @property
    def is_closed(self) -> bool:
        """Whether it gets no more messages."""
        return self._is_closed

    @property
    def is_handling(self) -> bool:
        """Whether messages wait for the handler, or it is running."""
        return self._is_scheduled

    @property
    def blocks_receiving(self) -> bool:
        """Whether the receive loop has to wait for this mailbox."""
        return self._blocks_receiving

    def __repr__(self) -> str:
        state = "closed" if self._is_closed else f"{self.pending} pending"
        return f"<{type(self).__name__} {self.pattern} {state}>"

    def has_pattern(self, pattern: str) -> bool:
        """Whether it is subscribed to exactly this."""
        return pattern in self._patterns

    def note_pattern(self, pattern: str, *, is_wanted: bool) -> None:
        """The bus subscribed to one pattern more for it, or to one less."""
        if is_wanted:
            self._patterns[pattern] = None
        else:
            del self._patterns[pattern]

    def _put(self, messages: Sequence[Message]) -> None:
        if self._is_closed:
            self._discard(len(messages))
            return
        if not self._is_blocking:
            self._mailbox.put_many(messages)
            return
        kept = 0 if self._excess else self._mailbox.put_many(messages)
        if kept < len(messages):
            room = max(0, EXCESS_MAX - len(self._excess))
            self._excess.extend(messages[kept : kept + room])
            self._drop_excess(len(messages) - kept - room)
        if not self._mailbox.room:
            self._blocks_receiving = True

    def _drop_excess(self, count: int) -> None:
        if count > 0:
            self._discard(count)
            self._log.warn_once(
                ("excess", self.pattern),
                "messages to %r are dropped: this program publishes them without reading them",
                self.pattern,
            )

    def _take(self, count_max: int) -> list[Message]:
        """Up to that many messages, oldest first."""
        taken = self._mailbox.take_many(count_max)
        while self._excess and self._mailbox.room:
            self._mailbox.put_many((self._excess.popleft(),))
        return taken

    def _lets_go(self) -> bool:
        """Whether messages were just taken that the receive loop was waiting for."""
        if self._blocks_receiving and self.pending <= self._mailbox.maxsize // 2:
            self._blocks_receiving = False
            return True
        return False

    def _end(self) -> None:
        """No more messages; the pending ones are dropped."""
        self._is_closed = True
        self._blocks_receiving = False
        self._discard(self._mailbox.clear() + len(self._excess))
        self._excess.clear()

    def _discard(self, count: int) -> None:
        self._discarded += count
        self._discards.add(count)

    def _converted(self, message: Message) -> Message | None:
        """The message with its value as the type asked for; None, warned of once, if it is not.

        What another node sends never raises here: the next message may be right. The message is
        a new one, since other subscriptions have the same.
        """
        assert self._convert is not None
        try:
            value = self._convert(message.value)
        except PayloadError as error:
            self._log.warn_once(
                ("type", self.pattern),
                "messages to %r of node %s are dropped, they have the wrong type: %s",
                message.topic,
                message.node,
                error,
            )
            return None
        return make_message(message.topic, value, message.sequence, message.origin)


def _make_converter(as_type: Any) -> Callable[[Any], Any]:
    # Here, since most programs ask for no type, and need not wait for its reader at their start.
    from jsonbus.core.values.typed import make_converter

    return make_converter(as_type)
