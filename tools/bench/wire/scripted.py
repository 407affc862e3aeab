"""A transport without a network, to measure what is above it."""

from __future__ import annotations

import contextlib
import random
import socket
import time
from collections import deque
from collections.abc import Callable, Sequence

from jsonbus.core.membership.subscription_list import FrozenList
from jsonbus.core.node import Node
from jsonbus.core.settings import NodeSettings
from jsonbus.core.wire.frames import Entry
from jsonbus.transport.base import Received, TransportInfo

ADDRESS = ("127.0.0.1", 2416)
#: How often a node that is driven by hand looks at its timers.
STEP_S = 0.002


class ScriptedTransport:
    """A transport that delivers given datagrams and drops everything that is sent."""

    send_failures = offload_refusals = 0
    own_addresses: frozenset[tuple[str, int]] = frozenset()

    def __init__(self) -> None:
        self._datagrams: deque[bytes] = deque()
        self._inside, self._outside = socket.socketpair()
        self._inside.setblocking(False)

    def bring(self, datagrams: list[bytes]) -> None:
        self._datagrams.extend(datagrams)
        self._outside.send(b".")  # after the datagrams: whoever takes the byte finds them

    def sockets(self) -> list[socket.socket]:
        return [self._inside]

    def receive(self, sock: socket.socket) -> Received | None:
        try:
            return (self._datagrams.popleft(),), ADDRESS
        except IndexError:
            with contextlib.suppress(BlockingIOError):
                sock.recv(1)
            return None

    def send(self, run: Sequence[bytes]) -> bool:
        return True

    def wait_writable(self, timeout_s: float) -> bool:
        return True

    def rejoin(self) -> bool:
        return False

    def describe(self) -> TransportInfo:
        return TransportInfo("239.255.24.16", 2416, (), 1, 0, 0)

    def kernel_drops(self) -> int:
        return 0

    def queued_bytes(self) -> int | None:
        return None

    def close(self) -> None:
        self._inside.close()
        self._outside.close()


class Company(ScriptedTransport):
    """A transport to one node that knows many others and shares their subscriptions.

    That node wants `sensors/**`, each of the others a topic of its own.
    """

    def __init__(self, nodes: int) -> None:
        super().__init__()
        self._sent: deque[bytes] | None = deque()
        self._node = Node(NodeSettings("reader", 1, "reader"), random.Random(1))
        self._node.subscribe("sensors/**", "sink", 0.0)
        others = [Entry(f"n{n}", 1, 1, f"n{n}", (f"other/{n}",)) for n in range(1, nodes)]
        group = FrozenList([self._node.own_entry(), *others])
        self._node.open_converged(time.monotonic(), group)

    def send(self, run: Sequence[bytes]) -> bool:
        if self._sent is not None:
            self._sent.extend(run)
        return True

    def introduce(self, is_done: Callable[[], bool], timeout_s: float = 30.0) -> None:
        """Let the two nodes talk until `is_done`; datagrams sent later are dropped."""
        assert self._sent is not None
        deadline = time.monotonic() + timeout_s
        while not is_done():
            now = time.monotonic()
            if now > deadline:
                raise TimeoutError("the node did not become sure")
            while self._sent:
                self._node.receive_datagram(self._sent.popleft(), ADDRESS, now)
            self._node.handle_timer(now)
            answers = self._node.outbox.take(now)
            if answers:
                self.bring(answers)
            time.sleep(STEP_S)
        self._sent = None
