"""Deliberate defects of the core, each with the promise that it breaks.

A checker that never fails proves nothing. Each function here damages the running core in one place;
test_defects.py runs histories with the damage until the checker that it is listed under complains.
Every checker has at least one; those of channels are in channel_defects.py:

    AllAgree             changes_are_not_announced, digests_ignore_versions,
                         ended_patterns_stay_announced, expired_nodes_stay_buried,
                         settled_nodes_are_never_answered, silent_nodes_never_expire
    BuffersAreBounded    history_is_unbounded, slices_never_expire
    DatagramsAreSound    basic_nodes_send_lists, datagrams_exceed_their_limit
    DeliveriesAreTrue    ended_subscriptions_still_deliver, repeats_are_taken_for_new
    HoldIsBounded        join_queue_drops_what_overflows, join_queue_is_unbounded
    JoinersAreServed     joiners_and_differences_are_ignored
    NobodyStorms         full_lists_are_repeated_without_brake
    NothingIsForgotten   timers_moved_by_datagrams_are_not_told
    NothingIsWasted      everything_is_sent, goodbyes_are_ignored
    NothingIsWithheld    doubt_is_impossible, join_queue_is_never_sent, leases_are_too_short,
                         nodes_are_sure_at_once, single_levels_do_not_match,
                         sleep_is_taken_for_silence, wildcards_of_others_do_not_match
    ProbesArrive         beats_are_never_sent, own_subscriptions_get_nothing,
                         wildcards_get_nothing
    PublishersKeepOrder  held_messages_are_sent_in_reverse, held_messages_are_sent_twice
    QuietGroupsAreQuiet  agreement_is_answered_by_a_share
    ReliableIsExact      gaps_are_not_told, losses_are_skipped, naks_are_never_answered,
                         naks_are_never_sent, reliable_messages_overtake,
                         sequences_are_reused
    RepliesAreTrue       replies_answer_another_request, replies_are_given_twice,
                         replies_are_taken_by_everybody
    RetainedIsGivenOnce  large_retained_values_are_not_given, retained_values_are_given_again,
                         retained_values_are_never_given
    TablesStayBounded    nodes_that_left_are_remembered, tombstones_are_never_forgotten
    VersionsAreEarned    nodes_overrule_what_is_true
    VersionsNeverGoBack  older_entries_are_taken

Some damage breaks no promise of a history, because another part makes up for it: Trickle that
never speaks (heartbeats carry digests, too), differences that are never doubted, NAKs without
back-off, NAKs that are never repeated (the next beat brings another), shares that are not
cancelled, a brake that never brakes while lists become equal, suspects that do not answer, a window
of repeats that is too small. It costs time or datagrams, which tests/core notices.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from pytest import MonkeyPatch

from jsonbus.core import limits, outbox, publisher, roster, timers
from jsonbus.core.membership import (
    agreement,
    joining,
    liveness,
    membership,
    sharing,
    strategies,
    subscription_list,
)
from jsonbus.core.node import Node
from jsonbus.core.reliable import history, repairs, streams
from jsonbus.core.routing import subscriptions
from jsonbus.core.rpc import requests
from jsonbus.core.values import fragments, retained
from jsonbus.core.wire.frames import Entry
from jsonbus.sim.checkers import (
    DatagramsAreSound,
    DeliveriesAreTrue,
    HoldIsBounded,
    NothingIsForgotten,
    PublishersKeepOrder,
    RepliesAreTrue,
)
from jsonbus.sim.group_checkers import (
    AllAgree,
    JoinersAreServed,
    NobodyStorms,
    ProbesArrive,
    QuietGroupsAreQuiet,
)
from jsonbus.sim.growth_checkers import TablesStayBounded, VersionsAreEarned
from jsonbus.sim.list_checkers import NothingIsWasted, NothingIsWithheld, VersionsNeverGoBack
from jsonbus.sim.reliable_checkers import BuffersAreBounded, ReliableIsExact, RetainedIsGivenOnce
from tests.simulation.damage import Defects, around, omit

DEFECTS = Defects(has_channels=False)
breaks = DEFECTS.breaks


# --- Single messages -----------------------------------------------------------------------------


@breaks(DatagramsAreSound, 0, "master")
def datagrams_exceed_their_limit(patch: MonkeyPatch) -> None:
    def allow(real: Any, self: Any, bytes_max: int, *rest: int) -> None:
        real(self, bytes_max + 100, *rest)

    around(patch, outbox.Outbox, "allow_bytes", allow)


@breaks(DatagramsAreSound, 0, "basic")
def basic_nodes_send_lists(patch: MonkeyPatch) -> None:
    def build(real: Any, self: Any, settings: Any) -> None:
        real(self, settings)
        self.takes_part = True

    around(patch, strategies.ShareStrategy, "__init__", build)


@breaks(DeliveriesAreTrue, 0, "delayed")
def repeats_are_taken_for_new(patch: MonkeyPatch) -> None:
    around(patch, roster.Peer, "admit", lambda real, self, counter: real(self, counter) or True)


@breaks(DeliveriesAreTrue, 0, "basic")
def ended_subscriptions_still_deliver(patch: MonkeyPatch) -> None:
    patch.setattr(subscriptions.SubscriptionStore, "unsubscribe", lambda *args: True)


@breaks(PublishersKeepOrder, 0, "mixed")
def held_messages_are_sent_twice(patch: MonkeyPatch) -> None:
    def send(real: Any, self: Any, held: list[Any], now: float) -> None:
        real(self, [message for message in held for _ in range(2)], now)

    around(patch, publisher.Publisher, "_send_held", send)


@breaks(PublishersKeepOrder, 0, "master")
def held_messages_are_sent_in_reverse(patch: MonkeyPatch) -> None:
    def send(real: Any, self: Any, held: list[Any], now: float) -> None:
        real(self, held[::-1], now)

    around(patch, publisher.Publisher, "_send_held", send)


@breaks(HoldIsBounded, 2, "master")
def join_queue_is_unbounded(patch: MonkeyPatch) -> None:
    patch.setattr(publisher, "HOLD_MESSAGES_MAX", math.inf)


@breaks(HoldIsBounded, 2, "master")
def join_queue_drops_what_overflows(patch: MonkeyPatch) -> None:
    # Accepted and never sent: seen from outside, the node still holds it.
    around(patch, publisher.JoinQueue, "put", lambda real, self, message: real(self, message)[:0])


@breaks(NothingIsWithheld, 0, "master")
def join_queue_is_never_sent(patch: MonkeyPatch) -> None:
    omit(patch, publisher.Publisher, "_send_held")


@breaks(NothingIsForgotten, 0, "basic")
def timers_moved_by_datagrams_are_not_told(patch: MonkeyPatch) -> None:
    patch.setattr(Node, "take_attention", lambda self: False)


@breaks(RepliesAreTrue, 0, "delayed")
def replies_answer_another_request(patch: MonkeyPatch) -> None:
    def send(self: Any, key: Any, now: float) -> None:
        oldest = next(iter(self._replies.values()))
        self._outbox.put_control(requests.encode_reply(key[0], key[2], *oldest), now)

    patch.setattr(requests.Requests, "_send_reply", send)


@breaks(RepliesAreTrue, 1, "mixed")
def replies_are_taken_by_everybody(patch: MonkeyPatch) -> None:
    def receive(real: Any, self: Any, frame: Any, peer: Any, now: float) -> None:
        real(self, replace(frame, to=self._settings.node), peer, now)

    around(patch, requests.Requests, "receive_reply", receive)


@breaks(RepliesAreTrue, 0, "basic")
def replies_are_given_twice(patch: MonkeyPatch) -> None:
    def settle(real: Any, self: Any, request_id: int, *reply: Any) -> None:
        asked = self._asked.get(request_id)
        real(self, request_id, *reply)
        if asked is not None:
            self._asked[request_id] = asked  # not forgotten

    around(patch, requests.Requests, "_settle", settle)


# --- Lists ---------------------------------------------------------------------------------------


@breaks(VersionsNeverGoBack, 0, "delayed")
def older_entries_are_taken(patch: MonkeyPatch) -> None:
    def merge(real: Any, self: Any, entry: Entry, age_s: float, now: float, lease_s: float) -> int:
        known = self.get(entry.node)
        if known is not None and entry.is_alive and entry.version < known.version:
            self.put(entry, now)
            return subscription_list.CHANGED
        return int(real(self, entry, age_s, now, lease_s))

    around(patch, subscription_list.SubscriptionList, "merge", merge)


@breaks(NothingIsWithheld, 0, "master")
def wildcards_of_others_do_not_match(patch: MonkeyPatch) -> None:
    patch.setattr(subscriptions.Interest, "wants", lambda self, topic: topic in self._counts)


@breaks(NothingIsWithheld, 0, "master")
def single_levels_do_not_match(patch: MonkeyPatch) -> None:
    def count(real: Any, self: Any, patterns: Iterable[str]) -> None:
        real(self, [pattern for pattern in patterns if "*" not in pattern.split("/")])

    around(patch, subscriptions.Interest, "add", count)
    around(patch, subscriptions.Interest, "remove", count)


@breaks(NothingIsWithheld, 0, "master")
def nodes_are_sure_at_once(patch: MonkeyPatch) -> None:
    def start(real: Any, self: Any, now: float) -> None:
        real(self, now)
        self._be_sure("it is optimistic")

    around(patch, joining.Joining, "start", start)


@breaks(NothingIsWithheld, 0, "delayed")
def leases_are_too_short(patch: MonkeyPatch) -> None:
    patch.setattr(liveness, "LEASE_HEARTBEATS", 0.3)
    patch.setattr(liveness, "SUSPECT_GRACE_S", 0.001)


@breaks(NothingIsWithheld, 0, "master")
def doubt_is_impossible(patch: MonkeyPatch) -> None:
    patch.setattr(joining.Joining, "doubt", lambda *args, **options: False)


@breaks(NothingIsWithheld, 13, "delayed")
def sleep_is_taken_for_silence(patch: MonkeyPatch) -> None:
    omit(patch, joining.Joining, "distrust_silence")


@breaks(NothingIsWasted, 0, "master")
def everything_is_sent(patch: MonkeyPatch) -> None:
    def look_again(real: Any, self: Any, state: str, now: float) -> None:
        real(self, state, now)
        self._sends_everything = True

    around(patch, publisher.Publisher, "look_again", look_again)


@breaks(NothingIsWasted, 11, "master")
def goodbyes_are_ignored(patch: MonkeyPatch) -> None:
    omit(patch, membership.Membership, "receive_bye")


# --- The group -----------------------------------------------------------------------------------


@breaks(JoinersAreServed, 0, "delayed")
def joiners_and_differences_are_ignored(patch: MonkeyPatch) -> None:
    omit(patch, agreement.Agreement, "_hear_difference")


@breaks(QuietGroupsAreQuiet, 0, "master")
def agreement_is_answered_by_a_share(patch: MonkeyPatch) -> None:
    def hear(real: Any, self: Any, sender: str, frame: Any, now: float) -> None:
        real(self, sender, frame, now)
        if self._sharing.strategy.answers:
            self._sharing.owe(sender, agreement.ALL_BUCKETS, now, is_joining=False)

    around(patch, agreement.Agreement, "_hear_agreement", hear)
    patch.setattr(agreement.Agreement, "try_confirm_unchanged", lambda *args: False)


@breaks(NobodyStorms, 0, "delayed")
def full_lists_are_repeated_without_brake(patch: MonkeyPatch) -> None:
    patch.setattr(subscription_list, "LIST_ENTRIES_MAX", 3)  # they cannot become equal
    omit(patch, timers.Brake, "step")


@breaks(AllAgree, 1, "mixed")
def settled_nodes_are_never_answered(patch: MonkeyPatch) -> None:
    def owe(real: Any, self: Any, *debt: Any, is_joining: bool) -> None:
        if is_joining:
            real(self, *debt, is_joining=is_joining)

    around(patch, sharing.Sharing, "owe", owe)


@breaks(AllAgree, 1, "master")
def silent_nodes_never_expire(patch: MonkeyPatch) -> None:
    patch.setattr(liveness.Liveness, "check", lambda self, due: [])
    patch.setattr(liveness.Liveness, "timer_at", lambda self: math.inf)


@breaks(AllAgree, 15, "mixed")
def expired_nodes_stay_buried(patch: MonkeyPatch) -> None:
    def merge(real: Any, self: Any, entry: Entry, known: Entry, is_buried: bool, *age: Any) -> int:
        if is_buried:
            return subscription_list.SAME
        return int(real(self, entry, known, is_buried, *age))

    around(patch, subscription_list.SubscriptionList, "_merge_equal", merge)


@breaks(AllAgree, 1, "mixed")
def digests_ignore_versions(patch: MonkeyPatch) -> None:
    def hash64(real: Any, entry: Entry) -> int:
        return int(real(entry if entry.is_plain else replace(entry, version=1)))

    around(patch, Entry, "hash64", hash64)


@breaks(AllAgree, 0, "delayed")
def changes_are_not_announced(patch: MonkeyPatch) -> None:
    omit(patch, joining.Joining, "announce_change")


@breaks(AllAgree, 0, "master")
def ended_patterns_stay_announced(patch: MonkeyPatch) -> None:
    def set_patterns(real: Any, self: Any, patterns: tuple[str, ...], *rest: Any) -> None:
        real(self, tuple(dict.fromkeys((*self.entry.patterns, *patterns))), *rest)

    around(patch, membership.Membership, "set_patterns", set_patterns)


@breaks(ProbesArrive, 0, "basic")
def own_subscriptions_get_nothing(patch: MonkeyPatch) -> None:
    omit(patch, publisher.Publisher, "_deliver_own")


@breaks(ProbesArrive, 0, "basic")
def wildcards_get_nothing(patch: MonkeyPatch) -> None:
    def find(real: Any, self: Any, topic: str) -> Any:
        return real(self, topic) if topic in self else ()

    around(patch, subscriptions.SubscriptionStore, "subscribers_of", find)


# --- Reliable and retained messages --------------------------------------------------------------


@breaks(ReliableIsExact, 70, "master")
def gaps_are_not_told(patch: MonkeyPatch) -> None:
    patch.setattr(streams.Streams, "take_lost", lambda self: [])


@breaks(ReliableIsExact, 2, "master")
def naks_are_never_sent(patch: MonkeyPatch) -> None:
    around(patch, streams.Streams, "handle_timer", lambda real, self, now: real(self, now)[:0])


@breaks(ReliableIsExact, 7, "master")
def naks_are_never_answered(patch: MonkeyPatch) -> None:
    omit(patch, repairs.Repairs, "send")


@breaks(ProbesArrive, 1, "basic")
def beats_are_never_sent(patch: MonkeyPatch) -> None:
    omit(patch, repairs.Repairs, "send_beats")


@breaks(ReliableIsExact, 2, "master")
def reliable_messages_overtake(patch: MonkeyPatch) -> None:
    def receive(real: Any, self: Any, stream: Any, sequence: int, item: Any, *rest: Any) -> str:
        if sequence == stream.top:
            return str(real(self, stream, sequence, item, *rest))
        self.ready.append(item)
        stream.top = max(stream.top, sequence + 1)
        return streams.OUT_OF_TURN

    around(patch, streams.Streams, "receive", receive)


@breaks(ReliableIsExact, 0, "delayed")
def losses_are_skipped(patch: MonkeyPatch) -> None:
    def miss(self: Any, stream: Any, last: int, now: float) -> None:
        stream.top = last + 1

    patch.setattr(streams.Streams, "_miss", miss)


@breaks(ReliableIsExact, 0, "basic")
def sequences_are_reused(patch: MonkeyPatch) -> None:
    patch.setattr(history.History, "keep", lambda self, *message: 1)


@breaks(BuffersAreBounded, 0, "master")
def history_is_unbounded(patch: MonkeyPatch) -> None:
    for module in (limits, history):  # no history publishes so much as the real bound
        patch.setattr(module, "HISTORY_MESSAGES_MAX", 50)
    omit(patch, history.History, "_push_out")


@breaks(BuffersAreBounded, 1, "master")
def slices_never_expire(patch: MonkeyPatch) -> None:
    patch.setattr(fragments.Fragments, "timer_at", lambda self: math.inf)


@breaks(RetainedIsGivenOnce, 0, "master")
def retained_values_are_never_given(patch: MonkeyPatch) -> None:
    omit(patch, retained.RetainedStore, "interest_grew")


@breaks(RetainedIsGivenOnce, 0, "master")
def retained_values_are_given_again(patch: MonkeyPatch) -> None:
    patch.setattr(retained.RetainedCache, "is_new", lambda *args: True)


@breaks(RetainedIsGivenOnce, 0, "master")
def large_retained_values_are_not_given(patch: MonkeyPatch) -> None:
    omit(patch, retained.RetainedDelivery, "receive_large")


# --- Growth --------------------------------------------------------------------------------------


@breaks(TablesStayBounded, 0, "delayed", "long")
def tombstones_are_never_forgotten(patch: MonkeyPatch) -> None:
    omit(patch, subscription_list.SubscriptionList, "forget_tombstones")


@breaks(TablesStayBounded, 0, "delayed", "long")
def nodes_that_left_are_remembered(patch: MonkeyPatch) -> None:
    patch.setattr(limits, "PEERS_UNLISTED_MAX", 50)  # in an hour, fewer leave than really fit
    omit(patch, roster.Roster, "note_unlisted")


@breaks(VersionsAreEarned, 0, "delayed", "long")
def nodes_overrule_what_is_true(patch: MonkeyPatch) -> None:
    def merge(real: Any, self: Any, entry: Entry, now: float) -> None:
        if entry == self.entry:
            entry = replace(entry, gone=True)
        real(self, entry, now)

    around(patch, membership.Membership, "_merge_own", merge)
