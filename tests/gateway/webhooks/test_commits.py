from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

import pytest

from jsonbus.errors import ClosedError, StoreError
from jsonbus.gateway.webhooks import commits as webhook_commits
from jsonbus.gateway.webhooks.commands import Accept, Command, Committed, Subscribe, Unsubscribe
from jsonbus.gateway.webhooks.commits import CommitThread, Task
from jsonbus.gateway.webhooks.store import WebhookStore
from tests.gateway.webhooks.ledgers import URL, wait_for


class HeldStore(WebhookStore):
    """A store whose commits wait for leave, so that a test decides what comes meanwhile."""

    def __init__(self) -> None:
        super().__init__(None)
        self.leave = threading.Semaphore(0)
        self.groups: list[list[Command]] = []

    def commit(self, commands: Sequence[Command]) -> Committed:
        self.groups.append(list(commands))
        assert self.leave.acquire(timeout=30)
        return super().commit(commands)


def resolve(tasks: list[Task], outcome: Committed) -> None:
    for task, result in zip(tasks, outcome.results, strict=True):
        if isinstance(result, StoreError):
            task.future.set_exception(result)
        else:
            task.future.set_result(result)


def message(size_bytes: int = 1) -> Accept:
    return Accept([("a", b"1" * size_bytes, (1,))])


async def submit_behind(store: HeldStore, commits: CommitThread, commands: list[Command]) -> None:
    """Submit commands while a commit runs, then let everything run to its end."""
    first = commits.submit(Subscribe("anna", "a", URL))
    await wait_for(lambda: store.groups)
    futures = [commits.submit(command) for command in commands]
    store.leave.release(1_000)
    await asyncio.gather(first, *futures)
    await commits.close()


def groups_of(commands: list[Command]) -> list[int]:
    store = HeldStore()

    async def run() -> None:
        commits = CommitThread(store, resolve)
        await commits.open()
        await submit_behind(store, commits, commands)

    asyncio.run(run())
    assert [command for group in store.groups[1:] for command in group] == commands
    return [len(group) for group in store.groups[1:]]


def test_whatever_comes_while_a_commit_runs_goes_into_the_next() -> None:
    commands: list[Command] = [
        message(),
        Subscribe("ben", "b", URL),
        message(),
        Unsubscribe("ben", None),
    ]
    assert groups_of(commands) == [4]


def test_a_group_has_at_most_so_many_messages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(webhook_commits, "GROUP_MESSAGES_MAX", 3)
    many = Accept([("a", b"1", (1,))] * 5)
    assert groups_of([message(), message(), many, message(), message(), message(), message()]) == [
        2,
        1,
        3,
        1,
    ]


def test_a_group_ends_with_the_message_that_is_too_much(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(webhook_commits, "GROUP_BYTES_MAX", 100)
    assert groups_of([message(60), message(60), message(200), message(10)]) == [2, 1, 1]


def test_a_program_that_forgets_to_close_ends_all_the_same(tmp_path: Path) -> None:
    program = """
import asyncio, pathlib, sys
from jsonbus.gateway.webhooks.ledger import WebhookLedger

async def main():
    ledger = WebhookLedger(pathlib.Path(sys.argv[1]))
    await ledger.open(print)
    await ledger.subscribe("anna", "a", "http://h/")
    asyncio.create_task(ledger.accept("a", b"1"))
    await asyncio.sleep(0)  # the commit comes back to a loop that is gone, or nearly

asyncio.run(main())
"""
    ended = subprocess.run(
        [sys.executable, "-W", "error", "-c", program, str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (ended.returncode, ended.stderr) == (0, "")
    store = WebhookStore(tmp_path)
    (subscriber,) = store.open().subscribers
    store.close()
    assert subscriber.patterns == ("a",)


def test_nothing_can_be_submitted_before_opening_or_after_closing() -> None:
    async def run() -> None:
        commits = CommitThread(WebhookStore(None), resolve)
        with pytest.raises(ClosedError):
            commits.submit(message())
        await commits.open()
        await commits.close()
        with pytest.raises(ClosedError):
            commits.submit(message())

    asyncio.run(run())


def test_closing_does_not_wait_for_a_disk_that_hangs(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(webhook_commits, "CLOSE_S", 0.05)
    store = HeldStore()

    async def run() -> None:
        commits = CommitThread(store, resolve)
        await commits.open()
        waiting = commits.submit(Subscribe("anna", "a", URL))
        await wait_for(lambda: store.groups)
        async with asyncio.timeout(20):  # less than the disk hangs
            await commits.close()
        assert not waiting.done()
        store.leave.release()  # it is back
        monkeypatch.setattr(webhook_commits, "CLOSE_S", 30)
        await commits.close()
        await waiting

    asyncio.run(run())
    assert "did not answer" in caplog.text


def test_a_bug_in_the_store_reaches_those_who_wait_and_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Broken(WebhookStore):
        def commit(self, commands: Sequence[Command]) -> Committed:
            raise ZeroDivisionError("a bug")

    async def run() -> None:
        commits = CommitThread(Broken(None), resolve)
        await commits.open()
        with pytest.raises(StoreError, match="a bug"):
            await commits.submit(message())
        await commits.close()

    asyncio.run(run())
    assert "ZeroDivisionError" in caplog.text
