"""Webhooks that come and go while others publish: what must arrive does, in order, and no more."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from itertools import count, pairwise
from random import Random

import pytest

import jsonbus
from tests.gateway.receiver import Receiver, run, until
from tests.gateway.webhook_parts import Parts, gateway

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
