"""Checks open channels, and that nothing is left of them at the end.

call_checkers.py checks attempts to open one.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import inf
from typing import TYPE_CHECKING

from jsonbus.core.channel.end import CLOSED, OPEN
from jsonbus.core.channel.limits import (
    INBOX_BYTES_MAX,
    MESSAGE_OVERHEAD_BYTES,
    OUTPUT_BYTES_MAX,
    SILENCE_S,
)
from jsonbus.core.channel.wire import BYTES, PREFIX_BYTES, FrameItem
from jsonbus.sim.channels.ends import READ_BYTES, SimEnd, make_body
from jsonbus.sim.channels.sockets import AGAIN_MAX_S
from jsonbus.sim.checkers import Checker

if TYPE_CHECKING:
    from jsonbus.sim.world import World

INSPECTION_S = 0.25
#: How long packets, and those who read them, may take: far more than any delay.
LITTLE_S = 0.5

#: The most that one read may add to an inbox: at worst only messages without a byte.
READ_HELD_BYTES_MAX = READ_BYTES // PREFIX_BYTES * (MESSAGE_OVERHEAD_BYTES + PREFIX_BYTES)
#: Beats, C and E, none of which waits twice.
CONTROL_BYTES_MAX = 1000


class Inspector(Checker):
    """A checker that also inspects the world now and then."""

    def watch(self, world: World) -> None:
        super().watch(world)
        world.clock.call_at(world.clock.now + INSPECTION_S, self._look)

    def inspect(self) -> None:
        """Inspect the world."""

    def _look(self, _: None) -> None:
        self.inspect()
        self.world.clock.call_at(self.world.clock.now + INSPECTION_S, self._look)


class MessagesAreInOrder(Checker):
    """Messages come with the right numbers and contents: none invented, lost, repeated or
    changed.
    """

    invariant = "what is taken from a channel is what was sent, from the first message on, in order"

    def took(self, end: SimEnd, item: FrameItem) -> None:
        other = end.other
        if other is None or end.taken >= len(other.sent):
            self.fail(f"{end} took message {end.taken}, which nobody sent")
        elif item != (BYTES, make_body(end.taken, other.sent[end.taken])):
            self.fail(f"{end} took {item[1][:10]!r} of {len(item[1])} bytes as {end.taken}")


class ClosesAreTrue(Checker):
    """Everything sent before a deliberate close has arrived."""

    invariant = "who is told that a channel was closed, or that all has arrived, is told the truth"

    def end_changed(self, end: SimEnd) -> None:
        core, other = end.core, end.other
        if end.opened_at == inf or other is None:
            return
        if core.state == CLOSED and end.has_closed and core.is_confirmed:
            if other.arrived != len(end.sent):
                self.fail(f"{end} sent {len(end.sent)}, confirmed; {other.arrived} arrived")
        if core.is_peer_closed:
            if not other.has_closed:
                self.fail(f"{end} was closed by nobody")
            elif end.arrived != len(other.sent):
                self.fail(f"{end} was closed after {len(other.sent)}; {end.arrived} arrived")


class BoundsAreKept(Checker):
    """Bounds hold after every call into an end."""

    invariant = "no end holds more than its bounds, and no node more than its budget"

    def end_touched(self, end: SimEnd) -> None:
        core, owner = end.core, end.owner
        other = end.other
        incoming = other.largest if other is not None else 0
        if core.inbox_bytes > INBOX_BYTES_MAX + READ_HELD_BYTES_MAX + incoming:
            self.fail(f"{end} has an inbox of {core.inbox_bytes} bytes")
        if core.output_bytes > OUTPUT_BYTES_MAX + end.largest + CONTROL_BYTES_MAX:
            self.fail(f"{end} has an output of {core.output_bytes} bytes")
        bounds = owner.bounds
        each = bounds.memory_each_bytes + READ_HELD_BYTES_MAX
        # The one that is next may complete its message.
        largest = max(e.other.largest if e.other else 0 for e in (end, *owner.ends))
        held_max = bounds.memory_bytes_max + each * len(owner.ends) + largest
        if owner.budget.held_bytes > held_max:
            self.fail(f"{end.node.name} holds {owner.budget.held_bytes} bytes")
        answered = sum(e.call is None and e.opened_at < inf for e in owner.ends)
        if answered > bounds.channels_max + sum(e.core.is_over for e in owner.ends):
            self.fail(f"{end.node.name} has {answered} channels")


class ExclusivePortsHaveOneChannel(Checker):
    """An exclusive port has one channel; counted on the answering side, until the end is over."""

    invariant = "an exclusive port never has two channels at once"

    def end_changed(self, end: SimEnd) -> None:
        if end.core.state != OPEN or end.binding is None or not end.binding.is_exclusive:
            return
        for each in end.owner.ends:
            if each is not end and each.binding is not None and each.port == end.port:
                if not each.core.is_over:
                    self.fail(f"{end} was opened beside {each}")


class SilenceIsTrue(Checker):
    """A slow application is not a dead one, and neither is a network that was mended.

    An end that was closed deliberately does not report that it gave up: but it is not confirmed.
    """

    invariant = "no end is taken for silent while it is up and the network is whole"

    def end_changed(self, end: SimEnd) -> None:
        core, other = end.core, end.other
        if core.state != CLOSED or other is None or other.is_dead or other.core.is_lost:
            return
        is_given_up = core.is_closed_here and not core.is_confirmed
        if not (is_given_up and end.was_opened) and "was not heard" not in core.reason:
            return
        since = self.world.clock.now - SILENCE_S - AGAIN_MAX_S - LITTLE_S
        if are_linked(self.world, end, other, since):
            self.fail(f"{end}: {core.reason}, but {other.node.name} was there all the time")


class LossesAreNoticed(Inspector):
    """Whoever reads a channel notices that the other end is gone, or cannot be heard.

    An end that does not read, because its application takes nothing, cannot know.
    """

    invariant = "an end whose peer is gone or cut off is closed after the silence"

    def __init__(self) -> None:
        self._unheard_since: dict[SimEnd, float] = {}

    def inspect(self) -> None:
        now = self.world.clock.now
        unheard: dict[SimEnd, float] = {}
        for end in self.world.channels.open_ends():
            since = self._find_silence(end)
            if since is None or end.reads_since == inf or end.node.is_frozen:
                continue
            unheard[end] = since = max(self._unheard_since.get(end, since), end.reads_since)
            if now > since + SILENCE_S + LITTLE_S:
                self.fail(f"{end} is open {now - since:.1f} s after it could be heard")
        self._unheard_since = unheard

    def _find_silence(self, end: SimEnd) -> float | None:
        """Return since when nothing can be heard from the other side."""
        other = end.other
        if other is None or other.is_dead:
            return self.world.clock.now if other is None else other.over_at
        if not self.world.network.is_open(other.node.index, end.node.index):
            return self.world.clock.now
        return None


class NothingIsLeft(Checker):
    """After everybody has closed everything, on a whole network, nothing is left."""

    invariant = "in the end no channel, attempt, connection or byte of a message is left over"

    def finished(self) -> None:
        for detail in self._find():
            self.fail(detail)

    def _find(self) -> Iterator[str]:
        channels = self.world.channels
        for call in channels.calls:
            if not call.is_over:
                yield f"{call} goes on"
        for end in channels.ends:
            if end.over_at == inf:
                yield f"{end} is {end.core.state}: {end.core.reason}"
        if len(channels.streams):
            yield f"{len(channels.streams)} sockets are held"
        for node in self.world.nodes:
            owner = channels.of(node)
            if owner.budget.held_bytes or owner.ends or owner.ports._channels:
                yield f"{node.name} holds {owner.budget.held_bytes} bytes, {len(owner.ends)} ends"
            if node.seeks or node.core.directory._lookups:
                yield f"{node.name} still seeks somebody"


class EverythingArrives(Inspector):
    """Once the network is whole and all applications take what comes, everything arrives."""

    invariant = "on a whole network, whatever was sent is taken"

    def __init__(self) -> None:
        self.arrives_by = inf

    def inspect(self) -> None:
        if self.world.clock.now >= self.arrives_by:
            for detail in self.find():
                self.fail(detail)

    def find(self) -> Iterator[str]:
        """Return what has not been taken yet."""
        for end in self.world.channels.open_ends():
            other = end.other
            if other is not None and (end.left or other.taken != len(end.sent)):
                yield f"{end}: {other.taken} of {len(end.sent)} taken, {end.left} not sent"


def are_linked(world: World, one: SimEnd, other: SimEnd, since: float) -> bool:
    """Return whether the links between two ends' hosts have been open both ways since then."""
    return all(
        opened_at is not None and opened_at <= since
        for opened_at in (
            world.network.open_since(one.node.index, other.node.index),
            world.network.open_since(other.node.index, one.node.index),
        )
    )


def channel_checkers() -> tuple[Checker, ...]:
    """Return the checkers that need no arming."""
    return (
        MessagesAreInOrder(),
        ClosesAreTrue(),
        BoundsAreKept(),
        ExclusivePortsHaveOneChannel(),
        SilenceIsTrue(),
        LossesAreNoticed(),
        NothingIsLeft(),
    )
