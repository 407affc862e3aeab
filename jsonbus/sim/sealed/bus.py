"""The layer between the nodes of a sealed world and its network."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from math import inf

from jsonbus.core.wire.decode import decode
from jsonbus.core.wire.frames import ListFrame, PresenceFrame
from jsonbus.sealed.datagrams import KEY_END, SALT_BYTES, SALT_END, Sealer
from jsonbus.sealed.keys import Key, KeyRing
from jsonbus.sealed.opener import START_S, Opener
from jsonbus.sim.clock import Clock
from jsonbus.sim.network import Network
from jsonbus.sim.participants import EPOCH_S, SimNode
from jsonbus.sim.records import Flight, SealedFlight
from jsonbus.sim.sealed.attacker import Attacker

BUS = "simulated"
SECRET_BYTES = 32
#: By when the nodes change to the second key, by their own clocks; in half of the worlds never.
ROTATION_MAX_S = 60.0

#: Clocks that differ by less are right for each other: datagrams take a moment.
CLOCKS_AGREE_S = START_S - 1.0


class Place:
    """The sealer and the opener of one life of a node."""

    def __init__(self, ring: KeyRing, wall: float, dice: random.Random) -> None:
        self.salt = dice.randbytes(SALT_BYTES)
        self.sealer = Sealer(ring, ring.sealing_key(wall), self.salt)
        self.opener = Opener(ring, self.salt, dice.randbytes)
        #: The datagrams that it let in.
        self.let_in: set[bytes] = set()
        #: The key ids and salts of those whom it met, and whether they spoke themselves then.
        self.met: dict[bytes, bool] = {}


class SealedBus:
    """Seals what nodes send, opens what arrives at them, and has the attacker."""

    def __init__(
        self,
        clock: Clock,
        network: Network,
        dice: Callable[[str], random.Random],
        tell: Callable[..., None],
    ) -> None:
        self._clock = clock
        self._network = network
        self._dice = dice
        self._tell = tell
        secrets = dice("secrets")
        first, second = (secrets.randbytes(SECRET_BYTES) for _ in range(2))
        changes_at = secrets.choice((inf, EPOCH_S + secrets.uniform(0, ROTATION_MAX_S)))
        self.ring = KeyRing(BUS, (Key("k1", first, 0.0), Key("k2", second, changes_at)))
        self.places: dict[SimNode, Place] = {}  # of nodes that are up
        self.attacker = Attacker(clock, self.places, self.ring, dice)

    def be_patient(self) -> None:
        """Let the attacker delay what others did not get, as long as it is fresh, until peace."""
        self.attacker.is_patient = True

    # --- Nodes come and go ---

    def started(self, node: SimNode) -> None:
        """Draw a salt for a new life. Whose clock differs much is not heard by it, nor hears it,
        before it has answered a challenge.
        """
        dice = self._dice(f"seal {node.index} {self._clock.now}")
        self.places[node] = Place(self.ring, self.wall(node), dice)
        for other in self.places:
            if abs(node.ahead_of_s(other)) > CLOCKS_AGREE_S:
                self._network.shut(node.index, other.index)
                self._network.shut(other.index, node.index)

    def stopped(self, node: SimNode) -> None:
        del self.places[node]
        self._network.forget_shut(node.index, self._clock.now)

    def wall(self, node: SimNode) -> float:
        return node.local(self._clock.now) + node.wall_offset_s

    # --- Datagrams ---

    def seal(self, sender: SimNode, data: bytes) -> Iterator[bytes]:
        """Yield what goes out when a node sends that: replies that wait for it, then itself."""
        place = self.places[sender]
        key = self.ring.sealing_key(self.wall(sender))
        if key is not place.sealer.key:
            place.sealer.use(self.ring, key)
        replies = place.opener.replies
        while replies:
            yield self._seal(sender, place, replies.popleft())
        yield self._seal(sender, place, data)

    def _seal(self, sender: SimNode, place: Place, inside: bytes) -> bytes:
        sealed = place.sealer.seal(inside)
        self._tell("sealed", sender, inside, sealed)
        self.attacker.hear(sealed, sender)
        return sealed

    def open(self, receiver: SimNode, flight: SealedFlight) -> Flight | None:
        """Return what the datagram brings to this receiver; None if it does not let it in."""
        place = self.places[receiver]
        now = receiver.local(self._clock.now)
        inside = place.opener.open(flight.data, flight.address, now, now + receiver.wall_offset_s)
        self._tell("opened", receiver, flight, inside)
        if inside is None:
            self._note_refusal(receiver, place.opener, flight)
            return None
        place.let_in.add(flight.data)
        place.met.setdefault(flight.data[:SALT_END], flight.sender is not None)
        if flight.sender is not None:
            self._network.unshut(flight.sender.index, receiver.index, self._clock.now)
        if flight.opened is None or flight.opened.data != inside:
            frame = decode(inside)
            has_messages = not isinstance(frame, PresenceFrame | ListFrame)
            flight.opened = Flight(inside, frame, flight.address, has_messages, [])
        return flight.opened

    def _note_refusal(self, node: SimNode, opener: Opener, flight: SealedFlight) -> None:
        """Whose clock differs much has to be challenged again if it was silent for long."""
        sender = flight.sender
        if sender not in self.places or flight.data[:SALT_END] in opener._senders:
            return
        if flight.data[KEY_END:SALT_END] != self.places[sender].salt:
            return  # of its last life
        if abs(sender.ahead_of_s(node)) > CLOCKS_AGREE_S:
            self._network.shut(sender.index, node.index)
