"""A hub in a process, for kernels without netem: it forwards frames from a port to all others.

    python3 -m tools.lab.relay SEED PORT…      run in the hub's namespace, with the hub's ports

Each line of its input is an Order as JSON, in force from then on. It answers each, and says once
at the start that it listens, with a line of its counts. It ends with its input.

A port is a raw packet socket. Hosts leave the checksum of a frame to their network card, which a
virtual cable does not have; PACKET_VNET_HDR makes the kernel put in front of each frame what is
still to be done to it, and do it when we send the frame on with the same words in front.
"""

from __future__ import annotations

import contextlib
import dataclasses
import heapq
import itertools
import json
import os
import selectors
import socket
import sys
import time

from tools.lab.shape import Dice, Shape

_SOL_PACKET = 263
_PACKET_VNET_HDR = 15
_ETH_P_ALL = 3
_SO_RCVBUFFORCE = 33
_BUFFER_BYTES = 8 << 20
# A frame of the largest size the kernel hands over unsegmented, and what stands in front of it.
_FRAME_BYTES_MAX = (64 << 10) + 1_024
NICE = -15
# Frames taken from one port before looking at the others and at the clock.
_FRAMES_PER_TURN = 64


@dataclasses.dataclass(frozen=True, slots=True)
class Order:
    """How the network is to behave: a shape for all ports, others for some, and who hears whom."""

    shape: Shape = Shape()
    #: By port, instead of `shape`: how frames to that host misbehave.
    shapes: dict[str, Shape] = dataclasses.field(default_factory=dict)
    #: Ports of one part hear each other only; those in no part hear each other. Empty: all do.
    parts: list[list[str]] = dataclasses.field(default_factory=list)

    def line(self) -> str:
        return json.dumps(dataclasses.asdict(self)) + "\n"


def read_order(line: str | bytes) -> Order:
    fields = json.loads(line)
    shapes = {port: Shape(**each) for port, each in fields["shapes"].items()}
    return Order(Shape(**fields["shape"]), shapes, fields["parts"])


class Relay:
    """The ports, the frames under way, and the counts."""

    def __init__(self, seed: int, names: list[str]) -> None:
        self.counts = {"heard": 0, "cut": 0, "lost": 0, "delayed": 0, "repeated": 0, "sent": 0}
        self._ports = {name: open_port(name) for name in names}
        self._dice = {name: Dice(seed, name) for name in names}
        self._under_way: list[tuple[float, int, str, bytes]] = []
        self._shapes = {name: Shape() for name in names}
        self._parts = {name: 0 for name in names}
        # Equal times leave in the order they came in; frames are never compared.
        self._numbers = itertools.count()

    def run(self) -> None:
        with selectors.DefaultSelector() as selector:
            for name, port in self._ports.items():
                selector.register(port, selectors.EVENT_READ, name)
            selector.register(sys.stdin, selectors.EVENT_READ, None)
            self._tell()
            while True:
                for key, _ in selector.select(self._time_left_s()):
                    if key.data is not None:
                        self._take(key.data)
                    elif not self._obey():
                        return
                self._send_due()

    def _obey(self) -> bool:
        # One line per command, each written whole and answered before the next: what read()
        # returns is exactly one, or the end.
        text = os.read(sys.stdin.fileno(), 4_096)
        if text:
            self._follow(read_order(text))
            self._tell()
        return bool(text)

    def _follow(self, order: Order) -> None:
        self._shapes = {name: order.shapes.get(name, order.shape) for name in self._ports}
        self._parts = {name: 0 for name in self._ports}
        for number, part in enumerate(order.parts, 1):
            self._parts |= dict.fromkeys(part, number)

    def _tell(self) -> None:
        sys.stdout.write(json.dumps(self.counts) + "\n")
        sys.stdout.flush()

    def _take(self, name: str) -> None:
        for _ in range(_FRAMES_PER_TURN):
            try:
                frame, address = self._ports[name].recvfrom(_FRAME_BYTES_MAX)
            except BlockingIOError:
                return
            except OSError:
                return  # the port is down
            if address[2] == socket.PACKET_OUTGOING:
                continue  # our own frame
            self.counts["heard"] += 1
            now = time.monotonic()
            for other in self._ports:
                if other == name:
                    continue
                if self._parts[other] == self._parts[name]:
                    self._roll(other, frame, now)
                else:
                    self.counts["cut"] += 1

    def _roll(self, name: str, frame: bytes, now: float) -> None:
        delays_s = self._dice[name].fate(self._shapes[name])
        self.counts["lost"] += not delays_s
        self.counts["repeated"] += len(delays_s) > 1
        for delay_s in delays_s:
            if delay_s > 0:
                self.counts["delayed"] += 1
                entry = (now + delay_s, next(self._numbers), name, frame)
                heapq.heappush(self._under_way, entry)
            else:
                self._send(name, frame)

    def _send_due(self) -> None:
        now = time.monotonic()
        while self._under_way and self._under_way[0][0] <= now:
            _, _, name, frame = heapq.heappop(self._under_way)
            self._send(name, frame)

    def _send(self, name: str, frame: bytes) -> None:
        try:
            self._ports[name].send(frame)
        except OSError:
            return  # that host's link is down, or its queue is full: cables lose frames too
        self.counts["sent"] += 1

    def _time_left_s(self) -> float | None:
        if not self._under_way:
            return None
        return max(0.0, self._under_way[0][0] - time.monotonic())


def take_precedence() -> None:
    """Come before all nodes: they may be starved by a busy machine, but cables are not."""
    with contextlib.suppress(OSError):  # a container may not allow it
        os.nice(NICE)


def open_port(name: str, *, has_header: bool = True) -> socket.socket:
    """Return a raw socket of that interface; frames may have the header of PACKET_VNET_HDR."""
    port = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(_ETH_P_ALL))
    port.setsockopt(_SOL_PACKET, _PACKET_VNET_HDR, has_header)
    port.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, _BUFFER_BYTES)
    port.bind((name, _ETH_P_ALL))
    port.setblocking(False)
    return port


if __name__ == "__main__":
    take_precedence()
    Relay(int(sys.argv[1]), sys.argv[2:]).run()
