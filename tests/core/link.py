"""Nodes on one wire, a hand-held clock, and nothing else."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from jsonbus.core.events import Event
from jsonbus.core.frames import Frame
from jsonbus.core.message import Message
from jsonbus.core.node import Node
from jsonbus.core.settings import NodeSettings
from jsonbus.core.wire_decode import decode

START = 1000.0  # not 0, so that a forgotten `now` is noticed


class Link:
    """Moves datagrams between nodes without delay; `drop` decides which are lost."""

    def __init__(self, seed: int = 1) -> None:
        self.now = START
        self.rng = random.Random(seed)
        self.nodes: list[Node] = []
        self.sent: list[tuple[str, float, Frame]] = []  # sender's name, when, what
        self.received: dict[str, list[Message]] = {}
        self.events: dict[str, list[Event]] = {}
        self.drop: Callable[[Node, Node, Frame], bool] = lambda sender, receiver, frame: False

    def add(self, name: str, *, opened: bool = True, **settings: Any) -> Node:
        number = len(self.received) + 1
        node = Node(
            NodeSettings(f"id{number:03d}", 1_700_000_000_000 + number, name, **settings),
            random.Random(self.rng.random()),
        )
        self.received[name] = []
        self.events[name] = []
        if opened:
            self.open(node)
        return node

    def open(self, node: Node) -> None:
        self.nodes.append(node)
        node.open(self.now)
        self.move()

    def remove(self, node: Node) -> None:
        """The node falls silent, as if killed."""
        self.nodes.remove(node)

    def close(self, node: Node) -> None:
        node.close(self.now)
        self.move()
        self.nodes.remove(node)

    def move(self) -> None:
        """Deliver until nothing is left to send."""
        for _ in range(10_000):
            moved = False
            for sender in list(self.nodes):
                for datagram in sender.datagrams_to_send(self.now):
                    moved = True
                    self._deliver(sender, datagram)
            self._collect()
            if not moved:
                return
        raise AssertionError("the nodes never stop talking")

    def inject(self, datagram: bytes, address: str = "10.9.9.9") -> None:
        """A datagram from somebody who is no node of this link."""
        for node in self.nodes:
            node.receive_datagram(datagram, (address, 40000), self.now)
        self.move()

    def run(self, seconds: float) -> None:
        """Let time pass, timer by timer."""
        end = self.now + seconds
        for _ in range(1_000_000):
            timers = [at for node in self.nodes if (at := node.timer_at()) is not None]
            at = min(timers, default=end)
            if at > end:
                break
            self.now = max(self.now, at)
            for node in list(self.nodes):
                node.handle_timer(self.now)
            self.move()
        else:
            raise AssertionError("the timers never come to rest")
        self.now = end

    def values(self, name: str) -> list[Any]:
        return [message.value for message in self.received[name]]

    def frames(self, name: str, kind: type[Frame] | None = None) -> list[Any]:
        return [
            frame
            for sender, _, frame in self.sent
            if sender == name and (kind is None or isinstance(frame, kind))
        ]

    def _deliver(self, sender: Node, datagram: bytes) -> None:
        frame = decode(datagram)
        self.sent.append((sender.settings.name, self.now, frame))
        address = (f"10.0.0.{self.nodes.index(sender) + 1}", 2416)
        for receiver in self.nodes:
            if receiver is sender or not self.drop(sender, receiver, frame):
                receiver.receive_datagram(datagram, address, self.now)

    def _collect(self) -> None:
        for node in self.nodes:
            for _, messages in node.take_deliveries():
                self.received[node.settings.name].extend(messages)
            self.events[node.settings.name].extend(node.take_events())
