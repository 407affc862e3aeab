"""Accounts: what is known of each webhook in memory: limits, counts, the last error."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from jsonbus.errors import BacklogFullError

log = logging.getLogger("jsonbus.gateway.store")


class SubscriberView(NamedTuple):
    """A subscriber as people see it. Instants are seconds since 1970."""

    name: str
    url: str
    patterns: tuple[str, ...]
    backlog: int  # messages stored and not delivered yet
    delivered: int  # messages, since the subscriber came
    dropped: int  # messages from the bus for lack of room or disk, since the start
    attempts_failed: int  # since the start
    last_error: str | None
    last_error_at: float | None
    retry_at: float | None  # None: nothing failed, or an attempt is running
    created_at: float


@dataclass(slots=True)
class Account:
    """One subscriber. `backlog` counts messages in the store and on their way into it."""

    name: str
    url: str
    created_at: float
    delivered: int = 0
    backlog: int = 0
    dropped: int = 0
    attempts_failed: int = 0
    last_error: str | None = None
    last_error_at: float | None = None
    retry_at: float | None = None
    has_warned: bool = False  # of dropped messages, since it last had room

    def view(self, patterns: tuple[str, ...]) -> SubscriberView:
        known = {name: getattr(self, name) for name in _VIEWED}
        return SubscriberView(patterns=patterns, **known)


_VIEWED = [name for name in SubscriberView._fields if name != "patterns"]


class Accounts:
    """All subscribers by number, and the limits of their backlogs. Use it in one thread."""

    def __init__(self, backlog_max: int, total_backlog_max: int) -> None:
        self._backlog_max = backlog_max
        self._total_backlog_max = total_backlog_max
        self._accounts: dict[int, Account] = {}
        self._numbers: dict[str, int] = {}  # by name
        self.backlog = 0  # of all accounts together
        self.dropped = 0
        self.refused = 0  # messages of publishers
        self._has_warned = False

    def __len__(self) -> int:
        return len(self._accounts)

    def __iter__(self) -> Iterator[tuple[int, Account]]:
        return iter(self._accounts.items())

    def get(self, subscriber: int) -> Account | None:
        """Return the account, or None if the subscriber is gone."""
        return self._accounts.get(subscriber)

    def find(self, name: str) -> int | None:
        """Return the number of the subscriber of that name, or None."""
        return self._numbers.get(name)

    def add(self, subscriber: int, account: Account) -> None:
        self._accounts[subscriber] = account
        self._numbers[account.name] = subscriber
        self.backlog += account.backlog

    def remove(self, subscriber: int) -> None:
        """Forget a subscriber and its backlog."""
        account = self._accounts.pop(subscriber)
        del self._numbers[account.name]
        self.backlog -= account.backlog

    def reserve(self, subscribers: Sequence[int]) -> None:
        """Count one more message for each, or raise BacklogFullError if any has no room."""
        accounts = self._accounts
        limit = self._backlog_max
        for subscriber in subscribers:
            if accounts[subscriber].backlog >= limit:
                self.refused += 1
                raise BacklogFullError(self._describe_full(accounts[subscriber]))
        if self.backlog + len(subscribers) > self._total_backlog_max:
            self.refused += 1
            raise BacklogFullError(self.describe_total_full())
        for subscriber in subscribers:
            accounts[subscriber].backlog += 1
        self.backlog += len(subscribers)

    def reserve_or_drop(self, subscribers: Sequence[int]) -> Sequence[int]:
        """Count one more message for each that has room; return these. The others lose it."""
        with_room = []
        for subscriber in subscribers:
            account = self._accounts[subscriber]
            if account.backlog >= self._backlog_max:
                self._drop(account)
                if not account.has_warned:
                    account.has_warned = True
                    log.warning("dropping messages from the bus: %s", self._describe_full(account))
            elif self.backlog >= self._total_backlog_max:
                self._drop(account)
                if not self._has_warned:
                    self._has_warned = True
                    log.warning("dropping messages from the bus: %s", self.describe_total_full())
            else:
                account.backlog += 1
                self.backlog += 1
                with_room.append(subscriber)
        return with_room

    def give_back(self, subscribers: Sequence[int], *, is_dropped: bool) -> None:
        """Undo `reserve`: a message was not stored. `is_dropped`: nobody will publish it again."""
        for subscriber in subscribers:
            account = self._accounts.get(subscriber)
            if account is None:
                continue
            account.backlog -= 1
            self.backlog -= 1
            if is_dropped:
                self._drop(account)

    def note_delivered(self, subscriber: int, count: int) -> None:
        account = self._accounts.get(subscriber)
        if account is None:
            return
        account.backlog -= count
        account.delivered += count
        self.backlog -= count
        # At half the limit: a backlog that stays at its limit would warn at every batch.
        if account.has_warned and account.backlog <= self._backlog_max // 2:
            account.has_warned = False
        if self._has_warned and self.backlog <= self._total_backlog_max // 2:
            self._has_warned = False

    def note_attempt(self, subscriber: int, error: str | None, retry_at: float | None) -> None:
        account = self._accounts.get(subscriber)
        if account is None:
            return
        account.retry_at = retry_at
        if error is not None:
            account.attempts_failed += 1
            account.last_error = error
            account.last_error_at = time.time()

    @property
    def is_full(self) -> bool:
        return self.backlog >= self._total_backlog_max

    def describe_total_full(self) -> str:
        return (
            f"{self.backlog:,} messages wait for webhooks, at most {self._total_backlog_max:,} are "
            "kept in all: make the webhooks answer, or unsubscribe them"
        )

    def _describe_full(self, account: Account) -> str:
        return (
            f"{account.backlog:,} messages wait for the webhook {account.name!r}, at most "
            f"{self._backlog_max:,} are kept: make it answer, or unsubscribe it"
        )

    def _drop(self, account: Account) -> None:
        account.dropped += 1
        self.dropped += 1
