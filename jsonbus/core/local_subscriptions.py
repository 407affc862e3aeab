"""The subscriptions of this node's own application.

`subscribe` and `unsubscribe` change who gets a message here, then have the new patterns announced
to the other nodes; of very many subscriptions, coarser ones (membership/announced.py). A passive
subscription is not announced: it only sees what is sent for others.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from jsonbus.core.membership.announced import EVERYTHING, AnnouncedPatterns
from jsonbus.core.membership.membership import Membership
from jsonbus.core.reliable.reliable import Reliable
from jsonbus.core.routing.router import Inbox, Router
from jsonbus.core.values.retained import RetainedDelivery
from jsonbus.core.wire.encode import ENTRY_BYTES_MAX, entry_size_bytes, pattern_size_bytes
from jsonbus.core.wire.names import INTEGER_MAX
from jsonbus.core.wire.topics import check_pattern
from jsonbus.errors import LocalError


class LocalSubscriptions:
    """Inboxes by sink. `served` returns the patterns that announce the topics served here."""

    __slots__ = (
        "_announced",
        "_inboxes",
        "_membership",
        "_reliable",
        "_retained",
        "_room_bytes",
        "_router",
        "_served",
    )

    def __init__(
        self,
        router: Router,
        membership: Membership,
        reliable: Reliable,
        retained: RetainedDelivery,
        served: Callable[[], list[str]],
    ) -> None:
        self._router = router
        self._membership = membership
        self._reliable = reliable
        self._retained = retained
        self._served = served
        self._inboxes: dict[object, Inbox] = {}
        bare = replace(membership.entry, patterns=(), version=INTEGER_MAX)
        self._room_bytes = ENTRY_BYTES_MAX - entry_size_bytes(bare)
        self._announced = AnnouncedPatterns(router.local.patterns, self._room_bytes)

    def subscribe(
        self, patterns: tuple[str, ...], sink: object, now: float, *, is_passive: bool
    ) -> None:
        """Subscribe a sink to all of the patterns, or to none if one is refused."""
        patterns = tuple(dict.fromkeys(map(check_pattern, patterns)))
        if not patterns:
            return
        inbox = self._inboxes.get(sink)
        if inbox is None:
            inbox = self._inboxes[sink] = Inbox(sink, is_passive=is_passive)
        assert inbox.is_passive is is_passive
        if is_passive:
            for pattern in patterns:
                inbox.patterns += self._router.passive.subscribe(pattern, inbox)
            self._router.forget()
            return
        local, add = self._router.local, self._announced.add
        new = [pattern for pattern in patterns if pattern not in local]
        self._reliable.subscribing(new)
        for pattern in patterns:
            inbox.patterns += local.subscribe(pattern, inbox)
        self._router.forget()
        self._retained.subscribed(patterns, inbox, now)
        covered = [pattern for pattern in new if not add(pattern)]
        if len(covered) < len(new):
            self._membership.patterns_changed(now)
        if covered:
            self._membership.name_patterns(covered, now)

    def unsubscribe(self, patterns: tuple[str, ...], sink: object, now: float) -> bool:
        """End the sink's subscriptions to these patterns; False if it had none of them."""
        inbox = self._inboxes.get(sink)
        if inbox is None:
            return False
        store = self._router.passive if inbox.is_passive else self._router.local
        ended = [pattern for pattern in patterns if store.unsubscribe(pattern, inbox)]
        if not ended:
            return False
        inbox.patterns -= len(ended)
        if not inbox.patterns:
            del self._inboxes[sink]
        self._router.forget()
        if inbox.is_passive:
            return True
        gone = [pattern for pattern in ended if pattern not in store]
        if gone:
            self._reliable.unsubscribed(gone)
            if self._announced.remove(gone):
                self._membership.patterns_changed(now)
        return True

    def serves(self, now: float) -> None:
        """The topics that this node serves have changed: announce them."""
        self._router.forget()
        self._announced.set_room(self._room_bytes - _size_bytes(self._served()))
        self._membership.patterns_changed(now)

    def to_announce(self) -> tuple[tuple[str, ...], bool]:
        """Return the patterns of this node's entry, and whether some of them stand for others."""
        patterns = sorted((*self._announced.patterns(), *self._served()))
        return tuple(patterns), self._announced.is_coarse

    def check_room(self, served: str) -> None:
        """Raise LocalError if the entry has no room for the pattern of one more served topic."""
        patterns = self._served()
        if _size_bytes([*patterns, served, EVERYTHING]) > self._room_bytes:
            raise LocalError(
                f"{len(patterns):,} served topics fill a datagram and leave no room for "
                f"{served!r:.500}: serve fewer, and tell requests apart by their values"
            )


def _size_bytes(patterns: list[str]) -> int:
    return sum(map(pattern_size_bytes, patterns))
