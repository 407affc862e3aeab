"""Telling others what their lists lack: debts, and the shares that pay them.

Who hears a list that lacks something owes its sender; the strategy says whether this node pays such
debts, and after which delay. An identical list from somebody else pays for everybody (delayed), and
whoever is faster answers. What is owed is the whole list or some buckets of it.
"""

from __future__ import annotations

import math
import random

from jsonbus.core.counters import Counters
from jsonbus.core.limits import SHARE_INTERVAL_MIN_S, TIMER_SLACK_S, WHOLE_LIST_NODES
from jsonbus.core.membership.list_sender import ListSender
from jsonbus.core.membership.liveness import lease_s
from jsonbus.core.membership.obligations import Obligations
from jsonbus.core.membership.share import BasicShare, ShareStrategy
from jsonbus.core.membership.share_delayed import DelayedShare
from jsonbus.core.membership.share_master import MasterShare
from jsonbus.core.membership.subscription_list import SubscriptionList
from jsonbus.core.outbox import Outbox
from jsonbus.core.settings import NodeSettings
from jsonbus.core.timers import Brake, share_delay_s
from jsonbus.core.wire.frames import ALL_BUCKETS, BUCKETS


def make_strategy(settings: NodeSettings) -> ShareStrategy:
    if settings.mode == "basic":
        return BasicShare()
    if settings.mode == "master":
        return MasterShare(settings.is_master)
    return DelayedShare(settings.share_delay_s)


class Sharing:
    """This node's debts, its timer for them, and the list on its way out."""

    def __init__(
        self,
        settings: NodeSettings,
        subscription_list: SubscriptionList,
        rng: random.Random,
        outbox: Outbox,
        counters: Counters,
    ) -> None:
        self.strategy = make_strategy(settings)
        self._own_node = settings.node
        self._list = subscription_list
        self._rng = rng
        self._counters = counters
        self._obligations = Obligations()
        self._sender = ListSender(outbox, settings.datagram_bytes_max)
        self._last_full_share_at = -math.inf
        self._vouched_buckets = 0
        self._vouch_at = math.inf
        self._brake = Brake(SHARE_INTERVAL_MIN_S)

    def owe(self, node: str, buckets: int, now: float, *, is_joining: bool) -> None:
        """The node lacks those buckets; pay at once or after the strategy's delay."""
        assert self.strategy.answers
        self._obligations.owe(node, buckets)
        self._obligations.has_settled_debt |= not is_joining
        at = now + self.strategy.draw_delay_s(len(self._list), self._rng)
        at = max(at, self._last_full_share_at + SHARE_INTERVAL_MIN_S)
        braked_at = at if is_joining else self._brake.at(at)
        self._obligations.arm(braked_at, is_braked=braked_at > at)
        self.handle_timer(now)

    @property
    def is_idle(self) -> bool:
        """Whether nothing is owed, vouched for, on its way out or braked."""
        return self.timer_at() == math.inf and self._brake.is_free

    def vouch(self, buckets: int, now: float) -> None:
        """Somebody asks for nodes of those buckets, and this node hears them.

        Not a debt: the asker's list may well be equal, only its ages differ. It must not wait for
        the brake either, since who is not vouched for in time is taken for gone.
        """
        self._vouched_buckets |= buckets
        if self._vouch_at == math.inf:
            self._vouch_at = now + share_delay_s(len(self._list), self._rng.random())

    def release(self, node: str) -> None:
        """The node has what it lacked, or is gone."""
        self._obligations.release(node)

    def hear_agreement(self, now: float) -> None:
        """A settled node has the same list."""
        self._brake.release(now)

    def hear_identical(self, sender: str, covers: int) -> None:
        """Somebody else shares the same list."""
        self._obligations.pay(covers)
        self._vouched_buckets &= ~covers
        if covers == ALL_BUCKETS and sender < self._own_node:
            self._sender.stop()  # two of the same: the one with the lower id goes on

    def stop(self) -> None:
        self._obligations.take()
        self._vouch_at = math.inf
        self._sender.stop()

    def timer_at(self) -> float:
        if self._sender.is_sending:
            return self._sender.timer_at  # what is owed meanwhile waits until that list is out
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
        """Pay what is owed: everything, or the buckets that differ."""
        if self._obligations.has_settled_debt:
            self._brake.step(now)
        buckets = self._obligations.take()
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
        self._sender.start(
            self._list.entries_in(buckets, now),
            digest=self._list.digest,
            sums=self._list.sums_to_send(),
            covers=buckets,
            now=now,
        )
