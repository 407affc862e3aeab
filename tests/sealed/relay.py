"""A man in the middle of channels: every connection to a node goes through it."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable
from typing import Any

from tests.channel_peers import LONG_S

#: What becomes of bytes on their way, given how many came before them; None: it cuts the line.
Change = Callable[[bytes, int], bytes | None]

TO_LISTENER, TO_CALLER = 0, 1


def pass_on(data: bytes, at: int) -> bytes:
    return data


class Relay:
    """A context manager. `changes` are those of the bytes to the listener and to the caller."""

    def __init__(self, bus: Any, *changes: Change) -> None:
        """In front of a bus that has bound something."""
        self.seen = [bytearray(), bytearray()]
        self._changes = changes or (pass_on, pass_on)
        self._place = bus._loop.channels.manager.listener.own_place()
        self._listening = socket.create_server(("127.0.0.1", 0))
        port = self._listening.getsockname()[1]
        bus._loop.call(lambda node, now: node.directory.set_channel_port(port, now))
        self._sockets: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    def __enter__(self) -> Relay:
        return self

    def __exit__(self, *_: object) -> None:
        self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        self._threads[0].join()
        self.cut()
        for each in self._threads:
            each.join()
        for sock in self._sockets:
            sock.close()

    def cut(self) -> None:
        """End all connections, in both directions."""
        for sock in self._sockets:
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)

    def _accept(self) -> None:
        with contextlib.suppress(OSError):  # it is closed
            while True:
                calling = self._listening.accept()[0]
                answering = socket.create_connection(self._place, LONG_S)
                self._sockets += (calling, answering)
                for way, ends in enumerate(((calling, answering), (answering, calling))):
                    thread = threading.Thread(target=self._carry, args=(way, *ends))
                    self._threads.append(thread)
                    thread.start()

    def _carry(self, way: int, source: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                changed = self._changes[way](data, len(self.seen[way]))
                self.seen[way] += data
                if changed is None:
                    break
                target.sendall(changed)
        for sock in (source, target):
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
