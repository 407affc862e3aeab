"""Datagrams in, whenever the event loop finds some.

Up to DRAIN_MAX datagrams are read per wake-up, until they have brought MESSAGES_MAX messages; what
each brought is put into mailboxes before the next is read. Handlers run in tasks of their own
(workers.py), never here. Of a flood, readers and handlers thus get a little in each turn, while it
is still in the processor's cache, and long before mailboxes are full.

A full mailbox with overflow "block" *holds up* the bus: it stops reading, so the kernel's buffer
fills, then drops and counts; timers, heartbeats and sending go on. The mailbox calls `wake` when it
is half empty.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from time import monotonic

from jsonbus.aio.subscription import Subscription
from jsonbus.core.message import Message
from jsonbus.errors import TransportError
from jsonbus.frontend.limits import DRAIN_MAX, TROUBLE_PAUSE_S
from jsonbus.frontend.log import BusLog
from jsonbus.transport.base import Sender, Transport

Deliveries = list[tuple[Subscription, list[Message]]]


#: Messages brought to mailboxes per turn, by whole datagrams: two, if those are full of small
#: values on loopback. With many hundreds alive at once, each takes fresh memory, and a mailbox of
#: the usual size would overflow before its reader had its turn.
MESSAGES_MAX = 128


class Receiving:
    """The readers of the transport's sockets.

    `take` gives a datagram to the node and returns what it brought for subscriptions; `tend` does
    what has its time, after every wake-up; `hear_again` is told for how long the bus was held up.
    """

    def __init__(
        self,
        transport: Transport,
        event_loop: asyncio.AbstractEventLoop,
        log: BusLog,
        *,
        take: Callable[[bytes, Sender], Deliveries],
        tend: Callable[[], None],
        hear_again: Callable[[float], None],
    ) -> None:
        self._transport = transport
        self._event_loop = event_loop
        self._log = log
        self._take = take
        self._tend = tend
        self._hear_again = hear_again
        self._drain_max = 1  # datagrams to try for at the next wake-up
        self._blocked_by: set[Subscription] = set()
        self._blocked_at = 0.0
        self._pause: asyncio.TimerHandle | None = None
        self._is_stopped = False

    def start(self) -> None:
        """Raises TransportError, with the transport closed, if the event loop cannot do it."""
        try:
            self._listen()
        except NotImplementedError as error:
            self._transport.close()
            raise TransportError(
                "this event loop cannot watch sockets: on Windows, use asyncio.SelectorEventLoop"
            ) from error

    def wake(self) -> None:
        """Listen again if nobody holds up any more."""
        if not self._blocked_by or self._is_stopped:
            return
        self._blocked_by = {each for each in self._blocked_by if each.blocks_receiving}
        if not self._blocked_by:
            self._listen()
            self._hear_again(monotonic() - self._blocked_at)

    def stop(self) -> None:
        self._is_stopped = True
        if self._pause is not None:
            self._pause.cancel()
        self._stop_listening()

    def deliver(self, deliveries: Deliveries) -> bool:
        """Put received messages into mailboxes; False if one of them holds up."""
        full = [each for each, messages in deliveries if not each.deliver(messages)]
        if not full:
            return True
        if not self._blocked_by:
            self._blocked_at = monotonic()
            self._stop_listening()
        self._blocked_by.update(full)
        return False

    def _drain(self, sock: socket.socket) -> None:
        """Read what the kernel has; stop early when a subscription holds up."""
        try:
            self._read(sock)
        except TransportError as error:
            self._log.warn_once(("receive", str(error)), "%s", error)
            self._rest()
        except Exception:
            self._log.fail("receiving failed, and goes on: this is a bug")
            self._rest()
        self._tend()

    def _read(self, sock: socket.socket) -> None:
        """Not more than before, though: to try once too often costs as much as a small message."""
        take, receive = self._take, self._transport.receive
        own_addresses = self._transport.own_addresses
        brought = 0
        for _ in range(self._drain_max):
            received = receive(sock)
            if received is None:
                self._drain_max = 1
                return
            if received[1] in own_addresses:
                continue  # multicast brings back what this node sent
            deliveries = take(*received)
            if not deliveries:
                continue
            if not self.deliver(deliveries):
                return
            brought += sum([len(messages) for _, messages in deliveries])
            if brought >= MESSAGES_MAX:
                return
        self._drain_max = min(DRAIN_MAX, 4 * self._drain_max)

    def _rest(self) -> None:
        """Do not listen for a moment."""
        if not self._blocked_by:
            self._stop_listening()
            self._pause = self._event_loop.call_later(TROUBLE_PAUSE_S, self._listen)

    def _listen(self) -> None:
        if not self._is_stopped and not self._blocked_by:
            for sock in self._transport.sockets():
                self._event_loop.add_reader(sock, self._drain, sock)

    def _stop_listening(self) -> None:
        for sock in self._transport.sockets():
            self._event_loop.remove_reader(sock)
