"""Reads datagrams whenever the event loop finds some.

Up to DRAIN_MAX datagrams are read per wake-up, until they have brought MESSAGES_MAX messages; the
messages of each are put into mailboxes before the next is read. Handlers run in separate tasks
(workers.py), never here. So readers and handlers get a little of a flood in each turn, while it is
still in the processor's cache, and long before mailboxes are full.

Before the node acts on a control datagram, or on a timer that is late, it reads the datagrams that
wait: in a busy event loop they may be many, and the answer may be among them already.

A full mailbox with overflow "block" *blocks* receiving: nothing is read, so the kernel's buffer
fills, then drops and counts; timers, heartbeats and sending go on. The mailbox calls `wake` when it
is half empty.
"""

from __future__ import annotations

import asyncio
import socket
from time import monotonic
from typing import TYPE_CHECKING

from jsonbus.aio.subscription import Subscription
from jsonbus.core.message import Message
from jsonbus.errors import TransportError
from jsonbus.frontend.limits import DRAIN_MAX, LULL_S, READ_ON_MAX, TROUBLE_PAUSE_S

if TYPE_CHECKING:
    from jsonbus.aio.loop import Loop

Deliveries = list[tuple[Subscription, list[Message]]]


#: Messages put into mailboxes per turn, by whole datagrams: two, if those are full of small values
#: on loopback. With many hundreds alive at once, each takes fresh memory, and a mailbox of the
#: usual size would overflow before its reader had its turn.
MESSAGES_MAX = 128

#: How long it reads on before the node acts; everything else in the event loop waits meanwhile.
READ_ON_S = 0.02


class Receiving:
    """The readers of the transport's sockets."""

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self._node = loop.node
        self._transport = loop.transport
        self._event_loop = loop.event_loop
        self._log = loop.log
        self._drain_max = 1  # datagrams to try for at the next wake-up
        self._read_at = 0.0
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
        """Listen again if nothing blocks receiving any more."""
        if not self._blocked_by or self._is_stopped:
            return
        self._blocked_by = {each for each in self._blocked_by if each.blocks_receiving}
        if not self._blocked_by:
            self._listen()
            self._loop.hear_again(monotonic() - self._blocked_at)

    def stop(self) -> None:
        self._is_stopped = True
        if self._pause is not None:
            self._pause.cancel()
        self._stop_listening()

    def deliver(self, deliveries: Deliveries) -> bool:
        """Put received messages into mailboxes; False if one of them blocks receiving."""
        full = [each for each, messages in deliveries if not each.deliver(messages)]
        if not full:
            return True
        if not self._blocked_by:
            self._blocked_at = monotonic()
            self._stop_listening()
        self._blocked_by.update(full)
        return False

    def read_waiting(self) -> None:
        """Read what the node should know before it acts."""
        if not self._blocked_by and not self._is_stopped and self._pause is None:
            for sock in self._transport.sockets():
                self._try_to_read(sock, READ_ON_MAX)

    def _drain(self, sock: socket.socket) -> None:
        """Read what the kernel has; stop early when a mailbox blocks receiving.

        Tries for few more datagrams than came last time, and for one only if it had to be waited
        for: a useless try costs a small message.
        """
        if monotonic() - self._read_at > LULL_S:
            self._drain_max = 1
        brought = self._try_to_read(sock, self._drain_max)
        # Messages of known nodes move no timer and cause no output.
        if self._node.take_attention():
            if not brought:
                self.read_waiting()
            self._loop.tend()

    def _try_to_read(self, sock: socket.socket, tries: int) -> int:
        try:
            return self._read(sock, tries)
        except TransportError as error:
            self._log.warn_once(("receive", str(error)), "%s", error)
            self._rest()
        except Exception:
            self._log.fail("receiving failed, and goes on: this is a bug")
            self._rest()
        return 0

    def _read(self, sock: socket.socket, tries: int) -> int:
        """Return how many messages came."""
        take, receive = self._node.receive, self._transport.receive
        own_addresses = self._transport.own_addresses
        brought = 0
        now = monotonic()
        until = now + READ_ON_S
        for _ in range(tries):
            received = receive(sock)
            if received is None:
                self._drain_max = 1
                return brought
            datagrams, sender = received
            if sender in own_addresses:
                continue  # multicast returns what this node sent
            # Sinks are subscriptions.
            deliveries: Deliveries = take(datagrams, sender, now)  # type: ignore[assignment]
            self._read_at = now = monotonic()
            if not deliveries:
                if now >= until:
                    return brought
                continue
            brought += sum([len(messages) for _, messages in deliveries])
            if not self.deliver(deliveries) or brought >= MESSAGES_MAX:
                return brought
        self._drain_max = min(DRAIN_MAX, 4 * self._drain_max)
        return brought

    def _rest(self) -> None:
        """Stop listening for a moment."""
        if not self._blocked_by:
            self._stop_listening()
            self._pause = self._event_loop.call_later(TROUBLE_PAUSE_S, self._listen)

    def _listen(self) -> None:
        self._pause = None
        if not self._is_stopped and not self._blocked_by:
            for sock in self._transport.sockets():
                self._event_loop.add_reader(sock, self._drain, sock)

    def _stop_listening(self) -> None:
        for sock in self._transport.sockets():
            self._event_loop.remove_reader(sock)
