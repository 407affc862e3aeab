"""Things that go on while the doctor looks, on loopback."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from jsonbus.doctor import Asking, EchoListener

PAUSE_S = 0.02


@contextmanager
def over_and_over(work: Callable[[], object]) -> Iterator[None]:
    """Do something again and again in a thread beside the block."""
    is_over = threading.Event()

    def run() -> None:
        while not is_over.wait(PAUSE_S):
            work()

    thread = threading.Thread(target=run, name="test-over-and-over")
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


@contextmanager
def listening(port: int, name: str = "attic") -> Iterator[list[Asking]]:
    """A listener beside the block; who has asked and is done."""
    done: list[Asking] = []
    with EchoListener({"port": port, "name": name}) as listener:
        with over_and_over(lambda: done.extend(listener.listen(PAUSE_S))):
            yield done
        done.extend(listener.end())


@contextmanager
def sending(data: bytes, address: str, port: int) -> Iterator[None]:
    """Datagrams of a program that is no node, by loopback."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        sender.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton("127.0.0.1"))
        with over_and_over(lambda: sender.sendto(data, (address, port))):
            yield
