"""Promises of a sealed bus."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING

from jsonbus.sealed.datagrams import CONTROL, HEAD_END, KEY_END, SALT_END, START_END
from jsonbus.sealed.keys import Key, KeyRing
from jsonbus.sealed.opener import Opener
from jsonbus.sim.checkers import Checker
from jsonbus.sim.growth_checkers import GrowthChecker, sizes_of
from jsonbus.sim.participants import SimNode
from jsonbus.sim.records import SealedFlight
from jsonbus.sim.sealed.bus import CLOCKS_AGREE_S

if TYPE_CHECKING:
    from jsonbus.sim.world import World

# What is promised, in numbers of its own: a constant that is changed by mistake breaks a promise.
#: By how much the clock of a sender may differ before it is challenged.
FRESH_S = 60.0
#: By how much what is let in may be older than the node itself.
START_S = 5.0
#: By how much what is let in may be older: so often are times checked.
CHECK_S = 1.0
#: Datagrams of a sender that are told apart.
WINDOW = 1024
#: Datagrams take a moment.
SLACK_S = 0.5
BOUNDS = {
    "Opener._challenged": 256,
    "Opener._answered": 64,
    "Opener.replies": 64,
    "StrangerLimit._buckets": 1025,
}

_OUTSIDE = ("172.16.255.1", 2416)


class OnlyTheFreshIsLetIn(Checker):
    """What a node lets in was sealed by a node with the key, a short time ago, and comes once.

    Whose clock is ahead seems to speak as much later, until it has answered a challenge: what it
    said may be played to somebody who has not met it when the time has come that it told.
    """

    invariant = "what is let in was sealed by a node of this bus, lately, and comes once"

    def __init__(self) -> None:
        self._sealed: dict[bytes, tuple[bytes, SimNode, float]] = {}

    def sealed(self, sender: SimNode, inside: bytes, data: bytes) -> None:
        self._sealed[data] = inside, sender, self.world.clock.now

    def opened(self, receiver: SimNode, flight: SealedFlight, inside: bytes | None) -> None:
        if inside is None:
            return
        true, sender, sealed_at = self._sealed.get(flight.data, (b"", receiver, -inf))
        if inside != true:
            self.fail(f"{receiver.name} let in {inside[:80]!r}, which nobody sealed")
        place = self.world.sealed.places[receiver]
        if flight.data in place.let_in:
            self.fail(f"{receiver.name} let in a datagram of {sender.name} twice")
        spoke_itself = place.met.get(flight.data[:SALT_END], flight.sender is not None)
        ahead = sender.ahead_of_s(receiver)
        is_known_wrong = spoke_itself and abs(ahead) > FRESH_S
        seems_younger_s = SLACK_S if is_known_wrong else max(0.0, ahead) + SLACK_S
        age_s = self.world.clock.now - sealed_at
        if age_s > FRESH_S + CHECK_S + seems_younger_s:
            self.fail(f"{receiver.name} let in what {sender.name} sealed {age_s:.3f} s ago")
        before_s = receiver.started_at - sealed_at
        if before_s > START_S + seems_younger_s:
            self.fail(f"{receiver.name} let in what was sealed {before_s:.3f} s before it started")


class NobodyIsKeptOut(Checker):
    """What a node with the key says is let in, whatever an attacker does.

    A node whose clock differs much is let in once it has answered a challenge: in a healed world,
    before a history says that it has settled. Some nodes send so much at once that a datagram is
    overtaken by more than are told apart.
    """

    invariant = "what nodes of one key say to each other is let in, once their clocks are known"

    def __init__(self) -> None:
        self._is_control: set[bytes] = set()

    def settled(self) -> None:
        """All have had the time to be let in."""
        if shut := self.world.network.shut_links:
            self.fail(f"there are nodes that are not let in: {sorted(shut)}")

    def sealed(self, sender: SimNode, inside: bytes, data: bytes) -> None:
        if inside.startswith(CONTROL):
            self._is_control.add(data)

    def opened(self, receiver: SimNode, flight: SealedFlight, inside: bytes | None) -> None:
        sender = flight.sender
        if inside is not None or not isinstance(sender, SimNode) or sender is receiver:
            return
        place = self.world.sealed.places[receiver]
        if flight.data in self._is_control or flight.data in place.let_in:
            return
        known = place.opener._senders.get(flight.data[:SALT_END])
        counter = int.from_bytes(flight.data[SALT_END:HEAD_END], "big")
        was_overtaken_by_far = known is not None and counter <= known.top - WINDOW
        if abs(sender.ahead_of_s(receiver)) < CLOCKS_AGREE_S and not was_overtaken_by_far:
            figures = place.opener.figures
            self.fail(f"{receiver.name} did not let in what {sender.name} said: {figures}")


class NoncesComeOnce(Checker):
    """Under a key and a salt, no counter is used twice."""

    invariant = "no two datagrams are sealed with the same key and nonce"

    def __init__(self) -> None:
        self._heads: set[bytes] = set()

    def sealed(self, sender: SimNode, inside: bytes, data: bytes) -> None:
        head = data[:HEAD_END]
        if head in self._heads:
            self.fail(f"{sender.name} used the head {head.hex()} twice")
        self._heads.add(head)


class OutsidersHearNothing(Checker):
    """Who has no key, or another one, reads nothing in what goes over the network."""

    invariant = "who has another key opens nothing, and nothing is on the network in clear"

    def watch(self, world: World) -> None:
        super().watch(world)
        ring = world.sealed.ring
        self._impostors = {
            ring.wire_id(key): _Impostor(ring.bus, (Key(key.id, b"guessed!" * 4, 0.0),))
            for key in ring.keys
        }
        self._tried: set[bytes] = set()

    def sealed(self, sender: SimNode, inside: bytes, data: bytes) -> None:
        if inside[:16] in data or b'"topic"' in data:
            self.fail(f"{sender.name} sent {data[:80]!r}")
        identity = data[:SALT_END]
        if identity in self._tried:
            return
        self._tried.add(identity)
        opener = Opener(self._impostors[data[START_END:KEY_END]], None, bytes)
        if opener.open(data, _OUTSIDE, 0.0, self.world.sealed.wall(sender)) is not None:
            self.fail(f"somebody with another key opened what {sender.name} sent")


class _Impostor(KeyRing):
    """One key that goes by any name."""

    def find(self, wire_id: bytes) -> Key | None:
        return self.keys[0]


class OpenersStayBounded(GrowthChecker):
    """No table of an opener grows with what an attacker sends."""

    invariant = "an opener remembers those who sealed something, and a bounded number of others"

    def __init__(self) -> None:
        super().__init__()
        self._identities: set[bytes] = set()

    def sealed(self, sender: SimNode, inside: bytes, data: bytes) -> None:
        self._identities.add(data[:SALT_END])

    def judge(self, node: SimNode) -> None:
        place = self.world.sealed.places[node]
        for attribute, size in sizes_of(place.opener, "jsonbus.sealed.").items():
            bound = BOUNDS.get(attribute, len(self._identities))
            if size > bound:
                self.fail(f"{node.name} keeps {size:,} items in {attribute}, allowed are {bound:,}")
        if invented := place.opener._senders.keys() - self._identities:
            self.fail(f"{node.name} remembers {len(invented)} senders that nobody is")


class SealedPromises:
    """The promises of a sealed bus, and what the phases of a history tell them."""

    def __init__(self) -> None:
        self._kept_out = NobodyIsKeptOut()
        self._bounded = OpenersStayBounded()
        self.checkers: tuple[Checker, ...] = (
            OnlyTheFreshIsLetIn(),
            self._kept_out,
            NoncesComeOnce(),
            OutsidersHearNothing(),
            self._bounded,
        )

    def inspect(self) -> None:
        self._bounded.inspect()

    def settled(self) -> None:
        self._kept_out.settled()
