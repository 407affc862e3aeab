"""Wakes a thread that waits in `select`: the self-pipe trick."""

from __future__ import annotations

import contextlib
import socket


class Waker:
    """A socket pair that holds at most one byte: several wakes before a `clear` count as one."""

    def __init__(self) -> None:
        #: The end to wait for in `select`; readable after `wake`.
        self.socket, self._sender = socket.socketpair()
        self.socket.setblocking(False)
        self._sender.setblocking(False)
        self._is_awake = False

    def wake(self) -> None:
        """Wake the thread, or keep its next wait from blocking. Any thread; never blocks."""
        if not self._is_awake:
            self._is_awake = True
            with contextlib.suppress(OSError):  # closed meanwhile: no thread waits any more
                self._sender.send(b"\0")

    def clear(self) -> None:
        """Take the byte out. Look for work only after this, so that no wake is missed."""
        with contextlib.suppress(BlockingIOError):
            self.socket.recv(16)
        self._is_awake = False

    def close(self) -> None:
        """Close both ends. A later `wake` does nothing."""
        self.socket.close()
        self._sender.close()
