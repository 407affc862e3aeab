"""A disk that hangs for a while: what other clients feel of it, and what webhooks get then."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pytest

import jsonbus
from jsonbus.gateway.webhooks import webhooks
from jsonbus.gateway.webhooks.commands import Committed, Work
from jsonbus.gateway.webhooks.store import WebhookStore
from tests.gateway.receiver import Receiver, run, until
from tests.gateway.webhook_parts import Parts, gateway

COUNT = webhooks.STORING_MAX


class Disk:
    """What every commit has to wait for."""

    def __init__(self) -> None:
        self.works = threading.Event()
        self.works.set()

    @contextmanager
    def hangs(self) -> Iterator[None]:
        self.works.clear()
        try:
            yield
        finally:
            self.works.set()


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    disk = Disk()
    commit = WebhookStore.commit

    def commit_when_it_works(store: WebhookStore, works: Sequence[Work]) -> Committed:
        assert disk.works.wait(60)
        return commit(store, works)

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
