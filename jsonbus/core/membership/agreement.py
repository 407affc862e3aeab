"""Whether other nodes have the same list, and what follows from it.

A digest equal to this node's own is agreement: it makes a joiner sure, keeps Trickle silent, and
pays what this node owed. A different one means that somebody misses something:

- a joiner misses nearly everything. Settled nodes owe it the list (sharing.py), the strategy says
  when they pay, and an identical list from somebody else pays for them;
- settled nodes that differ, and still do after a grace (differences.py), doubt for a while, repeat
  their own entry soon (Trickle), with bucket sums, and owe each other the buckets that differ.

A list in several parts is judged at its last part only: before, a difference means nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from jsonbus.core.limits import OVERTAKEN_S, WHOLE_LIST_NODES
from jsonbus.core.membership.announcer import Speaker
from jsonbus.core.membership.differences import Differences
from jsonbus.core.membership.joining import Joining
from jsonbus.core.membership.sharing import Sharing
from jsonbus.core.membership.subscription_list import SubscriptionList
from jsonbus.core.wire.frames import ALL_BUCKETS, Digest, ListFrame, PresenceFrame, bucket_of


class Agreement:
    """Compares what others say with the own list.

    `on_agreed(now)` is called when agreement made the node sure, `on_difference(now, reason)` when
    somebody differs for real.
    """

    def __init__(
        self,
        own_node: str,
        *,
        subscription_list: SubscriptionList,
        joining: Joining,
        speaker: Speaker,
        sharing: Sharing,
        on_agreed: Callable[[float], None],
        on_difference: Callable[[float, str], None],
    ) -> None:
        self._own_node = own_node
        self._list = subscription_list
        self._joining = joining
        self._speaker = speaker
        self._sharing = sharing
        self._on_agreed = on_agreed
        self._on_difference = on_difference
        self._differences = Differences()
        self._shared_at = -math.inf  # when somebody last shared the very list of this node

    def hear_calmly(self, frame: ListFrame | PresenceFrame, now: float) -> bool:
        """Take agreement that changes nothing; False if it is to be looked at like any other.

        Nearly all that a settled group says: a heartbeat every 5 ms among 1,000 nodes, and all but
        the first of a list's parts.
        """
        if not (frame.settled and frame.digest == self._list.digest and self._joining.is_calm):
            return False
        if not (self._sharing.is_idle and self._speaker.is_calm and self._differences.is_empty):
            return False
        if isinstance(frame, ListFrame):
            if frame.covers != ALL_BUCKETS:
                return False
            self._shared_at = now
        elif frame.suspects:
            return False
        self._speaker.trickle.hear_agreement()
        return True

    def compare(
        self, sender: str, frame: ListFrame | PresenceFrame, now: float, *, was_news: bool = False
    ) -> None:
        """Somebody told its digest; what its datagram held has been merged, and was news or not."""
        if frame.settled:
            self._joining.hear_settled(now)
        if frame.digest == self._list.digest:
            self._hear_agreement(sender, frame, now)
        elif isinstance(frame, ListFrame) and frame.part[0] < frame.part[1] - 1:
            return  # more is to come
        elif self._joining.is_settled:
            if was_news or now - self._shared_at > OVERTAKEN_S or frame.settled:
                self._hear_difference(sender, frame, now)
        elif frame.digest is not None and frame.digest.nodes >= len(self._list):
            self._joining.is_lacking = True

    def hear_unknown(self, sender: str, now: float) -> None:
        """Somebody talks who is not in the list."""
        self._joining.hear_settled(now)
        if self._joining.is_settled:
            self._differences.note(sender, None, None, False, now)

    def leave_behind(self, digest: Digest, now: float) -> None:
        """The list changed; this was its digest until now."""
        self._joining.is_lacking = False
        self._differences.leave_behind(digest, now)

    def stop(self) -> None:
        self._differences.clear()

    def timer_at(self) -> float:
        return self._differences.timer_at()

    def handle_timer(self, due: float, now: float) -> None:
        """Act on what is still different after the grace."""
        for difference in self._differences.take_due(due):
            sender, digest = difference.sender, difference.digest
            if digest is None:
                if self._list.get(sender) is None and sender not in self._list.tombstones:
                    reason = "a node is here whose subscriptions are not known"
                    self._miss_something(now, reason)
                continue  # else it has introduced itself, or left
            if digest == self._list.digest or self._differences.is_behind(digest, now):
                continue
            self._miss_something(now, "another node has a different list")
            self._tell(
                sender, difference.sums, is_list=difference.is_list, is_joining=False, now=now
            )

    def _hear_agreement(self, sender: str, frame: ListFrame | PresenceFrame, now: float) -> None:
        self._sharing.release(sender)
        self._differences.forget(sender)
        if isinstance(frame, ListFrame) and frame.covers is not None:
            if frame.covers == ALL_BUCKETS:
                self._shared_at = now
            self._sharing.hear_identical(sender, frame.covers)
            self._speaker.cancel_announcement()
        if frame.settled:
            # Joiners do not count: whoever waits for somebody settled must not wait in vain
            # because a joiner said the same.
            self._speaker.trickle.hear_agreement()
        if not frame.settled or self._list.is_full:
            if self._joining.is_settled:  # joiners who confirmed each other would all fall silent
                self._joining.confirm()
            return
        self._sharing.hear_agreement(now)
        self._speaker.hear_agreement(now)
        if self._joining.agree():
            self._on_agreed(now)

    def _hear_difference(self, sender: str, frame: ListFrame | PresenceFrame, now: float) -> None:
        assert frame.digest is not None
        is_list = isinstance(frame, ListFrame)
        if frame.settled:
            if not self._differences.is_behind(frame.digest, now):
                self._differences.note(sender, frame.digest, frame.sums, is_list, now)
            return
        # A joiner lacks nearly everything, and waits.
        if not self._sharing.strategy.answers:
            self._speaker.trickle.hear_mismatch(now)  # nobody may answer: it should hear somebody
        self._tell(sender, frame.sums, is_list=is_list, is_joining=True, now=now)

    def _tell(
        self, sender: str, sums: int | None, *, is_list: bool, is_joining: bool, now: float
    ) -> None:
        """Let the sender know what its list lacks, as far as this node answers."""
        if sums is not None:
            buckets = self._list.differing_buckets(sums)
        elif is_list or len(self._list) <= WHOLE_LIST_NODES:
            buckets = ALL_BUCKETS
        else:
            return  # it did not say where; its next digests will, now that lists differ
        if self._sharing.strategy.answers:
            self._sharing.owe(sender, buckets, now, is_joining=is_joining)
        elif not is_joining and buckets >> bucket_of(self._own_node) & 1:
            self._speaker.plan_announcement(now)  # it answers for nobody but itself

    def _miss_something(self, now: float, reason: str) -> None:
        self._speaker.trickle.hear_mismatch(now)
        self._on_difference(now, reason)
