"""WebhookLedger: the webhooks' store for the event loop: who wants what, limits, durable backlog.

Theory of operation. The loop decides and the commit thread writes. A message is matched against the
subscriptions and counted against the limits at once, in memory; what is counted is then given to
the next commit, and is given back if that fails. Subscriptions change the other way round: first on
disk, then, when the commit comes back, in memory. So the memory never promises what the file does
not hold, and a message offered while an unsubscription is on its way is still stored, or found by
the store to be for nobody.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from jsonbus import SubscriptionStore, check_pattern
from jsonbus.errors import BacklogFullError, ClosedError, LocalError, StoreError
from jsonbus.gateway.webhooks.accounts import Account, Accounts, SubscriberView
from jsonbus.gateway.webhooks.commands import (
    FREEING,
    Accept,
    Batch,
    Ended,
    ReadBody,
    Settle,
    Subscribe,
    Subscription,
    Unsubscribe,
)
from jsonbus.gateway.webhooks.commits import CommitThread, Outcome, Task
from jsonbus.gateway.webhooks.store import WebhookStore

__all__ = ["Batch", "Subscribed", "SubscriberView", "WebhookLedger"]

log = logging.getLogger("jsonbus.gateway.store")

#: How long a delivered batch waits before it is settled again after the disk refused.
SETTLE_AGAIN_S = 1.0


class Subscribed(NamedTuple):
    """What a call of subscribe changed."""

    is_new: bool  # the pattern, for this subscriber
    has_moved: bool  # a known subscriber, to another url


class WebhookLedger:
    """Subscribers with their webhooks, and the messages that wait for them. For one event loop.

    A message or subscription is on disk when `accept` or `subscribe` returns; a process killed at
    any moment after that loses nothing of it.
    """

    def __init__(
        self,
        path: Path | None,
        *,
        backlog_max: int = 10_000,
        total_backlog_max: int = 100_000,
        subscriptions_max: int = 10_000,
    ) -> None:
        """`path` is the folder of the store, made if need be; None keeps everything in memory.

        At most `backlog_max` messages wait for one subscriber and `total_backlog_max` for all
        together, a message counted for each of its subscribers.
        """
        self._subscriptions_max = subscriptions_max
        self._subscriptions = 0
        self._subscribing = 0  # calls of subscribe on their way into the store
        self._wanted: SubscriptionStore[int] = SubscriptionStore()
        self._accounts = Accounts(backlog_max, total_backlog_max)
        self._commits = CommitThread(WebhookStore(path), self._on_commit)
        self._on_batch: Callable[[Batch], None] = _ignore
        self._is_open = False
        self._closing = asyncio.Event()
        self._error: StoreError | None = None  # of the last commit
        self._counts = {"accepted": 0, "delivered": 0, "commits": 0, "commits_failed": 0}

    async def open(self, on_batch: Callable[[Batch], None]) -> None:
        """Open the store; raises StoreError.

        `on_batch` runs in the loop for every batch cut from now on, and before this returns for
        those that were in flight when the store was last closed or killed. A batch comes once: it
        is the receiver's to deliver until it is settled or its subscriber is gone (`url_of`). One
        without its body is too large to be kept with all others: `body_of` reads it.
        """
        contents = await self._commits.open()
        self._on_batch = on_batch
        for each in contents.subscribers:
            account = Account(each.name, each.url, each.created_at, each.delivered, each.backlog)
            self._accounts.add(each.id, account)
            for pattern in each.patterns:
                self._wanted.subscribe(pattern, each.id)
            self._subscriptions += len(each.patterns)
        self._is_open = True
        self._announce(contents.batches)

    async def close(self) -> None:
        """Commit what was accepted and close the store; whoever still settles gets ClosedError."""
        self._is_open = False
        self._closing.set()
        await self._commits.close()

    def wants(self, topic: str) -> bool:
        """Whether any webhook wants a topic."""
        return bool(self._wanted.subscribers_of(topic))

    def patterns(self) -> list[str]:
        """All patterns that a webhook wants, each once."""
        return self._wanted.patterns()

    async def subscribe(self, name: str, pattern: str, url: str) -> Subscribed:
        """Note that the subscriber of that name wants a pattern, at an address; on disk then.

        Another url than the known one moves the subscriber with its backlog. Raises
        InvalidTopicError, LocalError, BacklogFullError (too many subscriptions, or no room for
        more messages), StoreError, ClosedError.
        """
        self._check_open()
        pattern = check_pattern(pattern)
        _check_text("the subscriber's name", name)
        _check_text("the url", url)
        if pattern not in self._patterns_of(self._accounts.find(name)):
            self._check_room_to_subscribe()
        self._subscribing += 1
        change: Subscription = await self._commits.submit(Subscribe(name, pattern, url))
        return Subscribed(change.is_new, change.has_moved)

    async def unsubscribe(self, name: str, pattern: str | None = None) -> list[str]:
        """End one subscription, or all; returns the patterns ended (none: it was not known).

        With its last pattern a subscriber goes, and its backlog. Raises LocalError, StoreError,
        ClosedError.
        """
        self._check_open()
        _check_text("the subscriber's name", name)
        ended: Ended = await self._commits.submit(Unsubscribe(name, pattern))
        return list(ended.patterns)

    async def accept(self, topic: str, payload: bytes) -> int:
        """Store a message (JSON) for the webhooks that want it; on disk then. Returns how many do.

        Raises BacklogFullError if any of them has no room, or StoreError, ClosedError: then it is
        stored for nobody.
        """
        self._check_open()
        subscribers = self._wanted.subscribers_of(topic)
        if not subscribers:
            return 0
        self._accounts.reserve(subscribers)
        stored: int = await self._commits.submit(Accept(((topic, payload, subscribers),)))
        return stored

    async def accept_from_bus(self, messages: Sequence[tuple[str, bytes]]) -> None:
        """Store messages (JSON) that were published elsewhere, for the webhooks that want them.

        They cannot be refused: what has no room, or cannot be written, is lost for that subscriber,
        counted, and warned of once per cause. Returns when the rest is on disk. Raises ClosedError.
        """
        self._check_open()
        wanted = []
        for topic, payload in messages:
            subscribers = self._wanted.subscribers_of(topic)
            if subscribers and (with_room := self._accounts.reserve_or_drop(subscribers)):
                wanted.append((topic, payload, with_room))
        if wanted:
            try:
                await self._commits.submit(Accept(wanted, is_from_bus=True))
            except StoreError:
                pass  # counted and warned of where the commit failed

    async def settle(self, batch: Batch) -> None:
        """A batch was delivered: forget it; on disk then. The next one comes by `on_batch`.

        While the disk refuses it tries again. A batch that is not in flight (its subscriber is
        gone, it was settled before) is nothing. Raises ClosedError.
        """
        while True:
            self._check_open()
            try:
                await self._commits.submit(Settle(batch.subscriber, batch.last))
                return
            except StoreError:
                log.debug("! %s is delivered and not settled, trying again", batch.delivery_id)
            try:
                await asyncio.wait_for(self._closing.wait(), SETTLE_AGAIN_S)
            except TimeoutError:
                pass

    async def body_of(self, batch: Batch) -> bytes | None:
        """Read the body of a batch in flight again; None if it is not (settled, subscriber gone).

        Raises StoreError, ClosedError.
        """
        self._check_open()
        body: bytes | None = await self._commits.submit(ReadBody(batch.subscriber, batch.last))
        return body

    def url_of(self, subscriber: int) -> str | None:
        """Where a subscriber's batches go now; None if it is gone."""
        account = self._accounts.get(subscriber)
        return None if account is None else account.url

    def note_attempt(self, subscriber: int, error: str | None, retry_at: float | None) -> None:
        """Show in the views how an attempt to deliver ended: None is well."""
        self._accounts.note_attempt(subscriber, error, retry_at)

    def subscribers(self) -> list[SubscriberView]:
        """All subscribers with their present state, oldest first."""
        return [
            account.view(self._wanted.patterns_of(subscriber))
            for subscriber, account in self._accounts
        ]

    def stats(self) -> dict[str, int]:
        """Gauges of now, and counts since the start: messages for each of their subscribers."""
        return {
            "subscribers": len(self._accounts),
            "subscriptions": self._subscriptions,
            "backlog": self._accounts.backlog,
            "refused": self._accounts.refused,
            "dropped": self._accounts.dropped,
            "is_failing": int(self._error is not None),
            **self._counts,
        }

    # ---- After a commit, in the loop

    def _on_commit(self, tasks: list[Task], outcome: Outcome) -> None:
        is_storing = not all(isinstance(task.work, FREEING) for task in tasks)
        self._note_state(outcome.error, is_storing=is_storing)
        for (work, future), result in zip(tasks, outcome.results, strict=True):
            error = result if isinstance(result, StoreError) else None
            if isinstance(work, Accept):
                if error is None:
                    self._counts["accepted"] += result
                else:
                    for _, _, subscribers in work.messages:
                        self._accounts.give_back(subscribers, is_dropped=work.is_from_bus)
            else:
                if isinstance(work, Subscribe):
                    self._subscribing -= 1
                if error is None and not isinstance(work, ReadBody):
                    self._apply(work, result)
            if future.done():  # whoever waited was cancelled
                continue
            if error is None:
                future.set_result(result)
            else:
                future.set_exception(error)
        self._announce(outcome.batches)

    def _apply(self, work: Settle | Subscribe | Unsubscribe, result: Any) -> None:
        """Do in memory what is now on disk."""
        if isinstance(work, Settle):
            self._counts["delivered"] += result
            self._accounts.note_delivered(work.subscriber, result)
        elif isinstance(work, Subscribe):
            self._apply_subscribe(work, result)
        else:
            self._apply_unsubscribe(result)

    def _apply_subscribe(self, work: Subscribe, change: Subscription) -> None:
        account = self._accounts.get(change.subscriber)
        if account is None:
            account = Account(work.name, work.url, change.created_at)
            self._accounts.add(change.subscriber, account)
        account.url = work.url
        if change.is_new:
            self._subscriptions += 1
            self._wanted.subscribe(work.pattern, change.subscriber)

    def _apply_unsubscribe(self, ended: Ended) -> None:
        self._subscriptions -= len(ended.patterns)
        for pattern in ended.patterns:
            self._wanted.unsubscribe(pattern, ended.subscriber)
        if ended.is_gone:
            self._accounts.remove(ended.subscriber)

    def _note_state(self, error: StoreError | None, *, is_storing: bool) -> None:
        """Log when the store begins to refuse and when it works again, not each time between.

        Only a commit that stored something shows that it works: a full disk still settles.
        """
        self._counts["commits"] += 1
        if error is not None:
            self._counts["commits_failed"] += 1
            if self._error is None:
                log.warning("what webhooks should get cannot be stored: %s", error)
            self._error = error
        elif is_storing and self._error is not None:
            log.info("messages for webhooks can be stored again")
            self._error = None

    def _announce(self, batches: Sequence[Batch]) -> None:
        for batch in batches:
            try:
                self._on_batch(batch)
            except Exception:
                log.exception("batch %s cannot be given to its deliverer", batch.delivery_id)

    # ---- Helpers

    def _check_open(self) -> None:
        if not self._is_open:
            raise ClosedError("the store of the webhooks is not open")

    def _patterns_of(self, subscriber: int | None) -> tuple[str, ...]:
        return () if subscriber is None else self._wanted.patterns_of(subscriber)

    def _check_room_to_subscribe(self) -> None:
        if self._subscriptions + self._subscribing >= self._subscriptions_max:
            raise BacklogFullError(
                f"{self._subscriptions:,} subscriptions are here, at most "
                f"{self._subscriptions_max:,} are kept: unsubscribe those no longer needed"
            )
        if self._accounts.is_full:
            raise BacklogFullError(self._accounts.describe_total_full())


def _check_text(what: str, text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise LocalError(f"{what} {text!r} is not valid Unicode: {error.reason}") from None


def _ignore(_batch: Batch) -> None:
    pass
