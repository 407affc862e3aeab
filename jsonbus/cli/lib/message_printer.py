"""Prints the messages of a subscription to standard output.

Workers of the bus put messages into a small inbox, and the main thread prints them, because Ctrl-C
interrupts the main thread even while it waits for a full pipe. When the inbox is full, the workers
wait and the mailbox of the subscription fills up; that is bounded, too, and counts what it drops.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Sequence
from time import localtime, monotonic, strftime

import jsonbus

from .. import signals
from ..command import note
from .output import Output
from .values import message_to_json, printable, to_json

#: Messages queued by a subscription while the output is slow: a burst of a few MB.
MAILBOX_MESSAGES_MAX = 10_000

#: Messages between the workers and the main thread.
INBOX_MESSAGES_MAX = 1_000


class Inbox:
    """Messages on the way from the workers to the main thread."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._messages: deque[jsonbus.Message] = deque()
        self._is_closed = False

    def put(self, message: jsonbus.Message) -> None:
        """Add a message as soon as there is room; called by workers."""
        with self._changed:
            while len(self._messages) >= INBOX_MESSAGES_MAX and not self._is_closed:
                self._changed.wait()
            self._messages.append(message)
            self._changed.notify_all()

    def take(self, timeout_s: float) -> list[jsonbus.Message]:
        """Return all messages; waits for the first one."""
        with self._changed:
            self._changed.wait_for(lambda: self._messages, timeout_s)
            taken = list(self._messages)
            self._messages.clear()
            self._changed.notify_all()
            return taken

    def close(self) -> None:
        """Release the workers: nothing is taken any more."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()


class MessagePrinter:
    """Prints the messages of patterns."""

    def __init__(
        self, bus: jsonbus.Bus, patterns: Sequence[str], output: Output, *, value_only: bool = False
    ) -> None:
        self.printed = 0
        self._bus = bus
        self._output = output
        self._value_only = value_only
        self._inbox = Inbox()
        self._subscription = bus.subscribe(patterns, self._inbox.put, maxsize=MAILBOX_MESSAGES_MAX)

    def run(self, count: int | None = None, timeout_s: float | None = None) -> None:
        """Print until there were `count` messages, time is up, or the reader has gone."""
        deadline = None if timeout_s is None else monotonic() + timeout_s
        try:
            while count is None or self.printed < count:
                wait_s = signals.CHECK_S
                if deadline is not None:
                    wait_s = min(wait_s, deadline - monotonic())
                messages = self._inbox.take(max(wait_s, 0.0))
                signals.check()
                if count is not None:
                    messages = messages[: count - self.printed]
                for message in messages:
                    self._output.write_line(self._line(message))
                self._output.flush()
                self.printed += len(messages)
                if wait_s <= 0 or not self._output.has_reader():
                    return
        except KeyboardInterrupt:
            self._output.let_go()
            raise
        finally:
            self._inbox.close()
            self._report_losses()

    def _line(self, message: jsonbus.Message) -> str:
        if not self._output.is_terminal:
            return to_json(message.value) if self._value_only else message_to_json(message)
        value = printable(to_json(message.value))
        if self._value_only:
            return value
        style = self._output.style
        clock = strftime("%H:%M:%S", localtime(message.received_at))
        milliseconds = int(message.received_at % 1 * 1000)
        line = (
            f"{style(f'{clock}.{milliseconds:03d}', '2')} {style(printable(message.topic), '36')} "
            f"{value} {style(printable(message.name), '2')}"
        )
        return f"{line} {style('(retained)', '33')}" if message.retained else line

    def _report_losses(self) -> None:
        dropped = self._subscription.dropped
        if dropped:
            note(f"{dropped:,} messages were dropped: the output was slower than the bus")
        stats = self._bus.stats()
        if stats["messages_lost"]:
            note(f"{stats['messages_lost']:,} messages of other nodes were lost on the way")
        if stats["messages_given_up"]:
            note(
                f"{stats['messages_given_up']:,} messages of reliable topics could not be repaired"
            )
