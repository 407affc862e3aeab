"""Nodes of a sealed bus, by sealer and opener alone: no socket, and a clock that tests move."""

from __future__ import annotations

import itertools
import random

from jsonbus.sealed.datagrams import Sealer
from jsonbus.sealed.keys import parse_ring
from jsonbus.sealed.opener import Opener
from tests.sealed.material import START_WALL, ring

RING = parse_ring(ring())
HOST, ELSEWHERE = ("10.0.0.1", 2416), ("10.0.0.66", 2416)
CAUSES = "open foreign forged replayed stale unproven".split()


def counts(**expected: int) -> dict[str, int]:
    """All figures of an opener: those named, and 0."""
    return {f"datagrams_{cause}": expected.get(cause, 0) for cause in CAUSES}


class Node:
    """One node of a sealed bus: it seals and opens, by a clock that tests move."""

    salts = itertools.count(1)

    def __init__(self, parsed: object = None, *, ahead_s: float = 0.0) -> None:
        self.ring = parse_ring(parsed) if parsed else RING
        self.salt = next(Node.salts).to_bytes(16, "big")
        self.dice = random.Random(self.salt)
        self.ahead_s = ahead_s
        self.now = 0.0
        self.warned: list[tuple[str, float]] = []
        self.sealer = Sealer(self.ring, self.ring.keys[0], self.salt)
        self.restart_opener()

    def restart_opener(self) -> None:
        self.opener = Opener(
            self.ring, self.salt, self.dice.randbytes, lambda *args: self.warned.append(args)
        )

    @property
    def wall(self) -> float:
        return START_WALL + self.now + self.ahead_s

    def text(self) -> bytes:
        return b'{"topic":"door","payload":1,"jb":{"t":%d}}' % int(self.wall * 1_000_000)

    def seal(self, text: bytes | None = None) -> bytes:
        return self.sealer.seal(self.text() if text is None else text)

    def open(self, data: bytes, sender: tuple[str, int] = HOST) -> bytes | None:
        return self.opener.open(data, sender, self.now, self.wall)

    def take_replies(self) -> list[bytes]:
        replies = [self.seal(reply) for reply in self.opener.replies]
        self.opener.replies.clear()
        return replies


def at(now: float, *nodes: Node) -> None:
    for node in nodes:
        node.now = now
