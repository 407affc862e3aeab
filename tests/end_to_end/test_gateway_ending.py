"""Signals to a gateway that has not begun to serve yet."""

from __future__ import annotations

import signal
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

pytest.importorskip("fastapi")

from jsonbus.gateway.webhooks.store import WebhookStore
from tests.end_to_end.processes import Desk, Process


@contextmanager
def opening_gateway(desk: Desk, folder: Path) -> Iterator[Process]:
    """A gateway that waits for its file, which another program has locked."""
    store = WebhookStore(folder)
    store.open()
    store.close()
    lock = folder / "jsonbus-gateway.lock"
    lock.unlink()
    database = sqlite3.connect(folder / "jsonbus-gateway.db", isolation_level=None)
    try:
        database.execute("BEGIN EXCLUSIVE")
        process = desk.start("gateway", "0", "--tcp-port", "0", "--data-dir", str(folder))
        desk.wait_until(lock.exists)  # it is about to open the file
        yield process
    finally:
        database.close()


def test_a_signal_while_it_opens_ends_it(desk: Desk, tmp_path: Path) -> None:
    with opening_gateway(desk, tmp_path) as gateway:
        gateway.send_signal(signal.SIGTERM)
        gateway.expect_exit(0)  # it did not wait for the file, only to fail
    assert gateway.complaints == ["the gateway has ended"]


def test_the_second_signal_does_not_wait_for_anything(desk: Desk, tmp_path: Path) -> None:
    with opening_gateway(desk, tmp_path) as gateway:

        def has_ended() -> bool:
            gateway.send_signal(signal.SIGINT)
            return gateway.has_ended

        desk.wait_until(has_ended)
        gateway.expect_exit(-signal.SIGINT)
