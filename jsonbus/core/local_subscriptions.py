"""The subscriptions of this node's own application.

`subscribe` and `unsubscribe` change who gets a message here, then announce the new patterns to the
other nodes. A passive subscription is not announced: it only sees what is sent for others.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from jsonbus.core.membership.membership import Membership
from jsonbus.core.reliable.reliable import Reliable
from jsonbus.core.routing.router import Inbox, Router
from jsonbus.core.values.retained import RetainedDelivery
from jsonbus.core.wire.encode import ENTRY_BYTES_MAX, entry_size_bytes
from jsonbus.core.wire.topics import check_pattern
from jsonbus.errors import LocalError


class LocalSubscriptions:
    """Inboxes by sink. `served` returns the patterns that announce the topics served here."""

    __slots__ = ("_retained", "_inboxes", "_membership", "_reliable", "_router", "_served")

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

    def subscribe(
        self, patterns: tuple[str, ...], sink: object, now: float, *, is_passive: bool
    ) -> None:
        """Subscribe a sink to all of the patterns, or to none if one is refused."""
        patterns = tuple(dict.fromkeys(map(check_pattern, patterns)))
        if not is_passive:
            self.check_room(patterns)
        inbox = self._inboxes.get(sink)
        if inbox is None:
            inbox = self._inboxes[sink] = Inbox(sink, is_passive=is_passive)
        assert inbox.is_passive is is_passive
        if is_passive:
            for pattern in patterns:
                self._router.passive.subscribe(pattern, inbox)
            self._router.forget()
            return
        for pattern in patterns:
            self._reliable.subscribing(pattern)
            self._router.local.subscribe(pattern, inbox)
        self._retained.subscribed(patterns, inbox, now)
        self.announce(now)

    def unsubscribe(self, patterns: tuple[str, ...], sink: object, now: float) -> bool:
        """End the sink's subscriptions to these patterns; False if it had none of them."""
        inbox = self._inboxes.get(sink)
        if inbox is None:
            return False
        store = self._router.passive if inbox.is_passive else self._router.local
        ended = [pattern for pattern in patterns if store.unsubscribe(pattern, inbox)]
        if not ended:
            return False
        if not store.patterns_of(inbox):
            del self._inboxes[sink]
        if inbox.is_passive:
            self._router.forget()
            return True
        for pattern in ended:
            self._reliable.unsubscribed(pattern)
        self.announce(now)
        return True

    def announce(self, now: float) -> None:
        """Tell the other nodes what this one wants and serves now."""
        self._router.forget()
        patterns = sorted((*self._router.local.patterns(), *self._served()))
        self._membership.set_patterns(tuple(patterns), now)

    def check_room(self, patterns: tuple[str, ...]) -> None:
        """Raise LocalError if these patterns would make the entry too large to be announced."""
        entry = self._membership.entry
        size = entry_size_bytes(replace(entry, patterns=(*entry.patterns, *patterns)))
        if size > ENTRY_BYTES_MAX:
            raise LocalError(
                f"{len(entry.patterns):,} subscriptions fill a datagram and leave no room for "
                f"{', '.join(map(repr, patterns)):.500}: use patterns with wildcards instead"
            )
