"""Wakes a thread that sleeps in a selector."""

from __future__ import annotations

import contextlib
import socket


class Bell:
    """One byte in a socket pair, at most: rings between two answers are one."""

    def __init__(self) -> None:
        self.socket, self._rope = socket.socketpair()
        self.socket.setblocking(False)
        self._rope.setblocking(False)
        self._is_rung = False

    def ring(self) -> None:
        """Wake the sleeper, or keep it from falling asleep. Any thread, never waits."""
        if not self._is_rung:
            self._is_rung = True
            with contextlib.suppress(OSError):  # closed meanwhile: nobody sleeps any more
                self._rope.send(b"\0")

    def answer(self) -> None:
        """The sleeper is awake. It looks for the reason after this, so no ring is missed."""
        with contextlib.suppress(BlockingIOError):
            self.socket.recv(16)
        self._is_rung = False

    def close(self) -> None:
        self.socket.close()
        self._rope.close()
