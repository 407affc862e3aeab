"""Agreement: compares the lists of other nodes with this node's, and acts on differences.

A digest equal to this node's own is agreement: it makes a joiner sure, keeps Trickle silent, and
pays what this node owed. A different one means that one of the two nodes lacks something:

- a joiner lacks nearly everything. Settled nodes owe it the list (sharing.py);
- settled nodes that differ, and still do after a grace period, doubt for a while, repeat their own
  entry soon (Trickle), with bucket sums, and owe each other the buckets that differ.

A list in several parts is judged at its last part only: before, a difference means nothing.

The grace period. A change reaches the nodes of a bus at slightly different instants, and presences
are under way all the time: among a thousand nodes, every join crosses some datagram that still has
the former digest. Two rules distinguish such echoes from real differences:

- the digest was this node's own a short while ago: the sender is only behind. If it has missed the
  change, it will notice that itself, from the digests of all other nodes;
- any other digest: perhaps this node is behind, by milliseconds. It is compared again after the
  grace period, and is a difference if this node's digest is still another one.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from jsonbus.core.limits import (
    DIFFERENCE_GRACE_S,
    DIFFERENCES_PENDING_MAX,
    DIGESTS_REMEMBERED,
    DIGESTS_REMEMBERED_S,
    OVERTAKEN_S,
    WHOLE_LIST_NODES,
)
from jsonbus.core.membership.announcer import Announcer
from jsonbus.core.membership.joining import DOUBTING, Joining
from jsonbus.core.membership.sharing import Sharing
from jsonbus.core.membership.subscription_list import SubscriptionList
from jsonbus.core.wire.frames import ALL_BUCKETS, Digest, ListFrame, PresenceFrame


class Agreement:
    """See the head of this file.

    `on_agreed(now)` is called when agreement made the node sure, `on_difference(now, reason)` when
    a difference outlasted the grace period.
    """

    def __init__(
        self,
        *,
        subscription_list: SubscriptionList,
        joining: Joining,
        announcer: Announcer,
        sharing: Sharing,
        on_agreed: Callable[[float], None],
        on_difference: Callable[[float, str], None],
    ) -> None:
        self._list = subscription_list
        self._joining = joining
        self._announcer = announcer
        self._sharing = sharing
        self._on_agreed = on_agreed
        self._on_difference = on_difference
        self._differences = Differences()
        self._shared_at = -math.inf  # when another node last shared a list equal to this one

    def try_confirm(self, digest: Digest | None) -> bool:
        """Take the digest of a settled node if it agrees and that changes nothing.

        This is the fast path for nearly everything that a settled group sends: a heartbeat every
        5 ms among 1,000 nodes, and all but the first of a list's parts.
        """
        if not (digest == self._list.digest and self._joining.is_calm):
            return False
        if not (self._sharing.is_idle and self._differences.is_empty):
            return False
        self._announcer.trickle.hear_agreement()
        return True

    def try_confirm_unchanged(self, frame: ListFrame | PresenceFrame, now: float) -> bool:
        """Take agreement that changes nothing; False if the frame needs full treatment."""
        if not frame.settled:
            return False
        if isinstance(frame, ListFrame):
            if frame.covers != ALL_BUCKETS or not self.try_confirm(frame.digest):
                return False
            self._shared_at = now
            return True
        return not frame.suspects and self.try_confirm(frame.digest)

    def compare(
        self, sender: str, frame: ListFrame | PresenceFrame, now: float, *, was_news: bool = False
    ) -> None:
        """Compare digests after the frame was merged; `was_news`: that changed the list."""
        if frame.settled:
            self._joining.hear_settled(now)
        if frame.digest == self._list.digest:
            self._hear_agreement(sender, frame, now)
        elif isinstance(frame, ListFrame) and frame.part[0] < frame.part[1] - 1:
            return  # more is to come
        elif self._joining.is_settled:
            if was_news or now - self._shared_at > OVERTAKEN_S or frame.settled:
                self._hear_difference(sender, frame, now, was_news=was_news)
        elif frame.digest is not None and frame.digest.nodes >= len(self._list):
            self._joining.is_lacking = True

    def hear_unknown(self, sender: str, now: float) -> None:
        """Note that a node was heard which is not in the list."""
        self._joining.hear_settled(now)
        if self._joining.is_settled:
            self._differences.note(sender, None, now)

    def leave_behind(self, digest: Digest, now: float) -> None:
        """Remember the digest that the list had until now."""
        self._joining.is_lacking = False
        self._differences.leave_behind(digest, now)

    def stop(self) -> None:
        self._differences.clear()

    def timer_at(self) -> float:
        return self._differences.timer_at()

    def handle_timer(self, due: float, now: float) -> None:
        """Act on what is still different after the grace period."""
        for difference in self._differences.take_due(due):
            sender, frame = difference.sender, difference.frame
            if frame is None:
                if self._list.get(sender) is None and sender not in self._list.tombstones:
                    reason = "a node is here whose subscriptions are not known"
                    self._report_difference(now, reason)
                continue  # else it has introduced itself, or left
            assert frame.digest is not None
            if frame.digest == self._list.digest or self._differences.is_behind(frame.digest, now):
                continue
            self._report_difference(now, "another node has a different list")
            self._send_missing(sender, frame, is_joining=False, now=now)

    def _hear_agreement(self, sender: str, frame: ListFrame | PresenceFrame, now: float) -> None:
        self._sharing.release(sender)
        self._differences.forget(sender)
        self._joining.is_lacking = False
        if isinstance(frame, ListFrame) and frame.covers is not None:
            if frame.covers == ALL_BUCKETS:
                self._shared_at = now
            self._sharing.hear_identical(sender, frame.covers)
        if frame.settled:
            # Joiners do not count: a node that waits for a settled one must not wait in vain
            # because a joiner said the same.
            self._announcer.trickle.hear_agreement()
        if not frame.settled or self._list.is_full:
            if self._joining.is_settled:  # joiners that confirmed each other would all fall silent
                self._joining.confirm()
            return
        self._sharing.hear_agreement(now)
        was_waiting = self._joining.state == DOUBTING and not self._joining.was_sure
        if self._joining.agree():
            self._on_agreed(now)
            if was_waiting:
                # Nobody answered this node for long, so others may doubt, and wait for one that
                # confirms their list, as this one can from now on.
                self._announcer.plan_presence(now)

    def _hear_difference(
        self, sender: str, frame: ListFrame | PresenceFrame, now: float, *, was_news: bool
    ) -> None:
        assert frame.digest is not None
        if frame.settled:
            if not self._differences.is_behind(frame.digest, now):
                self._differences.note(sender, frame, now)
            return
        # A joiner lacks nearly everything, and waits.
        if not self._sharing.strategy.answers:
            # Perhaps nobody answers: let it at least hear this node.
            self._announcer.trickle.hear_mismatch(now)
        self._send_missing(sender, frame, is_joining=was_news, now=now)

    def _send_missing(
        self, sender: str, frame: ListFrame | PresenceFrame, *, is_joining: bool, now: float
    ) -> None:
        """Send what the other list lacks."""
        if frame.sums is not None:
            buckets = self._list.differing_buckets(frame.sums)
        elif isinstance(frame, ListFrame) or len(self._list) <= WHOLE_LIST_NODES:
            buckets = ALL_BUCKETS
        else:
            return  # it did not say where; its next digests will carry sums, now that lists differ
        self._sharing.owe(sender, buckets, now, is_joining=is_joining)

    def _report_difference(self, now: float, reason: str) -> None:
        self._announcer.trickle.hear_mismatch(now)
        self._on_difference(now, reason)


class Difference(NamedTuple):
    """A digest of a settled node that did not match."""

    sender: str
    frame: ListFrame | PresenceFrame | None  # None: the node is not in the list at all
    due_at: float


class Differences:
    """This node's recent digests, and differences in their grace period."""

    __slots__ = ("_pending", "_recent")

    def __init__(self) -> None:
        self._recent: deque[tuple[Digest, float]] = deque(maxlen=DIGESTS_REMEMBERED)
        self._pending: dict[str, Difference] = {}

    @property
    def is_empty(self) -> bool:
        return not self._pending

    def leave_behind(self, digest: Digest, now: float) -> None:
        """Remember the digest that the list had until now."""
        self._recent.append((digest, now))

    def is_behind(self, digest: Digest, now: float) -> bool:
        """Whether this node had that digest a short while ago."""
        since = now - DIGESTS_REMEMBERED_S
        return any(old == digest and at >= since for old, at in self._recent)

    def note(self, sender: str, frame: ListFrame | PresenceFrame | None, now: float) -> None:
        """Start the grace period of a difference, unless it is running."""
        if sender in self._pending:
            due_at = self._pending[sender].due_at  # it began with the first difference
        elif len(self._pending) >= DIFFERENCES_PENDING_MAX:
            return  # acting on the others will do for this one
        else:
            due_at = now + DIFFERENCE_GRACE_S
        self._pending[sender] = Difference(sender, frame, due_at)

    def forget(self, sender: str) -> None:
        self._pending.pop(sender, None)

    def clear(self) -> None:
        self._pending.clear()

    def timer_at(self) -> float:
        if not self._pending:
            return math.inf
        return min(difference.due_at for difference in self._pending.values())

    def take_due(self, due: float) -> list[Difference]:
        ripe = [difference for difference in self._pending.values() if difference.due_at <= due]
        for difference in ripe:
            del self._pending[difference.sender]
        return ripe
