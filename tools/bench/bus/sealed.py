"""What a sealed bus costs beside an open one, and what forged datagrams cost it.

Forgeries are handed to an Opener as a transport does, so that a figure is what they cost beyond
being received. The last row is a million of them, from a thousand addresses and of all kinds,
after which a message of a node that nobody has met must still be let in.
"""

from __future__ import annotations

import itertools
import os
import random
import time
from collections.abc import Callable, Iterable, Iterator
from time import process_time

from jsonbus.sealed.datagrams import HEAD_END, SALT_BYTES, SALT_END, SEAL_BYTES, Sealer
from jsonbus.sealed.keys import Key, KeyRing
from jsonbus.sealed.opener import Opener
from tools.bench.arena import Arena
from tools.bench.bus.calm import take_delays
from tools.bench.bus.floods import Plan, flood, interleave
from tools.bench.bus.run import Run, RunError
from tools.bench.bus.spec import SENSOR_BYTES
from tools.bench.measures import Sample

OPEN, SEALED = "jsonbus", "jsonbus-sealed"

#: What fills a datagram on a LAN, and a single message.
LARGE_BYTES, SMALL_BYTES = 1_400, 200
ADDRESSES = 1_000
_KNOWN = ("10.0.0.1", 2416)

Forge = Callable[[int], bytes]


def measure_sealed(arena: Arena, plan: Plan) -> Iterator[Sample]:
    """A flood, and messages at a low rate, open and sealed in turns."""
    yield from flood(arena, plan, "sealed", (OPEN, SEALED), 1, SENSOR_BYTES, plan.messages)

    def measure(system: str) -> Iterable[Sample]:
        with Run(arena, system, has_stamps=True) as run:
            run.probe()
            yield from list(take_delays("sealed", system, run, plan.latency_messages))[:2]

    yield from interleave("sealed-p50", (OPEN, SEALED), plan, measure)


def measure_forged(arena: Arena, plan: Plan) -> Iterator[Sample]:
    """CPU per forged datagram of each kind, and of a million that come from everywhere."""
    count = plan.messages
    for _ in range(plan.repetitions):
        victim = _Victim()
        for row, forge in victim.forgeries().items():
            yield Sample("forged", row, victim.flood(forge, count, addresses=1))
        victim = _Victim()
        row = f"{5 * count:,} of all kinds from {ADDRESSES:,} addresses"
        yield Sample("forged", row, victim.flood(victim.forge_anything, 5 * count, ADDRESSES))
        if not victim.hears_somebody_new():
            raise RunError("after the forgeries, a message did not arrive")


class _Victim:
    """An opener that knows one sender."""

    def __init__(self) -> None:
        self._ring = KeyRing("bench", (Key("k1", os.urandom(32), 0.0),))
        self._opener = Opener(self._ring, None, os.urandom)
        self._dice = random.Random(1)
        self._real = self._seal()
        if self._open(self._real) is None:
            raise RunError("a message did not arrive")
        self._kinds = [*self.forgeries().values()]

    def forgeries(self) -> dict[str, Forge]:
        head = self._real
        noise = self._dice.randbytes
        return {
            "foreign key id": lambda size: head[:2] + noise(size - 2),
            "invented salt": lambda size: head[:6] + noise(size - 6),
            "salt of a known sender": lambda size: head[:SALT_END] + noise(size - SALT_END),
            "an old counter of a known sender": lambda size: (
                head[:HEAD_END] + noise(size - HEAD_END)
            ),
        }

    def forge_anything(self, size: int) -> bytes:
        return self._dice.choice(self._kinds)(size)

    def flood(self, forge: Forge, count: int, addresses: int) -> float:
        """Return the microseconds of CPU for each; making them is not counted."""
        spent_s = 0.0
        sources = [(f"10.1.{n >> 8}.{n & 255}", 2416) for n in range(addresses)]
        opener, batch = self._opener, 1_000
        for start in range(0, count, batch):
            sizes = itertools.cycle((LARGE_BYTES, SMALL_BYTES))
            datagrams = [forge(next(sizes)) for _ in range(min(batch, count - start))]
            now, wall = time.monotonic(), time.time()
            begun_s = process_time()
            let_in = [
                opener.open(data, sources[number % addresses], now, wall)
                for number, data in enumerate(datagrams)
            ]
            spent_s += process_time() - begun_s
            if any(each is not None for each in let_in):
                raise RunError("a forgery was let in")
        return 1e6 * spent_s / count

    def hears_somebody_new(self) -> bool:
        return self._open(self._seal()) is not None

    def _seal(self) -> bytes:
        text = b'{"topic":"door","payload":1,"jb":{"t":%d}}' % int(time.time() * 1e6)
        sealed = Sealer(self._ring, self._ring.keys[0], os.urandom(SALT_BYTES)).seal(text)
        assert len(sealed) == len(text) + SEAL_BYTES
        return sealed

    def _open(self, data: bytes) -> bytes | None:
        return self._opener.open(data, _KNOWN, time.monotonic(), time.time())
