"""The waker that wakes the receive thread."""

from __future__ import annotations

import select
import socket

from jsonbus.sync.waker import Waker


def is_readable(sock: socket.socket) -> bool:
    return bool(select.select([sock], [], [], 0)[0])


def test_a_wake_keeps_the_thread_awake_until_it_is_cleared() -> None:
    waker = Waker()
    assert not is_readable(waker.socket)
    waker.wake()
    assert is_readable(waker.socket)
    waker.clear()
    assert not is_readable(waker.socket)
    waker.wake()
    assert is_readable(waker.socket)
    waker.close()


def test_waking_never_fills_the_socket() -> None:
    waker = Waker()
    for _ in range(100_000):
        waker.wake()
    assert len(waker.socket.recv(1000)) == 1
    waker.close()


def test_clearing_without_a_wake_and_waking_after_close_do_nothing() -> None:
    waker = Waker()
    waker.clear()
    waker.close()
    waker.wake()
