"""Debts become shares: when, how much, and not too often."""

from __future__ import annotations

import math
import random
from typing import Any

import pytest

from jsonbus.core.counters import Counters
from jsonbus.core.fast_publish import FastPublish
from jsonbus.core.limits import (
    LIST_BURST_DATAGRAMS,
    SHARE_INTERVAL_MIN_S,
    WHOLE_LIST_NODES,
)
from jsonbus.core.membership.joining import Joining
from jsonbus.core.membership.liveness import heartbeat_s, lease_s
from jsonbus.core.membership.sharing import Sharing
from jsonbus.core.membership.subscription_list import SubscriptionList
from jsonbus.core.outbox import Outbox
from jsonbus.core.settings import NodeSettings
from jsonbus.core.wire.decode import decode
from jsonbus.core.wire.encode_messages import Stamp
from jsonbus.core.wire.frames import ALL_BUCKETS, Entry, ListFrame, bucket_of

NOW = 1000.0


class Sharer:
    """Sharing of node "m" over a list of `nodes` entries."""

    def __init__(self, nodes: int = 3, **settings: Any) -> None:
        self.now = NOW
        settings = {"share_delay_s": 0.1} | settings
        self.list = SubscriptionList()
        self.outbox = Outbox(Stamp("m", 1), 1400, 0.0, batching=True, fast_publish=FastPublish())
        self.counters = Counters()
        self.list.put(Entry("m", 1, 1, "m"), NOW - 50)
        for number in range(nodes - 1):
            self.list.put(Entry(f"n{number:04d}", 1, 1, f"node {number}", ("t",)), NOW - 2)
        joining = Joining(lambda: lease_s(nodes))
        joining.settle("sure")
        self.announced_at: list[float] = []
        self.sharing = Sharing(
            NodeSettings("m", 1, "m", **settings),
            self.list,
            joining,
            random.Random(1),
            self.outbox,
            self.counters,
            self.announced_at.append,
        )

    def owe(self, node: str = "j", buckets: int = ALL_BUCKETS, *, is_joining: bool = True) -> None:
        self.sharing.owe(node, buckets, self.now, is_joining=is_joining)

    def run(self, seconds: float) -> None:
        end = self.now + seconds
        while (at := self.sharing.timer_at()) <= end:
            self.now = max(self.now, at)
            self.sharing.handle_timer(self.now)
        self.now = end

    def take(self) -> list[ListFrame]:
        frames = [decode(datagram) for datagram in self.outbox.take(self.now)]
        assert all(isinstance(frame, ListFrame) for frame in frames)
        return frames  # type: ignore[return-value]


def test_debt_is_paid_after_the_strategys_delay() -> None:
    sharer = Sharer()
    sharer.owe()
    assert sharer.sharing.timer_at() == pytest.approx(NOW + 0.1)
    sharer.run(0.099)
    assert sharer.take() == []
    sharer.run(0.001)
    (frame,) = sharer.take()
    assert frame.covers == ALL_BUCKETS
    assert len(frame.entries) == 3
    assert sharer.sharing.timer_at() == math.inf
    assert sharer.counters.list_shares_sent == 1


def test_without_delay_the_share_is_out_at_once() -> None:
    sharer = Sharer(share_delay_s=0.0)
    sharer.owe()
    assert len(sharer.take()) == 1


def test_share_says_that_this_node_is_alive_now() -> None:
    sharer = Sharer(share_delay_s=0.0)
    sharer.owe()
    (frame,) = sharer.take()
    ages = {entry.node: age_s for entry, age_s in frame.entries}
    assert ages == {"m": 0.0, "n0000": 2.0, "n0001": 2.0}


def test_one_share_pays_all_debts() -> None:
    sharer = Sharer()
    for number in range(50):
        sharer.owe(f"j{number}")
    sharer.run(1)
    assert len(sharer.take()) == 1


def test_identical_list_of_another_node_cancels() -> None:
    sharer = Sharer()
    sharer.owe()
    sharer.sharing.hear_identical("z", ALL_BUCKETS)
    sharer.run(1)
    assert sharer.take() == []


def test_released_debtor_cancels() -> None:
    sharer = Sharer()
    sharer.owe("j")
    sharer.sharing.release("j")
    sharer.run(1)
    assert sharer.take() == []


def test_full_shares_keep_their_distance() -> None:
    sharer = Sharer(share_delay_s=0.0)
    for _ in range(100):
        sharer.owe()
        sharer.run(0.001)
    assert len(sharer.take()) <= 1 + 0.1 / SHARE_INTERVAL_MIN_S
    sharer.run(1)
    sharer.owe()
    assert sharer.take()


@pytest.mark.parametrize("nodes", [3, 2_000])
def test_lasting_difference_of_settled_nodes_is_answered_once_per_heartbeat_in_the_end(
    nodes: int,
) -> None:
    sharer = Sharer(nodes, share_delay_s=0.0)
    for _ in range(600):
        sharer.owe("a", 1, is_joining=False)
        sharer.run(0.1)
    counters = sharer.counters
    count = counters.list_shares_sent + counters.list_repairs_sent
    assert count <= 60 / heartbeat_s(nodes) + 8  # and a few at first


def test_joiner_does_not_wait_for_the_brake() -> None:
    sharer = Sharer(share_delay_s=0.0)
    for _ in range(100):
        sharer.owe("a", is_joining=False)
        sharer.run(0.1)
    sharer.take()
    sharer.owe("a", is_joining=False)
    sharer.owe("j")
    assert len(sharer.take()) == 1


def test_lasting_agreement_releases_the_brake() -> None:
    sharer = Sharer(share_delay_s=0.0)
    for _ in range(20):
        sharer.owe("a", is_joining=False)
        sharer.run(0.1)
    sharer.sharing.release("a")
    sharer.run(60)
    sharer.sharing.hear_agreement(sharer.now)
    sharer.take()
    for _ in range(3):  # as fast as in the beginning
        sharer.owe("a", is_joining=False)
        sharer.run(0.2)
    assert len(sharer.take()) == 3


def test_answers_to_joiners_do_not_brake_repairs() -> None:
    sharer = Sharer(share_delay_s=0.0)
    for number in range(20):
        sharer.owe(f"j{number}")
        sharer.run(0.1)
    sharer.take()
    sharer.owe("a", is_joining=False)
    sharer.run(0.2)
    assert len(sharer.take()) == 1


def test_vouching_sends_only_what_was_asked_for_and_waits_for_no_brake() -> None:
    sharer = Sharer()
    for _ in range(50):
        sharer.owe("a", is_joining=False)
        sharer.run(0.1)
    sharer.sharing.release("a")
    sharer.take()
    sharer.sharing.vouch(1 << bucket_of("n0000"), sharer.now)
    sharer.sharing.vouch(1 << bucket_of("n0001"), sharer.now)
    sharer.run(0.2)
    (frame,) = sharer.take()
    assert frame.covers == 1 << bucket_of("n0000") | 1 << bucket_of("n0001")
    assert {entry.node: age_s for entry, age_s in frame.entries}.keys() == {"n0000", "n0001"}
    sharer.run(5)
    assert sharer.take() == []


def test_nobody_vouches_for_what_somebody_else_vouched_for() -> None:
    sharer = Sharer()
    bucket = 1 << bucket_of("n0000")
    sharer.sharing.vouch(bucket, sharer.now)
    sharer.sharing.hear_identical("z", bucket)
    sharer.run(1)
    assert sharer.take() == []


def test_small_lists_are_shared_whole_whatever_differs() -> None:
    sharer = Sharer(WHOLE_LIST_NODES, share_delay_s=0.0)
    sharer.owe(buckets=1)
    assert {frame.covers for frame in sharer.take()} == {ALL_BUCKETS}


def test_of_large_lists_only_what_differs_is_sent() -> None:
    sharer = Sharer(WHOLE_LIST_NODES + 100, share_delay_s=0.0)
    bucket = bucket_of("n0007")
    sharer.owe(buckets=1 << bucket)
    (frame,) = sharer.take()
    assert frame.covers == 1 << bucket
    assert frame.sums == sharer.list.sums
    assert all(bucket_of(entry.node) == bucket for entry, _ in frame.entries)
    assert "n0007" in [entry.node for entry, _ in frame.entries]
    assert sharer.counters.list_repairs_sent == 1
    assert sharer.counters.list_shares_sent == 0


def test_when_most_buckets_differ_the_whole_list_is_sent() -> None:
    sharer = Sharer(WHOLE_LIST_NODES + 1, share_delay_s=0.0)
    sharer.owe(buckets=(1 << 129) - 1)
    assert {frame.covers for frame in sharer.take()} == {ALL_BUCKETS}


def test_repair_waits_until_the_full_list_is_out() -> None:
    sharer = Sharer(3_000, share_delay_s=0.0)
    sharer.owe("j")
    assert len(sharer.take()) == LIST_BURST_DATAGRAMS
    sharer.owe("k", 1 << bucket_of("n0007"), is_joining=False)
    sharer.run(0.5)
    frames = sharer.take()
    last = next(index for index, frame in enumerate(frames) if frame.covers != ALL_BUCKETS)
    assert frames[last - 1].part[0] == frames[last - 1].part[1] - 1
    assert all(frame.covers != ALL_BUCKETS for frame in frames[last:])


@pytest.mark.parametrize(("sender", "goes_on"), [("a", False), ("z", True)])
def test_of_two_that_send_the_same_list_the_lower_id_goes_on(sender: str, goes_on: bool) -> None:
    sharer = Sharer(3_000, share_delay_s=0.0)
    sharer.owe()
    sharer.take()
    sharer.sharing.hear_identical(sender, ALL_BUCKETS)
    sharer.run(1)
    assert bool(sharer.take()) == goes_on


def test_stopped_sharing_owes_and_sends_nothing() -> None:
    sharer = Sharer(3_000, share_delay_s=0.0)
    sharer.owe()
    sharer.take()
    sharer.owe("k")
    sharer.sharing.vouch(1, sharer.now)
    sharer.sharing.stop()
    assert sharer.sharing.timer_at() == math.inf
    sharer.run(1)
    assert sharer.take() == []


def test_node_that_does_not_answer_announces_itself_instead() -> None:
    sharer = Sharer(mode="master", share_delay_s=None)
    own = 1 << bucket_of("m")
    sharer.owe(buckets=ALL_BUCKETS & ~own)
    assert sharer.sharing.timer_at() == math.inf  # its own entry is not among what is lacking
    sharer.owe(buckets=ALL_BUCKETS)
    sharer.run(1.0)
    assert len(sharer.announced_at) == 1
    assert sharer.take() == []


def test_node_that_does_not_answer_brakes_for_joiners_too() -> None:
    sharer = Sharer(mode="master", share_delay_s=None)
    for number in range(200):
        sharer.owe(f"joiner {number}")
        sharer.run(0.05)
    assert len(sharer.announced_at) <= 10


def test_share_of_the_master_spares_the_announcement() -> None:
    sharer = Sharer(mode="master", share_delay_s=None)
    sharer.owe()
    sharer.sharing.hear_identical("master", ALL_BUCKETS)
    sharer.run(1.0)
    assert sharer.announced_at == []
