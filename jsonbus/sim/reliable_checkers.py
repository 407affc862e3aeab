"""What must hold of reliable and retained messages, whatever the network does.

A reliable message is known by its stream (its publisher's life and its topic) and its sequence. The
first datagram of a stream tells where it begins; from there on every publication counts, whether it
was sent or not. Nobody is believed: not the nodes, whose deliveries are held against what was
published, and not their gaps, which excuse exactly what they name.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from math import inf

from jsonbus.core import limits
from jsonbus.core.events import Event, GapFound
from jsonbus.core.message import Message
from jsonbus.core.wire.frames import FragmentFrame, Frame, MessagesFrame
from jsonbus.sim.checkers import Checker, numbered, publications_in
from jsonbus.sim.participants import Participant, SimNode
from jsonbus.sim.records import Flight, Publication, Sink

Stream = tuple[str, int, str]  # node, incarnation, topic


def _stream_of(gap: GapFound) -> Stream:
    return gap.node, gap.incarnation, gap.topic


# Of so few losses, five rounds in a row are never all in vain.
_FAIR_LOSS = 0.05

#: How often the buffers of a node are looked at.
LOOK_S = 0.01


class ReliableIsExact(Checker):
    """Reliable messages come once and in order always; at the end completely, except reported gaps.

    A sink has a claim from the first message of a stream that it was given, also to what was
    published, and not even sent, while it was cut off or stood still. It is judged at the end if it
    and the publisher are still there: nobody may have heard what a publisher sent right before it
    died.
    """

    invariant = "reliable messages come once, in order, and none is missing unless a gap was told"

    def __init__(self) -> None:
        #: The publications of each stream, in order, and of each publication its stream and index.
        self._streams: dict[Stream, list[int]] = {}
        self._place: dict[int, tuple[Stream, int]] = {}
        #: The first index of each stream that was sent, and the sequence minus the index.
        self._begins: dict[Stream, tuple[int, int]] = {}
        self.healed_at = 0.0  # when the faults ended; set by a history
        self._last: dict[tuple[Sink, Stream], int] = {}
        #: Since the last time that a sink lost a pattern.
        self._given: dict[tuple[Sink, Stream], list[int]] = {}
        #: What nodes gave up; a node is new with every life.
        self._gaps: dict[tuple[str, int, Stream], list[tuple[int, int]]] = {}

    def published(self, publication: Publication) -> None:
        publisher = publication.participant
        if publication.is_reliable and isinstance(publisher, SimNode):
            stream = (publisher.node_id, publisher.incarnation, publication.topic)
            numbers = self._streams.setdefault(stream, [])
            self._place[publication.number] = stream, len(numbers)
            numbers.append(publication.number)

    def sent(self, sender: Participant, frame: Frame, data: bytes) -> None:
        if not isinstance(sender, SimNode):
            return
        if isinstance(frame, MessagesFrame):
            for item in frame.items:
                if len(item) > 2 and item[2] is not None:
                    self._note(sender, item[1]["number"], item[2])
        elif isinstance(frame, FragmentFrame) and frame.sequence is not None:
            for number in publications_in(frame):
                self._note(sender, number, frame.sequence)

    def happened(self, participant: Participant | None, what: str) -> None:
        if what.startswith("unsubscribes"):
            for key in [key for key in self._given if key[0].participant is participant]:
                del self._given[key]

    def delivered(self, sink: Sink, messages: Sequence[Message], flight: Flight | None) -> None:
        for number, message in numbered(messages):
            publication = self.world.publications[number]
            is_own = publication.participant is sink.participant
            if message.retained or not publication.is_reliable or is_own:
                continue
            stream, index = self._place[number]
            sequence = index + self._begins[stream][1]
            last = self._last.get((sink, stream), 0)
            if sequence <= last:
                self.fail(
                    f"{sink.participant.name} was given {message.topic} sequence {sequence} "
                    f"(publication {number}) after {last}"
                )
            self._last[sink, stream] = sequence
            self._given.setdefault((sink, stream), []).append(sequence)

    def told(self, node: SimNode, event: Event) -> None:
        if isinstance(event, GapFound):
            self._judge_gap(node, event)
            key = (node.node_id, node.incarnation, _stream_of(event))
            self._gaps.setdefault(key, []).append((event.first, event.last))

    def _judge_gap(self, node: SimNode, gap: GapFound) -> None:
        """Subscribers get what a publisher sends that is there all along, unless losses are heavy.

        That of the probes, too: then nothing is lost at all.
        """
        options = self.world.network.options
        wishes = [w for w in self.world.wanted_by(gap.topic) if w.participant is node]
        if options.bursts or options.loss > _FAIR_LOSS or not wishes:
            return
        since = max(self.healed_at, node.thawed_at, min(wish.since for wish in wishes))
        stream = _stream_of(gap)
        for publisher in self.world.nodes:
            is_its = (publisher.node_id, publisher.incarnation) == stream[:2]
            if not is_its or publisher.thawed_at > since or stream not in self._begins:
                continue
            for sequence, number in enumerate(self._streams[stream], self._begins[stream][1]):
                at = self.world.publications[number].at
                is_linked = self.world.network.are_linked(node.index, publisher.index, at)
                if gap.first <= sequence <= gap.last and at > since and is_linked:
                    self.fail(
                        f"{node.name} gave up {gap.topic} sequence {sequence} (publication "
                        f"{number}), which {publisher.name} could have repaired"
                    )

    def finished(self) -> None:
        publishers = {(node.node_id, node.incarnation) for node in self.world.nodes}
        for (sink, stream), given in self._given.items():
            subscriber = sink.participant
            assert isinstance(subscriber, SimNode)
            is_there = subscriber in self.world.nodes and sink in subscriber.sinks.values()
            if is_there and stream[:2] in publishers:
                self._judge(sink, subscriber, stream, given)

    def _judge(self, sink: Sink, subscriber: SimNode, stream: Stream, given: list[int]) -> None:
        told = self._gaps.get((subscriber.node_id, subscriber.incarnation, stream), [])
        shift = self._begins[stream][1]
        numbers = self._streams[stream]
        missing = set(range(given[0], len(numbers) + shift)) - set(given)
        for sequence in sorted(missing):
            if not any(first <= sequence <= last for first, last in told):
                self.fail(
                    f"{subscriber.name} never got {stream[2]} sequence {sequence} "
                    f"(publication {numbers[sequence - shift]}), and was told of no gap"
                )

    def _note(self, sender: SimNode, number: int, sequence: int) -> None:
        stream, index = self._place[number]
        first, shift = self._begins.setdefault(stream, (index, sequence - index))
        if index < first or sequence != index + shift:
            self.fail(
                f"{sender.name} sent publication {number} of {stream[2]} as {sequence}, "
                f"expected was {index + shift}"
            )


class BuffersAreBounded(Checker):
    """What a node keeps for others and for later stays bounded, seen from inside.

    What waits for something else to come does so for seconds: at the end, nothing waits.
    """

    invariant = "history, streams, slices and held messages stay within their bounds"

    def __init__(self) -> None:
        self._looked_at: dict[Participant, float] = {}

    def touched(self, participant: Participant) -> None:
        if not isinstance(participant, SimNode) or not participant.is_up:
            return
        now = self.world.clock.now
        if now < self._looked_at.get(participant, -inf) + LOOK_S:
            return  # what fills a buffer beyond its bound does not leave it at once
        self._looked_at[participant] = now
        core = participant.core
        history, streams = core.reliable._history, core.reliable._streams
        for what, size, bound in (
            ("messages for repair", len(history), limits.HISTORY_MESSAGES_MAX),
            ("bytes for repair", history.size_bytes, limits.HISTORY_BYTES_MAX),
            ("streams", len(streams.by_key), limits.STREAMS_MAX),
            ("messages out of turn", streams.waiting.messages, limits.STREAMS_AHEAD_MAX),
            ("bytes out of turn", streams.waiting.size_bytes, limits.STREAMS_BYTES_MAX),
            ("bytes of slices", core._fragments.size_bytes, limits.FRAGMENTS_BYTES_MAX),
            ("held messages", core.held, limits.HOLD_MESSAGES_MAX),
            ("retained bytes", core._retained.store.size_bytes, limits.RETAINED_BYTES_MAX),
        ):
            if size > bound:
                self.fail(f"{participant.name} keeps {size:,} {what}, allowed are {bound:,}")

    def finished(self) -> None:
        for node in self.world.nodes:
            core = node.core
            for what, count in (
                ("messages out of turn", core.reliable._streams.waiting.messages),
                ("messages in slices", len(core._fragments)),
                ("held messages", core.held),
            ):
                if count:
                    self.fail(f"{node.name} still keeps {count} {what}")


class RetainedIsGivenOnce(Checker):
    """A retained value comes at most once to a subscription; at the end all expected ones came.

    `expect` is called by a scenario, which knows who subscribed late and is connected.
    """

    invariant = "a late subscriber gets each retained value once"

    def __init__(self) -> None:
        self._given: Counter[tuple[Sink, int]] = Counter()
        self._expected: list[tuple[Sink, Publication]] = []

    def expect(self, sink: Sink, publication: Publication) -> None:
        """Expect that this late subscription gets that value."""
        self._expected.append((sink, publication))

    def delivered(self, sink: Sink, messages: Sequence[Message], flight: Flight | None) -> None:
        for number, message in numbered(messages):
            self._given[sink, number] += message.retained
            if self._given[sink, number] > sink.subscriptions:
                self.fail(f"{sink.participant.name} was given publication {number} again")

    def finished(self) -> None:
        for sink, publication in self._expected:
            if not self._given[sink, publication.number]:
                self.fail(
                    f"{sink.participant.name} was never given publication {publication.number}, "
                    f"which {publication.participant.name} retains as {publication.topic}"
                )
