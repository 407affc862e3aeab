"""Receiving without a detour: a thread that waits for a message reads the connection itself.

Theory of operation. Usually the operator reads every connection, and wakes the thread that waits
for what came. Waking a thread costs more than all else that is done for a small message, so a
channel on which somebody waits in `receive` is *lent* to its receivers: the operator no longer
watches it for reading, and whoever waits polls the connection. When nobody has done so for LENT_S,
the channel is closing, or a large message comes, for which memory has to be asked, the operator
takes it back (frontend/exchange.py).

Whether a line is lent changes in the operator alone, under the channel's lock, and a lent line is
read under that lock: so nobody else reads at the same time. One thread polls, others wait for it as
for the operator. What it has to look at besides the connection, such as a close by another thread,
it is told by its waker.
"""

from __future__ import annotations

import contextlib
import select

from jsonbus.sync.waker import Waker

#: What a receiver reads at once.
READ_BYTES = 256 << 10


#: Where there is no such call (Windows), nothing is lent.
CAN_WAIT = hasattr(select, "poll")


class Seat:
    """What a thread needs to wait by itself."""

    def __init__(self) -> None:
        self._waker = Waker()
        self.buffer = memoryview(bytearray(READ_BYTES))

    def wait(self, descriptor: int, timeout_s: float | None) -> None:
        """Until there is something to read, the waker rings, or the time is over."""
        poll = select.poll()
        waker = self._waker.socket.fileno()
        poll.register(descriptor, select.POLLIN)
        poll.register(waker, select.POLLIN)
        # Rounded up: a time that is not quite over would be waited for in vain, again and again.
        for ready, _ in poll.poll(None if timeout_s is None else int(timeout_s * 1000) + 1):
            if ready == waker:
                self._waker.clear()

    def ring(self) -> None:
        """Have the thread look around. Any thread."""
        self._waker.wake()

    def close(self) -> None:
        self._waker.close()


class Seats:
    """Those of one bus: as many as threads have waited at once. Any thread."""

    def __init__(self) -> None:
        self._free: list[Seat] = []  # given and taken by single operations, whole among threads
        self._is_closed = False

    def take(self) -> Seat | None:
        """One that nobody uses; None if there is none and the system has no descriptors left."""
        try:
            return self._free.pop()
        except IndexError:
            pass
        try:
            return Seat()
        except OSError:
            return None

    def give_back(self, seat: Seat) -> None:
        self._free.append(seat)
        if self._is_closed:
            self.close()

    def close(self) -> None:
        """Release the descriptors; of a seat that is taken, when it is given back."""
        self._is_closed = True
        with contextlib.suppress(IndexError):  # another thread may do the same
            while True:
                self._free.pop().close()
