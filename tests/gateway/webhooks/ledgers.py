"""A ledger with its batches gathered, and a look into its file from outside."""

from __future__ import annotations

import asyncio
import contextlib
import json
import shutil
import sqlite3
import tempfile
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

from jsonbus.gateway.webhooks.ledger import Batch, WebhookLedger
from jsonbus.gateway.webhooks.schema import FILE_NAME

URL = "http://127.0.0.1:9/hook"


class Opened:
    """An open ledger and the batches it announced, oldest first; `next` waits for one."""

    def __init__(self, ledger: WebhookLedger) -> None:
        self.ledger = ledger
        self.batches: list[Batch] = []

    async def next(self) -> Batch:
        await wait_for(lambda: self.batches)
        return self.batches.pop(0)


@contextlib.asynccontextmanager
async def opened(path: Path | None, **limits: int) -> AsyncIterator[Opened]:
    opened = Opened(WebhookLedger(path, **limits))
    await opened.ledger.open(opened.batches.append)
    try:
        yield opened
    finally:
        await opened.ledger.close()


async def wait_for(condition: Callable[[], object], timeout_s: float = 30.0) -> None:
    """Let others run until a condition holds; the timeout is for machines that are slow or busy."""
    async with asyncio.timeout(timeout_s):
        while not condition():  # noqa: ASYNC110  # conditions of any kind, in tests
            await asyncio.sleep(0.001)


def rows_in(folder: Path) -> dict[str, int]:
    """How many rows each table of a store's file has, also while it is open and nothing runs.

    Looks at a copy, as a crash would leave it: an open store lets nobody else in.
    """
    with tempfile.TemporaryDirectory() as copy:
        for name in (FILE_NAME, FILE_NAME + "-wal"):
            if (folder / name).exists():
                shutil.copy(folder / name, copy)
        database = sqlite3.connect(Path(copy) / FILE_NAME)
        try:
            return {
                table: database.execute(f"SELECT count(*) FROM {table}").fetchone()[0]
                for table in ("subscribers", "subscriptions", "messages", "deliveries")
            }
        finally:
            database.close()


def messages_of(batch: Batch) -> list[Any]:
    body = json.loads(batch.body)
    assert list(body) == ["message", "topic"]
    assert len(body["message"]) == len(body["topic"]) == batch.count
    return list(body["message"])


def topics_of(batch: Batch) -> list[str]:
    return list(json.loads(batch.body)["topic"])
