"""Announcer: what a node sends about itself, and when: announcements, presence, goodbye.

- An **announcement** carries the own entry: when joining, when it changed, and when another node
  seems to lack it.
- **Presence** is a sign of life: one per heartbeat unless something else was sent, at once when
  another node asks for it.
- A **company** sends its heartbeats together. To be woken for a datagram costs an idle node many
  times what the datagram does, so it is better to get many at a time. Up to 32 nodes, found by
  their ids, are a company; more at a time could overrun small devices. The first of them that is
  due speaks, and those that would soon be due follow at once.
- **Trickle** repeats the digest of a quiet group at growing intervals; after a mismatch soon, and
  with the own entry.

All carry the digest of the list and, when lists seem to differ, its bucket sums. They also state
the size of the receive buffer, so that publishers on the same host do not overrun it, and `about`:
host, version and channel port. An announcement does so before the first message comes; presence
informs nodes that joined later. For their sake a node that sends other things all the time still
sends a presence now and then.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import replace

from jsonbus.core.counters import Counters
from jsonbus.core.limits import (
    COMPANY_NODES,
    COMPANY_SILENCE,
    HEARTBEAT_MIN_S,
    INTRODUCTION_HEARTBEATS,
    INTRODUCTION_INTERVAL_S,
    SUSPECT_GRACE_S,
    TIMER_SLACK_S,
    TRICKLE_MAX_S,
)
from jsonbus.core.membership.joining import DOUBTING, Joining
from jsonbus.core.membership.list_sender import encode_parts
from jsonbus.core.membership.liveness import heartbeat_s
from jsonbus.core.membership.naming import Naming, in_datagrams
from jsonbus.core.membership.subscription_list import SubscriptionList
from jsonbus.core.outbox import Outbox
from jsonbus.core.settings import NodeSettings
from jsonbus.core.timers import Trickle, share_delay_s
from jsonbus.core.wire.encode import (
    about_size_bytes,
    encode_bye,
    encode_list,
    encode_presence,
    entry_size_bytes,
)
from jsonbus.core.wire.frames import ABOUT_UNKNOWN, About, Entry, Totals, bucket_of

# A basic node never states its subscriptions, so it gets everything.
BASIC_PATTERNS = ("**",)


class Announcer:
    """The own entry, and the datagrams that carry it or its version."""

    def __init__(
        self,
        settings: NodeSettings,
        subscription_list: SubscriptionList,
        joining: Joining,
        rng: random.Random,
        outbox: Outbox,
        counters: Counters,
        totals: Callable[[], Totals],
    ) -> None:
        self._settings = settings
        self._totals = totals
        self._list = subscription_list
        self._joining = joining
        self._rng = rng
        self._outbox = outbox
        self._counters = counters
        self.entry = Entry(
            settings.node,
            settings.incarnation,
            1,
            settings.name,
            BASIC_PATTERNS if settings.mode == "basic" else (),
            settings.mode,
            settings.is_master,
        )
        #: Host, version and channel port of this node.
        self.about = settings.about
        self._room = self._list_room_bytes()
        self._bucket = bucket_of(settings.node)
        self._introduced_at = -math.inf  # when this node last sent `about`
        self._answered_at = -math.inf  # when it last did so because a node asked
        self._is_answer_due = False
        self.trickle = Trickle(rng)
        self.naming = Naming()
        self._heartbeat_at = math.inf
        self._presence_at = math.inf  # of one that does not wait for the heartbeat

    def open(self, now: float) -> None:
        self._list.put(self.entry, now)
        self._heartbeat_at = now + self._heartbeat_gap_s()

    def open_converged(self, now: float) -> None:
        """Start as if after hours: companies in step, and spread evenly; Trickle at its longest."""
        # As if this node had spoken with its company. If it seemed to have been silent for ever,
        # the first of a company would make all the others speak, five times as many as usual.
        mask = company_mask(len(self._list))
        since_s = 0.9 * heartbeat_s(len(self._list)) * (self._bucket & mask) / (mask + 1)
        self._introduced_at = now - since_s
        self._heartbeat_at = self._introduced_at + self._heartbeat_gap_s()
        if self._settings.mode != "basic":
            self.trickle.start(now - self._rng.random() * TRICKLE_MAX_S / 2, TRICKLE_MAX_S)

    def settled(self, now: float) -> None:
        """Start Trickle: the node is past joining, which has repeats of its own."""
        if not self.trickle.is_running:
            self.trickle.start(now, HEARTBEAT_MIN_S)

    def set_first(self, entry: Entry) -> None:
        """Set what the first announcement will contain."""
        self.entry = entry

    def renew(self, entry: Entry, now: float) -> None:
        """Take a new version of the own entry; the caller announces it."""
        self.entry = entry
        self._list.put(entry, now)

    def set_about(self, about: About) -> None:
        """Change what this node says of itself; the caller sends it."""
        self.about = about
        self._room = self._list_room_bytes()

    def introduce(self, now: float) -> None:
        """Answer a node that asks for this node's address, but not too often."""
        self._presence_at = min(
            self._presence_at, max(now, self._answered_at + INTRODUCTION_INTERVAL_S)
        )
        self._is_answer_due = True
        if self._presence_at <= now:
            self.send_presence(now)

    def answer_suspicion(self, now: float) -> None:
        """Answer a node that suspects this one to be gone, after a short random delay."""
        answer_at = now + self._rng.random() * SUSPECT_GRACE_S / 10
        self._presence_at = min(self._presence_at, answer_at)

    def plan_presence(self, now: float) -> None:
        """Send a presence soon, but not at the same instant as other nodes."""
        if self._presence_at == math.inf:
            self._presence_at = now + share_delay_s(len(self._list), self._rng.random())

    def accompany(self, node: str, now: float) -> bool:
        """Another node has sent its presence; return whether to send one as well, in company."""
        nodes = len(self._list)
        # A presence that was made just now may not have left the outbox.
        silent_s = now - max(self._outbox.last_sent_at, self._introduced_at)
        if silent_s < COMPANY_SILENCE * heartbeat_s(nodes):
            return False
        if (bucket_of(node) ^ self._bucket) & company_mask(nodes):
            return False
        self._presence_at = min(self._presence_at, now)
        return True

    def timer_at(self) -> float:
        at = min(self._heartbeat_at, self._presence_at, self.trickle.timer_at())
        return min(at, self.naming.timer_at)

    def handle_timer(self, now: float) -> None:
        due = now + TIMER_SLACK_S
        while self.trickle.timer_at() <= due:
            if self.trickle.expire(now):
                if self._seems_to_differ():
                    self.announce(now)
                else:
                    self.send_presence(now)
        if self.naming.timer_at <= due:
            for patterns in in_datagrams(self.naming.take(now)):
                self._name_patterns(patterns, now)
        if self._presence_at <= due:
            self.send_presence(now)
        if self._heartbeat_at <= due:
            gap_s = self._heartbeat_gap_s()
            if self._outbox.last_sent_at + gap_s > due and not self._must_introduce(now):
                self._heartbeat_at = self._outbox.last_sent_at + gap_s
            else:
                self.send_presence(now)

    def announce(self, now: float) -> None:
        """Send the own entry, with the digest of the list."""
        self._counters.announcements_sent += 1
        # An entry that fills the largest possible datagram leaves no room for `about`.
        about = self.about
        if about is not ABOUT_UNKNOWN and entry_size_bytes(self.entry) > self._room:
            about = ABOUT_UNKNOWN
        else:
            self._introduced_at = now
        for part in encode_parts(
            [(self.entry, 0.0), *self._plain_entries(now)],
            self._room,
            digest=self._list.digest,
            sums=self._list.sums_to_send(),
            covers=None,
            settled=self._joining.was_sure,
            receive_buffer_bytes=self._settings.receive_buffer_bytes,
            about=about,
        ):
            self._outbox.put_control(part, now)

    def _name_patterns(self, patterns: list[str], now: float) -> None:
        """Send a list without entries that names these patterns (naming.py)."""
        control = encode_list(
            entries=[],
            digest=self._list.digest,
            sums=None,
            covers=None,
            settled=self._joining.was_sure,
            patterns=patterns,
        )
        self._outbox.put_control(control, now)

    def send_presence(self, now: float, suspects: tuple[tuple[str, int], ...] = ()) -> None:
        """Send a sign of life, with the digest."""
        if not suspects:  # one with suspects has no address
            self._presence_at = math.inf
        self._heartbeat_at = now + self._heartbeat_gap_s()
        self._counters.presences_sent += 1
        has_list = self._settings.mode != "basic"
        # Suspects together with sums could exceed a datagram.
        with_sums = has_list and self._seems_to_differ() and not suspects
        is_answer = self._is_answer_due and not suspects
        if not suspects:
            self._introduced_at = now
        if is_answer:
            self._answered_at = now
            self._is_answer_due = False
        control = encode_presence(
            version=self.entry.version,
            name=self.entry.name,
            mode=self._settings.mode,
            is_master=self._settings.is_master,
            settled=self._joining.was_sure,
            digest=self._list.digest if has_list else None,
            sums=self._list.sums_to_send() if with_sums else None,
            suspects=suspects,
            receive_buffer_bytes=self._settings.receive_buffer_bytes,
            about=ABOUT_UNKNOWN if suspects else self.about,
            is_answer=is_answer,
            totals=None if suspects else self._totals(),
        )
        self._outbox.put_control(control, now)

    def say_goodbye(self, now: float) -> None:
        """Send the goodbye. There is no timer afterwards."""
        self.trickle.stop()
        self.naming.stop()
        self._heartbeat_at = self._presence_at = math.inf
        self.entry = replace(self.entry, version=self.entry.version + 1, left=True)
        self._outbox.put_control(encode_bye(self.entry.version), now)

    def _list_room_bytes(self) -> int:
        room = self._outbox.list_room_bytes(self._settings.datagram_bytes_max)
        return room - about_size_bytes(self.about)

    def _plain_entries(self, now: float) -> list[tuple[Entry, float]]:
        """Return the entries of plain peers if lists seem to differ.

        Plain peers cannot repeat themselves, so nodes that heard them do. A node that answers
        shares them anyway; but not every node answers.
        """
        if not (self._joining.is_settled and self._seems_to_differ()):
            return []
        return [
            (entry, max(0.0, now - self._list.heard_at(entry.node)))
            for entry in self._list.plain_entries()
        ]

    def _seems_to_differ(self) -> bool:
        """Whether a mismatch was seen a short while ago."""
        return self.trickle.is_eager or self._joining.state == DOUBTING

    def _must_introduce(self, now: float) -> bool:
        if self._settings.mode == "basic":
            return True  # no list repeats what it wants, should the first presence have been lost
        if self.about is ABOUT_UNKNOWN:
            return False
        gap_s = INTRODUCTION_HEARTBEATS * heartbeat_s(len(self._list))
        return now >= self._introduced_at + gap_s

    def _heartbeat_gap_s(self) -> float:
        # A random bit early, so that a node drifts past the others until it meets its company.
        return heartbeat_s(len(self._list)) * (0.9 + 0.1 * self._rng.random())


def company_mask(known_nodes: int) -> int:
    """Return the bits of a node's bucket that tell its company."""
    return (1 << ((known_nodes - 1) // COMPANY_NODES).bit_length()) - 1
