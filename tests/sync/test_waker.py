"""The bell that wakes the receive thread."""

from __future__ import annotations

import select
import socket

from jsonbus.sync.waker import Bell


def is_readable(sock: socket.socket) -> bool:
    return bool(select.select([sock], [], [], 0)[0])


def test_a_bell_that_rang_keeps_its_sleeper_awake_until_it_is_answered() -> None:
    bell = Bell()
    assert not is_readable(bell.socket)
    bell.ring()
    assert is_readable(bell.socket)
    bell.answer()
    assert not is_readable(bell.socket)
    bell.ring()
    assert is_readable(bell.socket)
    bell.close()


def test_ringing_never_fills_the_socket() -> None:
    bell = Bell()
    for _ in range(100_000):
        bell.ring()
    assert len(bell.socket.recv(1000)) == 1
    bell.close()


def test_a_bell_may_be_answered_unrung_and_rung_when_closed() -> None:
    bell = Bell()
    bell.answer()
    bell.close()
    bell.ring()
