"""Simulated TCP: bytes arrive in order, in pieces of any size, or not yet.

A connection is two sockets and two pipes, one per direction. Written bytes wait in their pipe until
they arrive: after a delay, cut at random places, a few or many at a time. A pipe holds a bounded
number of bytes, including those that have arrived and are not read: the writer for a slow reader
finds it full, and room becomes free with the delay of a packet.

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
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from jsonbus.sim.clock import Clock, Handler
from jsonbus.sim.network import Network

#: Pauses between retransmissions. Kernels go on doubling for minutes; then a mended link would be
#: silent for as long again as it was cut, and little could be said about silence.
AGAIN_MIN_S = 0.2
AGAIN_MAX_S = 1.6

#: What a pipe holds, at random: kernels begin with some 64 KiB and may go to megabytes.
PIPE_BYTES = (8 << 10, 64 << 10, 256 << 10)
PIECE_BYTES_MAX = 64 << 10
TINY_SHARE = 0.1  # fraction of pieces with only a few bytes

#: When connecting to a host without power fails, because nobody answers ARP.
UNREACHABLE_S = 3.0

FIRST_PORT = 40_000


@dataclass(eq=False, repr=False)
class Pipe:
    """One direction of a connection."""

    _tcp: Tcp
    writer: Socket
    reader: Socket
    room: int  # bytes, without those in transit, arrived, or just read
    arrived: bytearray = field(default_factory=bytearray)
    is_ended: bool = False  # the writer has closed it; what was sent is still in transit
    has_end: bool = False  # the end has arrived, too
    is_stopped: bool = False  # nothing moves any more
    _sent: deque[tuple[float, bytes]] = field(default_factory=deque)  # and when
    _read: int = 0  # bytes that were read, which the writer does not know yet
    _is_moving: bool = False
    _pause_s: float = AGAIN_MIN_S

    def put(self, data: bytes) -> None:
        self.room -= len(data)
        self._sent.append((self._tcp.clock.now, data))
        self._set_off()

    def end(self) -> None:
        if not self.is_ended:
            self.is_ended = True
            self._set_off()

    def stop(self) -> None:
        self.is_stopped = True
        self._sent.clear()

    def take(self, size: int) -> bytes:
        data = bytes(self.arrived[:size])
        del self.arrived[:size]
        if not self._read:
            self._tcp.carry(self.reader.host, self.writer.host, self._make_room)
        self._read += len(data)
        return data

    def _make_room(self, _: None) -> None:
        self.room += self._read
        self._read = 0
        self.writer.notify()

    def _set_off(self) -> None:
        if not self._is_moving and not self.is_stopped:
            self._is_moving = True
            self._go_on(self._tcp.draw_delay_s())

    def _go_on(self, delay_s: float) -> None:
        self._tcp.clock.call_at(self._tcp.clock.now + delay_s, self._move)

    def _move(self, _: None) -> None:
        """Let a piece arrive, if it can."""
        tcp = self._tcp
        if self.is_stopped or (not self._sent and self.has_end == self.is_ended):
            self._is_moving = False
        elif not tcp.passes(self.writer.host, self.reader.host):
            self._go_on(self._pause_s)
            self._pause_s = min(2 * self._pause_s, AGAIN_MAX_S)
        elif self.reader.is_closed:
            tcp.send_reset(self.writer, self.reader.host)
            self._go_on(self._pause_s)
        else:
            self._pause_s = AGAIN_MIN_S
            self._arrive(tcp.draw_piece_bytes())
            self._go_on(tcp.draw_delay_s())
            self.reader.notify()

    def _arrive(self, size: int) -> None:
        sent, before = self._sent, self._tcp.clock.now - self._tcp.network.options.delay_min_s
        while size and sent and sent[0][0] <= before:
            at, data = sent.popleft()
            if len(data) > size:
                sent.appendleft((at, data[size:]))
                data = data[:size]
            self.arrived += data
            size -= len(data)
        if not sent and self.is_ended:
            self.has_end = True


class Socket:
    """One side of a connection; its owner sets `on_ready`, which is called after any change."""

    incoming: Pipe
    outgoing: Pipe
    peer: Socket

    def __init__(self, tcp: Tcp, host: int) -> None:
        self._tcp = tcp
        self.host = host
        self.is_closed = False
        self.is_reset = False
        self.on_ready: Callable[[], None] | None = None
        #: The user of the socket; to find the other side of something.
        self.owner: Any = None

    def read(self, size: int) -> bytes | None:
        """Return what has arrived; None if nothing has, b"" at the end.

        Raises ConnectionResetError.
        """
        assert not self.is_closed
        if self.incoming.arrived:
            return self.incoming.take(size)
        self._check_reset()
        return b"" if self.incoming.has_end else None

    def write(self, data: bytes | memoryview) -> int:
        """Return how many of the bytes found room. Raises ConnectionResetError."""
        assert not self.is_closed
        self._check_reset()
        size = min(len(data), self.outgoing.room)
        if size:
            self.outgoing.put(bytes(data[:size]))
        return size

    def close(self) -> None:
        """Close after what was written; but unread bytes reset the connection."""
        if self.is_closed:
            return
        self.is_closed = True
        if self.is_reset:
            self.outgoing.stop()
        elif self.incoming.arrived:
            self.outgoing.stop()
            self._tcp.send_reset(self.peer, self.host)
        else:
            self.outgoing.end()
        self._tcp.forget(self)

    def reset(self, _: None = None) -> None:
        """Handle a reset by the other host."""
        if self.is_reset:
            return
        self.is_reset = True
        self.outgoing.stop()
        self.incoming.stop()
        if self._tcp.rng.random() < 0.5:
            self.incoming.arrived.clear()
        self.notify()

    def vanish(self) -> None:
        """Vanish: its host has lost power."""
        self.is_closed = True
        self.outgoing.stop()
        self._tcp.forget(self)

    def notify(self) -> None:
        if self.on_ready is not None and not self.is_closed:
            self.on_ready()

    def _check_reset(self) -> None:
        if self.is_reset:
            raise ConnectionResetError("the connection was reset")


@dataclass(slots=True, eq=False)
class Dialing:
    """A connection being made; `done` is called with the socket or the error."""

    host: int
    to: int
    port: int
    at: float
    done: Callable[[Socket | None, str], None]


class Tcp:
    """The TCP of all hosts."""

    def __init__(self, clock: Clock, network: Network, rng: random.Random) -> None:
        self.clock = clock
        self.network = network
        self.rng = rng
        # Dictionaries, because sets have no order, and the same seed must give the same run.
        self._sockets: dict[Socket, None] = {}  # sockets that somebody holds
        self._unaccepted: dict[Socket, None] = {}
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

    def cancel(self, dialing: Dialing) -> None:
        """Stop connecting, if that is still under way."""
        self._dialings.pop(dialing, None)

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
        return len(self._sockets) + len(self._dialings)

    # --- What packets do ---

    def draw_delay_s(self) -> float:
        options = self.network.options
        return options.delay_min_s + self.rng.random() * (options.delay_max_s - options.delay_min_s)

    def draw_piece_bytes(self) -> int:
        return self.rng.randint(1, 8 if self.rng.random() < TINY_SHARE else PIECE_BYTES_MAX)

    def passes(self, sender: int, receiver: int) -> bool:
        return self.network.is_open(sender, receiver) and receiver not in self._failed

    def carry(self, sender: int, receiver: int, handler: Handler, argument: Any = None) -> None:
        """Call `handler(argument)` when a packet has arrived, however often it must be sent."""
        packet = (sender, receiver, handler, argument, AGAIN_MIN_S)
        self.clock.call_at(self.clock.now + self.draw_delay_s(), self._carry, packet)

    def _carry(self, packet: tuple[int, int, Handler, Any, float]) -> None:
        sender, receiver, handler, argument, pause_s = packet
        if isinstance(argument, Dialing) and argument not in self._dialings:
            return  # it was canceled
        if self.passes(sender, receiver):
            handler(argument)
        elif self._is_sent_again(sender, receiver, argument):
            again = (sender, receiver, handler, argument, min(2 * pause_s, AGAIN_MAX_S))
            self.clock.call_at(self.clock.now + pause_s, self._carry, again)

    def send_reset(self, socket: Socket, sender: int) -> None:
        """Tell a socket that its peer is closed; once, if that arrives."""
        if self.passes(sender, socket.host):
            self.clock.call_at(self.clock.now + self.draw_delay_s(), socket.reset)

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
        near.outgoing = far.incoming = Pipe(self, near, far, self.rng.choice(PIPE_BYTES))
        far.outgoing = near.incoming = Pipe(self, far, near, self.rng.choice(PIPE_BYTES))
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
            socket.notify()  # the first bytes may have been faster
        elif not socket.is_closed:
            socket.is_reset = True  # so that nothing more is sent
            self.send_reset(socket.peer, socket.host)
            socket.close()

    def _finish(self, dialing: Dialing, socket: Socket | None, why: str) -> None:
        del self._dialings[dialing]
        dialing.done(socket, why)

    def _drop_listeners(self, host: int) -> None:
        for place in [place for place in self._listeners if place[0] == host]:
            del self._listeners[place]
        for dialing in [each for each in self._dialings if each.host == host]:
            del self._dialings[dialing]

    def _of(self, host: int) -> list[Socket]:
        return [s for s in (*self._sockets, *self._unaccepted) if s.host == host]
