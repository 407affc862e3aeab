"""The commands of the ledger to the store, and their results: plain data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from jsonbus.errors import StoreError


@dataclass(slots=True)
class Batch:
    """Messages for one subscriber, delivered together until the subscriber takes them.

    `delivery_id` and the body are the same at every attempt, also after a restart. The body is not
    always in memory: the delivery may drop it, and the ledger reads it again.
    """

    subscriber: int
    name: str
    delivery_id: str
    last: int  # number of its last message
    count: int
    body_bytes: int
    body: bytes | None  # {"message":[…],"topic":[…]}, both in order


class Accept(NamedTuple):
    """Store messages: (topic, payload, subscribers). The result is the number of deliveries."""

    messages: Sequence[tuple[str, bytes, Sequence[int]]]
    is_from_bus: bool = False  # nobody will publish them again


class Settle(NamedTuple):
    """Delete a delivered batch. The result is its length; 0 if it is not the one in flight."""

    subscriber: int
    last: int


class Subscribe(NamedTuple):
    """Store a subscription and the subscriber's url. The result is Subscribed."""

    name: str
    pattern: str
    url: str


class Unsubscribe(NamedTuple):
    """End one subscription or all (None); the last takes the backlog along. Result: Ended."""

    name: str
    pattern: str | None


class ReadBody(NamedTuple):
    """Read the body of a batch. The result is None if it is not the one in flight."""

    subscriber: int
    last: int


class Probe(NamedTuple):
    """Write something that changes nothing, to see whether the store works and has room."""


Command = Accept | Settle | Subscribe | Unsubscribe | ReadBody | Probe

#: Commands that store nothing new.
FREEING = (Settle, Unsubscribe, ReadBody)


class Subscribed(NamedTuple):
    subscriber: int
    is_new: bool  # the pattern, for this subscriber
    has_moved: bool  # a known subscriber, to another url
    created_at: float  # of the subscriber


class Ended(NamedTuple):
    subscriber: int  # 0 if the name is not known
    patterns: tuple[str, ...]
    is_gone: bool


class Committed(NamedTuple):
    """The result of a group of commands."""

    results: list[Any]  # one per command; a StoreError for a command that was not executed
    batches: list[Batch]  # cut by this commit
    error: StoreError | None = None  # the transaction failed, with or without a remedy


class StoredSubscriber(NamedTuple):
    id: int
    name: str
    url: str
    created_at: float
    delivered: int
    backlog: int
    patterns: tuple[str, ...]


class Contents(NamedTuple):
    subscribers: list[StoredSubscriber]
    batches: list[Batch]  # in flight when the store was closed or killed
