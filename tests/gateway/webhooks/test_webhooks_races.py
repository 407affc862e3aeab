"""Webhooks under adverse timing: calls that overlap, and a disk that hangs."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import count, pairwise
from random import Random

import pytest

import jsonbus
from jsonbus.gateway.webhooks import webhooks
from jsonbus.gateway.webhooks.commands import Command, Committed
from jsonbus.gateway.webhooks.store import WebhookStore
from tests.gateway.receiver import Receiver, run, until
from tests.gateway.webhooks.parts import Parts, gateway

PUBLISHERS = 3
MESSAGES = 60
TURNS = 12


class Times:
    """What began and ended when, on a clock that ticks at every look."""

    def __init__(self) -> None:
        self._ticks: Iterator[int] = count()
        #: Number of a message -> when its publish began and ended.
        self.published: dict[int, tuple[int, int]] = {}
        #: When a subscription was there for sure, and when for sure it was not.
        self.on: list[tuple[int, int]] = []
        self.off: list[tuple[int, int]] = []

    def now(self) -> int:
        return next(self._ticks)

    def numbers_in(self, spans: list[tuple[int, int]]) -> set[int]:
        """The messages whose publish lies wholly within one of the spans."""
        return {
            number
            for number, (began, ended) in self.published.items()
            if any(start < began and ended < end for start, end in spans)
        }


async def publish(parts: Parts, times: Times, dice: Random, publisher: int) -> None:
    for number in range(publisher, PUBLISHERS * MESSAGES, PUBLISHERS):
        began = times.now()
        await parts.hub.publish("a", number)
        times.published[number] = began, times.now()
        for _ in range(dice.randrange(30)):
            await asyncio.sleep(0)


async def waver(parts: Parts, times: Times, dice: Random, url: str) -> None:
    """Subscribe and unsubscribe; another pattern keeps the subscriber and its backlog."""
    await parts.webhooks.subscribe("bob", "kept", url)
    ended = times.now()
    for _ in range(TURNS):
        times.off.append((ended, times.now()))
        await parts.webhooks.subscribe("bob", dice.choice(("a", "*")), url)
        began = times.now()
        for _ in range(dice.randrange(100)):
            await asyncio.sleep(0)
        times.on.append((began, times.now()))
        patterns = [each for each in parts.view("bob").patterns if each != "kept"]
        # At once, and with a twin that finds nothing, or finds it first.
        calls = [parts.webhooks.unsubscribe("bob", each) for each in (*patterns, *patterns)]
        found = await asyncio.gather(*calls)
        assert sorted(sum(found, [])) == sorted(patterns)
        ended = times.now()
        for _ in range(dice.randrange(100)):
            await asyncio.sleep(0)
    times.off.append((ended, times.now()))


async def come_and_go(parts: Parts, dice: Random, url: str) -> None:
    """Others of the same patterns, whose last subscription takes their backlog with it."""
    for _ in range(TURNS):
        name, pattern = dice.choice(("eve", "ann")), dice.choice(("a", "*", "**"))
        await parts.webhooks.subscribe(name, pattern, url)
        if dice.random() < 0.5:
            await parts.webhooks.unsubscribe(name, dice.choice((None, pattern)))


@pytest.mark.parametrize("seed", range(6))
def test_what_is_published_while_a_subscription_stands_arrives_and_nothing_else(seed: int) -> None:
    async def main() -> None:
        dice, times = Random(seed), Times()
        with Receiver() as receiver, Receiver() as other:
            async with gateway() as parts:
                steady = other.url + "?steady"
                await parts.webhooks.subscribe("steady", "a", steady)
                await asyncio.gather(
                    *(publish(parts, times, dice, each) for each in range(PUBLISHERS)),
                    waver(parts, times, dice, receiver.url),
                    *(come_and_go(parts, dice, other.url) for _ in range(2)),
                )
                await parts.until_delivered()
                for name in ("bob", "eve", "ann"):
                    await parts.webhooks.unsubscribe(name)
                assert parts.hub.stats()["patterns_wanted"] == 1
                await parts.webhooks.unsubscribe("steady")
                assert parts.hub.stats()["patterns_wanted"] == 0
                assert parts.ledger.stats()["subscriptions"] == 0
                assert parts.ledger.stats()["backlog"] == 0
        got = receiver.messages
        assert times.numbers_in(times.on) <= set(got)
        assert not times.numbers_in(times.off) & set(got)
        everything = [
            number
            for request in other.requests
            if request.target.endswith("steady")
            for number in request.messages
        ]
        assert sorted(everything) == list(range(PUBLISHERS * MESSAGES))
        for numbers in (got, everything):
            for publisher in range(PUBLISHERS):
                own = [number for number in numbers if number % PUBLISHERS == publisher]
                assert all(one < next_one for one, next_one in pairwise(own))

    run(main())


def test_one_connection_s_messages_come_in_order_to_webhooks_clients_and_nodes() -> None:
    async def main() -> None:
        with Receiver() as receiver:
            async with gateway() as parts, jsonbus.AsyncBus(port=parts.bus_port) as node:
                seen: list[object] = []
                at_node: list[object] = []
                parts.hub.add_sink(lambda messages: seen.extend(each.value for each in messages))
                node.subscribe("a/*", lambda message: at_node.append(message.value))
                assert await parts.hub._bus.wait_for_subscribers("a/0", timeout=30)
                await parts.webhooks.subscribe("bob", "a/*", receiver.url)
                numbers = list(range(300))
                for number in numbers:
                    published = await parts.hub.publish(f"a/{number % 3}", number, reliable=True)
                    assert (published.webhooks, published.is_sent) == (1, True)
                await until(lambda: len(seen) == len(at_node) == len(receiver.messages) == 300)
                # Order among topics is the hub's; of a node's reliable topics each has its own.
                assert seen == receiver.messages == numbers
                for topic in range(3):
                    assert [each for each in at_node if each % 3 == topic] == numbers[topic::3]  # type: ignore[operator]

    run(main())


COUNT = webhooks.STORING_MAX


class Disk:
    """What every commit has to wait for."""

    def __init__(self) -> None:
        self.commands = threading.Event()
        self.commands.set()

    @contextmanager
    def hangs(self) -> Iterator[None]:
        self.commands.clear()
        try:
            yield
        finally:
            self.commands.set()


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    disk = Disk()
    commit = WebhookStore.commit

    def commit_when_it_works(store: WebhookStore, commands: Sequence[Command]) -> Committed:
        assert disk.commands.wait(60)
        return commit(store, commands)

    monkeypatch.setattr(WebhookStore, "commit", commit_when_it_works)
    return disk


async def subscribe(parts: Parts, other: jsonbus.AsyncBus, receiver: Receiver) -> list[object]:
    """A webhook, and the list of what another client of the gateway got of the same topic."""
    seen: list[object] = []
    parts.hub.add_sink(lambda messages: seen.extend(each.value for each in messages))
    await parts.webhooks.subscribe("bob", "a", receiver.url)
    await until(lambda: other.explain("a").wanted_by)
    return seen


def test_a_disk_that_hangs_does_not_hold_up_clients_that_need_none(disk: Disk) -> None:
    async def main() -> None:
        with Receiver() as receiver:
            async with gateway() as parts, jsonbus.AsyncBus(port=parts.bus_port) as other:
                seen = await subscribe(parts, other, receiver)
                with disk.hangs():
                    for number in range(COUNT):
                        await other.publish("a", number, reliable=True)
                    await until(lambda: len(seen) == COUNT)
                    assert receiver.messages == []
                await until(lambda: len(receiver.messages) == COUNT)
                assert seen == receiver.messages == list(range(COUNT))

    run(main())


def test_what_is_on_its_way_to_a_disk_that_hangs_is_bounded(
    disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(webhooks, "STORING_MAX", 10)

    async def main() -> None:
        with Receiver() as receiver:
            async with gateway() as parts, jsonbus.AsyncBus(port=parts.bus_port) as other:
                seen = await subscribe(parts, other, receiver)
                with disk.hangs():
                    for number in range(COUNT):
                        await other.publish("a", number, reliable=True)
                    await until(lambda: parts.webhooks.stats()["messages_storing"] > 10)
                    await asyncio.sleep(0.1)  # the rest could come, and must not
                    assert parts.webhooks.stats()["messages_storing"] == len(seen) < COUNT
                await until(lambda: len(receiver.messages) == COUNT)
                assert seen == receiver.messages == list(range(COUNT))
                assert parts.webhooks.stats()["messages_storing"] == 0

    run(main())
