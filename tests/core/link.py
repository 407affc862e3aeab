"""Nodes on one wire, a hand-held clock, and nothing else."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from typing import Any, TypeGuard, TypeVar

from jsonbus.core.events import Event
from jsonbus.core.membership.subscription_list import FrozenList
from jsonbus.core.message import Message
from jsonbus.core.node import Node
from jsonbus.core.settings import NodeSettings
from jsonbus.core.wire.decode import decode
from jsonbus.core.wire.encode import Control, encode_presence
from jsonbus.core.wire.encode_messages import Stamp, encode_batch, encode_message
from jsonbus.core.wire.frames import ALL_BUCKETS, Digest, Entry, Frame, ListFrame

E = TypeVar("E", bound=Event)
F = TypeVar("F", bound=Frame)

START = 1000.0  # not 0, so that a forgotten `now` is noticed


def forge(
    encode: Callable[..., Any],
    *args: Any,
    node: str = "stranger",
    incarnation: int = 1,
    counter: int = 1,
    first_message: int = 1,
    **fields: Any,
) -> bytes:
    """A datagram as the node of that id would send it."""
    stamp = Stamp(node, incarnation)
    stamp.counter = counter - 1
    has_messages = encode in (encode_batch, encode_message)
    if has_messages:
        return bytes(encode(stamp, *args, first_message, 0))
    control: Control = encode(*args, **fields)
    return control.encode(stamp, first_message, 0)


def forge_presence(
    counter: int = 1,
    *,
    of: Node | None = None,
    digest: Digest | None = None,
    settled: bool = True,
) -> bytes:
    """A sign of life of that node, or of a stranger, with a digest that nobody else has."""
    return forge(
        encode_presence,
        node=of.settings.node if of else "stranger",
        incarnation=of.settings.incarnation if of else 1,
        counter=counter,
        version=of.own_entry().version if of else 1,
        name=of.settings.name if of else "stranger",
        mode=of.settings.mode if of else "delayed",
        is_master=False,
        settled=settled,
        digest=digest or Digest(9, 99),
        sums=None,
    )


def digest_of(node: Node) -> Digest:
    return node._membership.list.digest


def is_share(frame: Frame) -> TypeGuard[ListFrame]:
    """Whether a full list begins with it."""
    return isinstance(frame, ListFrame) and frame.covers == ALL_BUCKETS and frame.part[0] == 0


def is_repair(frame: Frame) -> TypeGuard[ListFrame]:
    """Whether it holds some buckets of a list."""
    return isinstance(frame, ListFrame) and frame.covers not in (None, ALL_BUCKETS)


def is_announcement(frame: Frame) -> TypeGuard[ListFrame]:
    """Whether it holds no more than its sender's entry."""
    return isinstance(frame, ListFrame) and frame.covers is None


class Link:
    """Moves datagrams between nodes without delay; `drop` decides which are lost."""

    def __init__(self, seed: int = 1) -> None:
        self.now = START
        self.rng = random.Random(seed)
        self.nodes: list[Node] = []
        self.sent: list[tuple[str, float, Frame]] = []  # sender's name, when, what
        self.datagrams: list[bytes] = []  # the same as bytes
        self.received: dict[str, list[Message]] = {}
        self.events: dict[str, list[Event]] = {}
        self.drop: Callable[[Node, Node, Frame], bool] = lambda sender, receiver, frame: False

    def add(self, name: str, *, opened: bool = True, **settings: Any) -> Node:
        number = len(self.received) + 1
        settings.setdefault("node", f"id{number:03d}")
        settings.setdefault("incarnation", 1_700_000_000_000 + number)
        node = Node(NodeSettings(name=name, **settings), random.Random(self.rng.random()))
        self.received[name] = []
        self.events[name] = []
        if opened:
            self.open(node)
        return node

    def add_many(self, count: int, **settings: Any) -> list[Node]:
        """Nodes n0, n1, … that agree with each other."""
        nodes = [self.add(f"n{number}", **settings) for number in range(count)]
        self.run(5)
        return nodes

    def add_member(self, name: str, others: Iterable[Entry], **settings: Any) -> Node:
        """A node that has long agreed with those others, which are silent here."""
        node = self.add(name, opened=False, **settings)
        node.open_converged(self.now, FrozenList([*others, node.own_entry()]))
        self.nodes.append(node)
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
                for datagram in sender.outbox.take(self.now):
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
        for _ in range(50_000):
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

    def run_until(self, condition: Callable[[], object], seconds: float) -> None:
        """Let time pass in small steps until the condition holds; at most that long."""
        end = self.now + seconds
        while not condition():
            assert self.now < end, "it never happened"
            self.run(0.001)

    def forget_sent(self) -> None:
        """What was said so far is not what the test is about."""
        self.sent.clear()
        self.datagrams.clear()

    def cut_off(self, *nodes: Node) -> None:
        """Those nodes and the others no longer hear each other."""
        self.drop = lambda sender, receiver, frame: (sender in nodes) != (receiver in nodes)

    def heal(self) -> None:
        self.drop = lambda sender, receiver, frame: False

    def publish(self, node: Node, topic: str, *values: Any) -> list[bool]:
        """Publish the values one after the other, then deliver."""
        results = [node.publish(topic, value, self.now) for value in values]
        self.move()
        return results

    def subscribe(self, node: Node, *patterns: str) -> None:
        """Subscribe to the patterns, all for one sink."""
        for pattern in patterns:
            node.subscribe(pattern, "sink", self.now)

    def unsubscribe(self, node: Node, *patterns: str) -> None:
        for pattern in patterns:
            assert node.unsubscribe(pattern, "sink", self.now)

    def agrees(self) -> bool:
        """Whether all nodes are sure of one and the same list."""
        digests = {digest_of(node) for node in self.nodes}
        return len(digests) == 1 and all(node.state == "sure" for node in self.nodes)

    def values(self, name: str) -> list[Any]:
        return [message.value for message in self.received[name]]

    def events_of(self, name: str, kind: type[E]) -> list[E]:
        return [event for event in self.events[name] if isinstance(event, kind)]

    def frames(self, name: str, kind: type[F]) -> list[F]:
        """What that node sent of that kind."""
        return [
            frame for sender, _, frame in self.sent if sender == name and isinstance(frame, kind)
        ]

    def senders(self, is_meant: Callable[[Frame], bool]) -> list[str]:
        """Who sent such frames, in order."""
        return [sender for sender, _, frame in self.sent if is_meant(frame)]

    def times(self, name: str, is_meant: Callable[[Frame], bool]) -> list[float]:
        """When that node sent such frames, from the start of the link."""
        return [
            round(at - START, 6)
            for sender, at, frame in self.sent
            if sender == name and is_meant(frame)
        ]

    def _deliver(self, sender: Node, datagram: bytes) -> None:
        frame = decode(datagram)
        self.sent.append((sender.settings.name, self.now, frame))
        self.datagrams.append(datagram)
        address = (f"10.0.0.{self.nodes.index(sender) + 1}", 2416)
        for receiver in self.nodes:
            if receiver is sender or not self.drop(sender, receiver, frame):
                receiver.receive_datagram(datagram, address, self.now)

    def _collect(self) -> None:
        for node in self.nodes:
            for _, messages in node.take_deliveries():
                self.received[node.settings.name].extend(messages)
            self.events[node.settings.name].extend(node.take_events())
