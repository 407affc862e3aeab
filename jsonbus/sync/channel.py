"""A channel to another node, with threads: calls that wait, and handlers that the thread pool runs.

`_changed` is the condition that all wait on: receivers for messages, senders for room, whoever
opens or closes for the other side. The operator notifies it under the channel's lock.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from time import monotonic
from types import TracebackType
from typing import Any, TypeVar

from jsonbus.core.channel.end import CLOSED, OPEN, OPENING
from jsonbus.core.channel.limits import OUTPUT_BYTES_MAX
from jsonbus.errors import ChannelClosedError, ChannelError, ChannelTimeoutError
from jsonbus.frontend.channels.channel import (
    ACCEPT,
    CLOSE,
    MESSAGE,
    REFUSED,
    BaseChannel,
    Handler,
)
from jsonbus.frontend.channels.connection import LENT_BYTES_MAX, Line
from jsonbus.frontend.channels.manager import Exchange
from jsonbus.frontend.checks import check_handler, check_optional_seconds, check_seconds
from jsonbus.frontend.limits import BATCH_MAX
from jsonbus.frontend.log import BusLog
from jsonbus.sync.direct_receive import CAN_WAIT, Seat, Seats

H = TypeVar("H", bound=Handler)

#: How long `close` waits for the other side to confirm, unless told.
CLOSE_S = 1.0


class Channel(BaseChannel):
    """Messages to and from one other node, in order, none lost while both are there.

    Made by `Bus.connect`, or given by a binding. All methods may be called from any thread,
    handlers included; a message goes to one receiver.
    """

    #: Handlers are run by workers, which are woken for it.
    is_quick = False

    def __init__(
        self,
        port: str,
        who: str,
        exchange: Exchange,
        log: BusLog,
        lock: threading.Lock,
        *,
        schedule: Callable[[Channel], None],
        will_wait: Callable[[], None],
        seats: Seats,
        bus: object,
    ) -> None:
        super().__init__(port, who, exchange, log, lock)
        self._changed = threading.Condition(lock)
        self._receivers = 0  # threads that wait for messages, or for its state
        self._seats = seats
        self._can_poll = CAN_WAIT
        self._poller: Seat | None = None  # the thread that reads a line that is lent
        self._senders = 0  # threads that wait for room
        self._schedule = schedule
        self._will_wait = will_wait  # to be called before waiting
        self._bus = bus  # kept alive: a channel is of use only as long as its bus is open

    def send(self, value: Any, timeout: float | None = None) -> None:
        """Send a message: bytes as they are, any other value as JSON.

        Waits, at most `timeout` seconds, while the other side does not take what was sent before;
        then raises ChannelTimeoutError, and nothing of the message was sent. One that was sent
        arrives unless the connection is lost; `close` tells whether it did.

        Raises PayloadError, MessageTooLargeError, ChannelClosedError, and ChannelRefusedError on a
        channel that never opened.
        """
        timeout_s = check_optional_seconds("timeout", timeout)
        self._check_here()
        item = self._encode(value)
        with self.lock:
            end = self._end
            if end is None or end.state != OPEN or not end.has_room:
                self._wait_for_room(timeout_s)
            self._put(item)

    def try_send(self, value: Any) -> bool:
        """`send`, or False where that would wait."""
        self._check_here()
        item = self._encode(value)
        with self.lock:
            if self.state != OPENING:
                self._check_open()
            if self._end is None or not self._end.has_room:
                return False
            self._put(item)
            return True

    def receive(self, timeout: float | None = None) -> Any:
        """The next message; waits for one, at most `timeout` seconds.

        Raises ChannelTimeoutError; ChannelClosedError once there is none left and none will come;
        MessageTooLargeError in the place of one that was, and the next call goes on behind it.
        """
        timeout_s = check_optional_seconds("timeout", timeout)
        self._check_here()
        with self.lock:
            self._check_unhandled()
            item = self._take()
            if item is None:
                item = self._wait_for_message(timeout_s)
        return self._read(item)

    def __iter__(self) -> Channel:
        return self

    def __next__(self) -> Any:
        try:
            return self.receive()
        except ChannelClosedError as error:
            if error.is_lost:
                raise
            raise StopIteration from None

    def on_message(self, handler: H) -> H:
        """Have the handler called with each message, instead of receiving them.

        Those that have come already are first. It runs as handlers of subscriptions do, for one
        message after the other; what it raises is logged. While it does not keep up, the other
        side has to wait. Also a decorator, as the three below.
        """
        return self._add_handler(MESSAGE, handler)

    def on_closed(self, handler: H) -> H:
        """Have the handler called, with a ChannelClosedError, behind the last message."""
        return self._add_handler(CLOSE, handler)

    def on_accept(self, handler: H) -> H:
        """Have the handler called, with this channel, when it is open."""
        return self._add_handler(ACCEPT, handler)

    def on_refused(self, handler: H) -> H:
        """Have the handler called, with the error, if it is not going to open."""
        return self._add_handler(REFUSED, handler)

    def close(self, timeout: float = CLOSE_S) -> bool:
        """Send no more and receive no more; what was sent before is delivered.

        Waits, at most `timeout` seconds, for the other side to confirm that: then it is True. Else
        it has not yet, and delivery goes on while the bus is open; or the connection was lost, or
        the other side closed first. A second call waits again.
        """
        timeout_s = check_seconds("timeout", timeout)
        if self._exchange.is_cut_off:
            return False
        deadline = monotonic() + timeout_s
        self._will_wait()
        with self.lock:
            self._begin_close(monotonic())
        self.rouse()  # there may be no message left before the end
        with self.lock:
            self._wait(lambda: self.state == CLOSED, deadline)
            return self._end is not None and self._end.is_confirmed

    def __enter__(self) -> Channel:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if kind is None:
            self.close()
        else:
            self.abort()  # the other side must not take it for all that was to come

    # What follows is for the bus, the exchange and the workers.

    def wait_until_open(self) -> None:
        """Wait for the attempt to end; raises what it failed with."""
        self._will_wait()
        with self.lock:
            self._wait(lambda: self._end is not None or self._has_ended(), None)
            if self._end is None:
                raise self._closed_error()

    def changed(self) -> None:
        end = self._end
        if self._poller is not None and (end is None or end.state != OPEN or end.inbox):
            self._poller.ring()
        if self._receivers or (
            self._senders
            and (end is None or end.state != OPEN or end.output_bytes <= OUTPUT_BYTES_MAX // 2)
        ):
            self._changed.notify_all()

    def run_handler(self, batch: None = None) -> bool:
        """Run handlers that are due; True if there are more. Only by the thread it is with."""
        for _ in range(BATCH_MAX):
            with self.lock:
                duty = self._next_duty()
                if duty is None:
                    self.changed()
                    return False
            kind, handler, argument = duty
            if kind == MESSAGE:
                try:
                    argument = self._read(argument)
                except ChannelError as error:  # the other side's failure, not the handler's
                    self._log.warn_once(("unreadable", self.node), "%s", error)
                    continue
            try:
                handler(argument)
            except BaseException:
                # SystemExit too: it would end the thread, and with it every other handler.
                self._log.fail("%s of the channel to %r failed", kind, self.name)
                if kind == ACCEPT:
                    self.close(0.0)
        return True

    def wait_until_handled(self, deadline: float) -> None:
        """Wait for handlers that are due to have run."""
        with self.lock:
            self._wait(lambda: not self._is_scheduled, deadline)

    def _add_handler(self, kind: str, handler: H) -> H:
        check_handler(handler, may_be_async=False)
        self.handle(kind, handler)
        return handler

    def _schedule_handlers(self) -> None:
        self._schedule(self)

    def _wait_for_room(self, timeout_s: float | None) -> None:
        """Lock held, and released while waiting."""
        deadline = None if timeout_s is None else monotonic() + timeout_s
        self._will_wait()
        while not self._may_send():
            if self._wait_once(deadline, for_room=True):
                continue
            assert timeout_s is not None
            raise ChannelTimeoutError(
                self.name, self._port, "there was no room for another message", timeout_s
            )

    def _may_send(self) -> bool:
        """Raises if nothing will ever be sent."""
        if self.state != OPENING:
            self._check_open()
        return self._end is not None and self._end.has_room

    def _wait_for_message(self, timeout_s: float | None) -> Any:
        """Lock held, and released while waiting."""
        deadline = None if timeout_s is None else monotonic() + timeout_s
        self._will_wait()
        while True:
            item = self._take()
            if item is not None:
                return item
            if self._is_unreadable():
                raise self._closed_error()
            self._check_here()
            line = self._line
            may_poll = self._can_poll and self._poller is None
            if line is not None and line.is_lent and may_poll and line.may_be_lent:
                is_in_time = self._poll(line, deadline)
            else:
                if line is not None and self._can_poll and not (line.is_lent or self._handlers):
                    line.is_wanted = True
                    self._exchange.request(line)
                is_in_time = self._wait_once(deadline)
            if not is_in_time:
                assert timeout_s is not None
                raise ChannelTimeoutError(self.name, self._port, "no message came", timeout_s)

    def _poll(self, line: Line, deadline: float | None) -> bool:
        """Wait once by reading the connection here. False if the time is over."""
        timeout_s = None if deadline is None else deadline - monotonic()
        if timeout_s is not None and timeout_s <= 0:
            return False
        seat = self._seats.take()
        if seat is None:
            self._can_poll = False
            line.polled_at = -math.inf  # the operator takes it back
            self._exchange.request(line)
            return True
        self._poller = seat
        line.pollers += 1
        self.lock.release()
        try:
            seat.wait(line.tcp.sock.fileno(), timeout_s)
        finally:
            self.lock.acquire()
            self._poller = None
            line.pollers -= 1
            line.polled_at = monotonic()
            if line.is_lent:
                line.read_lent(seat.buffer)
                end = line.end
                if end.state != OPEN or end.output_bytes or end.partial_bytes >= LENT_BYTES_MAX:
                    self._exchange.request(line)
            elif line.is_dropped and not line.pollers:
                line.tcp.close()
            self._seats.give_back(seat)
            if self._receivers:
                self._changed.notify_all()  # one of them goes on polling
        return True

    def _wait(self, condition: Callable[[], bool], deadline: float | None) -> bool:
        """Whether the condition came true in time. Lock held, and released while waiting."""
        while not condition():
            if not self._wait_once(deadline):
                return condition()
        return True

    def _wait_once(self, deadline: float | None, *, for_room: bool = False) -> bool:
        """Until something has changed; False if the time is over."""
        timeout_s = None if deadline is None else deadline - monotonic()
        if timeout_s is not None and timeout_s <= 0:
            return False
        self._senders += for_room
        self._receivers += not for_room
        try:
            self._changed.wait(timeout_s)
        finally:
            self._senders -= for_room
            self._receivers -= not for_room
        return True
