"""What the receive thread waits for: sockets, a time, other threads."""

from __future__ import annotations

import math
import socket
import threading
from collections.abc import Iterator
from time import monotonic

import pytest

from jsonbus.sync.waiter import EXACT_S, Waiter


@pytest.fixture
def waiter() -> Iterator[Waiter]:
    waiter = Waiter()
    yield waiter
    waiter.close()


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    near, far = socket.socketpair()
    with near, far:
        yield near, far


@pytest.mark.parametrize("wait_s", [EXACT_S / 2, 60.0, math.inf])
def test_a_socket_that_can_be_read_ends_a_wait_however_long(
    waiter: Waiter, pair: tuple[socket.socket, socket.socket], wait_s: float
) -> None:
    near, far = pair
    waiter.listen([near])
    far.send(b"x")
    assert waiter.wait(monotonic() + wait_s) == [near]
    near.recv(1)
    assert waiter.wait(monotonic() - 1) == []


@pytest.mark.parametrize("wait_s", [EXACT_S / 2, EXACT_S * 2])
def test_a_wait_ends_when_its_time_is_over_and_not_before(waiter: Waiter, wait_s: float) -> None:
    until = monotonic() + wait_s
    assert waiter.wait(until) == []
    assert monotonic() >= until


def test_another_thread_ends_a_wait_and_keeps_the_next_one_from_waiting(waiter: Waiter) -> None:
    waker = threading.Thread(target=waiter.wake)
    waker.start()
    assert waiter.wait(math.inf) == []
    waker.join(30)
    waiter.wake()
    assert waiter.wait(math.inf) == []


def test_sockets_are_waited_for_only_while_they_are_listened_to(
    waiter: Waiter, pair: tuple[socket.socket, socket.socket]
) -> None:
    near, far = pair
    far.send(b"x")
    for _ in range(2):
        waiter.listen([near])
        assert waiter.wait(math.inf) == [near]
        waiter.listen(())
        assert waiter.wait(monotonic() + 2 * EXACT_S) == []
    waiter.listen([near])
    near.close()
    waiter.listen(())
    waiter.wake()
    assert waiter.wait(math.inf) == []


def test_a_short_wait_takes_descriptors_beyond_what_select_can_hold(waiter: Waiter) -> None:
    fcntl = pytest.importorskip("fcntl")
    resource = pytest.importorskip("resource")
    number = 2_000
    if resource.getrlimit(resource.RLIMIT_NOFILE)[0] <= number + 10:
        pytest.skip("this process may not have so many descriptors")
    here, far = socket.socketpair()
    with here, far, socket.socket(fileno=fcntl.fcntl(here, fcntl.F_DUPFD, number)) as near:
        waiter.listen([near])
        far.send(b"x")
        assert waiter.wait(monotonic()) == [near]
        waiter.listen(())
