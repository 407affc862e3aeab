"""Membership: keeps the subscription list equal on all nodes.

Entries that come in are merged into the list; then digests are compared (agreement.py). The class
`Membership` owns the list and the parts around it, and passes frames, timers and changes on.

Basic nodes take no part. Their presence puts an entry that wants everything into the others' lists.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

from jsonbus.core.counters import Counters
from jsonbus.core.events import (
    Event,
    InterestChanged,
    MasterMissing,
    NodeJoined,
    NodeLeft,
    StateChanged,
)
from jsonbus.core.limits import (
    CHANGE_GATHER_S,
    GATHER_PER_PATTERN_S,
    LIST_ENTRIES_MAX,
    PLAIN_LEASE_S,
    TIMER_SLACK_S,
)
from jsonbus.core.membership.agreement import Agreement
from jsonbus.core.membership.announcer import BASIC_PATTERNS, Announcer
from jsonbus.core.membership.joining import DOUBTING, Joining
from jsonbus.core.membership.liveness import Liveness, lease_s
from jsonbus.core.membership.plain import PlainPeers
from jsonbus.core.membership.sharing import Sharing
from jsonbus.core.membership.subscription_list import CHANGED, FrozenList, SubscriptionList
from jsonbus.core.outbox import Outbox
from jsonbus.core.roster import Peer
from jsonbus.core.settings import NodeSettings
from jsonbus.core.wire.frames import (
    ALL_BUCKETS,
    About,
    ByeFrame,
    Entry,
    ListFrame,
    PresenceFrame,
    Totals,
    bucket_of,
)
from jsonbus.core.wire.names import INTEGER_MAX


class MembershipCallbacks(NamedTuple):
    """What membership asks of the rest of the node, and reports to it."""

    emit: Callable[[Event], None]
    about: Callable[[str], About]  # returns what a node has said of itself
    totals: Callable[[], Totals]  # returns what this node has counted
    #: Called for every change of another node's entry, with the old and the new one.
    on_entry: Callable[[Entry | None, Entry | None, float], None]
    on_state: Callable[[float], None]  # called after the state changed
    #: Returns the patterns of the own entry as it should be, and whether they are coarse.
    to_announce: Callable[[], tuple[tuple[str, ...], bool]]


class Membership:
    """This node's part in keeping the list."""

    def __init__(
        self,
        settings: NodeSettings,
        rng: random.Random,
        outbox: Outbox,
        counters: Counters,
        callbacks: MembershipCallbacks,
    ) -> None:
        self._settings = settings
        self._counters = counters
        self._emit = callbacks.emit
        self._about = callbacks.about
        self._on_entry = callbacks.on_entry
        self._on_state = callbacks.on_state
        self._to_announce = callbacks.to_announce
        self._changed_at: float | None = None  # since when the own entry is out of date
        self.list = SubscriptionList()
        self.joining = Joining(self._lease_s)
        self._announcer = Announcer(
            settings, self.list, self.joining, rng, outbox, counters, callbacks.totals
        )
        self._sharing = Sharing(
            settings, self.list, self.joining, rng, outbox, counters, self._announcer.announce
        )
        self._strategy = self._sharing.strategy
        self._liveness = Liveness(settings.node, self.list, rng)
        self._agreement = Agreement(
            subscription_list=self.list,
            joining=self.joining,
            announcer=self._announcer,
            sharing=self._sharing,
            on_agreed=self._state_changed,
            on_difference=self._doubt,
        )
        self.plain_peers = PlainPeers(
            self.list, self.joining, self._sharing, counters, self._merge_plain
        )
        self._is_open = False
        self.is_closed = False

    # --- Called by the node ---------------------------------------------------------------------

    @property
    def state(self) -> str:
        return self.joining.state

    @property
    def entry(self) -> Entry:
        """The own entry as it was announced last; `renew_entry` brings it up to date."""
        return self._announcer.entry

    def open(self, now: float) -> None:
        self.renew_entry()
        self._is_open = True
        self._announcer.open(now)
        if self._strategy.takes_part:
            self.joining.start(now)
        else:
            self.joining.settle("mode basic sends everything")
            self._announcer.send_presence(now)
        self.handle_timer(now + TIMER_SLACK_S, now)

    def open_converged(self, now: float, group: FrozenList) -> None:
        """Start as a long-standing member of a group that agrees on that list."""
        self.renew_entry()
        self._is_open = True
        self.list.stand_on(group, now)
        self._liveness.watch(now)
        self.joining.settle("another node has the same list")
        self._announcer.open_converged(now)
        self._on_state(now)

    def patterns_changed(self, now: float) -> None:
        """Announce changed subscriptions, by an entry that is made after a moment for more."""
        if self._changed_at is not None or not self._strategy.takes_part:
            return
        self._changed_at = now
        gather_s = CHANGE_GATHER_S + GATHER_PER_PATTERN_S * len(self.entry.patterns)
        if self._is_open:
            self.joining.announce_change(now, now + gather_s)

    def renew_entry(self) -> Entry:
        """Return the own entry with all changes until now."""
        if self._changed_at is not None:
            now, self._changed_at = self._changed_at, None
            self.set_patterns(*self._to_announce(), now)
        return self.entry

    def set_patterns(self, patterns: tuple[str, ...], is_coarse: bool, now: float) -> None:
        entry = replace(self.entry, patterns=patterns, is_coarse=is_coarse)
        if not self._is_open:
            self._announcer.set_first(entry)
        elif entry != self.entry:
            self._agreement.leave_behind(self.list.digest, now)
            self._announcer.renew(replace(entry, version=entry.version + 1), now)

    def name_patterns(self, patterns: list[str], now: float) -> None:
        """Tell publishers of new subscriptions that the own entry covers already."""
        if self._strategy.takes_part:
            self._announcer.naming.add(patterns, now)

    @property
    def about(self) -> About:
        """What this node says of itself."""
        return self._announcer.about

    def set_channel_port(self, port: int | None, now: float) -> None:
        """Announce that this node accepts channels at that TCP port from now on."""
        self._announcer.set_about(self.about._replace(channel_port=port))
        if self._is_open:  # else the first announcement says so
            self._announcer.send_presence(now)

    def introduce(self, now: float) -> None:
        """Answer a node that asks for this node's address."""
        if self._is_open:
            self._announcer.introduce(now)

    def close(self, now: float) -> None:
        """Send a goodbye. There is no timer afterwards."""
        self._sharing.stop()
        self._agreement.stop()
        self.joining.settle("closed")
        self._announcer.say_goodbye(now)
        self.is_closed = True

    def doubt_network(self, now: float, reason: str) -> None:
        """The network changed: send everything, and announce again."""
        if self._strategy.takes_part:
            self._announcer.trickle.hear_mismatch(now)
            self.joining.distrust_silence(now)
            self._doubt(now, reason, announces=True)
            self.handle_timer(now + TIMER_SLACK_S, now)

    def timer_at(self) -> float:
        return min(
            self.joining.timer_at(),
            self._sharing.timer_at(),
            self._announcer.timer_at(),
            self._liveness.timer_at(),
            self._agreement.timer_at(),
        )

    def handle_timer(self, due: float, now: float) -> None:
        if self.joining.timer_at() <= due:
            self._handle_joining(due, now)
        self._sharing.handle_timer(now)
        if self._agreement.timer_at() <= due:
            self._agreement.handle_timer(due, now)
        if self._liveness.timer_at() <= due:
            self._handle_liveness(due, now)
        self._announcer.handle_timer(now)

    # --- Receiving ------------------------------------------------------------------------------

    def hear(self, node: str, incarnation: int, now: float) -> bool:
        """Take a sign of life, any datagram with a header; True if the node is in the list."""
        known = self.list.get(node)
        if known is None or known.incarnation != incarnation:
            self._hear_unknown(node, incarnation, now)
            return False
        self.list.heard[node] = now
        return True

    def try_confirm_unchanged(self, frame: ListFrame | PresenceFrame, now: float) -> bool:
        """Take agreement that changes nothing; False if the frame needs full treatment."""
        return not self._liveness.is_asking and self._agreement.try_confirm_unchanged(frame, now)

    def try_confirm_again(self, peer: Peer, now: float) -> bool:
        """The same for a presence that repeats the one noted last of that peer."""
        if self._liveness.is_asking or not self._agreement.try_confirm(peer.agreed_on):
            return False
        return self.hear(peer.node, peer.incarnation, now)

    def accompany(self, node: str, now: float) -> bool:
        """Whether the presence of that node, which was confirmed, calls for one of this node."""
        return self._announcer.accompany(node, now)

    def receive_list(self, frame: ListFrame, now: float) -> None:
        header = frame.header
        assert header is not None
        digest = self.list.digest
        is_identical = frame.covers == ALL_BUCKETS and frame.digest == digest
        # Of an identical list only ages could be merged: 10,000 nodes hear 450 parts per share.
        if not is_identical or self._liveness.is_asking:
            nodes = min(frame.digest.nodes, LIST_ENTRIES_MAX) if frame.digest is not None else 0
            lease = lease_s(max(len(self.list), nodes))
            for entry, age_s in frame.entries:
                if entry.node == header.node or not self.list.is_outdated(entry):
                    self._merge(entry, age_s, lease, now)
        if not self._strategy.takes_part:
            if frame.covers is None and not frame.settled:
                # A joiner should know that this node wants everything.
                self._announcer.plan_presence(now)
        elif frame.digest is not None:
            self._agreement.compare(header.node, frame, now, was_news=self.list.digest != digest)

    def receive_presence(self, frame: PresenceFrame, now: float) -> None:
        header = frame.header
        if frame.mode == "basic":
            id_ = header.node, header.incarnation, frame.version
            entry = Entry(*id_, frame.name, BASIC_PATTERNS, "basic")
            self._merge(entry, 0.0, self._lease_s(), now)
        if frame.digest is not None and self._strategy.takes_part:
            self._agreement.compare(header.node, frame, now)
        for node, incarnation in frame.suspects:
            self._hear_suspicion(node, incarnation, now)

    def receive_bye(self, frame: ByeFrame, now: float) -> None:
        header = frame.header
        name = known.name if (known := self.list.get(header.node)) is not None else header.node
        entry = Entry(header.node, header.incarnation, frame.version, name, left=True)
        self._merge(entry, 0.0, self._lease_s(), now)

    # --- Merging --------------------------------------------------------------------------------

    def _hear_unknown(self, node: str, incarnation: int, now: float) -> None:
        """Take a sign of life of a node that is not in the list, or under another incarnation."""
        tombstone = self.list.tombstones.get(node)
        if tombstone is not None and tombstone[1] < now - self._lease_s():
            # Others have forgotten it, and newer versions: a list must not bring this one back.
            self.list.forget_tombstones(before=now - self._lease_s())
            tombstone = None
        if tombstone is not None:
            buried = tombstone[0]
            if incarnation <= buried.incarnation:
                if incarnation == buried.incarnation and buried.gone:
                    self._merge(replace(buried, gone=False), 0.0, self._lease_s(), now)
                return  # else its goodbye, or its restart, overtook this datagram
        if self._strategy.takes_part:
            self._agreement.hear_unknown(node, now)

    def _hear_suspicion(self, node: str, incarnation: int, now: float) -> None:
        if node == self._settings.node:
            if incarnation == self._settings.incarnation:
                self._announcer.answer_suspicion(now)
        elif self._liveness.hear_question(node, now) and self.joining.is_settled:
            if self._strategy.answers:
                self._sharing.vouch(1 << bucket_of(node), now)

    def _merge(self, entry: Entry, age_s: float, lease: float, now: float) -> None:
        if entry.node == self._settings.node:
            self._merge_own(entry, now)
            return
        old = self.list.get(entry.node)
        digest = self.list.digest
        if self.list.merge(entry, age_s, now, lease) == CHANGED:
            self._agreement.leave_behind(digest, now)
            self._entry_changed(old, self.list.get(entry.node), entry, now)

    def _merge_plain(self, entry: Entry, now: float) -> None:
        self._merge(entry, 0.0, PLAIN_LEASE_S, now)

    def _merge_own(self, entry: Entry, now: float) -> None:
        """Take what others say of this node. Where they are wrong, a new version overrules them."""
        mine = self.entry
        if entry.incarnation != mine.incarnation:
            return
        if entry.version == mine.version and entry.is_alive:
            return
        if not mine.version <= entry.version < INTEGER_MAX - 1:
            return  # outdated; or forged: no node gets that far, and none believes it
        self._agreement.leave_behind(self.list.digest, now)
        self._announcer.renew(replace(mine, version=entry.version + 1), now)
        if self._strategy.takes_part:
            self.joining.announce_change(now, now + CHANGE_GATHER_S)
        else:
            self._announcer.send_presence(now)

    def _entry_changed(
        self, old: Entry | None, new: Entry | None, cause: Entry, now: float
    ) -> None:
        self._on_entry(old, new, now)
        if old is None and new is not None:
            self._liveness.watch(self.list.heard_at(new.node))
            self._emit(NodeJoined(new.node, new.name, self._about(new.node)))
        elif old is not None and new is None:
            self._sharing.release(old.node)
            self._liveness.forget(old.node)
            reason = "left" if cause.left else "gone"
            self._emit(NodeLeft(old.node, old.name, reason, self._about(old.node)))
            if self._strategy.takes_part and cause.gone:
                self._doubt(now, "a node has fallen silent")
            elif self._strategy.takes_part and self.state == DOUBTING and self._is_alone():
                self._doubt(now, "all other nodes are gone", announces=True)
        if (old.patterns if old else ()) != (new.patterns if new else ()):
            self._emit(InterestChanged())

    # --- Timers ---------------------------------------------------------------------------------

    def _handle_joining(self, due: float, now: float) -> None:
        if self.joining.take_announcement(due):
            self.renew_entry()
            self._announcer.announce(now)
        if self.joining.take_verdict(due, is_alone=self._is_alone()):
            self._state_changed(now)
            self._announcer.send_presence(now)  # the others wait for a settled node
            # The nodes that were heard are gone again: only silence can decide.
            if self.state == DOUBTING and self._is_alone():
                self._doubt(now, self.joining.reason, announces=True)

    def _handle_liveness(self, due: float, now: float) -> None:
        self.list.forget_tombstones(before=now - self._lease_s())
        for entry in self._liveness.check(due):
            gone = replace(entry, gone=True)
            self._agreement.leave_behind(self.list.digest, now)
            self.list.bury(gone, self._liveness.gone_since(entry, now))
            self._entry_changed(entry, None, gone, now)
        suspects = self._liveness.take_question(due)
        if suspects and self._strategy.takes_part:
            self._counters.suspicions_sent += len(suspects)
            self._announcer.send_presence(now, suspects)

    def _lease_s(self) -> float:
        return lease_s(len(self.list))

    def _is_alone(self) -> bool:
        return not self.list.has_partner_of(self._settings.node)

    def _doubt(self, now: float, reason: str, *, announces: bool = False) -> None:
        if self.joining.doubt(now, reason, announces=announces or self._is_alone()):
            self._state_changed(now)

    def _state_changed(self, now: float) -> None:
        if not self._announcer.trickle.is_running:  # joining is over
            self._announcer.settled(now)
            if self._settings.mode == "master" and not any(entry.is_master for entry in self.list):
                if self.state == DOUBTING or not self._is_alone():
                    self._emit(MasterMissing())
        self._emit(StateChanged(self.joining.state, self.joining.reason))
        self._on_state(now)
