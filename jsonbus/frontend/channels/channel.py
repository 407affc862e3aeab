"""A channel: the half that is the same with threads and tasks: state, handlers, messages.

No waiting here. `lock` guards everything below; methods with a leading underscore are called with
it held, unless they say otherwise. In an event loop nobody contends for it.

**Handlers.** Events are not queued. Which handler to call next follows from the state of the
channel and from what was reported before, in this order: that the channel opened or was refused,
each message, that it closed. So no handler is called too early, handlers may be added late, and
only the messages, which are bounded, take memory.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Any, TypeVar

from jsonbus.core.channel.end import CLOSED, CLOSING, OPEN, OPENING, ChannelEnd
from jsonbus.core.channel.wire import BYTES, JSON, SKIPPED, FrameItem
from jsonbus.core.wire import codec
from jsonbus.errors import (
    ChannelClosedError,
    ChannelError,
    ChannelTimeoutError,
    LocalError,
    MessageTooLargeError,
)

if TYPE_CHECKING:
    from jsonbus.frontend.channels.channels import BaseChannels
    from jsonbus.frontend.channels.connection import Connection

Handler = Callable[[Any], Any]
H = TypeVar("H", bound=Handler)

#: The events a handler may be for.
ACCEPT, REFUSED, MESSAGE, CLOSE = "on_accept", "on_refused", "on_message", "on_closed"

#: How long `close` waits for the other node to confirm, by default.
CLOSE_S = 1.0

#: Why a channel fails if KeyboardInterrupt, say, left it unknown how many bytes the kernel took: to
#: go on could send some bytes twice.
INTERRUPTED = "it was interrupted while sending"

#: Types that are sent as bytes.
BINARY = (bytes, bytearray, memoryview)


class BaseChannel(ABC):
    """A channel to another node; the base of `Channel` in both front ends."""

    def __init__(
        self, port: str, who: str, lock: threading.Lock, channels: BaseChannels[Any, Any]
    ) -> None:
        self.lock = lock
        self._port = port
        self._who = who  # what was connected to, until the other node has said its name
        self._channels = channels  # which keep the bus alive
        self._manager = channels.manager
        self._log = channels.loop.log
        self._dumps = partial(codec.dumps, nan_as_null=channels.loop.config.nan_as_null)
        self._check_here = channels.loop.check_here  # raises in a wrong process, thread or loop
        self._connection: Connection | None = None
        self._end: ChannelEnd | None = None
        self._failure: ChannelError | None = None  # why it never opened
        self._is_given_up = False  # closed before it opened
        self._handlers: dict[str, Handler] = {}
        self._reported: set[str] = set()  # events whose handler was called
        self._is_scheduled = False

    # --- State ----------------------------------------------------------------------------------

    @property
    def node(self) -> str:
        """The id of the other node; until it has answered, the name or id given to `connect`."""
        return self._end.node if self._end is not None else self._who

    @property
    def name(self) -> str:
        """The name of the other node."""
        return self._end.name if self._end is not None else self._who

    @property
    def port(self) -> str:
        """The port it was opened to."""
        return self._port

    @property
    def state(self) -> str:
        """One of "opening", "open", "closing" and "closed"."""
        if self._end is not None:
            return self._end.state
        return CLOSED if self._failure is not None or self._is_given_up else OPENING

    @property
    def is_closed(self) -> bool:
        """Whether nothing can be sent any more. Messages that wait can still be received."""
        return self.state in (CLOSING, CLOSED)

    @property
    def pending(self) -> int:
        """How many messages have arrived and wait to be received."""
        return len(self._end.inbox) if self._end is not None else 0

    @property
    def sent(self) -> int:
        """How many messages were sent on this channel."""
        return self._end.sent if self._end is not None else 0

    @property
    def received(self) -> int:
        """How many messages have arrived, those that wait included."""
        return self._end.received if self._end is not None else 0

    def __repr__(self) -> str:
        return f"<{type(self).__name__} to {self.name} ({self._port!r}) {self.state}>"

    # --- Handlers -------------------------------------------------------------------------------

    def on_message(self, handler: H) -> H:
        """Call the handler with each message, instead of `receive`. Usable as a decorator.

        Messages that have arrived already come first. Handlers of channels run in the workers of
        the bus, like those of subscriptions, and for one message at a time; an exception is logged.
        While the handler does not keep up, the other node has to wait. Raises LocalError if the
        channel has such a handler.
        """
        return self.handle(MESSAGE, handler)

    def on_closed(self, handler: H) -> H:
        """Call the handler with a ChannelClosedError after the last message. A decorator, too."""
        return self.handle(CLOSE, handler)

    def on_accept(self, handler: H) -> H:
        """Call the handler with this channel once it is open. A decorator, too."""
        return self.handle(ACCEPT, handler)

    def on_refused(self, handler: H) -> H:
        """Call the handler with the error if the channel cannot be opened. A decorator, too."""
        return self.handle(REFUSED, handler)

    def handle(self, event: str, handler: H) -> H:
        """Set the handler of one kind of event. Lock not held."""
        self._channels.loop.prepare_handler(handler)
        with self.lock:
            if event in self._handlers:
                raise LocalError(f"this channel has a handler for {event} already")
            self._handlers[event] = handler
            if self._connection is not None and self._connection.is_read_directly:
                # Handlers run for what ChannelIO reads, so it has to take over.
                self._manager.request(self._connection)
        self.wake_handlers()
        return handler

    @property
    def has_handlers(self) -> bool:
        return bool(self._handlers)

    def wake_handlers(self) -> None:
        """Have a worker run handlers if one is due and no worker does yet. Lock not held."""
        if self._handlers:
            with self.lock:
                if self._is_scheduled or self._due_event() is None:
                    return
                self._is_scheduled = True
                self._manager.busy.add(self)
            self._channels.loop.workers.schedule(self)

    def _release_handlers(self) -> None:
        """Note that no worker runs the handlers any more."""
        self._is_scheduled = False
        self._manager.busy.discard(self)

    def _due_event(self) -> str | None:
        """Return the event whose handler is to be called next."""
        handlers, reported, end = self._handlers, self._reported, self._end
        if self._manager.is_cut_off:
            return None
        if end is None:
            is_due = self._failure is not None and REFUSED in handlers and REFUSED not in reported
            return REFUSED if is_due else None
        if ACCEPT in handlers and ACCEPT not in reported:
            return ACCEPT
        if MESSAGE in handlers and end.inbox:
            return MESSAGE
        is_due = CLOSE in handlers and CLOSE not in reported and self._has_ended()
        return CLOSE if is_due else None

    def _next_handler_call(self) -> tuple[str, Handler, Any] | None:
        """Return event, handler and argument of the next call, if one is due. Lock not held."""
        while True:
            with self.lock:
                event = self._due_event()
                if event is None:
                    self._release_handlers()
                    self.notify()
                    return None
                handler, item = self._handlers[event], None
                if event == MESSAGE:
                    item = self._take()
                else:
                    self._reported.add(event)
            if item is not None:
                try:
                    return event, handler, self._read(item)
                except ChannelError as error:  # the other node's failure, not the handler's
                    self._log.warn_once(("unreadable", self.node), "%s", error)
            elif event == REFUSED:
                return event, handler, self._failure
            else:
                return event, handler, self if event == ACCEPT else self._closed_error()

    def _fail_handler(self, event: str) -> None:
        """Log that a handler failed. Lock not held."""
        self._log.fail("%s of the channel to %r failed", event, self.name)
        if event == ACCEPT:
            self.begin_close()

    def _has_ended(self) -> bool:
        """Return whether no message waits, and none can arrive."""
        end = self._end
        if end is None:
            return self._failure is not None or self._is_given_up
        return not end.inbox and (
            end.state == CLOSED or (end.state == CLOSING and end.is_peer_closed)
        )

    def _is_unreadable(self) -> bool:
        """Return whether nothing can be received: it has ended, or was closed here."""
        return self._has_ended() or (self._end is not None and self._end.is_closed_here)

    # --- Messages -------------------------------------------------------------------------------

    def _take(self) -> FrameItem | None:
        """Return the next message, not decoded; None if none waits."""
        end, connection = self._end, self._connection
        if end is None:
            return None
        item = end.take()
        # Now there may be memory to read on, here or on another connection. Not if nothing was
        # taken: asking would wake the thread that waits for a message, which comes back here.
        if item is not None and connection is not None:
            is_unread = not (connection.interest[0] or connection.is_read_directly)
            if is_unread or self._manager.budget.is_short:
                self._manager.request(connection)
        return item

    def _read(self, item: FrameItem) -> Any:
        """Decode a message. Lock not held: JSON may take a while.

        Raises MessageTooLargeError in place of a message that was too large; ChannelClosedError if
        it is not JSON, which closes the channel.
        """
        kind, body = item
        if kind == BYTES:
            return body
        if kind == SKIPPED:
            raise MessageTooLargeError(self.name, self._port, int(body), self._manager.bytes_max)
        try:
            return codec.loads(body)
        except ValueError as error:
            with self.lock:
                self._fail(f"{self.name} sent a message that is not JSON ({error})")
            raise self._closed_error() from None

    def _encode(self, value: Any) -> FrameItem:
        """Encode a message. Lock not held. Raises PayloadError, MessageTooLargeError."""
        is_binary = isinstance(value, BINARY)
        kind, body = (BYTES, bytes(value)) if is_binary else (JSON, self._dumps(value))
        limit = self._end.send_bytes_max if self._end is not None else self._manager.bytes_max
        if len(body) > limit:
            raise MessageTooLargeError(self.name, self._port, len(body), limit)
        return kind, body

    def try_send(self, value: Any) -> bool:
        """Send a message if that is possible without waiting; return whether it was sent.

        Raises what `send` raises, except ChannelTimeoutError.
        """
        self._check_here()
        item = self._encode(value)
        with self.lock:
            if not self._may_send():
                return False
            self._put(item)
            return True

    def _put(self, item: FrameItem) -> None:
        """Send a message on an open channel that has room for it."""
        end = self._end
        assert end is not None and self._connection is not None
        size = len(item[1])
        if size > end.send_bytes_max:  # the limit was not known yet when it was encoded
            raise MessageTooLargeError(self.name, self._port, size, end.send_bytes_max)
        try:
            end.send(*item)
            self._flush()
        except BaseException:
            self._fail(INTERRUPTED)
            raise

    def _flush(self) -> None:
        connection = self._connection
        if connection is not None and self._end is not None:
            connection.flush()
            if (self._end.output_bytes and not connection.interest[1]) or self._end.state != OPEN:
                self._manager.request(connection)

    def _fail(self, reason: str) -> None:
        if self._end is not None and self._connection is not None:
            self._end.fail(reason)
            self._manager.request(self._connection)

    # --- Opening and closing --------------------------------------------------------------------

    def abort(self) -> None:
        """End the channel at once, so that the other node finds it lost. Does not wait.

        Use it when something failed: after `close`, the other node believes it has got everything.
        Messages that are on their way may be lost; messages that wait here are dropped.
        """
        if self._manager.is_cut_off:
            return
        self._check_here()
        with self.lock:
            if self._end is not None:
                self._end.fail("it was given up here")
            self._begin_close(monotonic())  # only messages that have arrived are left

    def begin_close(self) -> None:
        """Close it without waiting for the other node. Lock not held."""
        with self.lock:
            self._begin_close(monotonic())
        self.wake_handlers()  # on_closed may be due

    def _begin_close(self, now: float) -> None:
        """Send the goodbye, unless it was sent before."""
        if self._end is None:
            self._is_given_up = True
            self._manager.post(lambda: self._manager.connector.abandon(self))
            return
        if self._connection is not None and self._connection.is_dropped and self._end.inbox:
            discarded = len(self._end.inbox)
            self._manager.post(lambda: self._manager.counters.add_discarded(discarded))
        try:
            self._end.close(now)
            self._flush()
        except BaseException:
            self._fail(INTERRUPTED)
            raise

    def _may_send(self) -> bool:
        """Return whether there is room for a message; raise if there never will be."""
        if self.is_closed:
            raise self._closed_error()
        return self._end is not None and self._end.has_room

    def _check_unhandled(self) -> None:
        if MESSAGE in self._handlers:
            raise LocalError("this channel has a handler for its messages: they cannot be received")

    def _closed_error(self) -> ChannelError:
        """Return why the channel is closed; a new error, since each gets its own traceback."""
        if self._failure is not None:
            return type(self._failure)(*self._failure.args)
        end = self._end
        if end is None:
            reason = "it was closed here"
            return ChannelClosedError(self._who, self._port, reason, is_closed_here=True)
        here, lost = end.is_closed_here, end.is_lost
        return ChannelClosedError(
            end.name, self._port, end.reason, is_lost=lost, is_closed_here=here
        )

    def _timeout_error(self, what: str, timeout_s: float | None) -> ChannelTimeoutError:
        return ChannelTimeoutError(self.name, self._port, what, timeout_s or 0.0)

    # What follows is for the manager. It takes the lock itself unless it says otherwise.

    def opened(self, connection: Connection) -> None:
        """Start the channel: this node or the other has said welcome. Lock held."""
        self._connection, self._end = connection, connection.end
        if self._is_given_up:  # while the welcome was on its way
            connection.end.close(monotonic())
        self.notify()

    def failed(self, error: ChannelError) -> None:
        """End the channel before it opened."""
        with self.lock:
            self._failure = error
            self.notify()
        self.wake_handlers()

    @abstractmethod
    def notify(self) -> None:
        """Wake waiting callers: for messages, for room, or for a change of state. Lock held."""
