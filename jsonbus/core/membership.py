"""Who is on the bus and what they want: the subscription list, kept equal on all nodes.

What comes in is merged into the list; what was merged is compared. A list or digest equal to this
node's own is agreement: it makes a joiner sure, keeps Trickle silent, and pays what this node owed.
A different one means that somebody misses something:

- a joiner misses nearly everything. Settled nodes owe it the list (obligations.py), the strategy
  says when they pay, and an identical list from somebody else pays for them;
- settled nodes that differ doubt for a while, repeat their own entry soon (Trickle), with bucket
  sums, and owe each other the buckets that differ.

A share in several parts is judged at its last part only: before, a difference means nothing.

Basic nodes take no part. Their presence puts an entry that wants everything into the others' lists.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import replace

from jsonbus.core.counters import Counters
from jsonbus.core.events import (
    Event,
    InterestChanged,
    MasterMissing,
    NodeJoined,
    NodeLeft,
    StateChanged,
)
from jsonbus.core.frames import (
    ALL_BUCKETS,
    BUCKETS,
    PLAIN_PREFIX,
    ByeFrame,
    Digest,
    Entry,
    Header,
    ListFrame,
    PresenceFrame,
    bucket_of,
)
from jsonbus.core.joining import DOUBTING, SURE, Joining
from jsonbus.core.limits import (
    CHANGE_GATHER_S,
    HEARTBEAT_MIN_S,
    PLAIN_ANSWER_INTERVAL_S,
    PLAIN_PEERS_MAX,
    SHARE_INTERVAL_MIN_S,
    SUSPECT_GRACE_S,
    TIMER_SLACK_S,
    TRICKLE_MAX_S,
    WHOLE_LIST_NODES,
)
from jsonbus.core.list_sender import ListSender
from jsonbus.core.liveness import Liveness, heartbeat_s, lease_s
from jsonbus.core.obligations import Obligations
from jsonbus.core.outbox import Outbox
from jsonbus.core.settings import NodeSettings
from jsonbus.core.share import BasicShare, ShareStrategy
from jsonbus.core.share_delayed import DelayedShare
from jsonbus.core.share_master import MasterShare
from jsonbus.core.subscription_list import (
    CHANGED,
    FrozenList,
    SubscriptionList,
    make_plain_entry,
)
from jsonbus.core.timers import Trickle, share_delay_s
from jsonbus.core.wire_encode import encode_bye, encode_list, encode_presence

BASIC_PATTERNS = ("**",)


def make_strategy(settings: NodeSettings) -> ShareStrategy:
    if settings.mode == "basic":
        return BasicShare()
    if settings.mode == "master":
        return MasterShare(settings.is_master)
    return DelayedShare(settings.share_delay_s)


class Membership:
    """This node's part in keeping the list.

    `on_entry(old, new, now)` is called for every change of another node's entry, `on_state(now)`
    after the state changed, `emit` for everything that a front end may want to know.
    """

    def __init__(
        self,
        settings: NodeSettings,
        rng: random.Random,
        outbox: Outbox,
        counters: Counters,
        *,
        emit: Callable[[Event], None],
        on_entry: Callable[[Entry | None, Entry | None, float], None],
        on_state: Callable[[float], None],
    ) -> None:
        self._settings = settings
        self._rng = rng
        self._outbox = outbox
        self._counters = counters
        self._emit = emit
        self._on_entry = on_entry
        self._on_state = on_state
        self._strategy = make_strategy(settings)
        self.entry = Entry(
            settings.node,
            settings.incarnation,
            1,
            settings.name,
            BASIC_PATTERNS if settings.mode == "basic" else (),
            settings.mode,
            settings.is_master,
        )
        self.list = SubscriptionList()
        self.joining = Joining()
        self._obligations = Obligations()
        self._trickle = Trickle(rng)
        self._sender = ListSender(outbox, settings.datagram_bytes_max)
        self._liveness = Liveness(settings.node, self.list, rng)
        self._last_full_share_at = -math.inf
        self._plain_answered_at: dict[str, float] = {}
        self._heartbeat_at = math.inf
        self._presence_at = math.inf  # out of turn: somebody asked, or should know
        self._own_announcement_at = math.inf  # somebody settled seems to lack this node's entry
        self.last_sent_at = -math.inf  # any datagram is a sign of life

    # --- What the node asks for -----------------------------------------------------------------

    @property
    def state(self) -> str:
        return self.joining.state

    def open(self, now: float) -> None:
        self.list.put(self.entry, now)
        self._heartbeat_at = now + self._heartbeat_gap_s()
        if self._strategy.takes_part:
            self.joining.start(now)
        else:
            self.joining.settle("mode basic sends everything")
            self._send_presence(now)
        self.handle_timer(now)

    def open_converged(self, now: float, group: FrozenList) -> None:
        """Be a long-standing member of a group that agrees on that list."""
        self.list = SubscriptionList(group, now)
        self._liveness = Liveness(self._settings.node, self.list, self._rng)
        self._liveness.watch(now)
        self.joining.settle("another node has the same list")
        # As after hours: heartbeats of all nodes spread evenly, Trickle at its longest.
        self._heartbeat_at = now + self._rng.random() * heartbeat_s(len(self.list))
        if self._strategy.takes_part:
            self._trickle.start(now - self._rng.random() * TRICKLE_MAX_S / 2, TRICKLE_MAX_S)

    def set_patterns(self, patterns: tuple[str, ...], now: float) -> None:
        """The own subscriptions changed: a new version, announced as soon as they are gathered."""
        if not self._strategy.takes_part or patterns == self.entry.patterns:
            return
        self._renew_entry(self.entry.version + 1, patterns, now)

    def close(self, now: float) -> None:
        self._sender.stop()
        self._outbox.put_control(encode_bye, now, version=self.entry.version + 1)
        self.entry = replace(self.entry, version=self.entry.version + 1, left=True)
        for timer in ("_heartbeat_at", "_presence_at", "_own_announcement_at"):
            setattr(self, timer, math.inf)
        self._trickle.stop()
        self.joining.settle("closed")
        self._obligations.take()

    def doubt_network(self, now: float, reason: str) -> None:
        """The network is not what it was: send everything, announce anew."""
        if self._strategy.takes_part:
            self._doubt(now, reason, anew=True)
            self._trickle.hear_mismatch(now)
            self.handle_timer(now)

    def timer_at(self) -> float:
        return min(
            self.joining.timer_at(),
            self._obligations.timer_at,
            self._trickle.timer_at(),
            self._sender.timer_at,
            self._liveness.timer_at(),
            self._heartbeat_at,
            self._presence_at,
            self._own_announcement_at,
        )

    def handle_timer(self, now: float) -> None:
        due = now + TIMER_SLACK_S
        if self.joining.timer_at() <= due:
            self._handle_joining(due, now)
        if self._obligations.timer_at <= due:
            self._share(now)
        if self._sender.timer_at <= due:
            self._sender.send_burst(now)
        if self._own_announcement_at <= due:
            self._announce(now)
        while self._trickle.timer_at() <= due:
            if self._trickle.expire(now):
                self._repeat_digest(now)
        if self._liveness.timer_at() <= due:
            self._handle_liveness(due, now)
        if self._presence_at <= due:
            self._send_presence(now)
        if self._heartbeat_at <= due:
            self._handle_heartbeat(due, now)

    # --- What comes in --------------------------------------------------------------------------

    def hear(self, header: Header, now: float) -> None:
        """A sign of life: any datagram with a header."""
        known = self.list.get(header.node)
        if known is not None and known.incarnation == header.incarnation:
            self.list.heard[header.node] = now
        else:
            self._hear_unknown(header, now)

    def receive_list(self, frame: ListFrame, now: float) -> None:
        header = frame.header
        assert header is not None
        if frame.digest != self.list.digest or frame.covers != ALL_BUCKETS:
            # Identical full lists have nothing to merge: 10,000 nodes hear 450 parts per share.
            for entry, age_s in frame.entries:
                self._merge(entry, age_s, now)
        if not self._strategy.takes_part:
            if frame.covers is None and not frame.settled and self._presence_at == math.inf:
                # A joiner should know at once that this node wants everything.
                self._presence_at = now + share_delay_s(len(self.list), self._rng.random())
            return
        if frame.digest is not None:
            self._compare(header.node, frame, now)

    def receive_plain_list(self, topics: list[str], address: str, now: float) -> None:
        """A list without `jb`, from a node that only knows `topic` and `payload`."""
        node = PLAIN_PREFIX + address
        if self.list.get(node) is None and self._plain_count() >= PLAIN_PEERS_MAX:
            self._counters.plain_peers_refused += 1
            return
        self._merge(make_plain_entry(node, topics), 0.0, now)
        if not (self._strategy.answers and self.joining.is_settled):
            return
        if now - self._plain_answered_at.get(node, -math.inf) < PLAIN_ANSWER_INTERVAL_S:
            return
        known = set(topics)
        if any(not known.issuperset(entry.patterns) for entry in self.list):
            if len(self._plain_answered_at) >= PLAIN_PEERS_MAX:
                self._plain_answered_at.clear()
            self._plain_answered_at[node] = now
            self._owe(node, ALL_BUCKETS, now)

    def hear_plain(self, address: str, now: float) -> None:
        node = PLAIN_PREFIX + address
        if self.list.get(node) is not None:
            self.list.heard[node] = now

    def receive_presence(self, frame: PresenceFrame, now: float) -> None:
        header = frame.header
        if frame.mode == "basic":
            self._merge(_make_basic_entry(frame), 0.0, now)
            if not self._strategy.takes_part:
                self._presence_at = math.inf  # one basic node is reason enough to send everything
        for node, incarnation in frame.suspects:
            self._hear_suspicion(header.node, node, incarnation, now)
        if frame.digest is not None and self._strategy.takes_part:
            known = self.list.get(header.node)
            if known is None or (known.incarnation, known.version) < (
                header.incarnation,
                frame.version,
            ):
                self._miss_something(now, "a node is here whose subscriptions are not known")
            self._compare(header.node, frame, now)

    def receive_bye(self, frame: ByeFrame, now: float) -> None:
        header = frame.header
        known = self.list.get(header.node)
        name = known.name if known is not None else header.node
        entry = Entry(header.node, header.incarnation, frame.version, name, left=True)
        self._merge(entry, 0.0, now)

    # --- Comparing ------------------------------------------------------------------------------

    def _compare(self, sender: str, frame: ListFrame | PresenceFrame, now: float) -> None:
        covers = frame.covers if isinstance(frame, ListFrame) else None
        if frame.settled:
            self.joining.hear_settled()
        if frame.digest == self.list.digest:
            self._trickle.hear_agreement()
            self._obligations.release(sender)
            if covers is not None:
                self._obligations.pay(covers)
                if covers == ALL_BUCKETS and sender < self._settings.node:
                    self._sender.stop()  # two of the same: the one with the lower id goes on
            if frame.settled and not self.list.is_full:
                if self.joining.agree():
                    self._state_changed(now)
            else:
                self.joining.confirm()
            return
        if isinstance(frame, ListFrame) and frame.part[0] < frame.part[1] - 1:
            return  # more is to come
        if not self.joining.is_settled:
            return
        if frame.settled:
            self._miss_something(now, "another node has a different list")
        elif not self._strategy.answers:
            self._trickle.hear_mismatch(now)  # nobody may answer: the joiner should hear us
        buckets = self._buckets_lacking(frame)
        if self._strategy.answers:
            if buckets:
                self._owe(sender, buckets, now)
        elif (
            buckets >> bucket_of(self._settings.node) & 1 and self._own_announcement_at == math.inf
        ):
            self._own_announcement_at = now + share_delay_s(len(self.list), self._rng.random())

    def _buckets_lacking(self, frame: ListFrame | PresenceFrame) -> int:
        """Where the sender's list differs; 0 if it did not say and asking is cheaper."""
        if frame.sums is not None:
            return self.list.differing_buckets(frame.sums)
        if isinstance(frame, ListFrame) or len(self.list) <= WHOLE_LIST_NODES:
            return ALL_BUCKETS
        return 0

    def _owe(self, node: str, buckets: int, now: float) -> None:
        self._obligations.owe(node, buckets)
        if not self._obligations.is_armed:
            delay_s = self._strategy.draw_delay_s(len(self.list), self._rng)
            at = max(now + delay_s, self._last_full_share_at + SHARE_INTERVAL_MIN_S)
            self._obligations.arm(at)
            if at <= now + TIMER_SLACK_S:
                self._share(now)

    def _share(self, now: float) -> None:
        """Pay what is owed: everything, or the buckets that differ."""
        buckets = self._obligations.take()
        if not buckets:
            return
        count = len(self.list)
        if count <= WHOLE_LIST_NODES or buckets.bit_count() > BUCKETS // 2:
            buckets = ALL_BUCKETS
        if buckets == ALL_BUCKETS:
            self._counters.list_shares_sent += 1
            self._last_full_share_at = now
        else:
            self._counters.list_repairs_sent += 1
        self.list.hear(self._settings.node, now)
        self._sender.start(
            self.list.entries_in(buckets, now),
            digest=self.list.digest,
            sums=self._sums(),
            covers=buckets,
            settled=self.joining.is_settled,
            now=now,
        )

    def _miss_something(self, now: float, reason: str) -> None:
        self._trickle.hear_mismatch(now)
        self._doubt(now, reason)

    def _hear_unknown(self, header: Header, now: float) -> None:
        """The sender is not in the list, or under another incarnation."""
        tombstone = self.list.tombstones.get(header.node)
        if tombstone is not None:
            buried = tombstone[0]
            if header.incarnation < buried.incarnation:
                return
            if header.incarnation == buried.incarnation:
                if buried.gone:
                    self._merge(replace(buried, gone=False), 0.0, now)
                return  # else a datagram that its goodbye overtook
        if self._strategy.takes_part and header.node != self._settings.node:
            self._miss_something(now, "a node is here whose subscriptions are not known")

    def _hear_suspicion(self, asker: str, node: str, incarnation: int, now: float) -> None:
        if node == self._settings.node:
            if incarnation == self._settings.incarnation:
                self._presence_at = now + self._rng.random() * SUSPECT_GRACE_S / 10
        elif self._liveness.hear_question(node, now):
            if self._strategy.answers and self.joining.is_settled:
                self._owe(asker, 1 << bucket_of(node), now)

    # --- Merging --------------------------------------------------------------------------------

    def _merge(self, entry: Entry, age_s: float, now: float) -> None:
        if entry.node == self._settings.node:
            self._merge_own(entry, now)
            return
        old = self.list.get(entry.node)
        if self.list.merge(entry, age_s, now, lease_s(len(self.list))) == CHANGED:
            self._entry_changed(old, self.list.get(entry.node), entry, now)

    def _merge_own(self, entry: Entry, now: float) -> None:
        """What others say of this node: where they are wrong, a new version overrules them."""
        mine = self.entry
        if entry.incarnation != mine.incarnation or entry.version < mine.version:
            return
        if entry.version > mine.version or not entry.is_alive:
            self._renew_entry(entry.version + 1, mine.patterns, now)

    def _renew_entry(self, version: int, patterns: tuple[str, ...], now: float) -> None:
        self.entry = replace(self.entry, version=version, patterns=patterns)
        self.list.put(self.entry, now)
        if self._strategy.takes_part:
            self.joining.announce_change(now, now + CHANGE_GATHER_S)

    def _entry_changed(
        self, old: Entry | None, new: Entry | None, cause: Entry, now: float
    ) -> None:
        self._on_entry(old, new, now)
        if old is None and new is not None:
            self._liveness.watch(now)
            self._emit(NodeJoined(new.node, new.name))
        elif old is not None and new is None:
            self._obligations.release(old.node)
            self._emit(NodeLeft(old.node, old.name, "left" if cause.left else "gone"))
        if (old.patterns if old else ()) != (new.patterns if new else ()):
            self._emit(InterestChanged())

    def _plain_count(self) -> int:
        return sum(entry.is_plain for entry in self.list)

    # --- Speaking -------------------------------------------------------------------------------

    def _handle_joining(self, due: float, now: float) -> None:
        if self.joining.take_announcement(due):
            self._announce(now)
        if self.joining.take_verdict(due, is_alone=len(self.list) == 1):
            self._state_changed(now)
            if self.state == SURE:
                self._send_presence(now)  # the others wait for somebody settled
            elif self._settings.mode == "master":
                self._emit(MasterMissing())

    def _handle_liveness(self, due: float, now: float) -> None:
        had_peers = len(self.list) > 1
        for entry in self._liveness.check(due):
            gone = replace(entry, gone=True)
            self.list.bury(gone, now + lease_s(len(self.list)))
            self._entry_changed(entry, None, gone, now)
        if had_peers and len(self.list) == 1 and self._strategy.takes_part:
            self._doubt(now, "all other nodes are gone", anew=True)
        suspects = self._liveness.take_question(due)
        if suspects and self._strategy.takes_part:
            self._counters.suspicions_sent += len(suspects)
            self._send_presence(now, suspects)

    def _handle_heartbeat(self, due: float, now: float) -> None:
        gap_s = self._heartbeat_gap_s()
        if self.last_sent_at + gap_s > due:
            self._heartbeat_at = self.last_sent_at + gap_s
        else:
            self._send_presence(now)
        self.list.forget_tombstones(now)

    def _repeat_digest(self, now: float) -> None:
        """Trickle's turn: the digest alone, or the own entry too if somebody may lack it."""
        if self._trickle.is_eager or self.state == DOUBTING:
            self._announce(now)
        else:
            self._send_presence(now)

    def _announce(self, now: float) -> None:
        self._own_announcement_at = math.inf
        self._counters.announcements_sent += 1
        self._outbox.put_control(
            encode_list,
            now,
            entries=[(self.entry, 0.0)],
            digest=self.list.digest,
            sums=self._sums(),
            covers=None,
            part=(0, 1),
            settled=self.joining.is_settled,
        )

    def _send_presence(self, now: float, suspects: tuple[tuple[str, int], ...] = ()) -> None:
        self._presence_at = math.inf
        self._heartbeat_at = now + self._heartbeat_gap_s()
        self._counters.presences_sent += 1
        is_curious = self._trickle.is_eager or self.state == DOUBTING
        digest: Digest | None = self.list.digest if self._strategy.takes_part else None
        self._outbox.put_control(
            encode_presence,
            now,
            version=self.entry.version,
            name=self.entry.name,
            mode=self._settings.mode,
            is_master=self._settings.is_master,
            settled=self.joining.is_settled,
            digest=digest,
            sums=self._sums() if digest is not None and is_curious and not suspects else None,
            suspects=suspects,
        )

    def _sums(self) -> int | None:
        return self.list.sums if len(self.list) > WHOLE_LIST_NODES else None

    def _heartbeat_gap_s(self) -> float:
        # A little early, at random: nodes that started together should not beat together.
        return heartbeat_s(len(self.list)) * (0.8 + 0.2 * self._rng.random())

    def _doubt(self, now: float, reason: str, *, anew: bool = False) -> None:
        if self.joining.doubt(now, reason, anew=anew):
            self._state_changed(now)

    def _state_changed(self, now: float) -> None:
        if not self._trickle.is_running:  # joining has its own repeats
            self._trickle.start(now, HEARTBEAT_MIN_S)
        self._emit(StateChanged(self.joining.state, self.joining.reason))
        self._on_state(now)


def _make_basic_entry(frame: PresenceFrame) -> Entry:
    header = frame.header
    return Entry(
        header.node, header.incarnation, frame.version, frame.name, BASIC_PATTERNS, "basic"
    )
