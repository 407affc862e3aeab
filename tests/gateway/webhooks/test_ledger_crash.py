"""A gateway killed at any moment: what was acknowledged is there, in order, under the same ids."""

from __future__ import annotations

import random
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from jsonbus.gateway.webhooks.commands import Batch, Settle
from jsonbus.gateway.webhooks.schema import FILE_NAME
from jsonbus.gateway.webhooks.store import WebhookStore
from tests.gateway.webhooks.child import PUBLISHERS, SUBSCRIBERS
from tests.gateway.webhooks.ledgers import messages_of

ROUNDS = 12
SEED = 20_240_607


class Heard:
    """What the killed processes said, and what a receiver of their batches would have got."""

    def __init__(self) -> None:
        self.accepted: set[int] = set()
        self.settled: set[str] = set()
        self.batches: dict[str, list[int]] = {}  # by id, in order

    def hear(self, line: str) -> None:
        word, *rest = line.split()
        if word == "accepted":
            self.accepted.add(int(rest[0]))
        elif word == "settled":
            self.settled.add(rest[0])
        else:
            self.hear_batch(rest[0], [int(each) for each in rest[1:]])

    def hear_batch(self, delivery_id: str, numbers: list[int]) -> None:
        assert delivery_id not in self.settled, "a settled batch came again"
        assert self.batches.setdefault(delivery_id, numbers) == numbers, "a batch has changed"

    def numbers_of(self, subscriber: int) -> list[int]:
        """What a receiver that knows ids again got, in order."""
        return [
            number
            for delivery_id, numbers in self.batches.items()
            if delivery_id.split("-")[1] == str(subscriber)
            for number in numbers
        ]


def run_and_kill(folder: Path, first_number: int, lines: int, heard: Heard) -> None:
    """Run a child until it has said so many lines, kill it, and hear the rest of what it said."""
    child = subprocess.Popen(
        [sys.executable, "-m", "tests.gateway.webhooks.child", str(folder), str(first_number)],
        stdout=subprocess.PIPE,
        text=True,
    )
    with child:
        assert child.stdout is not None
        try:
            for _ in range(lines):
                heard.hear(child.stdout.readline())
        finally:
            child.kill()
        for line in child.stdout:
            if line.endswith("\n"):  # not cut by the kill
                heard.hear(line)


def waiting_in(folder: Path, subscriber: int) -> list[int]:
    database = sqlite3.connect(folder / FILE_NAME)
    rows = database.execute(
        "SELECT payload FROM deliveries JOIN messages USING (number) "
        "WHERE subscriber = ? ORDER BY number",
        (subscriber,),
    ).fetchall()
    database.close()
    return [int(payload) for (payload,) in rows]


def assert_in_order(numbers: list[int]) -> None:
    """Each publisher waited for each of its messages, so its numbers must come ascending."""
    assert len(numbers) == len(set(numbers)), "a message came twice"
    for publisher in range(PUBLISHERS):
        mine = [each for each in numbers if each % PUBLISHERS == publisher]
        assert mine == sorted(mine)


@pytest.mark.slow
def test_nothing_acknowledged_is_lost_when_the_process_is_killed_again_and_again(
    tmp_path: Path,
) -> None:
    dice = random.Random(SEED)
    heard = Heard()
    subscribers = range(1, len(SUBSCRIBERS) + 1)
    for round_ in range(ROUNDS):
        run_and_kill(tmp_path, round_ * 1_000_000, dice.randrange(1, 600), heard)
        for subscriber in subscribers:
            waiting = waiting_in(tmp_path, subscriber)
            assert heard.accepted <= {*heard.numbers_of(subscriber), *waiting}
            assert_in_order(waiting)
    assert len(heard.accepted) > ROUNDS

    store = WebhookStore(tmp_path)
    in_flight: list[Batch] = store.open().batches
    while in_flight:
        batch = in_flight.pop(0)
        heard.hear_batch(batch.delivery_id, messages_of(batch))
        in_flight += store.commit([Settle(batch.subscriber, batch.last)]).batches
    store.close()
    for subscriber in subscribers:
        numbers = heard.numbers_of(subscriber)
        assert heard.accepted <= set(numbers)
        assert_in_order(numbers)
        assert waiting_in(tmp_path, subscriber) == []
    database = sqlite3.connect(tmp_path / FILE_NAME)
    assert database.execute("SELECT count(*) FROM messages").fetchone() == (0,)
    assert database.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    database.close()
