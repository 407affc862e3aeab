"""WebhookLedger: the webhooks' store as the event loop sees it.

Theory of operation. The loop decides and the commit thread writes. A message is matched against the
subscriptions and counted against the limits at once, in memory; then it goes into the next commit,
and the count is undone if that fails. Subscriptions change the other way round: first on disk, and
in memory when the commit is done. So memory never promises what the file does not hold. A message
that is accepted while an unsubscription is on its way is still stored, or the store finds that
nobody wants it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from jsonbus import SubscriptionStore, check_pattern
from jsonbus.errors import BacklogFullError, ClosedError, LocalError, StoreError
from jsonbus.gateway.webhooks.accounts import Account, Accounts, SubscriberView
from jsonbus.gateway.webhooks.commands import (
    FREEING,
    Accept,
    Batch,
    Command,
    Committed,
    Ended,
    Probe,
    ReadBody,
    Settle,
    Subscribe,
    Subscribed,
    Unsubscribe,
)
from jsonbus.gateway.webhooks.commits import CommitThread, Task, resolve
from jsonbus.gateway.webhooks.schema import DiskFullError
from jsonbus.gateway.webhooks.store import WebhookStore

__all__ = ["Batch", "Subscribed", "SubscriberView", "WebhookLedger"]

log = logging.getLogger("jsonbus.gateway.store")

#: The pause before a delivered batch is settled again after the disk refused.
SETTLE_AGAIN_S = 1.0
#: How long the result of a probe holds: anybody may ask, and each probe is synced to disk.
PROBED_S = 1.0


class WebhookLedger:
    """Subscribers, and the messages that wait for them. Use it in one event loop.

    A message or subscription is on disk when `accept` or `subscribe` returns; a process killed at
    any moment after that does not lose it.
    """

    def __init__(
        self,
        path: Path | None,
        *,
        backlog_max: int = 10_000,
        total_backlog_max: int = 100_000,
        subscriptions_max: int = 10_000,
    ) -> None:
        """`path` is the folder of the store, made if it is missing; None: keep all in memory.

        At most `backlog_max` messages wait for one subscriber and `total_backlog_max` for all
        together, a message counted for each of its subscribers.
        """
        self._subscriptions_max = subscriptions_max
        self._subscriptions = 0
        self._subscribing = 0  # calls of subscribe on their way into the store
        self._wanted: SubscriptionStore[int] = SubscriptionStore()
        self._accounts = Accounts(backlog_max, total_backlog_max)
        self._commits = CommitThread(WebhookStore(path), self._on_commit)
        self._on_batch: Callable[[Batch], None] = lambda batch: None
        self._is_open = False
        self._error: StoreError | None = None  # of the last commit
        self._probe: asyncio.Future[None] | None = None
        self._probed_at = -PROBED_S
        self._counts = {"accepted": 0, "delivered": 0, "commits": 0, "commits_failed": 0}

    async def open(self, on_batch: Callable[[Batch], None]) -> None:
        """Open the store; raises StoreError.

        `on_batch` runs in the loop for every batch that is cut, and before this returns for those
        that were in flight when the store was last closed or killed. A batch is announced once; the
        callee delivers it until it is settled or its subscriber is gone (`url_of`). If it comes
        without its body, `body_of` reads it.
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
        """Commit what was accepted and close the store; a later `settle` raises ClosedError."""
        self._is_open = False
        await self._commits.close()

    def wants(self, topic: str) -> bool:
        """Return whether any webhook wants a topic."""
        return bool(self._wanted.subscribers_of(topic))

    def patterns(self) -> list[str]:
        """Return all patterns that webhooks want, each once."""
        return list(self._wanted.patterns())

    async def subscribe(self, name: str, pattern: str, url: str) -> Subscribed:
        """Subscribe a name and url to a pattern; on disk when this returns.

        Another url than the known one moves the subscriber with its backlog. Raises
        InvalidTopicError, LocalError, BacklogFullError (too many subscriptions, or no room for
        more messages), StoreError, ClosedError.
        """
        self._check_open()
        pattern = check_pattern(pattern)
        _check_text("the subscriber's name", name)
        _check_text("the url", url)
        known = self._accounts.find(name)
        if known is None or pattern not in self._wanted.patterns_of(known):
            self._check_room_to_subscribe()
        self._subscribing += 1
        subscribed: Subscribed = await self._commits.submit(Subscribe(name, pattern, url))
        return subscribed

    async def unsubscribe(self, name: str, pattern: str | None = None) -> Ended:
        """End one subscription, or all; return what ended.

        With its last pattern a subscriber is forgotten, and its backlog. Raises LocalError,
        StoreError, ClosedError.
        """
        self._check_open()
        _check_text("the subscriber's name", name)
        ended: Ended = await self._commits.submit(Unsubscribe(name, pattern))
        return ended

    async def accept(self, topic: str, payload: bytes) -> int:
        """Store a message (JSON) for the webhooks that want it; return how many do.

        It is on disk when this returns. Raises BacklogFullError if any of them has no room,
        StoreError, ClosedError: then it is stored for none.
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

        They cannot be refused: a message without room, or one that cannot be written, is lost for
        that subscriber, counted, and logged once per cause. Returns when the rest is on disk.
        Raises ClosedError.
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
                pass  # counted and logged where the commit failed

    async def settle(self, batch: Batch) -> None:
        """Delete a delivered batch; on disk when this returns. The next one comes by `on_batch`.

        Tries again while the disk refuses. Does nothing if the batch is not in flight: its
        subscriber is gone, or it was settled before. Raises ClosedError.
        """
        while True:
            self._check_open()
            try:
                await self._commits.submit(Settle(batch.subscriber, batch.last))
                return
            except StoreError:
                log.debug("! %s is delivered and not settled, trying again", batch.delivery_id)
            await asyncio.sleep(SETTLE_AGAIN_S)

    async def body_of(self, batch: Batch) -> bytes | None:
        """Read the body of a batch again; None if it is no longer in flight.

        Raises StoreError, ClosedError.
        """
        self._check_open()
        body: bytes | None = await self._commits.submit(ReadBody(batch.subscriber, batch.last))
        return body

    async def find_trouble(self, timeout_s: float) -> str | None:
        """Try to write; return why messages cannot be stored, or None. Bounded by `timeout_s`.

        The reason names no files: anybody may be told.
        """
        loop = asyncio.get_running_loop()
        if self._probe is None or (
            self._probe.done() and loop.time() - self._probed_at >= PROBED_S
        ):
            try:
                self._check_open()
                self._probe = self._commits.submit(Probe())
            except ClosedError:
                return "the gateway is closing"
            self._probed_at = loop.time()
            self._probe.add_done_callback(_take_note)
        await asyncio.wait([self._probe], timeout=timeout_s)
        if not self._probe.done():
            waited_s = loop.time() - self._probed_at
            return f"the disk of the webhooks' store has not answered for {waited_s:.0f} s"
        if self._error is None:
            return None
        if isinstance(self._error, DiskFullError):
            return "the disk of the webhooks' store is full"
        return "messages for webhooks cannot be stored: see the gateway's log"

    def url_of(self, subscriber: int) -> str | None:
        """Return the present url of a subscriber; None if it is gone."""
        account = self._accounts.get(subscriber)
        return None if account is None else account.url

    def note_attempt(self, subscriber: int, error: str | None, retry_at: float | None) -> None:
        """Note the end of an attempt for the views; `error` None: it succeeded."""
        self._accounts.note_attempt(subscriber, error, retry_at)

    def subscribers(self) -> list[SubscriberView]:
        """Return all subscribers with their present state, oldest first."""
        return [
            account.view(self._wanted.patterns_of(subscriber))
            for subscriber, account in self._accounts
        ]

    def stats(self) -> dict[str, int]:
        """Return gauges, and counts since the start; a message counts once per subscriber."""
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

    def _on_commit(self, tasks: list[Task], done: Committed) -> None:
        is_storing = not all(isinstance(task.command, FREEING) for task in tasks)
        self._note_state(done.error, is_storing=is_storing)
        for (command, future), result in zip(tasks, done.results, strict=True):
            if isinstance(command, Subscribe):
                self._subscribing -= 1
            if not isinstance(result, StoreError):
                self._apply(command, result)
            elif isinstance(command, Accept):
                for _, _, subscribers in command.messages:
                    self._accounts.give_back(subscribers, is_dropped=command.is_from_bus)
            resolve(future, result)
        self._announce(done.batches)

    def _apply(self, command: Command, result: Any) -> None:
        """Repeat in memory what is now on disk."""
        match command:
            case Accept():
                self._counts["accepted"] += result
            case Settle():
                self._counts["delivered"] += result
                self._accounts.note_delivered(command.subscriber, result)
            case Subscribe():
                self._apply_subscribe(command, result)
            case Unsubscribe():
                self._apply_unsubscribe(result)

    def _apply_subscribe(self, command: Subscribe, done: Subscribed) -> None:
        account = self._accounts.get(done.subscriber)
        if account is None:
            account = Account(command.name, command.url, done.created_at)
            self._accounts.add(done.subscriber, account)
        account.url = command.url
        if done.is_new:
            self._subscriptions += 1
            self._wanted.subscribe(command.pattern, done.subscriber)

    def _apply_unsubscribe(self, ended: Ended) -> None:
        self._subscriptions -= len(ended.patterns)
        for pattern in ended.patterns:
            self._wanted.unsubscribe(pattern, ended.subscriber)
        if ended.is_gone:
            self._accounts.remove(ended.subscriber)

    def _note_state(self, error: StoreError | None, *, is_storing: bool) -> None:
        """Log when the store begins to refuse and when it recovers, not each time in between.

        Only a commit that stored something shows recovery: a full disk still settles.
        """
        self._counts["commits"] += 1
        if error is not None:
            self._counts["commits_failed"] += 1
            if self._error is None:
                log.warning("messages for webhooks cannot be stored: %s", error)
            self._error = error
        elif is_storing and self._error is not None:
            log.info("messages for webhooks can be stored again")
            self._error = None

    def _announce(self, batches: Sequence[Batch]) -> None:
        for batch in batches:
            try:
                self._on_batch(batch)
            except Exception:
                log.exception("batch %s was not handed to its delivery", batch.delivery_id)

    # ---- Helpers

    def _check_open(self) -> None:
        if not self._is_open:
            raise ClosedError("the store of the webhooks is not open")

    def _check_room_to_subscribe(self) -> None:
        if self._subscriptions + self._subscribing >= self._subscriptions_max:
            raise BacklogFullError(
                f"there are {self._subscriptions:,} subscriptions, at most "
                f"{self._subscriptions_max:,} are kept: unsubscribe those no longer needed"
            )
        if self._accounts.is_full:
            raise BacklogFullError(self._accounts.describe_total_full())


def _take_note(probe: asyncio.Future[None]) -> None:
    """Look at the result of a probe, which the loop reports as forgotten otherwise."""
    if not probe.cancelled():
        probe.exception()


def _check_text(what: str, text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise LocalError(f"{what} {text!r} is not valid Unicode: {error.reason}") from None
