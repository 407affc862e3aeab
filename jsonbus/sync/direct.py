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
it is told by its bell.
"""

from __future__ import annotations

import contextlib
import os
import select
import threading

from jsonbus.sync.bell import Bell

#: What a receiver reads at once.
READ_BYTES = 64 << 10


#: Where there is no such call (Windows), nothing is lent.
CAN_WAIT = hasattr(select, "poll")


class Seat:
    """What a thread needs to wait by itself."""

    def __init__(self) -> None:
        """Raises OSError."""
        self._bell = Bell()
        self.buffer = memoryview(bytearray(READ_BYTES))

    def wait(self, descriptor: int, timeout_s: float | None) -> None:
        """Until there is something to read, the bell rings, or the time is over."""
        poll = select.poll()
        bell = self._bell.socket.fileno()
        poll.register(descriptor, select.POLLIN)
        poll.register(bell, select.POLLIN)
        # Rounded up: a time that is not quite over would be waited for in vain, again and again.
        for ready, _ in poll.poll(None if timeout_s is None else int(timeout_s * 1000) + 1):
            if ready == bell:
                self._bell.answer()

    def ring(self) -> None:
        """Have the thread look around. Any thread."""
        self._bell.ring()

    def __del__(self) -> None:
        if hasattr(self, "_bell"):  # there may have been no descriptors for it
            self._bell.close()


class _Here(threading.local):
    seat: Seat | None = None


_here = _Here()


def take_seat() -> Seat | None:
    """The calling thread's own; made when it first waits, and gone with the thread.

    None if the system has no descriptors left: then it has to wait for the operator.
    """
    if _here.seat is None and CAN_WAIT:
        with contextlib.suppress(OSError):
            _here.seat = Seat()
    return _here.seat


def _leave_seat() -> None:
    """This is a forked child: the bell of the thread that forked is its parent's."""
    _here.seat = None


if hasattr(os, "register_at_fork"):  # not on Windows, which has no fork
    os.register_at_fork(after_in_child=_leave_seat)
