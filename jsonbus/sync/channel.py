"""A channel to another node, with threads: calls that wait, and handlers that the thread pool runs.

All waiting threads share the condition `_changed`: receivers wait for messages, senders for room,
`connect` and `close` for the other node. ChannelIO notifies it under the channel's lock.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from time import monotonic
from typing import TYPE_CHECKING, Any

from jsonbus.core.channel.end import CLOSED, OPEN
from jsonbus.core.channel.limits import OUTPUT_BYTES_MAX
from jsonbus.errors import ChannelClosedError
from jsonbus.frontend.channels.channel import CLOSE_S, BaseChannel
from jsonbus.frontend.channels.connection import DIRECT_BYTES_MAX, Connection
from jsonbus.frontend.checks import check_optional_seconds, check_seconds
from jsonbus.frontend.limits import BATCH_MAX
from jsonbus.sync.direct_receive import CAN_POLL, Poller

if TYPE_CHECKING:
    from jsonbus.sync.channels import Channels


class Channel(BaseChannel):
    """Messages to and from one other node: in order, none lost while both nodes are there.

    Returned by `Bus.connect`, or by a binding. All methods may be called from any thread, handlers
    included. Several threads may receive; each message goes to one of them.

        with bus.connect("printer", "jobs") as channel:
            channel.send({"file": "a.pdf"})
            print(channel.receive(timeout=10))
    """

    #: Handlers always run in a worker; a channel has no fast path like a quick subscription's.
    is_quick = False

    def __init__(self, port: str, who: str, lock: threading.Lock, channels: Channels) -> None:
        super().__init__(port, who, lock, channels)
        self._changed = threading.Condition(lock)
        self._receivers = 0  # threads that wait for messages, or for its state
        self._senders = 0  # threads that wait for room
        self._will_wait = channels.loop.workers.will_wait  # to be called before waiting
        self._pollers = channels.pollers
        self._can_poll = CAN_POLL
        self._poller: Poller | None = None  # of the thread that reads the connection directly

    def send(self, value: Any, timeout: float | None = None) -> None:
        """Send a message: bytes as they are, any other value as JSON.

        Waits, at most `timeout` seconds, while the other node does not take earlier messages; then
        raises ChannelTimeoutError, and nothing of the message was sent. A message that was sent
        arrives unless the connection is lost; `close` returns whether all did.

        Raises PayloadError, MessageTooLargeError, ChannelClosedError; and ChannelRefusedError on a
        channel that could not be opened.
        """
        timeout_s = check_optional_seconds("timeout", timeout)
        self._check_here()
        item = self._encode(value)
        with self.lock:
            end = self._end
            if end is None or end.state != OPEN or not end.has_room:
                self._wait_for_room(timeout_s)
            self._put(item)

    def receive(self, timeout: float | None = None) -> Any:
        """Return the next message; wait for it at most `timeout` seconds.

        Raises ChannelTimeoutError; ChannelClosedError once no message waits and none can arrive;
        MessageTooLargeError in place of a message that was too large: the next call continues
        after it. Raises LocalError if the channel has a handler for messages.
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

    def close(self, timeout: float = CLOSE_S) -> bool:
        """Send no more and receive no more; messages already sent are delivered.

        Waits at most `timeout` seconds for the other node to confirm that it has read everything,
        and returns whether it did. False means: not yet, and delivery goes on while the bus is
        open; or the connection was lost; or the other node closed first. A second call waits again.
        """
        timeout_s = check_seconds("timeout", timeout)
        if self._manager.is_cut_off:
            return False
        deadline = monotonic() + timeout_s
        self._will_wait()
        self.begin_close()
        with self.lock:
            self._wait(lambda: self.state == CLOSED, deadline)
            return self._end is not None and self._end.is_confirmed

    def __enter__(self) -> Channel:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self.close()
        else:
            self.abort()  # the other node must not believe it has got everything

    # What follows is for Channels, the manager and the workers.

    def wait_until_open(self) -> None:
        """Wait until it is open; raise the error if it could not be opened."""
        self._will_wait()
        with self.lock:
            self._wait(lambda: self._end is not None or self._has_ended(), None)
            if self._end is None:
                raise self._closed_error()

    def notify(self) -> None:
        end = self._end
        if self._poller is not None and (end is None or end.state != OPEN or end.inbox):
            self._poller.wake()
        if self._receivers or (
            self._senders
            and (end is None or end.state != OPEN or end.output_bytes <= OUTPUT_BYTES_MAX // 2)
        ):
            self._changed.notify_all()

    def run_handler(self, batch: None = None) -> bool:
        """Run handlers that are due; return whether more are. Called by one worker at a time."""
        for _ in range(BATCH_MAX):
            call = self._next_handler_call()
            if call is None:
                return False
            event, handler, argument = call
            try:
                handler(argument)
            except BaseException:
                # SystemExit too: it would end the thread, and with it every other handler.
                self._fail_handler(event)
        return True

    def wait_until_handled(self, deadline: float) -> None:
        """Wait until the handlers that are due have run."""
        with self.lock:
            self._wait(lambda: not self._is_scheduled, deadline)

    def _wait_for_room(self, timeout_s: float | None) -> None:
        """Wait. Lock held, and released while waiting."""
        deadline = None if timeout_s is None else monotonic() + timeout_s
        self._will_wait()
        while not self._may_send():
            if self._wait_once(deadline, for_room=True):
                continue
            raise self._timeout_error("there was no room for another message", timeout_s)

    def _wait_for_message(self, timeout_s: float | None) -> Any:
        """Wait. Lock held, and released while waiting."""
        deadline = None if timeout_s is None else monotonic() + timeout_s
        self._will_wait()
        while True:
            item = self._take()
            if item is not None:
                return item
            if self._is_unreadable():
                raise self._closed_error()
            self._check_here()
            connection = self._connection
            may_poll = self._can_poll and self._poller is None
            if (
                connection is not None
                and connection.is_read_directly
                and may_poll
                and connection.may_be_read_directly
            ):
                is_in_time = self._poll(connection, deadline)
            else:
                if (
                    connection is not None
                    and self._can_poll
                    and not (connection.is_read_directly or self._handlers)
                ):
                    connection.is_direct_read_wanted = True
                    self._manager.request(connection)
                is_in_time = self._wait_once(deadline)
            if not is_in_time:
                raise self._timeout_error("no message came", timeout_s)

    def _poll(self, connection: Connection, deadline: float | None) -> bool:
        """Wait once, by reading the connection in this thread. Return False if the time is over."""
        timeout_s = None if deadline is None else deadline - monotonic()
        if timeout_s is not None and timeout_s <= 0:
            return False
        poller = self._pollers.take()
        if poller is None:
            self._can_poll = False
            connection.polled_at = -math.inf  # ChannelIO takes it back
            self._manager.request(connection)
            return True
        self._poller = poller
        connection.pollers += 1
        self.lock.release()
        try:
            poller.wait(connection.tcp.sock.fileno(), timeout_s)
        finally:
            self.lock.acquire()
            self._poller = None
            connection.pollers -= 1
            connection.polled_at = monotonic()
            if connection.is_read_directly:
                connection.read_directly(poller.buffer)
                end = connection.end
                if end.state != OPEN or end.output_bytes or end.partial_bytes >= DIRECT_BYTES_MAX:
                    self._manager.request(connection)
            elif connection.is_dropped and not connection.pollers:
                connection.tcp.close()
            self._pollers.give_back(poller)
            if self._receivers:
                self._changed.notify_all()  # one of them goes on polling
        return True

    def _wait(self, condition: Callable[[], bool], deadline: float | None) -> bool:
        """Return whether the condition came true in time. Lock held, and released while waiting."""
        while not condition():
            if not self._wait_once(deadline):
                return condition()
        return True

    def _wait_once(self, deadline: float | None, *, for_room: bool = False) -> bool:
        """Wait until something has changed; return False if the time is over."""
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
