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
from .values import gap_to_json, message_to_json, printable, to_json

#: What is printed: a message, or a gap in a reliable topic.
Printed = jsonbus.Message | jsonbus.GapEvent

#: Messages queued by a subscription while the output is slow: a burst of a few MB.
MAILBOX_MESSAGES_MAX = 10_000

#: Messages between the workers and the main thread.
INBOX_MESSAGES_MAX = 1_000


class Inbox:
    """Messages and gaps on the way from the workers to the main thread."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._messages: deque[Printed] = deque()
        self._is_closed = False

    def put(self, message: Printed) -> None:
        """Add a message or a gap as soon as there is room; called by workers."""
        with self._changed:
            while len(self._messages) >= INBOX_MESSAGES_MAX and not self._is_closed:
                self._changed.wait()
            self._messages.append(message)
            self._changed.notify_all()

    def take(self, timeout_s: float) -> list[Printed]:
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
        self,
        bus: jsonbus.Bus,
        patterns: Sequence[str],
        output: Output,
        *,
        value_only: bool = False,
        has_gaps: bool = False,
    ) -> None:
        #: Number of messages; gaps are not counted.
        self.printed = 0
        self._bus = bus
        self._output = output
        self._value_only = value_only
        self._inbox = Inbox()
        if has_gaps:
            bus.on_gap(self._inbox.put)
        self._subscription = bus.subscribe(patterns, self._inbox.put, maxsize=MAILBOX_MESSAGES_MAX)

    def run(self, count: int | None = None, timeout_s: float | None = None) -> None:
        """Print until there were `count` messages, time is up, or the reader has gone."""
        deadline = None if timeout_s is None else monotonic() + timeout_s
        try:
            while count is None or self.printed < count:
                wait_s = signals.CHECK_S
                if deadline is not None:
                    wait_s = min(wait_s, deadline - monotonic())
                taken = self._inbox.take(max(wait_s, 0.0))
                signals.check()
                for each in taken:
                    if isinstance(each, jsonbus.GapEvent):
                        self._output.write_line(self._gap_line(each))
                    elif count is None or self.printed < count:
                        self._output.write_line(self._line(each))
                        self.printed += 1
                self._output.flush()
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
        clock = style(_clock(message.received_at), "2")
        line = (
            f"{clock} {style(printable(message.topic), '36')} "
            f"{value} {style(printable(message.name), '2')}"
        )
        return f"{line} {style('(retained)', '33')}" if message.retained else line

    def _gap_line(self, gap: jsonbus.GapEvent) -> str:
        if not self._output.is_terminal:
            return gap_to_json(gap)
        style = self._output.style
        return (
            f"{style(_clock(gap.at), '2')} {style(printable(gap.topic), '36')} "
            f"{style(f'{gap.count:,} missing', '31')} {style(printable(gap.name), '2')}"
        )

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


def _clock(at: float) -> str:
    return f"{strftime('%H:%M:%S', localtime(at))}.{int(at % 1 * 1000):03d}"
