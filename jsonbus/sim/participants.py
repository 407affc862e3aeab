"""The participants of a simulated world: production nodes, and plain peers.

A `SimNode` holds the production core and the clock that it sees: virtual time plus an offset, for
no two machines agree on the time. It outlives its core: after a crash or a leave it can be started
again, and goes on under the same name.

A `PlainPeer` is a node of the first implementation: it knows `topic` and `payload` and nothing
else. It announces its topics as a plain list, answers lists that lack something of what it knows
with the union of both, and understands one message per datagram.

The loop drives both alike: `receive` a datagram, take the `output`, ask `timer_at` (in virtual
time), and call `handle_timer` when its time has come.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import inf
from typing import Any

from jsonbus.core.membership.subscription_list import SubscriptionList
from jsonbus.core.node import Node
from jsonbus.core.settings import NodeSettings
from jsonbus.core.wire import codec
from jsonbus.sim.clock import Clock
from jsonbus.sim.records import Flight, Inquiry, Sink

PORT = 2416
LIST_TOPIC = "jsonbus.topics"
# Wall clocks start here: a round number that is obviously not today.
EPOCH_S = 1_000_000_000.0
PLAIN_ANSWER_DELAY_MAX_S = 0.2  # the first implementation's default


def index_of(host: str) -> int:
    """Return the index of the participant with that address."""
    _, high, middle, low = host.split(".")
    return int(high) << 16 | int(middle) << 8 | int(low)


class _Participant:
    """What the world and the loop note about every participant."""

    is_plain = False

    def __init__(self, index: int, name: str) -> None:
        self.index = index
        self.name = name
        self.address = (f"10.{index >> 16}.{index >> 8 & 255}.{index & 255}", PORT)
        self.is_up = False
        self.is_frozen = False  # up, but standing still
        self.seeks = 0  # channels that it tries to open, for which it looks up nodes
        self.started_at = inf  # of the present or last life
        self.stopped_at = -inf
        self.thawed_at = -inf
        self.first_heard_at = inf  # any other, in the present or last life
        self.wake_at = inf  # the earliest event that the clock has for its timer

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name}>"


class SimNode(_Participant):
    """A production node and the clock that it sees."""

    core: Node

    def __init__(
        self, index: int, name: str, settings: dict[str, Any], clock_offset_s: float, wall_s: float
    ) -> None:
        super().__init__(index, name)
        self.settings = settings  # settings besides node, incarnation and name
        self.clock_offset_s = clock_offset_s
        # Its wall clock at virtual time 0, minus its monotonic clock.
        self.wall_offset_s = EPOCH_S + wall_s - clock_offset_s
        self.node_id = ""
        self.incarnation = 0
        self.sinks: dict[str, Sink] = {}  # by pattern
        self.inquiries: dict[int, Inquiry] = {}  # by request id
        self._local_now = -inf
        self._due_at: float | None = None  # by its clock, as of the last call of timer_at

    @property
    def mode(self) -> str:
        return str(self.settings.get("mode", "delayed"))

    @property
    def kind(self) -> str:
        delay_s = self.settings.get("share_delay_s")
        if delay_s is not None:
            return f"{self.mode} by {delay_s * 1000:g} ms"
        return "master" if self.settings.get("is_master") else f"mode {self.mode}"

    def boot(self, node_id: str, rng: random.Random, at: float) -> None:
        """Begin a new life: a new core that remembers nothing but the clocks."""
        wall_ms = int((at + self.clock_offset_s + self.wall_offset_s) * 1000)
        # Two lives of one id within a millisecond do not happen: starting takes longer.
        self.incarnation = max(wall_ms, self.incarnation + 1)
        self.node_id = node_id
        settings = NodeSettings(
            node=node_id, incarnation=self.incarnation, name=self.name, **self.settings
        )
        self.core = Node(settings, rng, self.wall_offset_s)
        self.sinks = {}
        self.inquiries = {}
        self.seeks = 0

    @property
    def subscription_list(self) -> SubscriptionList:
        """The list that it believes in; read only."""
        return self.core._membership.list

    def local(self, at: float) -> float:
        """Return its own monotonic clock at virtual time `at`.

        Never earlier than before: adding and subtracting an offset is not exact, and a real
        monotonic clock never goes back by a rounding error.
        """
        now = at + self.clock_offset_s
        if now < self._local_now:
            return self._local_now
        self._local_now = now
        return now

    def ahead_of_s(self, other: SimNode) -> float:
        """Return by how much its wall clock is ahead of another one's."""
        own, others = (each.wall_offset_s + each.clock_offset_s for each in (self, other))
        return own - others

    def receive(self, flight: Flight, at: float) -> None:
        self.core.receive_frame(flight.frame, flight.address, self.local(at), len(flight.data))

    def take_attention(self) -> bool:
        """Return whether what it received may have moved its timer or caused output."""
        return self.core.take_attention()

    def output(self, at: float) -> Sequence[bytes]:
        core = self.core
        return core.outbox.take(self.local(at)) if core.outbox.has_output else ()

    def timer_at(self) -> float | None:
        at = self._due_at = self.core.timer_at()
        return None if at is None else at - self.clock_offset_s

    def handle_timer(self, at: float) -> None:
        """Do what was due when `timer_at` was last called."""
        if self._due_at is not None:
            self.core.handle_timer(self.local_when_due(at, self._due_at))

    def local_when_due(self, at: float, due_at: float) -> float:
        """Return its clock when something happens that is due by that clock at `due_at`.

        The same rounding error: a timer must not fire a hair before its time.
        """
        now = self.local(max(at, due_at - self.clock_offset_s))
        if now < due_at:
            now = self._local_now = due_at
        return now


@dataclass(slots=True, eq=False)
class NodeTimer:
    """Calls `handle(due_at)` when a time by a node's clock has come, which may move until then."""

    _node: SimNode
    _clock: Clock
    _timer_at: Callable[[], float]
    _handle: Callable[[float], None]
    _armed_at: float = inf  # the earliest event that the clock has for it

    def arm(self) -> None:
        """Take notice that the time may have moved."""
        at = self._timer_at() - self._node.clock_offset_s
        if at < self._armed_at:
            self._armed_at = max(at, self._clock.now)
            self._clock.call_at(self._armed_at, self._wake)

    def _wake(self, _: None) -> None:
        if self._clock.now != self._armed_at:
            return
        self._armed_at = inf
        if not self._node.is_frozen:
            due_at = self._timer_at()
            if due_at - self._node.clock_offset_s <= self._clock.now:
                self._handle(due_at)
            self.arm()


class PlainPeer(_Participant):
    """A node of the first implementation."""

    is_plain = True
    kind = "plain"

    def __init__(
        self, index: int, name: str, topics: Sequence[str], rng: random.Random, answers: bool
    ) -> None:
        super().__init__(index, name)
        self.topics = list(topics)
        self.answers = answers  # a sensor that wants something would not
        self.heard: list[tuple[str, Any]] = []  # messages of topics that it wants
        self._rng = rng
        self._known: set[str] = set()
        self._outbox: list[bytes] = []
        self._answer_at: float | None = None

    def boot(self) -> None:
        self.heard = []
        self._known = set(self.topics)
        self._outbox = []
        self._answer_at = None
        self._send_list()

    def publish(self, topic: str, value: Any) -> None:
        self._outbox.append(codec.dumps({"topic": topic, "payload": value}))

    def receive(self, flight: Flight, at: float) -> None:
        """Read a datagram as any JSON reader would: two keys, the rest ignored."""
        value = codec.loads(flight.data)
        topic, payload = value["topic"], value["payload"]
        if topic == LIST_TOPIC:
            self._merge({str(name) for name in payload} - {LIST_TOPIC}, at)
        elif topic in self.topics:
            self.heard.append((topic, payload))

    def take_attention(self) -> bool:
        return True

    def _merge(self, topics: set[str], at: float) -> None:
        is_news_to_sender = not self._known <= topics
        self._known |= topics
        if not is_news_to_sender:
            self._answer_at = None
        elif self.answers and self._answer_at is None:
            self._answer_at = at + PLAIN_ANSWER_DELAY_MAX_S * self._rng.random()

    def output(self, at: float) -> Sequence[bytes]:
        datagrams, self._outbox = self._outbox, []
        return datagrams

    def timer_at(self) -> float | None:
        return self._answer_at

    def handle_timer(self, at: float) -> None:
        if self._answer_at is not None and self._answer_at <= at:
            self._answer_at = None
            self._send_list()

    def _send_list(self) -> None:
        payload = [LIST_TOPIC, *sorted(self._known)]
        self._outbox.append(codec.dumps({"topic": LIST_TOPIC, "payload": payload}))


Participant = SimNode | PlainPeer
