"""The two ends of a simulated connection, and what lies between them; streams.py has the rules."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jsonbus.sim.channels.streams import Streams

#: Pauses between retransmissions. Kernels go on doubling for minutes; then a mended link would be
#: silent for as long again as it was cut, and little could be said about silence.
AGAIN_MIN_S = 0.2
AGAIN_MAX_S = 1.6


class Pipe:
    """One direction of a connection."""

    __slots__ = (
        "_capacity",
        "_held",
        "_is_moving",
        "_is_telling",
        "_pause_s",
        "_read",
        "_sent",
        "_streams",
        "arrived",
        "has_end",
        "is_ended",
        "is_stopped",
        "reader",
        "writer",
    )

    def __init__(self, streams: Streams, writer: Socket, reader: Socket, capacity: int) -> None:
        self.writer = writer
        self.reader = reader
        self.arrived = bytearray()
        self.is_ended = False  # the writer has closed it; what was sent is still in transit
        self.has_end = False  # the end has arrived, too
        self.is_stopped = False  # nothing moves any more
        self._streams = streams
        self._capacity = capacity
        self._held = 0  # of these, bytes are in transit, have arrived, or were just read
        self._sent: deque[tuple[float, bytes]] = deque()  # and when
        self._read = 0  # bytes that were read, which the writer does not know yet
        self._is_moving = False
        self._is_telling = False
        self._pause_s = AGAIN_MIN_S

    @property
    def room(self) -> int:
        return self._capacity - self._held

    @property
    def is_empty(self) -> bool:
        """True if everything has arrived."""
        return not self._sent and self.has_end == self.is_ended

    def put(self, data: bytes) -> None:
        self._held += len(data)
        self._sent.append((self._streams.clock.now, data))
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
        self._read += len(data)
        if not self._is_telling:
            self._is_telling = True
            self._streams.carry(self.reader.host, self.writer.host, self._make_room)
        return data

    def _make_room(self, _: None) -> None:
        self._is_telling = False
        self._held -= self._read
        self._read = 0
        self.writer.stir()

    def _set_off(self) -> None:
        if not self._is_moving and not self.is_stopped:
            self._is_moving = True
            self._go_on(self._streams.delay_s())

    def _go_on(self, delay_s: float) -> None:
        self._streams.clock.call_at(self._streams.clock.now + delay_s, self._move)

    def _move(self, _: None) -> None:
        """Let a piece arrive, if it can."""
        streams = self._streams
        if self.is_stopped or self.is_empty:
            self._is_moving = False
        elif not streams.passes(self.writer.host, self.reader.host):
            self._go_on(self._pause_s)
            self._pause_s = min(2 * self._pause_s, AGAIN_MAX_S)
        elif self.reader.is_closed:
            streams.answer_reset(self.writer, self.reader.host)
            self._go_on(self._pause_s)
        else:
            self._pause_s = AGAIN_MIN_S
            self._arrive(streams.piece_bytes())
            self._go_on(streams.delay_s())
            self.reader.stir()

    def _arrive(self, size: int) -> None:
        sent, before = self._sent, self._streams.clock.now - self._streams.delay_min_s
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
    """One side's end of a connection; its owner sets `on_ready`, which is called after any
    change.
    """

    __slots__ = (
        "_streams",
        "host",
        "incoming",
        "is_closed",
        "is_reset",
        "on_ready",
        "outgoing",
        "owner",
        "peer",
    )

    incoming: Pipe
    outgoing: Pipe
    peer: Socket

    def __init__(self, streams: Streams, host: int) -> None:
        self._streams = streams
        self.host = host
        self.is_closed = False
        self.is_reset = False
        self.on_ready: Callable[[], None] | None = None
        #: The user of the socket; to find the other side of something.
        self.owner: Any = None

    def read(self, size: int) -> bytes | None:
        """Return what has arrived; None if nothing has, b"" at the end. Raises
        ConnectionResetError.
        """
        assert not self.is_closed
        if self.incoming.arrived:
            return self.incoming.take(size)
        if self.is_reset:
            raise ConnectionResetError("the connection was reset")
        return b"" if self.incoming.has_end else None

    def write(self, data: bytes | memoryview) -> int:
        """Return how many of the bytes found room. Raises ConnectionResetError."""
        assert not self.is_closed
        if self.is_reset:
            raise ConnectionResetError("the connection was reset")
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
            self._streams.answer_reset(self.peer, self.host)
        else:
            self.outgoing.end()
        self._streams.forget(self)

    def reset(self, _: None = None) -> None:
        """Handle a reset by the other host."""
        if self.is_reset:
            return
        self.is_reset = True
        self.outgoing.stop()
        self.incoming.stop()
        if self._streams.toss() < 0.5:
            self.incoming.arrived.clear()
        self.stir()

    def vanish(self) -> None:
        """Vanish: its host has lost power."""
        self.is_closed = True
        self.outgoing.stop()
        self._streams.forget(self)

    def stir(self) -> None:
        if self.on_ready is not None and not self.is_closed:
            self.on_ready()
