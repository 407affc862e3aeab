"""The base class of checkers, how they are told what happens, and the promises of single messages.

A checker follows what happens in a world through its hooks and raises BrokenInvariantError as soon
as a promise is broken. It compares what nodes do with the truth that the world recorded, never one
node's word with another's.

Safety is checked throughout, during chaos too. What needs time to come true is checked in
`finished`, which a history calls after it has healed the world and waited.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from jsonbus.core.channel.wire import FrameItem
from jsonbus.core.events import Event, ReplyReceived
from jsonbus.core.limits import HOLD_MESSAGES_MAX, TIMER_SLACK_S
from jsonbus.core.message import Message
from jsonbus.core.routing.matching import matches
from jsonbus.core.rpc.requests import Request
from jsonbus.core.wire.frames import FragmentFrame, Frame, ListFrame, MessagesFrame
from jsonbus.sim.participants import Participant, SimNode
from jsonbus.sim.records import Flight, Inquiry, Publication, SealedFlight, Sink

if TYPE_CHECKING:
    from jsonbus.sim.channels.connector import ConnectAttempt
    from jsonbus.sim.channels.endpoint import Endpoint
    from jsonbus.sim.world import World


# A value begins with the number of its publication.
_NUMBER = re.compile(r'\{"number":(\d+)')


class BrokenInvariantError(AssertionError):
    """Something happened in a simulated world that must never happen."""

    def __init__(self, invariant: str, seed: object, at: float, detail: str) -> None:
        super().__init__(invariant, seed, at, detail)
        self.invariant = invariant
        self.seed = seed
        self.at = at
        self.detail = detail

    def __str__(self) -> str:
        return f"{self.invariant}: {self.detail} (at {self.at:.6f} s, seed {self.seed})"


class Checker:
    """Base class: is told of everything and checks nothing."""

    #: The invariant, as a sentence.
    invariant = ""
    world: World

    def watch(self, world: World) -> None:
        """Called once, before anything happens."""
        self.world = world

    def happened(self, participant: Participant | None, what: str) -> None:
        """The scenario did something to a participant or to the network; for the record."""

    def published(self, publication: Publication) -> None:
        """A participant's publish returned; what it caused to be sent has not been sent yet."""

    def sent(self, sender: Participant, frame: Frame, data: bytes) -> None:
        """A datagram left its sender."""

    def sealed(self, sender: SimNode, inside: bytes, data: bytes) -> None:
        """On a sealed bus: `inside` leaves its sender as `data`."""

    def opened(self, receiver: SimNode, flight: SealedFlight, inside: bytes | None) -> None:
        """On a sealed bus: a datagram came; None: it was not let in."""

    def delivered(self, sink: Sink, messages: Sequence[Message], flight: Flight | None) -> None:
        """A node handed messages to its application; from `flight`, or from its own publish."""

    def told(self, node: SimNode, event: Event) -> None:
        """A node reported an event."""

    def touched(self, participant: Participant) -> None:
        """A call into the participant ended, and its output was sent."""

    def passed(self, participant: Participant) -> None:
        """A participant took a datagram and says that this needs no attention: no output, no timer,
        and nothing that another hook tells.
        """

    def attempt_changed(self, attempt: ConnectAttempt) -> None:
        """An attempt to open a channel was refused and pauses, or has ended."""

    def endpoint_changed(self, end: Endpoint) -> None:
        """The state of an end of a channel changed."""

    def endpoint_touched(self, end: Endpoint) -> None:
        """A call into an end of a channel ended, and its output was written."""

    def took(self, end: Endpoint, item: FrameItem) -> None:
        """An application took a message, the one with the number `end.taken`."""

    def finished(self) -> None:
        """The world is healed and was left undisturbed for longer than a lease and a grace."""

    def fail(self, detail: str) -> None:
        raise BrokenInvariantError(self.invariant, self.world.seed, self.world.clock.now, detail)


class Observers:
    """The checkers of a world; each is called only for the hooks that it overrides."""

    def __init__(self, checkers: Sequence[Checker]) -> None:
        self._hooks: dict[str, list[Callable[..., None]]] = {
            hook: [getattr(c, hook) for c in checkers if getattr(type(c), hook) is not empty]
            for hook, empty in vars(Checker).items()
            if callable(empty)
        }

    def follow(self, hook: str) -> bool:
        """Return whether any checker overrides that hook."""
        return bool(self._hooks[hook])

    def tell(self, hook: str, *facts: object) -> None:
        """Call that hook of every checker that overrides it."""
        for call in self._hooks[hook]:
            call(*facts)


class DatagramsAreSound(Checker):
    """A peer that knows only `topic` and `payload` can read what nodes send."""

    invariant = "every datagram is a small object with its topic first, and basic sends no list"

    def sent(self, sender: Participant, frame: Frame, data: bytes) -> None:
        if not isinstance(sender, SimNode):
            return
        if not data.startswith(b'{"topic":"'):
            self.fail(f"{sender.name} sent {data[:40]!r}")
        limit = sender.core.settings.datagram_bytes_max
        if len(data) > limit and not self._is_whole_for_plain(sender, frame):
            self.fail(f"{sender.name} sent {len(data)} bytes, allowed are {limit}")
        if isinstance(frame, ListFrame) and sender.mode == "basic":
            self.fail(f"{sender.name} is basic and sent a list")

    def _is_whole_for_plain(self, sender: SimNode, frame: Frame) -> bool:
        """Plain peers understand whole messages only: for them, large ones are not cut."""
        is_single = isinstance(frame, MessagesFrame) and len(frame.items) == 1
        has_plain = any(participant.is_plain for participant in self.world.participants)
        return is_single and (has_plain or not sender.core.settings.batching)


class DeliveriesAreTrue(Checker):
    """Deliveries are neither invented, unwanted, repeated nor out of order.

    A network that reorders makes messages of different datagrams change places, and nodes deliver
    in the order of arrival. So the order is checked within the datagram that brought them;
    reliable_checkers.py checks the order of reliable messages. Only plain peers' messages may come
    twice: nothing in them distinguishes a repeat from a second message. A retained value may come
    once more, flagged as such, to a subscriber that extends a subscription which had it already.
    """

    invariant = "what is delivered was published, is wanted, comes once and in order of arrival"

    def __init__(self) -> None:
        self._seen: set[tuple[Sink, int]] = set()  # the number of a publication

    def delivered(self, sink: Sink, messages: Sequence[Message], flight: Flight | None) -> None:
        last = -1
        who = sink.participant.name
        brought = publications_in(flight.frame) if flight is not None else None
        for number, message in numbered(messages):
            if not 0 <= number < len(self.world.publications):
                self.fail(f"{who} was given {message!r}, which nobody published")
            publication = self.world.publications[number]
            if publication.topic != message.topic:
                self.fail(f"{who} was given {number} as {message.topic}, not {publication.topic}")
            if not any(matches(pattern, message.topic) for pattern in sink.patterns):
                self.fail(f"{who} was given {message.topic}, wanted are {sink.patterns}")
            if message.retained:
                if not publication.is_retained:
                    self.fail(f"{who} was given {number} as retained, which it is not")
                continue
            if (sink, number) in self._seen and not publication.participant.is_plain:
                self.fail(f"{who} was given publication {number} ({message.topic}) twice")
            self._seen.add((sink, number))
            if publication.is_reliable:
                continue
            place = number if brought is None else brought.get(number, -1)
            if flight is not None and isinstance(flight.frame, FragmentFrame):
                place = max(place, 0)  # the slice that came last brought it
            if place <= last:
                self.fail(f"{who} was given publication {number} out of its order")
            last = place


class PublishersKeepOrder(Checker):
    """The join queue must not let a message overtake an older one of the same topic."""

    invariant = "messages of one topic leave their publisher once, in the order of publishing"

    def __init__(self) -> None:
        self._last: dict[tuple[int, str], int] = {}

    def sent(self, sender: Participant, frame: Frame, data: bytes) -> None:
        if not isinstance(frame, MessagesFrame):
            return
        for number in publications_in(frame):
            publication = self.world.publications[number]
            if publication.participant is not sender:
                self.fail(f"{sender.name} sent publication {number}, which is not its own")
            topic = publication.topic
            last = self._last.get((sender.index, topic), -1)
            if number <= last:
                self.fail(f"{sender.name} sent {topic} number {number} after {last}")
            self._last[sender.index, topic] = number


class HoldIsBounded(Checker):
    """Counts from outside: accepted by publish, and not yet seen on the network."""

    invariant = "a joiner holds a bounded number of messages and sends the rest"

    def __init__(self) -> None:
        self._held: dict[Participant, set[int]] = {}

    def published(self, publication: Publication) -> None:
        if publication.accepted and publication.state == "joining":
            held = self._held.setdefault(publication.participant, set())
            if held and self.world.publications[min(held)].at < publication.participant.started_at:
                held.clear()  # they died with the life in which they were published
            held.add(publication.number)

    def sent(self, sender: Participant, frame: Frame, data: bytes) -> None:
        if sender in self._held:
            self._held[sender].difference_update(publications_in(frame))

    def touched(self, participant: Participant) -> None:
        held = self._held.get(participant)
        if held is None:
            return
        assert isinstance(participant, SimNode)
        if not participant.is_up or participant.core.state != "joining":
            del self._held[participant]
        elif len(held) > HOLD_MESSAGES_MAX:
            self.fail(f"{participant.name} holds {len(held)} messages")


class NothingIsForgotten(Checker):
    """A node that reports no need for attention has nothing to send and no new timer."""

    invariant = "what a node wants to send, and when it wants to be called, is never missed"

    def passed(self, participant: Participant) -> None:
        if not isinstance(participant, SimNode) or participant.is_frozen:
            return
        at = participant.timer_at()
        if at is not None:
            early_s = participant.wake_at - max(at, self.world.clock.now)
            if early_s > TIMER_SLACK_S:
                self.fail(f"{participant.name} wants to be called {early_s:.6f} s earlier")
        if participant.core.outbox.has_output:
            self.fail(f"{participant.name} has something to send")


class RepliesAreTrue(Checker):
    """Simulated servers answer with the value of the request; of several replies, one is given."""

    invariant = "a reply belongs to a request of this node, is its answer, and comes once"

    def __init__(self) -> None:
        self._answered: set[Inquiry] = set()

    def told(self, node: SimNode, event: Event) -> None:
        if isinstance(event, ReplyReceived):
            inquiry = node.inquiries.get(event.request_id)
            if inquiry is None:
                self.fail(f"{node.name} got a reply to {event.request_id}, which it never asked")
            elif event.value != inquiry.value or event.error is not None:
                self.fail(f"{node.name} asked {inquiry.value} and got {event}")
            elif inquiry in self._answered:
                self.fail(f"{node.name} asked {inquiry.value} and got two replies")
            else:
                self._answered.add(inquiry)


def numbered(messages: Sequence[Message]) -> Iterator[tuple[int, Message]]:
    """Yield the messages that are no requests, with the numbers of their publications."""
    for message in messages:
        if not isinstance(message, Request):
            yield message.value["number"], message


def publications_in(frame: Frame) -> dict[int, int]:
    """Return the publications that a datagram brings, first or again, and their places in it.

    A message in slices is brought by its first one. Repairs are not counted.
    """
    if isinstance(frame, MessagesFrame):
        return {item[1]["number"]: place for place, item in enumerate(frame.items)}
    if isinstance(frame, FragmentFrame) and frame.index == 0:
        found = _NUMBER.search(frame.text)
        assert found is not None, frame.text[:80]
        return {int(found[1]): 0}
    return {}
