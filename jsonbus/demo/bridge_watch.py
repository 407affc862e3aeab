"""Asks a bridge for its figures, now and then, in a thread of its own."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from typing import Any

from spark_bridge import wire

EVERY_S = 0.5

#: A bridge answers at once; on a busy machine, later.
TIMEOUT_S = 10.0


class BridgeWatch:
    """Calls `take` with the figures of the bridge, until `stop`; a bridge that left is no error."""

    def __init__(self, address: str, take: Callable[[dict[str, Any]], None]) -> None:
        self._address = address
        self._take = take
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="jsonbus-demo-watch", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join()

    def _run(self) -> None:
        host, _, port = self._address.rpartition(":")
        try:
            with socket.create_connection((host, int(port)), TIMEOUT_S) as connection:
                connection.sendall(wire.MAGIC)
                with connection.makefile("rb") as replies:
                    hello = {"op": "hello", "version": wire.VERSION, "client": "jsonbus demo"}
                    _ask(connection, replies, hello)
                    while not self._stopping.wait(EVERY_S):
                        self._take(_ask(connection, replies, {"op": "stats"}))
        except (OSError, EOFError):
            pass


def _ask(connection: socket.socket, replies: Any, request: dict[str, Any]) -> dict[str, Any]:
    connection.sendall(wire.encode(request))
    head = replies.read(wire.LENGTH.size)
    if len(head) < wire.LENGTH.size:
        raise EOFError
    return wire.decode(replies.read(wire.LENGTH.unpack(head)[0]))
