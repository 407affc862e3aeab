"""The promises of channels: of attempts to open one, of open ones, and of what is left of them."""

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
    UNANSWERED_S,
)
from jsonbus.core.channel.wire import BYTES, FrameItem
from jsonbus.sim.channels.connector import ConnectAttempt
from jsonbus.sim.channels.endpoint import READ_BYTES, Endpoint, make_body
from jsonbus.sim.channels.tcp import AGAIN_MAX_S
from jsonbus.sim.checkers import Checker
from jsonbus.sim.records import Life

if TYPE_CHECKING:
    from jsonbus.sim.channels.world import WorldChannels
    from jsonbus.sim.world import World

INSPECTION_S = 0.25
#: How long packets, and those who read them, may take: far more than any delay.
LITTLE_S = 0.5

#: Beats, C and E, none of which waits twice.
CONTROL_BYTES_MAX = 1000

#: Longer than it takes to find a node twice and to connect to it, if nothing is in the way.
FINDING_S = 1.5
ROUNDING_S = 1e-6

#: After the faults: time to notice who is gone, and to take everything that was sent, even one
#: message after the other.
ARRIVAL_S = SILENCE_S + 13.0


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

    def took(self, end: Endpoint, item: FrameItem) -> None:
        other = end.other
        if other is None or end.taken >= len(other.sent):
            self.fail(f"{end} took message {end.taken}, which nobody sent")
        elif item != (BYTES, make_body(end.taken, other.sent[end.taken])):
            self.fail(f"{end} took {item[1][:10]!r} of {len(item[1])} bytes as {end.taken}")


class ClosesAreTrue(Checker):
    """Everything sent before a deliberate close has arrived."""

    invariant = "who is told that a channel was closed, or that all has arrived, is told the truth"

    def endpoint_changed(self, end: Endpoint) -> None:
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

    def endpoint_touched(self, end: Endpoint) -> None:
        core, owner = end.core, end.owner
        if core.inbox_bytes > INBOX_BYTES_MAX + _read_held_max(end) + _largest_to(end):
            self.fail(f"{end} has an inbox of {core.inbox_bytes} bytes")
        if core.output_bytes > OUTPUT_BYTES_MAX + end.largest + CONTROL_BYTES_MAX:
            self.fail(f"{end} has an output of {core.output_bytes} bytes")
        bounds = owner.bounds
        ends = owner.endpoints
        held = sum(e.core.inbox_bytes + (not e.core.is_over) * e.core.partial_bytes for e in ends)
        if held > 2 * bounds.memory_bytes_max:  # incomplete messages, and complete ones
            # Each end may have its share and one read more, and one may complete its message.
            shares = sum(bounds.memory_each_bytes + _read_held_max(each) for each in ends)
            if held > 2 * bounds.memory_bytes_max + shares + max(map(_largest_to, ends)):
                self.fail(f"{end.node.name} holds {held} bytes")
        answered = sum(e.attempt is None and e.opened_at < inf for e in owner.endpoints)
        if answered > bounds.channels_max + sum(e.core.is_over for e in owner.endpoints):
            self.fail(f"{end.node.name} has {answered} channels")


def _read_held_max(end: Endpoint) -> int:
    """Return how much one read may add to what an end holds."""
    messages = len(end.other.sent) if end.other is not None else 0
    return READ_BYTES + MESSAGE_OVERHEAD_BYTES * messages


def _largest_to(end: Endpoint) -> int:
    return end.other.largest if end.other is not None else 0


class ExclusivePortsHaveOneChannel(Checker):
    """An exclusive port has one channel; counted on the answering side, until the end is over."""

    invariant = "an exclusive port never has two channels at once"

    def endpoint_changed(self, end: Endpoint) -> None:
        if end.core.state != OPEN or end.binding is None or not end.binding.is_exclusive:
            return
        for each in end.owner.endpoints:
            if each is not end and each.binding is not None and each.port == end.port:
                if not each.core.is_over:
                    self.fail(f"{end} was opened beside {each}")


class SilenceIsTrue(Checker):
    """A slow application is not a dead one, and neither is a network that was mended.

    An end that was closed deliberately does not report that it gave up: but it is not confirmed.
    """

    invariant = "no end is taken for silent while it is up and the network is whole"

    def endpoint_changed(self, end: Endpoint) -> None:
        core, other = end.core, end.other
        if core.state != CLOSED or other is None or other.is_dead or other.core.is_lost:
            return
        is_given_up = core.is_closed_here and not core.is_confirmed
        if not (is_given_up and end.was_opened) and "was not heard" not in core.reason:
            return
        since = self.world.clock.now - UNANSWERED_S - AGAIN_MAX_S - LITTLE_S
        if self.world.network.are_linked(end.node.index, other.node.index, since):
            self.fail(f"{end}: {core.reason}, but {other.node.name} was there all the time")


class LossesAreNoticed(Inspector):
    """Whoever reads a channel notices that the other end is gone, or cannot be heard.

    An end that does not read, because its application takes nothing, cannot know.
    """

    invariant = "an end whose peer is gone or cut off is closed after the silence"

    def __init__(self) -> None:
        self._unheard_since: dict[Endpoint, float] = {}

    def inspect(self) -> None:
        now = self.world.clock.now
        unheard: dict[Endpoint, float] = {}
        for end in self.world.channels.open_endpoints():
            since = self._find_silence(end)
            if since is None or end.reads_since == inf or end.node.is_frozen:
                continue
            unheard[end] = since = max(self._unheard_since.get(end, since), end.reads_since)
            if now > since + SILENCE_S + LITTLE_S:
                self.fail(f"{end} is open {now - since:.1f} s after it could be heard")
        self._unheard_since = unheard

    def _find_silence(self, end: Endpoint) -> float | None:
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
        for attempt in channels.attempts:
            if not attempt.is_over:
                yield f"{attempt} goes on"
        for end in channels.endpoints:
            if end.over_at == inf:
                yield f"{end} is {end.core.state}: {end.core.reason}"
        if len(channels.tcp):
            yield f"{len(channels.tcp)} sockets are held"
        for node in self.world.nodes:
            owner = channels.of(node)
            if owner.budget.held_bytes or owner.endpoints or owner.ports._channels:
                held, ends = owner.budget.held_bytes, len(owner.endpoints)
                yield f"{node.name} holds {held} bytes, {ends} ends"
            if node.seeks or node.core.directory._lookups:
                yield f"{node.name} still seeks somebody"


class EverythingArrives(Inspector):
    """Once the network is whole and all applications take what comes, everything arrives."""

    invariant = "on a whole network, whatever was sent is taken"

    def __init__(self) -> None:
        self.arrives_by = inf

    def inspect(self) -> None:
        if self.world.clock.now >= self.arrives_by:
            for detail in find_untaken(self.world.channels):
                self.fail(detail)


def find_untaken(channels: WorldChannels) -> Iterator[str]:
    """Describe every open end from which not everything has been taken yet."""
    for end in channels.open_endpoints():
        other = end.other
        if other is not None and (end.left or other.taken != len(end.sent)):
            yield f"{end}: {other.taken} of {len(end.sent)} taken, {end.left} not sent"


class AttemptsEndInTime(Inspector):
    """Nobody waits for a channel longer than it wanted to."""

    invariant = "an attempt to open a channel ends by its deadline"

    def attempt_changed(self, attempt: ConnectAttempt) -> None:
        if attempt.is_over and attempt.ended_at > self._deadline(attempt):
            self.fail(f"{attempt} ended {attempt.ended_at - attempt.at:.3f} s after it began")

    def inspect(self) -> None:
        now = self.world.clock.now
        for attempt in self.world.channels.attempts:
            if not attempt.is_over and not attempt.node.is_frozen and now > self._deadline(attempt):
                self.fail(f"{attempt} goes on {now - attempt.at:.3f} s after it began")

    def _deadline(self, attempt: ConnectAttempt) -> float:
        # A process that stands still is late, and so is what it reports.
        return max(attempt.at + attempt.timeout_s, attempt.node.thawed_at) + ROUNDING_S


class RefusalsAreTrue(Checker):
    """Every refusal was true at some instant of the attempt.

    A node may have said something a moment earlier: the travel time of datagrams is allowed for. On
    a network that loses some, nobody can know whether a node is known or gone.
    """

    invariant = "a refusal is true"

    def __init__(self, *, is_lossless: bool) -> None:
        self._is_lossless = is_lossless

    def attempt_changed(self, attempt: ConnectAttempt) -> None:
        if attempt.error is None or attempt.endpoint is not None:
            return
        reason = str(getattr(attempt.error, "reason", "timeout"))
        options = self.world.network.options
        since = attempt.at - options.delay_max_s - (options.late_max_s if options.late else 0.0)
        lives = [
            life
            for life in self.world.channels.lives
            if attempt.who in (life.node_id, life.node.name) and life.until >= since
        ]
        is_true = getattr(self, f"_is_{reason}")
        if not is_true(attempt, lives, since):
            self.fail(f"{attempt} is told {reason}: {attempt.error}")

    def _is_unbound(self, attempt: ConnectAttempt, lives: list[Life], since: float) -> bool:
        return any(not self._is_bound(life, attempt.port, since) for life in lives)

    def _is_taken(self, attempt: ConnectAttempt, lives: list[Life], since: float) -> bool:
        nodes = {life.node for life in lives}
        return any(
            binding.node in nodes and binding.port == attempt.port and binding.is_exclusive
            for binding in self.world.channels.bindings
            if binding.until >= attempt.at
        ) and bool(self._count_answered(attempt, lives))

    def _is_busy(self, attempt: ConnectAttempt, lives: list[Life], since: float) -> bool:
        bounds = self.world.channels.bounds
        answered = self._count_answered(attempt, lives, any_port=True)
        return answered >= min(bounds.channels_max, bounds.accept_max)

    def _is_ambiguous(self, attempt: ConnectAttempt, lives: list[Life], since: float) -> bool:
        return len(lives) > 1

    def _is_unknown(self, attempt: ConnectAttempt, lives: list[Life], since: float) -> bool:
        return not (
            self._is_lossless and any(self._is_there(attempt, life, since) for life in lives)
        )

    def _is_gone(self, attempt: ConnectAttempt, lives: list[Life], since: float) -> bool:
        return self._is_unknown(attempt, lives, since)

    def _is_timeout(self, attempt: ConnectAttempt, lives: list[Life], since: float) -> bool:
        return attempt.timeout_s < FINDING_S or self._is_unknown(attempt, lives, since)

    def _is_bound(self, life: Life, port: str, since: float) -> bool:
        """Return whether the port was bound all the time since then."""
        return any(
            (each.node, each.port) == (life.node, port) and each.since <= since
            for each in self.world.channels.bindings
            if each.until == inf
        )

    def _is_there(self, attempt: ConnectAttempt, life: Life, since: float) -> bool:
        """Return whether both could hear each other all the time since then."""
        is_linked = self.world.network.are_linked(attempt.node.index, life.node.index, since)
        was_awake = life.node.thawed_at <= since
        return life.since <= since and life.until == inf and is_linked and was_awake

    def _count_answered(
        self, attempt: ConnectAttempt, lives: list[Life], *, any_port: bool = False
    ) -> int:
        """Count the channels that these nodes' ports had during the attempt."""
        nodes = {life.node for life in lives}
        return sum(
            each.binding is not None
            and each.node in nodes
            and (any_port or each.port == attempt.port)
            and max(each.over_at, each.accepted_at) >= attempt.at
            for each in self.world.channels.endpoints
        )


class ChannelPromises:
    """All promises of channels, in a network that loses datagrams or not."""

    def __init__(self, *, is_lossless: bool = True) -> None:
        self.arrives = EverythingArrives()
        self.checkers: tuple[Checker, ...] = (
            MessagesAreInOrder(),
            ClosesAreTrue(),
            BoundsAreKept(),
            ExclusivePortsHaveOneChannel(),
            SilenceIsTrue(),
            LossesAreNoticed(),
            NothingIsLeft(),
            AttemptsEndInTime(),
            RefusalsAreTrue(is_lossless=is_lossless),
            self.arrives,
        )

    def peace(self) -> None:
        """The faults end now, and all applications take what comes."""
        self.arrives.arrives_by = self.arrives.world.clock.now + ARRIVAL_S
