"""Opener: what arrives at a sealed bus, opened; everything else is counted and dropped.

A datagram is let in if it was sealed with a key of the ring, did not come before, and is *fresh*.

**Repeats.** Of each sender, the highest counter is known, and which of the WINDOW below it came.
Only a datagram that was verified and let in moves that window.

**Freshness.** The time inside of a datagram may differ from the clock here by FRESH_S. It is
checked when nothing else shows that the datagram is new: from a sender never met, from before the
highest counter, and else once in CHECK_S, because somebody may hold back all that a sender says.
So a recording that is played back is refused, also by a node that was started after it was made:
from a sender never met, nothing is let in that is older than this opener, by more than START_S.

**Clocks that are wrong.** A sender whose time differs more is challenged: it has to seal a random
number. From then on, its times are compared with the clock that it had then. Challenge and answer
are taken whatever the time: where two clocks differ, both nodes challenge, and neither is fresh to
the other. They leave with the next datagrams of each node (`replies`): within a heartbeat.

**Places** of senders are kept for KEPT_S after they were last heard. What they sent before is stale
by then, however early their clock let it seem. Strangers never take the place of a sender.

Time and randomness are passed in. For one thread at a time, except that another one may take from
`replies` and read counters.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from math import inf
from typing import NamedTuple

from cryptography.exceptions import InvalidTag

from jsonbus.core.wire.codec import loads
from jsonbus.core.wire.names import KEY_SENT_US, SEALED_START
from jsonbus.sealed.datagrams import (
    CONTROL,
    HEAD_END,
    KEY_END,
    NONCE_START,
    SALT_END,
    SEAL_BYTES,
    START_END,
    VERSION,
    Answer,
    Challenge,
    decode_control,
    sending_cipher,
)
from jsonbus.sealed.keys import KeyRing
from jsonbus.sealed.strangers import StrangerLimit

#: By how much the time in a datagram may differ from the clock here: more than the clocks of
#: machines that are set by a network do, and little to play back.
FRESH_S = 60.0

#: By how much what a stranger says may be older than this opener. Otherwise everything that was
#: said in the last FRESH_S could be played once more to a node that has just been restarted: a
#: command, or the list of a node that is gone. Whose clock is further behind is challenged then.
START_S = 5.0

#: Counters that are told apart below the highest one. A datagram overtakes a few others at most.
WINDOW = 1024
_WINDOW_MASK = (1 << WINDOW) - 1

#: How often the time of a sender is checked although its counters go up: to read it takes as long
#: as to open the datagram.
CHECK_S = 1.0

#: How long a silent sender is remembered: one whose clock is ahead by FRESH_S, and who is therefore
#: fresh for twice as long, and some more.
KEPT_S = 2 * FRESH_S + 30.0

#: Senders that are remembered: more than a bus has nodes. A place takes 3 KB, mostly its cipher.
SENDERS_MAX = 10_000

#: How often places are looked through for those that are over.
SWEEP_S = 10.0

#: Senders with other clocks that are being challenged.
CHALLENGED_MAX = 256

#: How long a challenge may be answered, and when the next one follows: a few heartbeats, since both
#: ways it waits for one.
CHALLENGE_S = 10.0

#: Challenges and answers that may wait for the next datagram.
REPLIES_MAX = 64

_START = SEALED_START + VERSION
_NONCE_BYTES = 16

#: nonce, ciphertext and tag, associated data -> what was sealed. Raises InvalidTag.
Decrypt = Callable[[bytes, bytes, bytes], bytes]

#: Called with the address of a sender whose time differs too much, and by how many seconds.
OnStale = Callable[[str, float], None]


class _Sender:
    """A sender that was let in."""

    __slots__ = ("ahead_s", "checks_at", "decrypt", "heard_at", "seen", "top")

    def __init__(self, decrypt: Decrypt, counter: int, now: float) -> None:
        self.decrypt = decrypt
        self.top = counter
        self.seen = 1  # bit n: top - n came
        #: How far its clock was ahead of this one when it answered a challenge; 0 if it never did.
        self.ahead_s = 0.0
        self.checks_at = now + CHECK_S
        self.heard_at = now

    def is_fresh(self, ahead_s: float, above: int, now: float, started_at: float) -> bool:
        """Whether a datagram whose time is ahead by that, with that counter, was sealed lately; if
        its counter is not the highest one, also not before this opener started.
        """
        age_s = self.ahead_s - ahead_s
        if abs(age_s) <= FRESH_S and (above > 0 or age_s <= now - started_at + START_S):
            return True
        # A clock that is set right would cost a challenge. But what was recorded while it was ahead
        # looks the same when its time has come: only what follows something fresh is let in.
        if abs(ahead_s) <= FRESH_S and above > 0 and now < self.checks_at + CHALLENGE_S:
            self.tell_clock(0.0)
            return True
        return False

    def note(self, above: int, now: float) -> None:
        """Note that a datagram came whose counter is so much above the highest one."""
        if above > 0:
            self.top += above
            self.seen = (self.seen << above | 1) & _WINDOW_MASK if above < WINDOW else 1
        else:
            self.seen |= 1 << -above
        self.heard_at = now

    def tell_clock(self, ahead_s: float) -> None:
        """Note that its clock is so far ahead.

        If that is another time than before, nothing from before is let in any more: it was refused
        as stale, and may be recorded by somebody who waits until it looks fresh.
        """
        if abs(ahead_s - self.ahead_s) > FRESH_S:
            self.seen = _WINDOW_MASK
        self.ahead_s = ahead_s


class _Challenged(NamedTuple):
    """A sender that has to show that it is there."""

    decrypt: Decrypt
    nonce: bytes
    at: float


class Opener:
    """See the head of this file. Without `own_salt`, own datagrams are opened like all others."""

    def __init__(
        self,
        ring: KeyRing,
        own_salt: bytes | None,
        random_bytes: Callable[[int], bytes],
        on_stale: OnStale = lambda address, ahead_s: None,
    ) -> None:
        self.ring = ring
        #: Challenges and answers to be sealed and sent.
        self.replies: deque[bytes] = deque(maxlen=REPLIES_MAX)
        self._answered: deque[bytes] = deque(maxlen=REPLIES_MAX)  # nonces
        self._own_salt = own_salt
        self._random_bytes = random_bytes
        self._on_stale = on_stale
        # By the first SALT_END bytes of their datagrams.
        self._senders: dict[bytes, _Sender] = {}
        self._challenged: dict[bytes, _Challenged] = {}
        self._limit = StrangerLimit()
        self._sweeps_at = 0.0
        self._started_at = inf
        self._open = 0
        self._foreign = 0
        self._forged = 0
        self._replayed = 0
        self._stale = 0
        self._unproven = 0

    @property
    def figures(self) -> dict[str, int]:
        """The entries of stats(): datagrams that were not let in, by cause."""
        return {
            "datagrams_open": self._open,
            "datagrams_foreign": self._foreign,
            "datagrams_forged": self._forged,
            "datagrams_replayed": self._replayed,
            "datagrams_stale": self._stale,
            "datagrams_unproven": self._unproven,
        }

    @property
    def senders(self) -> int:
        """How many senders are remembered."""
        return len(self._senders)

    def renew(self, ring: KeyRing) -> None:
        """Open with these keys from now on."""
        self.ring = ring
        self._senders = {
            each: known
            for each, known in self._senders.items()
            if ring.find(each[START_END:KEY_END]) is not None
        }
        self._challenged.clear()

    def open(self, data: bytes, sender: tuple[str, int], now: float, wall: float) -> bytes | None:
        """Return what was sealed, if it is to be let in; `wall` is the time of day."""
        known = self._senders.get(data[:SALT_END])
        if known is None:
            return self._open_stranger(data, sender, now, wall)
        above = int.from_bytes(data[SALT_END:HEAD_END], "big") - known.top
        if above <= 0 and (above <= -WINDOW or known.seen >> -above & 1):
            self._replayed += 1
            return None
        try:
            inside = known.decrypt(data[NONCE_START:HEAD_END], data[HEAD_END:], data[:HEAD_END])
        except (InvalidTag, ValueError):  # ValueError: too short to have a nonce
            self._forged += 1
            return None
        if inside[:1] == CONTROL:
            known.note(above, now)
            self._take_control(inside, data[:SALT_END], known.top, now, wall)
            return None
        if above <= 0 or now >= known.checks_at:
            ahead_s = _ahead_s(inside, wall)
            if not known.is_fresh(ahead_s, above, now, self._started_at):
                self._refuse_stale(data[:SALT_END], known.decrypt, sender[0], ahead_s, now)
                return None
            known.checks_at = now + CHECK_S
        known.note(above, now)
        return inside

    def _open_stranger(
        self, data: bytes, sender: tuple[str, int], now: float, wall: float
    ) -> bytes | None:
        self._started_at = min(self._started_at, now)
        if data[:START_END] != _START:
            self._open += 1
            return None
        key = self.ring.find(data[START_END:KEY_END])
        if key is None:
            if data[START_END:KEY_END] not in self.ring.others:
                self._foreign += 1
            return None
        identity, salt = data[:SALT_END], data[KEY_END:SALT_END]
        if salt == self._own_salt:
            return None  # multicast brings back what this node sent
        if len(data) < SEAL_BYTES:
            self._forged += 1
            return None
        challenged = self._challenged.get(identity)
        if challenged is not None:
            decrypt = challenged.decrypt
        elif self._limit.allows(sender[0], now):
            decrypt = sending_cipher(self.ring, key, salt).decrypt
        else:
            self._unproven += 1
            return None
        try:
            inside = decrypt(data[NONCE_START:HEAD_END], data[HEAD_END:], data[:HEAD_END])
        except InvalidTag:
            self._forged += 1
            return None
        counter = int.from_bytes(data[SALT_END:HEAD_END], "big")
        if inside[:1] == CONTROL:
            self._take_control(inside, identity, counter, now, wall)
            return None
        ahead_s = _ahead_s(inside, wall)
        if abs(ahead_s) > FRESH_S or -ahead_s > now - self._started_at + START_S:
            self._refuse_stale(identity, decrypt, sender[0], ahead_s, now)
            return None
        if not self._let_in(identity, _Sender(decrypt, counter, now)):
            self._unproven += 1
            return None
        return inside

    def _let_in(self, identity: bytes, sender: _Sender) -> bool:
        """Remember a sender; False if there is no room."""
        now = sender.heard_at
        if now >= self._sweeps_at:
            self._sweeps_at = now + SWEEP_S
            # What a clock that is ahead has sealed seems fresh for that much longer.
            self._senders = {
                each: known
                for each, known in self._senders.items()
                if now - known.heard_at < KEPT_S + max(0.0, known.ahead_s)
            }
        if len(self._senders) >= SENDERS_MAX:
            return False
        self._senders[identity] = sender
        return True

    def _refuse_stale(
        self, identity: bytes, decrypt: Decrypt, address: str, ahead_s: float, now: float
    ) -> None:
        """Count a datagram whose time is wrong, and challenge its sender."""
        self._stale += 1
        before = self._challenged.get(identity)
        if before is not None and now - before.at < CHALLENGE_S:
            return
        if before is None and len(self._challenged) >= CHALLENGED_MAX:
            self._challenged = {
                each: found
                for each, found in self._challenged.items()
                if now - found.at < CHALLENGE_S
            }
            if len(self._challenged) >= CHALLENGED_MAX:
                return
        nonce = self._random_bytes(_NONCE_BYTES)
        self._challenged[identity] = _Challenged(decrypt, nonce, now)
        self.replies.append(Challenge(identity[KEY_END:], nonce).encode())
        self._on_stale(address, ahead_s)

    def _take_control(
        self, inside: bytes, identity: bytes, counter: int, now: float, wall: float
    ) -> None:
        control = decode_control(inside)
        if isinstance(control, Challenge):
            # Of a stranger, repeats are not noticed: answered again and again, they would push what
            # this node has to say to others out of `replies`.
            if control.salt == self._own_salt and control.nonce not in self._answered:
                self._answered.append(control.nonce)
                self.replies.append(Answer(control.nonce, wall).encode())
        elif isinstance(control, Answer):
            challenged = self._challenged.get(identity)
            if challenged is None or challenged.nonce != control.nonce:
                return
            if now - challenged.at > CHALLENGE_S:
                return
            known = self._senders.get(identity)
            if known is None:
                known = _Sender(challenged.decrypt, counter, now)
                if not self._let_in(identity, known):
                    return
            # As if it had answered at once: what it says never seems to be younger than it is.
            known.tell_clock(control.wall - wall + now - challenged.at)
            del self._challenged[identity]


def _ahead_s(inside: bytes, wall: float) -> float:
    """Return by how much the time in a datagram is ahead of `wall`; infinite if it has none."""
    try:
        sent_us = loads(inside)["jb"][KEY_SENT_US]
    except (ValueError, KeyError, TypeError):
        return float("inf")
    return sent_us / 1_000_000 - wall if type(sent_us) is int else float("inf")
