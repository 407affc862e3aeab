"""The part of a channel that is the same with threads and tasks: state, handlers, messages.

No waiting here. `lock` guards everything below; a method with a leading underscore is called with
it held, unless it says otherwise. In an event loop nobody contends for it.

**Handlers.** What happened is not queued as events: what is there, and what was told already, says
what a handler is due for. In this order: that the channel is open or was refused, each message, and
that it is closed. So none is told before its time, handlers may be given late, and nothing has to
be bounded but the messages, which are.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from time import monotonic
from typing import TYPE_CHECKING, Any

from jsonbus.core.channel.end import CLOSED, CLOSING, OPEN, OPENING, ChannelEnd
from jsonbus.core.channel.wire import BYTES, JSON, SKIPPED, FrameItem
from jsonbus.core.wire import codec
from jsonbus.errors import (
    ChannelClosedError,
    ChannelError,
    ClosedError,
    LocalError,
    MessageTooLargeError,
)
from jsonbus.frontend.lifetime import forked_error
from jsonbus.frontend.log import BusLog

if TYPE_CHECKING:
    from jsonbus.frontend.channels.connection import Line
    from jsonbus.frontend.channels.manager import Exchange

Handler = Callable[[Any], Any]

#: What a handler may be for.
ACCEPT, REFUSED, MESSAGE, CLOSE = "on_accept", "on_refused", "on_message", "on_closed"

#: What is sent as it is.
BINARY = (bytes, bytearray, memoryview)


class BaseChannel(ABC):
    """A channel to another node; the base of `Channel` in both front ends."""

    def __init__(
        self, port: str, who: str, exchange: Exchange, log: BusLog, lock: threading.Lock
    ) -> None:
        self.lock = lock
        self._port = port
        self._who = who  # until the other has said what it is called
        self._exchange = exchange
        self._log = log
        self._line: Line | None = None
        self._end: ChannelEnd | None = None
        self._failure: ChannelError | None = None  # why it never opened
        self._is_given_up = False  # closed before it opened
        self._handlers: dict[str, Handler] = {}
        self._told: set[str] = set()
        self._is_scheduled = False

    # --- Looking --------------------------------------------------------------------------------

    @property
    def node(self) -> str:
        """The id of the node at the other end; what was connected to, until it has answered."""
        return self._end.node if self._end is not None else self._who

    @property
    def name(self) -> str:
        """What people call that node."""
        return self._end.name if self._end is not None else self._who

    @property
    def port(self) -> str:
        """What it was bound or connected to."""
        return self._port

    @property
    def state(self) -> str:
        """opening, open, closing or closed."""
        if self._end is not None:
            return self._end.state
        return CLOSED if self._failure is not None or self._is_given_up else OPENING

    @property
    def is_closed(self) -> bool:
        """Whether nothing can be sent any more; what came before can still be received."""
        return self.state in (CLOSING, CLOSED)

    @property
    def pending(self) -> int:
        """How many messages came and were not received yet."""
        return len(self._end.inbox) if self._end is not None else 0

    @property
    def sent(self) -> int:
        """How many messages were sent."""
        return self._end.sent if self._end is not None else 0

    @property
    def received(self) -> int:
        """How many messages came, whether or not they were received here."""
        return self._end.received if self._end is not None else 0

    def __repr__(self) -> str:
        return f"<{type(self).__name__} to {self.name} ({self._port!r}) {self.state}>"

    # --- Handlers -------------------------------------------------------------------------------

    def handle(self, kind: str, handler: Handler) -> None:
        """Have the handler called for that. Lock not held."""
        self._check_here()
        with self.lock:
            if kind in self._handlers:
                raise LocalError(f"this channel has a handler for {kind} already")
            self._handlers[kind] = handler
            if self._line is not None and self._line.is_lent:
                self._exchange.request(self._line)  # handlers are told of what the operator reads
            is_due = self._is_due()
        if is_due:
            self._schedule_handlers()

    @property
    def has_handlers(self) -> bool:
        return bool(self._handlers)

    @abstractmethod
    def _schedule_handlers(self) -> None:
        """Have `run_handler` called, after `_is_due`. Lock not held."""

    def _is_due(self) -> bool:
        """Whether somebody has to see to the handlers; then nobody else has to."""
        if self._is_scheduled or not self._handlers or not self._has_duty():
            return False
        self._is_scheduled = True
        self._exchange.busy.add(self)
        return True

    def _rest(self) -> None:
        """Nobody sees to the handlers any more."""
        self._is_scheduled = False
        self._exchange.busy.discard(self)

    def _has_duty(self) -> bool:
        handlers, told = self._handlers, self._told
        if self._exchange.is_cut_off:
            return False
        if REFUSED in handlers and self._failure is not None and REFUSED not in told:
            return True
        end = self._end
        if end is None:
            return False
        if ACCEPT in handlers and ACCEPT not in told:
            return True
        if MESSAGE in handlers and end.inbox:
            return True
        return CLOSE in handlers and CLOSE not in told and self._has_ended()

    def _next_duty(self) -> tuple[str, Handler, Any] | None:
        """The handler to call next, and with what; a message is still to be read."""
        if not self._has_duty():
            self._rest()
            return None
        handlers, told = self._handlers, self._told
        if self._end is None:
            told.add(REFUSED)
            return REFUSED, handlers[REFUSED], self._failure
        if ACCEPT in handlers and ACCEPT not in told:
            told.add(ACCEPT)
            return ACCEPT, handlers[ACCEPT], self
        if MESSAGE in handlers and self._end.inbox:
            return MESSAGE, handlers[MESSAGE], self._take()
        told.add(CLOSE)
        return CLOSE, handlers[CLOSE], self._closed_error()

    def _has_ended(self) -> bool:
        """Whether no message will come any more, and none waits."""
        end = self._end
        if end is None:
            return self._failure is not None or self._is_given_up
        return not end.inbox and (
            end.state == CLOSED or (end.state == CLOSING and end.is_peer_closed)
        )

    def _is_unreadable(self) -> bool:
        """Whether nothing can be received any more: it has ended, or was closed here."""
        return self._has_ended() or (self._end is not None and self._end.is_closed_here)

    # --- Messages -------------------------------------------------------------------------------

    def _take(self) -> FrameItem | None:
        """The next message, as it came; None if there is none now."""
        end, line = self._end, self._line
        if end is None:
            return None
        item = end.take()
        # Perhaps it may be read again, or another one that waits for memory. Not if nothing was
        # taken: who waits for a message would be woken by that, and come here again.
        if item is not None and line is not None:
            is_unread = not (line.interest[0] or line.is_lent)
            if is_unread or self._exchange.is_short:
                self._exchange.request(line)
        return item

    def _read(self, item: FrameItem) -> Any:
        """The value of a message. Lock not held: JSON may take a while.

        Raises MessageTooLargeError in the place of one that was; ChannelClosedError if it is no
        JSON, which closes the channel.
        """
        kind, body = item
        if kind == BYTES:
            return body
        if kind == SKIPPED:
            raise MessageTooLargeError(self.name, self._port, int(body), self._exchange.bytes_max)
        try:
            return codec.loads(body)
        except ValueError as error:
            self._fail(f"{self.name} sent a message that is no JSON ({error})")
            raise self._closed_error() from None

    def _encode(self, value: Any) -> FrameItem:
        """Lock not held. Raises PayloadError, MessageTooLargeError."""
        if isinstance(value, BINARY):
            kind, body = BYTES, bytes(value)
        else:
            kind, body = JSON, codec.dumps(value)
        limit = self._end.send_bytes_max if self._end is not None else self._exchange.bytes_max
        if len(body) > limit:
            raise MessageTooLargeError(self.name, self._port, len(body), limit)
        return kind, body

    def _put(self, item: FrameItem) -> None:
        """Send a message, for which there is room, on an open channel."""
        end = self._end
        assert end is not None and self._line is not None
        size = len(item[1])
        if size > end.send_bytes_max:  # which was not known yet when it was encoded
            raise MessageTooLargeError(self.name, self._port, size, end.send_bytes_max)
        try:
            end.send(*item)
            self._flush()
        except BaseException:
            self._fail_amid_output()
            raise

    def _flush(self) -> None:
        line = self._line
        if line is not None and self._end is not None:
            line.flush()
            if (self._end.output_bytes and not line.interest[1]) or self._end.state != OPEN:
                self._exchange.request(line)

    def _fail_amid_output(self) -> None:
        """KeyboardInterrupt, between any two steps: what the kernel took is not known any more.

        To go on could say some bytes twice, and the other side would take them for anything.
        """
        if self._end is not None and self._line is not None:
            self._end.fail("it was interrupted while sending")
            self._exchange.request(self._line)

    def _fail(self, reason: str) -> None:
        """The other side does what it must not. Lock not held."""
        with self.lock:
            if self._end is not None:
                self._end.fail(reason)
                if self._line is not None:
                    self._exchange.request(self._line)

    # --- Opening and closing --------------------------------------------------------------------

    def abort(self) -> None:
        """End it at once and without a goodbye: the other side finds it lost.

        For who fails: `close` tells the other side that all is well. What was sent and has not
        arrived may be lost, what came and was not received is. Does not wait.
        """
        if self._exchange.is_cut_off:
            return
        self._check_here()
        with self.lock:
            if self._end is not None:
                self._end.fail("it was given up here")
            self._begin_close(monotonic())  # nothing is left to be closed but what has come

    def _begin_close(self, now: float) -> None:
        """Say goodbye, if that was not said."""
        if self._end is None:
            self._is_given_up = True
            self._exchange.abandon(self)
            return
        if self._line is not None and self._line.is_dropped and self._end.inbox:
            self._exchange.note_discarded(len(self._end.inbox))
        try:
            self._end.close(now)
            self._flush()
        except BaseException:
            self._fail_amid_output()
            raise

    def _check_open(self) -> None:
        """Raise unless a message may be sent."""
        self._check_here()
        if self._end is None or self._end.state != OPEN:
            raise self._closed_error()

    def _check_here(self) -> None:
        """Raise if this is a forked child, in which nobody may ever give the lock back."""
        if self._exchange.is_cut_off:
            raise forked_error()

    def _check_unhandled(self) -> None:
        if MESSAGE in self._handlers:
            raise LocalError("this channel has a handler for its messages: they are not received")

    def _closed_error(self) -> ChannelError | ClosedError:
        """Why nothing more is sent or received; a new one, as each has its own traceback."""
        if self._failure is not None:
            return type(self._failure)(*self._failure.args)
        end = self._end
        if end is None:
            return ChannelClosedError(
                self._who, self._port, "it was closed here", is_closed_here=True
            )
        return ChannelClosedError(
            end.name,
            self._port,
            end.reason,
            is_lost=end.is_lost,
            is_closed_here=end.is_closed_here,
        )

    # What follows is for the exchange, and takes the lock itself unless it says otherwise.

    def opened(self, line: Line) -> None:
        """The other side has said welcome, or was told. Lock held."""
        self._line, self._end = line, line.end
        if self._is_given_up:  # while the welcome was on its way
            line.end.close(monotonic())
        self.changed()

    def failed(self, error: ChannelError) -> None:
        """There will be no channel."""
        with self.lock:
            self._failure = error
            self.changed()
        self.rouse()

    @abstractmethod
    def changed(self) -> None:
        """Messages came, there is room, or it is closing. Lock held; wakes whoever waits."""

    def rouse(self) -> None:
        """Have handlers run, if there is something for them and nobody sees to it yet."""
        if self._handlers:
            with self.lock:
                is_due = self._is_due()
            if is_due:
                self._schedule_handlers()
