"""Retained values: the last value of a topic, for subscribers that come later.

Theory of operation. The publisher keeps the value, with its number and instant. When a node appears
that wants the topic and did not before, the value is given to it after a random delay: of many that
appear at once most are served together, by one datagram that names them all. A fresh value cancels
that, since everybody gets it anyway. A lost datagram is made good by its repeat: the value is given
GIVE_TIMES times, and taken once.

The nodes of subscribers keep what they got of retained values as well, for subscriptions that
are made later in the same node: those change nothing that a publisher could see.

Both sides are bounded. A publisher is told when its store is full; what a subscriber's node keeps
is only a convenience, of which the oldest goes first.
"""

from __future__ import annotations

import math
import random
from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import NamedTuple

from jsonbus.core.limits import (
    GIVE_DELAY_MAX_S,
    GIVE_REPEAT_S,
    GIVE_TIMES,
    RETAINED_BYTES_MAX,
    RETAINED_SEEN_MAX,
    RETAINED_TOPICS_MAX,
)
from jsonbus.core.message import Message, Origin, make_message
from jsonbus.errors import LocalError


class Kept(NamedTuple):
    """A value that is retained, as it was published."""

    payload: bytes
    number: int  # 0: nobody wanted it then, it never was a message
    sent_us: int


class _Gift:
    """A value that is about to be given to nodes that came late."""

    __slots__ = ("at", "times", "to")

    def __init__(self, at: float) -> None:
        self.at = at
        self.times = 0
        self.to: set[str] = set()


class RetainedStore:
    """The publisher's side."""

    __slots__ = ("_gifts", "_kept", "_rng", "given", "size_bytes")

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._kept: dict[str, Kept] = {}
        self._gifts: dict[str, _Gift] = {}
        self.size_bytes = 0
        #: Values given, each time and to however many nodes.
        self.given = 0

    def __len__(self) -> int:
        return len(self._kept)

    def matching(self, wants: Callable[[str], bool]) -> Iterable[tuple[str, Kept]]:
        """What is kept of these topics."""
        return [(topic, kept) for topic, kept in self._kept.items() if wants(topic)]

    def check_room(self, topic: str, size_bytes: int) -> None:
        """Raise LocalError if a value of that size cannot be kept."""
        before = self._kept.get(topic)
        others = self.size_bytes - (len(before.payload) if before else 0)
        if before is None and len(self._kept) >= RETAINED_TOPICS_MAX:
            raise LocalError(
                f"{len(self._kept):,} topics have a retained value, no more are allowed: "
                "end some by publishing None with retain"
            )
        if others + size_bytes > RETAINED_BYTES_MAX:
            raise LocalError(
                f"retained values take {others:,} bytes, {size_bytes:,} more would exceed "
                f"{RETAINED_BYTES_MAX:,}: end some by publishing None with retain"
            )

    def keep(self, topic: str, kept: Kept) -> None:
        """Everybody gets the fresh value, also who was to be given the former one."""
        self.end(topic)
        self._kept[topic] = kept
        self.size_bytes += len(kept.payload)

    def end(self, topic: str) -> None:
        kept = self._kept.pop(topic, None)
        if kept is not None:
            self.size_bytes -= len(kept.payload)
        self._gifts.pop(topic, None)

    def interest_grew(
        self,
        node: str,
        wants: Callable[[str], bool],
        wanted: Callable[[str], bool],
        now: float,
    ) -> None:
        """A node wants topics that it did not want before."""
        for topic in self._kept:
            if wants(topic) and not wanted(topic):
                gift = self._gifts.get(topic)
                if gift is None:
                    at = now + self._rng.random() * GIVE_DELAY_MAX_S
                    gift = self._gifts[topic] = _Gift(at)
                gift.times = 0
                gift.to.add(node)

    def node_left(self, node: str) -> None:
        for topic in [topic for topic, gift in self._gifts.items() if node in gift.to]:
            self._gifts[topic].to.discard(node)
            if not self._gifts[topic].to:
                del self._gifts[topic]

    def timer_at(self) -> float:
        return min((gift.at for gift in self._gifts.values()), default=math.inf)

    def take_due(self, due: float, now: float) -> list[tuple[str, Kept, tuple[str, ...]]]:
        """What to give now, and to whom."""
        taken = []
        for topic, gift in list(self._gifts.items()):
            if gift.at > due:
                continue
            taken.append((topic, self._kept[topic], tuple(sorted(gift.to))))
            gift.times += 1
            gift.at = now + GIVE_REPEAT_S
            if gift.times >= GIVE_TIMES:
                del self._gifts[topic]
        self.given += len(taken)
        return taken


class RetainedCache:
    """The subscriber's side: what was heard of retained values, by topic."""

    __slots__ = ("_messages", "_seen")

    def __init__(self) -> None:
        self._messages: OrderedDict[str, Message] = OrderedDict()
        #: When the last value that came here, fresh or given, was published, in µs: what is given
        #: of that or an earlier time is a repeat. Outlasts the value itself.
        self._seen: dict[tuple[str, int, str], int] = {}

    def __len__(self) -> int:
        return len(self._messages)

    def note(self, message: Message) -> None:
        """A message came that its publisher retains; None, which ends that, is remembered, too.

        What was published before may still come, as a repair or a gift.
        """
        self._see(message, round(message.sent_at * 1_000_000))
        self._messages[message.topic] = message
        self._messages.move_to_end(message.topic)
        if len(self._messages) > RETAINED_TOPICS_MAX:
            self._messages.popitem(last=False)

    def has_newer(self, message: Message) -> bool:
        """Whether something of the topic was heard that the same node published later."""
        before = self._messages.get(message.topic)
        return (
            before is not None
            and (before.node, before.incarnation) == (message.node, message.incarnation)
            and (before.sequence or 0) > (message.sequence or 0)
        )

    def is_new(self, message: Message, sent_us: int) -> bool:
        """Whether this value was not given before; it counts as given from now on."""
        key = (message.node, message.incarnation, message.topic)
        if self._seen.get(key, -1) >= sent_us:
            return False
        self._see(message, sent_us)
        return True

    def await_anew(self, wants: Callable[[str], bool]) -> None:
        """Nobody here had these topics: what is not kept has to be given again."""
        for key in [key for key in self._seen if wants(key[2]) and key[2] not in self._messages]:
            del self._seen[key]

    def _see(self, message: Message, sent_us: int) -> None:
        key = (message.node, message.incarnation, message.topic)
        self._seen[key] = max(sent_us, self._seen.get(key, 0))
        if len(self._seen) > RETAINED_SEEN_MAX:
            del self._seen[next(iter(self._seen))]

    def forget_node(self, node: str) -> None:
        for topic in [t for t, message in self._messages.items() if message.node == node]:
            del self._messages[topic]

    def matching(self, wants: Callable[[str], bool]) -> Iterable[Message]:
        """The values of these topics, flagged as retained."""
        for topic, message in self._messages.items():
            if message.value is not None and wants(topic):
                yield as_retained(message)


def as_retained(message: Message) -> Message:
    origin = message.origin
    retained = Origin(
        origin.node,
        origin.name,
        origin.incarnation,
        origin.sent_at,
        origin.received_at,
        is_retained=True,
    )
    return make_message(message.topic, message.value, message.sequence, retained)
