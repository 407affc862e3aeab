"""Simulated TCP: bytes arrive in order, in pieces of any size, or not yet.

A connection is two pipes, one per direction. Written bytes wait in their pipe until they arrive:
after a delay, cut at random places, a few or many at a time. A pipe holds a bounded number of
bytes, including those that have arrived and are not read: the writer for a slow reader finds it
full, and room becomes free with the delay of a packet.

Bytes sent over a cut link (network.py) are sent again, after pauses that double, until the link is
whole: nothing is lost, everything is silent. The same applies to connecting. A host on which nobody
listens refuses at once; one without power does not answer, and connecting to it fails after a
while.

Closing a socket with unread bytes, or writing to one that was closed, resets the connection: bytes
that the other side has not read yet may be lost, at random, as with real kernels. When a process
ends, its kernel closes its sockets. When a host fails, its sockets stay; when it is back, it resets
connections that still send to it.

Hosts are numbers here, as receivers are in network.py. Resets are sent once, over links that happen
to be open, because nobody would send them again.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from jsonbus.sim.channels.sockets import AGAIN_MAX_S, AGAIN_MIN_S, Pipe, Socket
from jsonbus.sim.clock import Clock, Handler
from jsonbus.sim.network import Network

#: What a pipe holds, at random: kernels begin with some 64 KiB and may go to megabytes.
PIPE_BYTES = (8 << 10, 64 << 10, 256 << 10)
PIECE_BYTES_MAX = 64 << 10
TINY_SHARE = 0.1  # fraction of pieces with only a few bytes

#: When connecting to a host without power fails, because nobody answers ARP.
UNREACHABLE_S = 3.0

FIRST_PORT = 40_000


class Dialing:
    """A connection being made; ends when `done` is called, with the socket or the error."""

    __slots__ = ("at", "done", "host", "is_over", "port", "to")

    def __init__(
        self, host: int, to: int, port: int, at: float, done: Callable[[Socket | None, str], None]
    ) -> None:
        self.host = host
        self.to = to
        self.port = port
        self.at = at
        self.done = done
        self.is_over = False

    def cancel(self) -> None:
        self.is_over = True

    def finish(self, socket: Socket | None, why: str = "") -> None:
        if not self.is_over:
            self.is_over = True
            self.done(socket, why)


class Streams:
    """The TCP of all hosts."""

    def __init__(self, clock: Clock, network: Network, rng: random.Random) -> None:
        self.clock = clock
        # Dictionaries, because sets have no order, and the same seed must give the same run.
        self._sockets: dict[Socket, None] = {}  # sockets that somebody holds
        self._unaccepted: dict[Socket, None] = {}
        self._network = network
        self._rng = rng
        self._listeners: dict[tuple[int, int], Callable[[Socket], None]] = {}
        self._next_port = FIRST_PORT
        self._failed: set[int] = set()
        self._dialings: dict[Dialing, None] = {}

    # --- What processes do ---

    def listen(self, host: int, accept: Callable[[Socket], None]) -> int:
        """Accept connections, at a port that nobody ever had."""
        self._next_port += 1
        self._listeners[host, self._next_port] = accept
        return self._next_port

    def dial(
        self, host: int, to: int, port: int, done: Callable[[Socket | None, str], None]
    ) -> Dialing:
        """Connect; `done` is called later, unless that is canceled."""
        dialing = Dialing(host, to, port, self.clock.now, done)
        self._dialings[dialing] = None
        self.carry(host, to, self._arrive_dial, dialing)
        return dialing

    def end_process(self, host: int) -> None:
        """Close what the host's process has left open, as the kernel does."""
        self._drop_listeners(host)
        for socket in self._of(host):
            socket.close()

    def fail_host(self, host: int) -> None:
        """Switch a host off; nobody is told anything."""
        self._failed.add(host)
        self._drop_listeners(host)
        for socket in self._of(host):
            socket.vanish()

    def revive(self, host: int) -> None:
        self._failed.discard(host)

    def __len__(self) -> int:
        """Number of sockets that are held, and of connections being made."""
        return len(self._sockets) + sum(not dialing.is_over for dialing in self._dialings)

    # --- What packets do ---

    def toss(self) -> float:
        return self._rng.random()

    @property
    def delay_min_s(self) -> float:
        return self._network.options.delay_min_s

    def delay_s(self) -> float:
        options = self._network.options
        return options.delay_min_s + self.toss() * (options.delay_max_s - options.delay_min_s)

    def piece_bytes(self) -> int:
        return self._rng.randint(1, 8 if self.toss() < TINY_SHARE else PIECE_BYTES_MAX)

    def passes(self, sender: int, receiver: int) -> bool:
        return self._network.is_open(sender, receiver) and receiver not in self._failed

    def carry(self, sender: int, receiver: int, handler: Handler, argument: Any = None) -> None:
        """Call `handler(argument)` when a packet has arrived, however often it must be sent."""
        packet = (sender, receiver, handler, argument, AGAIN_MIN_S)
        self.clock.call_at(self.clock.now + self.delay_s(), self._carry, packet)

    def _carry(self, packet: tuple[int, int, Handler, Any, float]) -> None:
        sender, receiver, handler, argument, pause_s = packet
        if isinstance(argument, Dialing) and argument.is_over:
            self._dialings.pop(argument, None)
        elif self.passes(sender, receiver):
            handler(argument)
        elif self._is_sent_again(sender, receiver, argument):
            again = (sender, receiver, handler, argument, min(2 * pause_s, AGAIN_MAX_S))
            self.clock.call_at(self.clock.now + pause_s, self._carry, again)

    def answer_reset(self, socket: Socket, sender: int) -> None:
        """Tell a socket that its peer is closed; once, if that arrives."""
        if self.passes(sender, socket.host):
            self.clock.call_at(self.clock.now + self.delay_s(), socket.reset)

    def forget(self, socket: Socket) -> None:
        self._sockets.pop(socket, None)
        self._unaccepted.pop(socket, None)

    def _is_sent_again(self, sender: int, receiver: int, argument: Any) -> bool:
        if sender in self._failed:
            return False
        if receiver not in self._failed:
            return True
        if not isinstance(argument, Dialing):
            return False  # the recipient no longer exists
        if self.clock.now < argument.at + UNREACHABLE_S:
            return True
        self._finish(argument, None, "no route to host")
        return False

    def _arrive_dial(self, dialing: Dialing) -> None:
        is_heard = (dialing.to, dialing.port) in self._listeners
        answer = self._welcome if is_heard else self._refuse
        self.carry(dialing.to, dialing.host, answer, dialing)

    def _refuse(self, dialing: Dialing) -> None:
        self._finish(dialing, None, "connection refused")

    def _welcome(self, dialing: Dialing) -> None:
        """Tell the dialer that it is connected; the other side has to learn that, too."""
        near, far = Socket(self, dialing.host), Socket(self, dialing.to)
        near.peer, far.peer = far, near
        near.outgoing = far.incoming = Pipe(self, near, far, self._rng.choice(PIPE_BYTES))
        far.outgoing = near.incoming = Pipe(self, far, near, self._rng.choice(PIPE_BYTES))
        self._sockets[near] = None
        self._unaccepted[far] = None
        if dialing.to in self._failed:
            far.vanish()
        self.carry(dialing.host, dialing.to, self._accept, (dialing.port, far))
        self._finish(dialing, near, "")

    def _accept(self, accepted: tuple[int, Socket]) -> None:
        port, socket = accepted
        self._unaccepted.pop(socket, None)
        accept = self._listeners.get((socket.host, port))
        if accept is not None and not socket.is_closed:
            self._sockets[socket] = None
            accept(socket)
            socket.stir()  # the first bytes may have been faster
        elif not socket.is_closed:
            socket.is_reset = True  # so that nothing more is sent
            self.answer_reset(socket.peer, socket.host)
            socket.close()

    def _finish(self, dialing: Dialing, socket: Socket | None, why: str) -> None:
        self._dialings.pop(dialing, None)
        dialing.finish(socket, why)

    def _drop_listeners(self, host: int) -> None:
        for place in [place for place in self._listeners if place[0] == host]:
            del self._listeners[place]
        for dialing in [each for each in self._dialings if each.host == host]:
            dialing.cancel()
            self._dialings.pop(dialing, None)

    def _of(self, host: int) -> list[Socket]:
        return [s for s in (*self._sockets, *self._unaccepted) if s.host == host]
