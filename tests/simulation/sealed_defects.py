"""Deliberate defects of the sealed bus, each with the promise that it breaks; as in defects.py:

    NobodyIsKeptOut       a_forgery_moves_the_window, answers_are_never_sent,
                          challenges_are_never_sent, repeats_are_not_told_from_what_was_overtaken
    NoncesComeOnce        counters_begin_again_with_another_key, salts_are_not_random
    OnlyTheFreshIsLetIn   any_answer_will_do, everything_is_fresh, open_datagrams_are_let_in,
                          places_are_forgotten_too_soon, repeats_are_let_in,
                          starts_are_not_looked_at,
                          what_is_held_back_is_taken_for_a_clock_that_was_set
    OpenersStayBounded    forgeries_take_places, sources_are_unbounded
    OutsidersHearNothing  keys_do_not_depend_on_the_secret, nothing_is_encrypted,
                          tags_are_not_verified

Some damage no history shows: challenges that are not bounded (no attacker can make stale datagrams
of so many senders). tests/sealed notices it.
"""

from __future__ import annotations

import math
from typing import Any

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from pytest import MonkeyPatch

from jsonbus.sealed import datagrams, opener, strangers
from jsonbus.sealed.datagrams import (
    HEAD_END,
    KEY_END,
    SALT_END,
    START_END,
    Answer,
    Challenge,
    Sealer,
)
from jsonbus.sealed.opener import Opener
from jsonbus.sim.sealed import bus
from jsonbus.sim.sealed.checkers import (
    NobodyIsKeptOut,
    NoncesComeOnce,
    OnlyTheFreshIsLetIn,
    OpenersStayBounded,
    OutsidersHearNothing,
)
from tests.simulation.damage import Defects, around, omit

DEFECTS = Defects(is_sealed=True)
breaks = DEFECTS.breaks


# --- What is let in ------------------------------------------------------------------------------


@breaks(OnlyTheFreshIsLetIn, 0, "basic")
def repeats_are_let_in(patch: MonkeyPatch) -> None:
    def note(real: Any, self: Any, above: int, now: float) -> None:
        real(self, above, now)
        self.seen = 0

    around(patch, opener._Sender, "note", note)


@breaks(OnlyTheFreshIsLetIn, 3, "basic")
def everything_is_fresh(patch: MonkeyPatch) -> None:
    patch.setattr(opener, "FRESH_S", math.inf)
    patch.setattr(opener, "START_S", math.inf)


@breaks(OnlyTheFreshIsLetIn, 0, "basic")
def starts_are_not_looked_at(patch: MonkeyPatch) -> None:
    patch.setattr(opener, "START_S", math.inf)


@breaks(OnlyTheFreshIsLetIn, 3, "mixed")
def places_are_forgotten_too_soon(patch: MonkeyPatch) -> None:
    patch.setattr(opener, "KEPT_S", 3.0)
    patch.setattr(opener, "SWEEP_S", 0.1)


@breaks(OnlyTheFreshIsLetIn, 0, "basic")
def open_datagrams_are_let_in(patch: MonkeyPatch) -> None:
    def open_any(real: Any, self: Any, data: bytes, *rest: Any) -> Any:
        return data if data.startswith(b"{") else real(self, data, *rest)

    around(patch, Opener, "open", open_any)


@breaks(OutsidersHearNothing, 0, "basic")
def tags_are_not_verified(patch: MonkeyPatch) -> None:
    patch.setattr(
        opener, "sending_cipher", lambda *args: _Careless(datagrams.sending_cipher(*args))
    )


@breaks(OnlyTheFreshIsLetIn, 1, "basic")
def any_answer_will_do(patch: MonkeyPatch) -> None:
    def take(real: Any, self: Any, inside: bytes, identity: bytes, *rest: Any) -> None:
        challenged = self._challenged.get(identity)
        control = datagrams.decode_control(inside)
        if challenged is not None and isinstance(control, Answer):
            inside = control._replace(nonce=challenged.nonce).encode()
        real(self, inside, identity, *rest)

    around(patch, Opener, "_take_control", take)


@breaks(OnlyTheFreshIsLetIn, 3, "basic")
def what_is_held_back_is_taken_for_a_clock_that_was_set(patch: MonkeyPatch) -> None:
    def is_fresh(real: Any, self: Any, ahead_s: float, *rest: Any) -> bool:
        return bool(real(self, ahead_s, *rest)) or abs(ahead_s) <= opener.FRESH_S

    around(patch, opener._Sender, "is_fresh", is_fresh)


# --- Who is kept out -----------------------------------------------------------------------------


@breaks(NobodyIsKeptOut, 0, "basic")
def a_forgery_moves_the_window(patch: MonkeyPatch) -> None:
    def open_hastily(
        real: Any, self: Any, data: bytes, sender: Any, now: float, wall: float
    ) -> Any:
        known = self._senders.get(data[:SALT_END])
        found = real(self, data, sender, now, wall)
        if known is not None and found is None and len(data) > HEAD_END:
            above = int.from_bytes(data[SALT_END:HEAD_END], "big") - known.top
            if 0 < above:
                known.note(above, now)
        return found

    around(patch, Opener, "open", open_hastily)


@breaks(NobodyIsKeptOut, 0, "basic")
def repeats_are_not_told_from_what_was_overtaken(patch: MonkeyPatch) -> None:
    patch.setattr(opener, "WINDOW", 1)


@breaks(NobodyIsKeptOut, 1, "basic")
def challenges_are_never_sent(patch: MonkeyPatch) -> None:
    patch.setattr(Challenge, "encode", lambda self: b"\0-" + self.salt + self.nonce)


@breaks(NobodyIsKeptOut, 1, "basic")
def answers_are_never_sent(patch: MonkeyPatch) -> None:
    omit(patch, Opener, "_take_control")


# --- What is sealed ------------------------------------------------------------------------------


@breaks(NoncesComeOnce, 0, "basic")
def salts_are_not_random(patch: MonkeyPatch) -> None:
    def build(real: Any, self: Any, ring: Any, key: Any, salt: bytes) -> None:
        real(self, ring, key, bytes(16))

    around(patch, Sealer, "__init__", build)


@breaks(NoncesComeOnce, 0, "basic")
def counters_begin_again_with_another_key(patch: MonkeyPatch) -> None:
    def seal(real: Any, self: Any, data: bytes) -> Any:
        self._counter %= 100
        return real(self, data)

    around(patch, Sealer, "seal", seal)


@breaks(OutsidersHearNothing, 0, "basic")
def nothing_is_encrypted(patch: MonkeyPatch) -> None:
    def seal(real: Any, self: Any, data: bytes) -> Any:
        return bytes(real(self, data)) + data

    around(patch, Sealer, "seal", seal)


@breaks(OutsidersHearNothing, 0, "basic")
def keys_do_not_depend_on_the_secret(patch: MonkeyPatch) -> None:
    def cipher(ring: Any, key: Any, salt: bytes) -> AESGCM:
        return AESGCM(salt)

    patch.setattr(datagrams, "sending_cipher", cipher)
    patch.setattr(opener, "sending_cipher", cipher)


# --- What openers remember -----------------------------------------------------------------------


@breaks(OpenersStayBounded, 0, "basic")
def forgeries_take_places(patch: MonkeyPatch) -> None:
    def open_stranger(
        real: Any, self: Any, data: bytes, sender: Any, now: float, wall: float
    ) -> Any:
        found = real(self, data, sender, now, wall)
        key = self.ring.find(data[START_END:KEY_END])
        if found is None and key is not None and len(data) > HEAD_END:
            cipher = datagrams.sending_cipher(self.ring, key, data[KEY_END:SALT_END])
            self._let_in(data[:SALT_END], opener._Sender(cipher.decrypt, 0, now))
        return found

    around(patch, Opener, "_open_stranger", open_stranger)


@breaks(OpenersStayBounded, 0, "basic")
def sources_are_unbounded(patch: MonkeyPatch) -> None:
    patch.setattr(strangers, "SOURCES_MAX", math.inf)
    omit(patch, strangers.StrangerLimit, "_sweep")


class _Careless:
    """A cipher that decrypts whatever was not sealed with it, too."""

    def __init__(self, cipher: AESGCM) -> None:
        self._cipher = cipher

    def decrypt(self, nonce: bytes, data: bytes, head: bytes) -> bytes:
        try:
            return self._cipher.decrypt(nonce, data, head)
        except InvalidTag:
            return b'{"topic":"a","payload":{"number":0},"jb":{"t":%d}}' % int(bus.EPOCH_S * 1e6)
