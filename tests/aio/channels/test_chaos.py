"""Channels of several nodes, opened, used and closed at random, by seeds."""

from __future__ import annotations

import random
from contextlib import suppress
from typing import Any

import pytest

import jsonbus
from jsonbus.aio.channel import Channel
from jsonbus.errors import ChannelError, ClosedError
from tests.aio.channels.channel_pair import InTask
from tests.aio.running import asynctest, until
from tests.channel_peers import LONG_S, count_descriptors
from tests.helpers import find_free_port

NODES = 3


class Ledger:
    """What was sent on each channel, by its own name, and what came, by either side."""

    def __init__(self) -> None:
        self.sent: dict[str, list[int]] = {}
        self.received: dict[str, list[int]] = {}
        self.confirmed: set[str] = set()

    @property
    def is_complete(self) -> bool:
        return all(self.received.get(name, []) == self.sent[name] for name in self.confirmed)

    def check(self) -> None:
        for name, received in self.received.items():
            assert received == self.sent[name][: len(received)], name
        for name in self.confirmed:
            assert self.received.get(name, []) == self.sent[name], name


def make_message(name: str, number: int, dice: random.Random) -> Any:
    return [name, number, "x" * dice.choice((0, 10, 1000, 100_000))]


def note(ledger: Ledger, message: Any) -> None:
    ledger.received.setdefault(message[0], []).append(message[1])


async def answer(channel: Channel, ledger: Ledger, dice: random.Random) -> None:
    """What a node does with a channel: handlers, or a loop; it may close first, or be slow."""
    if dice.random() < 0.5:
        channel.on_message(lambda message: note(ledger, message))
        return
    try:
        async for message in channel:
            note(ledger, message)
            if dice.random() < 0.05:
                with suppress(ChannelError):  # who is confirmed may have gone
                    await channel.send("noted", LONG_S)
    except ChannelError:
        pass


async def use(bus: jsonbus.AsyncBus, names: list[str], ledger: Ledger, seed: str) -> None:
    """Connect to somebody, send some, close; a number of times."""
    dice = random.Random(seed)
    for turn in range(8):
        name = f"{seed}-{turn}"
        sent = ledger.sent.setdefault(name, [])
        node = dice.choice(names)
        try:
            channel = await bus.connect(
                node,
                dice.choice(("handled", "looped", "exclusive", "unbound")),
                timeout=LONG_S if dice.random() < 0.8 else 0.01,
                wait=dice.random() < 0.7,
            )
            if dice.random() < 0.1:
                await channel.close(0)
            for number in range(dice.randrange(30)):
                sent.append(number)
                await channel.send(make_message(name, number, dice), LONG_S)
            # Who leaves may have it, and throw it away.
            if (await channel.close(LONG_S if dice.random() < 0.9 else 0)) and node != names[-1]:
                ledger.confirmed.add(name)
        except ChannelError:
            pass
        except ClosedError:
            return


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
@asynctest
async def test_whatever_happens_what_was_confirmed_has_arrived_in_order(seed: int) -> None:
    dice = random.Random(seed)
    ledger = Ledger()
    port = find_free_port()
    before = count_descriptors()
    names = [f"node-{number}" for number in range(NODES)]
    buses = [jsonbus.AsyncBus(port=port, interface="lo", name=name, workers=2) for name in names]
    answering: list[InTask] = []
    for number, bus in enumerate(buses):
        bus.bind("handled", lambda channel: channel.on_message(lambda each: note(ledger, each)))
        for kind in ("looped", "exclusive"):
            binding = bus.bind(kind, exclusive=kind == "exclusive")

            async def accept_all(
                binding: Any = binding, who: str = f"{seed}/{number}{kind}"
            ) -> None:
                count = 0
                async for channel in binding:
                    count += 1
                    dice = random.Random(f"{who}{count}")
                    answering.append(InTask(answer(channel, ledger, dice)))

            answering.append(InTask(accept_all()))
    using = [
        InTask(use(bus, names, ledger, f"{seed}.{number}.{each}"))
        for number, bus in enumerate(buses)
        for each in range(2)
    ]
    if dice.random() < 0.5:  # one leaves while the others go on
        using.append(InTask(buses[-1].close(dice.choice((0.0, 1.0)))))
    for each in using:
        await each.result()
    # Whoever has it may still have to accept, or to handle it; closing would throw it away.
    await until(lambda: ledger.is_complete)
    for bus in buses:
        await bus.close(LONG_S)
    for each in answering:
        await each.result()
    ledger.check()
    assert ledger.confirmed
    assert count_descriptors() == before
