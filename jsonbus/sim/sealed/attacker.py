"""Somebody on the network of a sealed bus who hears everything and has no key."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from jsonbus.core.wire.names import SEALED_START
from jsonbus.sealed.datagrams import HEAD_END, KEY_END, SALT_BYTES, SALT_END, VERSION, Sealer
from jsonbus.sealed.keys import Key, KeyRing
from jsonbus.sim.clock import Clock
from jsonbus.sim.participants import PORT, SimNode
from jsonbus.sim.records import SealedFlight

if TYPE_CHECKING:
    from jsonbus.sim.sealed.bus import Place

#: What the attacker keeps: the latest datagrams, and as many of those before.
RECENT = 2_000
OLD = 2_000

#: A bad network delays what it delivers by no more.
LATE_S = 0.25
#: What was said before a node came it may hear so much later. Before that, it hears nothing of it.
NEWCOMER_LATE_S = 5.0
CLEARLY_OLD_S = 10.0

DELAY_S = (0.0, 0.01)
#: Datagrams of one attack.
FEW = 40
#: Forgeries of a flood, and how many addresses it comes from: more than are told apart.
FLOOD = 1_500
FLOOD_ADDRESSES = 1_100
#: Of those, so many under the address of a node. More would keep newcomers there out for a while.
FLOOD_SPOOFED = 60

_SEALED_BYTES = range(1, 300)

#: What mutes a node of an open bus, or makes one deaf, as far as somebody without a key can write
#: it: he does not know the ids of nodes.
OPEN = (
    b'{"topic":"a","payload":{"number":0}}',
    b'{"topic":"jsonbus.topics","payload":["jsonbus.topics"]}',
    b'{"topic":"jsonbus.bye","payload":null,"jb":{"n":"%b","i":1,"q":9,"m":9,"t":1,"v":9}}',
    b"",
    b"\xb5",
    b"\0",
)


@dataclass(frozen=True, slots=True)
class Recorded:
    """A datagram that he heard."""

    data: bytes
    sender: SimNode
    at: float


class Attacker:
    """Each kind of attack is a method of that name; `attack` calls it with dice of its own."""

    #: Plays, too, what the network did not deliver, which is to delay it: of all that he does, the
    #: one thing that a node with the key cannot tell from what is real.
    is_patient = False

    #: Sends something; set by the world.
    inject: Callable[[SealedFlight], None]

    def __init__(
        self,
        clock: Clock,
        places: Mapping[SimNode, Place],
        ring: KeyRing,
        dice: Callable[[str], random.Random],
    ) -> None:
        self._clock = clock
        self._places = places
        self._dice_of = dice
        self._recording = dice("recording")
        self._recent: deque[Recorded] = deque(maxlen=RECENT)
        self._old: list[Recorded] = []
        # He knows the name of the bus and the ids of its keys, and has a secret: not this one.
        self._names = [ring.wire_id(key) for key in ring.keys]
        self._wrong = KeyRing(ring.bus, (Key(ring.keys[0].id, self._recording.randbytes(32), 0.0),))

    def hear(self, data: bytes, sender: SimNode) -> None:
        """Record a datagram."""
        if len(self._recent) == RECENT:
            oldest = self._recent[0]
            if len(self._old) < OLD:
                self._old.append(oldest)
            else:
                self._old[self._recording.randrange(OLD)] = oldest
        self._recent.append(Recorded(data, sender, self._clock.now))

    def attack(self, kind: str, number: int) -> None:
        """Attack now; the number decides what is drawn."""
        dice = self._dice_of(f"attack {number}")
        if self._recent and self._listeners():
            getattr(self, kind)(dice)

    # --- Playing back ---

    def repeat(self, dice: random.Random) -> None:
        """Repeat at once what was said last."""
        for each in list(self._recent)[-dice.randint(1, FEW) :]:
            self._play(each, self._listeners(), dice)

    def replay(self, dice: random.Random) -> None:
        """Play something from any time, whole and in order."""
        recorded = [*self._old, *self._recent]
        start = dice.randrange(len(recorded))
        for each in recorded[start : start + FEW]:
            self._play(each, self._listeners(), dice)

    def greet(self, dice: random.Random) -> None:
        """Play something of the last minutes to whoever has come last."""
        newcomer = max(self._listeners(), key=lambda node: node.started_at)
        since = self._clock.now - dice.choice((10.0, 55.0, 70.0, 160.0))
        heard = [each for each in [*self._old, *self._recent] if each.at >= since]
        for each in dice.sample(heard, k=min(FEW, len(heard))):
            self._play(each, [newcomer], dice)

    def reflect(self, dice: random.Random) -> None:
        """Send back to nodes what they said themselves."""
        for each in self._some(dice):
            if each.sender in self._listeners():
                self._play(each, [each.sender], dice)

    # --- Changing ---

    def flip(self, dice: random.Random) -> None:
        for each in self._some(dice):
            bit = dice.randrange(8 * len(each.data))
            changed = bytearray(each.data)
            changed[bit // 8] ^= 1 << bit % 8
            self._send(bytes(changed), each.sender.address, self._listeners(), dice)

    def cut(self, dice: random.Random) -> None:
        """Shorten datagrams, lengthen them, and join two."""
        for each in self._some(dice):
            size = dice.randrange(1, dice.choice((len(each.data), HEAD_END + 17)))
            changed = dice.choice((each.data[:size], each.data + b"\0" * size, each.data * 2))
            self._send(changed, each.sender.address, self._listeners(), dice)

    # --- Inventing ---

    def pretend(self, dice: random.Random) -> None:
        """Go on in the name of somebody, at another counter."""
        for each in self._some(dice):
            counter = int.from_bytes(each.data[SALT_END:HEAD_END], "big")
            leap = dice.choice((1, 2, 100, 1024, 2**20, 2**63))
            changed = ((counter + leap) % 2**64).to_bytes(8, "big")
            body = dice.choice((each.data[HEAD_END:], self._noise(dice)))
            data = each.data[:SALT_END] + changed + body
            self._send(data, each.sender.address, self._listeners(), dice)

    def invent(self, dice: random.Random) -> None:
        """Be somebody new, with a key that he does not have."""
        for _ in range(FEW):
            self._send(self._forged(dice), self._own_address(dice), self._listeners(), dice)

    def seal(self, dice: random.Random) -> None:
        """Seal with another secret, under the name of the right one."""
        sealer = Sealer(self._wrong, self._wrong.keys[0], dice.randbytes(SALT_BYTES))
        for each in self._some(dice):
            sealed = sealer.seal(OPEN[0])
            body = sealed[KEY_END:] if dice.random() < 0.5 else sealed[HEAD_END:]
            data = each.data[: len(sealed) - len(body)] + body
            self._send(data, each.sender.address, self._listeners(), dice)
            self._send(sealed, each.sender.address, self._listeners(), dice)

    def speak(self, dice: random.Random) -> None:
        """Send what is not sealed at all."""
        for data in OPEN:
            text = data.replace(b"%b", dice.choice(self._listeners()).name.encode())
            self._send(text, self._own_address(dice), self._listeners(), dice)

    def flood(self, dice: random.Random) -> None:
        """Keep one node busy from many addresses."""
        victim = dice.choice(self._listeners())
        nodes = [each.address for each in self._listeners()]
        for number in range(FLOOD):
            is_spoofed = number < FLOOD_SPOOFED
            sender = dice.choice(nodes) if is_spoofed else self._own_address(dice)
            self._send(self._forged(dice), sender, [victim], dice)

    # --- How he does it ---

    def _listeners(self) -> list[SimNode]:
        return list(self._places)

    def _some(self, dice: random.Random) -> list[Recorded]:
        return dice.choices(self._recent, k=dice.randint(1, FEW))

    def _forged(self, dice: random.Random) -> bytes:
        name, salt = dice.choice(self._names), dice.randbytes(SALT_BYTES)
        return SEALED_START + VERSION + name + salt + dice.randbytes(8) + self._noise(dice)

    def _noise(self, dice: random.Random) -> bytes:
        return dice.randbytes(dice.choice(_SEALED_BYTES))

    def _own_address(self, dice: random.Random) -> tuple[str, int]:
        number = dice.randrange(FLOOD_ADDRESSES)
        return f"172.16.{number >> 8}.{number & 255}", PORT

    def _play(self, recorded: Recorded, receivers: Sequence[SimNode], dice: random.Random) -> None:
        """Send it again, from where it came or from elsewhere.

        Whoever may let it in hears it soon or, unless he is patient, never.
        """
        if not self.is_patient:
            receivers = [node for node in receivers if not self._delays(node, recorded)]
        is_spoofed = dice.random() < 0.8
        sender = recorded.sender.address if is_spoofed else self._own_address(dice)
        self._send(recorded.data, sender, receivers, dice)

    def _delays(self, node: SimNode, recorded: Recorded) -> bool:
        """Return whether a node would get it that way, later than from a network."""
        if recorded.data in self._places[node].let_in:
            return False
        was_there = node.started_at <= recorded.at
        if was_there and recorded.sender is node:
            return False  # its own
        seems_younger_s = max(0.0, recorded.sender.ahead_of_s(node))
        is_too_old = recorded.at < node.started_at - CLEARLY_OLD_S - seems_younger_s
        late_s = LATE_S if was_there else NEWCOMER_LATE_S
        return not is_too_old and self._clock.now - recorded.at > late_s

    def _send(
        self,
        data: bytes,
        address: tuple[str, int],
        receivers: Sequence[SimNode],
        dice: random.Random,
    ) -> None:
        now = self._clock.now
        awake = [node for node in receivers if not node.is_frozen]
        arrivals = sorted((now + dice.uniform(*DELAY_S), node.index) for node in awake)
        self.inject(SealedFlight(data, address, None, arrivals))
