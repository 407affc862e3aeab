"""A disk that is really full: nothing half stored, nothing lost, and all well when room returns."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from jsonbus.errors import ClosedError, StoreError
from jsonbus.gateway.webhooks import ledger as webhook_ledger
from jsonbus.gateway.webhooks.database import RESERVE_BYTES, Reserve
from tests.gateway.webhooks.ledgers import URL, Opened, messages_of, opened, rows_in, wait_for
from tests.small_disk import small_disk

PAYLOAD = b'"' + b"x" * 20_000 + b'"'


@pytest.fixture
def disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setattr(webhook_ledger, "SETTLE_AGAIN_S", 0.01)
    with small_disk(tmp_path, 3 * RESERVE_BYTES) as mounted:
        yield mounted


def fill(disk: Path) -> Path:
    """Take all the room there is; the file to delete to give it back."""
    ballast = disk / "ballast"
    with open(ballast, "wb", buffering=0) as file:
        for size in (65_536, 4_096, 1):
            try:
                while file.write(b"\0" * size):
                    pass
            except OSError:
                pass
    assert os.statvfs(disk).f_bavail == 0
    return ballast


async def accept_until_refused(it: Opened) -> int:
    """How many messages found room."""
    stored = 0
    with pytest.raises(StoreError, match=r"the disk is full: .* try again later"):
        while True:
            stored += await it.ledger.accept("a", PAYLOAD)
    return stored


def test_a_full_disk_refuses_messages_and_stores_nothing_of_them(
    disk: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def run() -> None:
        async with opened(disk / "data") as it:
            await it.ledger.subscribe("anna", "a", URL)
            await it.ledger.accept("a", b"1")
            ballast = fill(disk)
            stored = 1 + await accept_until_refused(it)
            calls = [it.ledger.accept("a", PAYLOAD) for _ in range(20)]
            refused = await asyncio.gather(*calls, return_exceptions=True)
            assert all(isinstance(each, StoreError) for each in refused)
            with pytest.raises(StoreError):
                await it.ledger.subscribe("x" * 100_000, "b", URL)
            assert it.ledger.patterns() == ["a"]
            assert it.ledger.stats()["backlog"] == it.ledger.stats()["accepted"] == stored
            assert it.ledger.stats()["is_failing"] == 1
            ballast.unlink()
            assert await it.ledger.accept("a", b"2") == 1
            assert it.ledger.stats()["is_failing"] == 0
            assert rows_in(disk / "data")["deliveries"] == stored + 1
            assert rows_in(disk / "data")["messages"] == stored + 1
            got: list[object] = []
            while it.ledger.stats()["backlog"]:
                batch = await it.next()
                got += messages_of(batch)
                await it.ledger.settle(batch)
            assert len(got) == stored + 1
            assert (got[0], got[-1]) == (1, 2)

    with caplog.at_level(logging.INFO, "jsonbus.gateway.store"):
        asyncio.run(run())
    assert [each.levelname for each in caplog.records] == ["WARNING", "INFO"]  # not one per message


def test_on_a_full_disk_messages_from_the_bus_are_dropped_and_counted(disk: Path) -> None:
    async def run() -> None:
        async with opened(disk / "data") as it:
            await it.ledger.subscribe("anna", "a", URL)
            await it.ledger.subscribe("ben", "a", URL)
            ballast = fill(disk)
            stored = await accept_until_refused(it)
            await it.ledger.accept_from_bus([("a", PAYLOAD)] * 30)
            assert [view.dropped for view in it.ledger.subscribers()] == [30, 30]
            assert it.ledger.stats()["dropped"] == 60
            assert it.ledger.stats()["backlog"] == stored
            ballast.unlink()
            await it.ledger.accept_from_bus([("a", PAYLOAD)])
            assert it.ledger.stats()["backlog"] == stored + 2

    asyncio.run(run())


def test_settling_keeps_trying_until_the_disk_has_room(
    disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def run() -> None:
        async with opened(disk / "data") as it:
            await it.ledger.subscribe("anna", "a", URL)
            await it.ledger.accept("a", b"1")
            await it.ledger.accept("a", b"2")
            batch = await it.next()
            ballast = fill(disk)
            await accept_until_refused(it)
            failed = it.ledger.stats()["commits_failed"]
            settling = asyncio.create_task(it.ledger.settle(batch))
            await wait_for(lambda: it.ledger.stats()["commits_failed"] > failed + 3)
            assert not settling.done()
            assert it.ledger.stats()["delivered"] == 0
            ballast.unlink()
            await settling
            assert it.ledger.stats()["delivered"] == 1
            assert messages_of(await it.next())[0] == 2

    monkeypatch.setattr(Reserve, "release", lambda self: False)  # with it, it would succeed
    asyncio.run(run())


def test_what_waits_to_be_settled_ends_with_the_ledger(
    disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def run() -> None:
        async with opened(disk / "data") as it:
            await it.ledger.subscribe("anna", "a", URL)
            await it.ledger.accept("a", b"1")
            batch = await it.next()
            ballast = fill(disk)
            await accept_until_refused(it)
            failed = it.ledger.stats()["commits_failed"]
            settling = asyncio.create_task(it.ledger.settle(batch))
            await wait_for(lambda: it.ledger.stats()["commits_failed"] > failed)
            await it.ledger.close()
            with pytest.raises(ClosedError):
                await settling
        ballast.unlink()
        async with opened(disk / "data") as it:
            assert (
                await it.next()
            ).delivery_id == batch.delivery_id  # delivered again: at least once

    monkeypatch.setattr(Reserve, "release", lambda self: False)
    asyncio.run(run())


def test_what_waits_is_delivered_though_the_disk_stays_full(
    disk: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def run() -> None:
        async with opened(disk / "data") as it:
            await it.ledger.subscribe("anna", "a", URL)
            await it.ledger.subscribe("ben", "b", URL)
            for _ in range(300):
                await it.ledger.accept("a", PAYLOAD)
            ballast = fill(disk)
            stored = 300 + await accept_until_refused(it)
            delivered = 0
            while it.ledger.stats()["backlog"]:
                batch = await it.next()
                await asyncio.wait_for(it.ledger.settle(batch), 30)
                delivered += batch.count
                # The room that comes free is not for new messages, as long as there is no reserve.
                with pytest.raises(StoreError, match="the disk is full"):
                    await it.ledger.accept("b", b"1")
            assert delivered == stored
            assert (await it.ledger.unsubscribe("ben")).patterns == ("b",)
            assert it.ledger.stats()["is_failing"] == 1
            ballast.unlink()
            assert await it.ledger.accept("a", b"1") == 1

    with caplog.at_level(logging.INFO, "jsonbus.gateway.store"):
        asyncio.run(run())
    assert [each.levelname for each in caplog.records] == ["WARNING", "INFO"]  # not one per batch


def test_settling_does_not_fail_for_the_sake_of_new_messages_in_the_same_commit(
    disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def run() -> None:
        async with opened(disk / "data") as it:
            await it.ledger.subscribe("anna", "a", URL)
            await it.ledger.accept("a", b"1")
            batch = await it.next()
            fill(disk)
            await accept_until_refused(it)
            some, more = ([it.ledger.accept("a", PAYLOAD) for _ in range(30)] for _ in range(2))
            calls = asyncio.gather(*some, it.ledger.settle(batch), *more, return_exceptions=True)
            results = await asyncio.wait_for(calls, 30)
            assert results.pop(30) is None
            assert all(isinstance(each, StoreError) for each in results)
            assert it.ledger.stats()["delivered"] == 1

    monkeypatch.setattr(webhook_ledger, "SETTLE_AGAIN_S", 3600)  # at the first try
    asyncio.run(run())


def test_a_store_opens_on_a_full_disk_and_has_what_it_had(disk: Path) -> None:
    async def run() -> None:
        async with opened(disk / "data") as it:
            await it.ledger.subscribe("anna", "a", URL)
            await it.ledger.accept("a", b"1")
            (batch,) = it.batches
        fill(disk)
        async with opened(disk / "data") as it:
            assert it.batches == [batch]
            await asyncio.wait_for(it.ledger.settle(batch), 30)
            assert it.ledger.stats()["delivered"] == 1

    asyncio.run(run())


def test_a_new_store_on_a_full_disk_is_refused_with_a_sentence(disk: Path) -> None:
    async def run() -> None:
        (disk / "data").mkdir()
        fill(disk)
        with pytest.raises(StoreError, match="the disk is full"):
            async with opened(disk / "data"):
                pass

    asyncio.run(run())
