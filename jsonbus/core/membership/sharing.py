"""Sharing: sends nodes the parts of the list that they lack.

A node that hears a list which lacks something owes its sender those parts: the whole list or some
buckets of it. The strategy (strategies.py) decides whether this node pays such debts, and after
which delay. If another node shares an identical list first, that pays the debts of everybody.
agreement.py decides what is owed, and which shares count as payment.

A list is sent in parts, a burst at a time (list_sender.py).
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable

from jsonbus.core.counters import Counters
from jsonbus.core.limits import (
    OBLIGATIONS_MAX,
    SHARE_INTERVAL_MIN_S,
    TIMER_SLACK_S,
    WHOLE_LIST_NODES,
)
from jsonbus.core.membership.joining import Joining
from jsonbus.core.membership.list_sender import ListSender, encode_parts
from jsonbus.core.membership.liveness import heartbeat_s, lease_s
from jsonbus.core.membership.strategies import ShareStrategy
from jsonbus.core.membership.subscription_list import SubscriptionList
from jsonbus.core.outbox import Outbox
from jsonbus.core.settings import NodeSettings
from jsonbus.core.timers import Brake, share_delay_s
from jsonbus.core.wire.frames import ALL_BUCKETS, BUCKETS, bucket_of


class Sharing:
    """This node's debts, its timer for them, and the list that it is sending."""

    def __init__(
        self,
        settings: NodeSettings,
        subscription_list: SubscriptionList,
        joining: Joining,
        rng: random.Random,
        outbox: Outbox,
        counters: Counters,
        announce: Callable[[float], None],
    ) -> None:
        self.strategy = ShareStrategy(settings)
        self._own_node = settings.node
        self._list = subscription_list
        self._joining = joining
        self._rng = rng
        self._counters = counters
        self._announce = announce
        self._obligations = Obligations()
        self._sender = ListSender(outbox)
        self._room_bytes = outbox.list_room_bytes(settings.datagram_bytes_max)
        self._last_full_share_at = -math.inf
        self._vouched_buckets = 0
        self._vouch_at = math.inf
        self._brake = Brake(SHARE_INTERVAL_MIN_S)

    def owe(self, node: str, buckets: int, now: float, *, is_joining: bool) -> None:
        """The node lacks those buckets: send them, at once or after the strategy's delay.

        A node that does not answer speaks for itself: it announces its own entry.
        """
        if not self.strategy.answers:
            buckets &= 1 << bucket_of(self._own_node)
            is_joining = False  # all such nodes speak: a crowd of joiners must not make them rush
            if not buckets:
                return
        self._obligations.owe(node, buckets)
        self._obligations.has_settled_debt |= not is_joining
        at = now + self.strategy.draw_delay_s(len(self._list), self._rng)
        at = max(at, self._last_full_share_at + SHARE_INTERVAL_MIN_S)
        braked_at = at if is_joining else self._brake.at(at)
        self._obligations.arm(braked_at, is_braked=braked_at > at)
        self.handle_timer(now)

    @property
    def is_idle(self) -> bool:
        """Whether nothing is owed, vouched for, being sent or delayed by the brake."""
        return self.timer_at() == math.inf and self._brake.is_free

    def vouch(self, buckets: int, now: float) -> None:
        """Confirm nodes of those buckets: another node suspects them, and this one hears them.

        This is not a debt: the other list may well be equal, and only its ages differ. Nor may it
        wait for the brake: a node that nobody vouches for in time is taken for gone.
        """
        self._vouched_buckets |= buckets
        if self._vouch_at == math.inf:
            self._vouch_at = now + share_delay_s(len(self._list), self._rng.random())

    def release(self, node: str) -> None:
        """The node has what it lacked, or is gone."""
        self._obligations.release(node)

    def hear_agreement(self, now: float) -> None:
        """A settled node has the same list: reset the brake after a while."""
        self._brake.release(now)

    def hear_identical(self, sender: str, covers: int) -> None:
        """Another node shares the same list."""
        self._obligations.pay(covers)
        self._vouched_buckets &= ~covers
        if covers == ALL_BUCKETS and sender < self._own_node:
            self._sender.stop()  # of two equal lists the node with the lower id sends its own

    def stop(self) -> None:
        self._obligations.take()
        self._vouch_at = math.inf
        self._sender.stop()

    def timer_at(self) -> float:
        if self._sender.is_sending:
            return self._sender.timer_at  # new debts wait until that list is out
        return min(self._obligations.timer_at, self._vouch_at)

    def handle_timer(self, now: float) -> None:
        due = now + TIMER_SLACK_S
        if self._sender.is_sending:
            if self._sender.timer_at <= due:
                self._sender.send_burst(now)
        elif self._obligations.timer_at <= due:
            self._share(now)
        elif self._vouch_at <= due:
            self._vouch_at = math.inf
            buckets, self._vouched_buckets = self._vouched_buckets, 0
            if buckets:
                self._send(buckets, now)

    def _share(self, now: float) -> None:
        """Send what is owed: everything, or the buckets that differ."""
        if self._obligations.has_settled_debt:
            self._brake.step(now, heartbeat_s(len(self._list)))
        buckets = self._obligations.take()
        if not self.strategy.answers:
            self._announce(now)
            return
        if len(self._list) <= WHOLE_LIST_NODES or buckets.bit_count() > BUCKETS // 2:
            buckets = ALL_BUCKETS
        self._send(buckets, now)

    def _send(self, buckets: int, now: float) -> None:
        if buckets == ALL_BUCKETS:
            self._counters.list_shares_sent += 1
            self._last_full_share_at = now
        else:
            self._counters.list_repairs_sent += 1
        self._list.hear(self._own_node, now)
        self._list.forget_tombstones(before=now - lease_s(len(self._list)))
        parts = encode_parts(
            self._list.entries_in(buckets, now),
            self._room_bytes,
            digest=self._list.digest,
            sums=self._list.sums_to_send(),
            covers=buckets,
            settled=self._joining.was_sure,
        )
        self._sender.start(parts, now)


class Obligations:
    """Debts by node: the buckets of the list that it lacks.

    There is one timer for all debts. The first debt starts it; when it ends, one share pays them
    all. A share of another node pays too, as far as it covers what is owed. When nothing is owed
    any more, the timer is cancelled.
    """

    __slots__ = ("_is_braked", "_owed", "has_settled_debt", "timer_at")

    def __init__(self) -> None:
        self._owed: dict[str, int] = {}
        self.timer_at = math.inf
        self._is_braked = False
        #: Whether something is owed to a settled node.
        self.has_settled_debt = False

    def __len__(self) -> int:
        return len(self._owed)

    def owe(self, node: str, buckets: int) -> None:
        if len(self._owed) >= OBLIGATIONS_MAX and node not in self._owed:
            return  # so many debts are paid by a full share
        self._owed[node] = self._owed.get(node, 0) | buckets

    def arm(self, at: float, *, is_braked: bool) -> None:
        """Start the timer, unless it is running.

        A running timer stays as it is: with a new draw for every joiner of a storm, short delays
        and so too many answers would become likely. Only a timer that the brake has put off yields
        to an earlier instant.
        """
        if self.timer_at == math.inf:
            self.timer_at = at
            self._is_braked = is_braked
        elif self._is_braked and not is_braked:
            self.timer_at = min(self.timer_at, at)
            self._is_braked = False

    def release(self, node: str) -> None:
        """The node has what it lacked, or is gone."""
        if self._owed.pop(node, None) is not None:
            self._cancel_if_paid()

    def pay(self, covers: int) -> None:
        """A share with those buckets went out, by this node or another."""
        if covers == ALL_BUCKETS:
            self._owed.clear()
        else:
            for node, buckets in list(self._owed.items()):
                if buckets & ~covers:
                    self._owed[node] = buckets & ~covers
                else:
                    del self._owed[node]
        self._cancel_if_paid()

    def take(self) -> int:
        """Return the buckets that are owed to any node, and forget all debts."""
        buckets = 0
        for owed in self._owed.values():
            buckets |= owed
        self._owed.clear()
        self._cancel_if_paid()
        return buckets

    def _cancel_if_paid(self) -> None:
        if not self._owed:
            self.timer_at = math.inf
            self.has_settled_debt = False
