"""The ledger against a model of a few lines: whatever is done in whatever order, both agree."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, TypeVar
from unittest import mock

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from jsonbus import topic_matches
from jsonbus.errors import BacklogFullError
from jsonbus.gateway.webhooks import store as webhook_store
from jsonbus.gateway.webhooks.ledger import Batch, WebhookLedger
from tests.gateway.webhooks.ledgers import messages_of, rows_in

BATCH_MAX, BACKLOG_MAX, TOTAL_MAX, SUBSCRIPTIONS_MAX = 2, 5, 9, 5

NAMES = st.sampled_from(["anna", "ben", "carl"])
PATTERNS = st.sampled_from(["a", "a/b", "a/*", "**"])
TOPICS = st.sampled_from(["a", "a/b", "a/c", "z"])
URLS = st.sampled_from(["http://h/1", "http://h/2"])
T = TypeVar("T")


class Subscriber:
    def __init__(self) -> None:
        self.url = ""
        self.patterns: list[str] = []
        self.backlog: list[int] = []
        self.in_flight: Batch | None = None

    def wants(self, topic: str) -> bool:
        return any(topic_matches(pattern, topic) for pattern in self.patterns)


class LedgerAgainstModel(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="jsonbus-model-"))
        self.limit = mock.patch.object(webhook_store, "BATCH_COUNT_MAX", BATCH_MAX)
        self.limit.start()
        self.runner = asyncio.Runner()
        self.model: dict[str, Subscriber] = {}
        self.announced: list[Batch] = []
        self.old: list[Batch] = []
        self.last_message = 0

    @initialize()
    def open(self) -> None:
        self.ledger = WebhookLedger(
            self.folder,
            backlog_max=BACKLOG_MAX,
            total_backlog_max=TOTAL_MAX,
            subscriptions_max=SUBSCRIPTIONS_MAX,
        )
        self.run(self.ledger.open(self.announced.append))

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self.runner.run(work)

    def teardown(self) -> None:
        try:
            self.run(self.ledger.close())
            self.assert_file_agrees()
        finally:
            self.runner.close()
            self.limit.stop()
            shutil.rmtree(self.folder)

    @property
    def total(self) -> int:
        return sum(len(each.backlog) for each in self.model.values())

    @property
    def subscriptions(self) -> int:
        return sum(len(each.patterns) for each in self.model.values())

    @rule(name=NAMES, pattern=PATTERNS, url=URLS)
    def subscribe(self, name: str, pattern: str, url: str) -> None:
        known = self.model.get(name, Subscriber())
        is_new = pattern not in known.patterns
        has_moved = name in self.model and known.url != url
        is_full = self.subscriptions >= SUBSCRIPTIONS_MAX or self.total >= TOTAL_MAX
        try:
            done = self.run(self.ledger.subscribe(name, pattern, url))
        except BacklogFullError:
            assert is_new and is_full
            return
        assert not (is_new and is_full)
        assert (done.is_new, done.has_moved) == (is_new, has_moved)
        self.model[name] = known
        known.url = url
        if is_new:
            known.patterns.append(pattern)

    @rule(name=NAMES, pattern=st.none() | PATTERNS)
    def unsubscribe(self, name: str, pattern: str | None) -> None:
        known = self.model.get(name, Subscriber())
        expected = [each for each in known.patterns if pattern in (None, each)]
        assert list(self.run(self.ledger.unsubscribe(name, pattern)).patterns) == expected
        known.patterns = [each for each in known.patterns if each not in expected]
        if not known.patterns and (gone := self.model.pop(name, None)) and gone.in_flight:
            self.old.append(gone.in_flight)

    @rule(topic=TOPICS)
    def accept(self, topic: str) -> None:
        self.last_message += 1
        wanting = [each for each in self.model.values() if each.wants(topic)]
        is_full = self.total + len(wanting) > TOTAL_MAX or any(
            len(each.backlog) >= BACKLOG_MAX for each in wanting
        )
        try:
            stored = self.run(self.ledger.accept(topic, b"%d" % self.last_message))
        except BacklogFullError:
            assert wanting and is_full
            return
        assert not (wanting and is_full)
        assert stored == len(wanting)
        for each in wanting:
            each.backlog.append(self.last_message)

    @rule(topics=st.lists(TOPICS, max_size=4))
    def accept_from_bus(self, topics: list[str]) -> None:
        messages = []
        for topic in topics:
            with_room = [
                each
                for each in self.model.values()
                if each.wants(topic) and len(each.backlog) < BACKLOG_MAX
            ]
            if self.total + len(with_room) > TOTAL_MAX:
                break  # who of them gets the last place is the ledger's to say
            self.last_message += 1
            messages.append((topic, b"%d" % self.last_message))
            for each in with_room:
                each.backlog.append(self.last_message)
        self.run(self.ledger.accept_from_bus(messages))

    @rule(name=NAMES)
    def settle(self, name: str) -> None:
        known = self.model.get(name)
        if known is None or known.in_flight is None:
            return
        self.run(self.ledger.settle(known.in_flight))
        self.old.append(known.in_flight)
        del known.backlog[: known.in_flight.count]
        known.in_flight = None

    @rule(index=st.integers(0, 100))
    def settle_what_is_no_longer_in_flight(self, index: int) -> None:
        if self.old:
            self.run(self.ledger.settle(self.old[index % len(self.old)]))

    @rule()
    def restart(self) -> None:
        self.run(self.ledger.close())
        assert self.announced == []
        self.assert_file_agrees()
        self.open()
        in_flight = [each.in_flight for each in self.model.values() if each.in_flight]
        assert sorted(map(repr, self.announced)) == sorted(map(repr, in_flight))
        self.announced.clear()

    @invariant()
    def both_agree(self) -> None:
        for batch in self.announced:
            known = self.model[batch.name]
            assert known.in_flight is None
            assert batch.delivery_id not in {old.delivery_id for old in self.old}
            known.in_flight = batch
        self.announced.clear()
        for view in self.ledger.subscribers():
            known = self.model[view.name]
            assert (view.url, list(view.patterns)) == (known.url, known.patterns)
            assert view.backlog == len(known.backlog)
            if known.backlog:
                assert known.in_flight is not None
                taken = messages_of(known.in_flight)
                assert len(taken) <= BATCH_MAX
                assert taken == known.backlog[: len(taken)]
            else:
                assert known.in_flight is None
        stats = self.ledger.stats()
        assert stats["subscribers"] == len(self.model)
        assert stats["subscriptions"] == self.subscriptions
        assert stats["backlog"] == self.total

    def assert_file_agrees(self) -> None:
        rows = rows_in(self.folder)
        assert rows["deliveries"] == self.total
        assert rows["messages"] == len({n for each in self.model.values() for n in each.backlog})
        assert rows["subscribers"] == len(self.model)
        assert rows["subscriptions"] == self.subscriptions


TestLedgerAgainstModel = LedgerAgainstModel.TestCase
TestLedgerAgainstModel.settings = settings(
    max_examples=30,
    stateful_step_count=25,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
