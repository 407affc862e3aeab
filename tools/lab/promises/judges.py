"""One function for each promise: it looks at the record and returns what is broken, in words.

A process that was ended may have left lines unread, and messages unprinted: the last moments of a
life are judged as far as anybody can know them, and all the rest of it in full.
"""

from __future__ import annotations

import bisect
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from math import inf

from tools.lab.promises.record import Calm, Delivery, Gap, Life, Publication, Record, Sighting

#: Messages that wait for an earlier one are delivered after this at the latest: a publisher keeps
#: what it sent for 10 seconds, and a busy machine adds to that.
WAITING_MAX_S = 15.0

#: A publisher's life and a topic.
Stream = tuple[str, str]


def troubles(record: Record) -> Iterator[str]:
    """Processes end when they are told to and not before; what was waited for came true."""
    yield from record.unmet
    for life in record.lives.values():
        yield from (f"{life.name}: {trouble}" for trouble in life.troubles)


def deliveries_are_true(record: Record) -> Iterator[str]:
    """What is delivered was published to that topic, and is wanted."""
    for life in record.subscribers:
        for each in life.deliveries:
            publication = record.publication(each.number)
            if publication is None or publication.topic != each.topic:
                yield f"{life.name} was given {each}, published was {publication}"
            elif not life.wants(each.topic):
                yield f"{life.name} was given {each}, wanted are {life.patterns}"


def nothing_comes_twice(record: Record) -> Iterator[str]:
    """No subscriber gets a message twice."""
    for life in record.subscribers:
        counts = Counter(each.number for each in life.deliveries)
        for number, count in counts.items():
            if count > 1:
                yield f"{life.name} was given {record.publications[number]} {count} times"


def order_is_kept(record: Record) -> Iterator[str]:
    """Messages of a publisher and topic come in order: reliable ones always, plain ones in calm."""
    for life in record.subscribers:
        last: dict[Stream, Publication] = {}
        for publication in _published(record, life):
            stream = (publication.life, publication.topic)
            before = last.get(stream)
            last[stream] = publication
            if before is None or before.number < publication.number:
                continue
            is_reliable = record.life_of(publication).is_reliable
            if is_reliable or _are_in_one_calm(record, publication, before):
                yield f"{life.name} was given {publication} after {before}"


def reliable_is_exact(record: Record) -> Iterator[str]:
    """A reliable message comes, or a gap counts it: every one of them, and once."""
    streams = Streams(record)
    yield from streams.faults
    for life in record.subscribers:
        told: dict[tuple[str, str], list[Gap]] = defaultdict(list)
        for gap in life.gaps:
            told[gap.node, gap.topic].append(gap)
        given: dict[tuple[str, str], dict[int, Delivery]] = defaultdict(dict)
        for each in life.deliveries:
            sequence = streams.sequences.get(each.number)
            if sequence is not None:
                given[each.node, each.topic][sequence] = each
        for key in told.keys() | given.keys():
            for fault in _judge_stream(streams, life, key, given[key], told[key]):
                yield f"{life.name}: {fault}"


def nothing_is_withheld(record: Record) -> Iterator[str]:
    """What is published in calm reaches everybody who wants it."""
    for calm in record.calms:
        yield from missing_in(record, calm)


def missing_in(record: Record, calm: Calm) -> Iterator[str]:
    """Yield what was published then and has not come to somebody who wants it."""
    came = {life.name: {each.number for each in life.deliveries} for life in record.subscribers}
    seen = {each.number for each in record.sightings}
    there = [life for life in record.subscribers if life.spans(calm.since, calm.until)]
    for publication in _between(record, calm.since, calm.until):
        for life in there:
            if life.wants(publication.topic) and publication.number not in came[life.name]:
                how = "was sent, but" if publication.number in seen else "was not sent, and"
                yield f"{publication} {how} never came to {life.name} ({life.patterns})"


def nothing_is_wasted(record: Record) -> Iterator[str]:
    """In calm, nothing is sent that nobody has wanted for a lease and a grace."""
    for calm in record.calms:
        there = [life for life in record.subscribers if life.ended_at >= calm.since]
        for each in record.sightings:
            is_judged = calm.since <= each.at <= calm.until and not each.is_repair
            if is_judged and not any(life.wants(each.topic) for life in there):
                yield f"{each} was sent, and nobody wants it"


class Streams:
    """Which sequence a message has in its publisher's topic, by what was seen on the wire.

    A publisher counts from the first message of a topic that it sends to anybody; from there on all
    count, whether they are sent or not. So one message that was seen tells the place of all. Of a
    topic of which none was seen, such as one published while the interface was down, subscribers
    hear by beats; who published so many is not known then.
    """

    def __init__(self, record: Record) -> None:
        #: By number of the publication.
        self.sequences: dict[int, int] = {}
        #: By node and topic: the last sequence that may have been published, and whether its
        #: publisher lives on, so that the message was published for certain.
        self.lasts: dict[tuple[str, str], tuple[int, bool]] = {}
        self.faults: list[str] = []
        numbers: dict[Stream, list[int]] = defaultdict(list)
        for publication in record.publications:
            if record.life_of(publication).is_reliable:
                numbers[publication.life, publication.topic].append(publication.number)
        for each in record.sightings:
            found = record.publication(each.number)
            if found is not None and each.sequence is not None:
                self._place(record, each, numbers[found.life, found.topic])
        #: By topic: how many messages a publisher may have counted of which none was seen.
        self.unseen: dict[str, int] = defaultdict(int)
        for (_, topic), published in numbers.items():
            if published[0] not in self.sequences:
                self.unseen[topic] = max(self.unseen[topic], len(published))

    def _place(self, record: Record, seen: Sighting, numbers: list[int]) -> None:
        assert seen.sequence is not None
        known = self.sequences.get(seen.number)
        if known is not None:
            if known != seen.sequence:
                self.faults.append(f"{seen} had the sequence {known} before")
            return
        shift = seen.sequence - bisect.bisect_left(numbers, seen.number)
        for index, number in enumerate(numbers):
            self.sequences[number] = index + shift
        is_alive = record.life_of(record.publications[seen.number]).ended_at == inf
        self.lasts[seen.node, seen.topic] = (len(numbers) - 1 + shift, is_alive)


def _judge_stream(
    streams: Streams,
    life: Life,
    key: tuple[str, str],
    given: dict[int, Delivery],
    gaps: list[Gap],
) -> Iterator[str]:
    last_published, is_alive = streams.lasts.get(key, (streams.unseen[key[1]], False))
    told: Counter[int] = Counter()
    for gap in gaps:
        if gap.first < 1 or gap.last > last_published:
            yield f"{gap} counts more than the {last_published} that were published"
        told.update(range(gap.first, min(gap.last, last_published) + 1))
    for sequence, count in told.items():
        if sequence in given:
            yield f"{key} sequence {sequence} came, and was told as missing"
        if count > 1:
            yield f"{key} sequence {sequence} was told as missing {count} times"
    last = _last_claimed(life, given, last_published, is_alive)
    for sequence in range(min(given, default=last + 1), last + 1):
        if sequence not in given and sequence not in told:
            yield f"{key} sequence {sequence} of {last} never came, and no gap counts it"


def _last_claimed(
    life: Life, given: dict[int, Delivery], last_published: int, is_alive: bool
) -> int:
    """Return up to which sequence the subscriber must have got, or been told, everything."""
    if life.ended_at == inf:
        return last_published if is_alive else max(given, default=0)
    known_by = life.ended_at - WAITING_MAX_S
    return max((s for s, each in given.items() if each.received_at <= known_by), default=0)


def _published(record: Record, life: Life) -> Iterator[Publication]:
    """Yield what a subscriber was given, as far as it was published."""
    for each in life.deliveries:
        if (publication := record.publication(each.number)) is not None:
            yield publication


def _are_in_one_calm(record: Record, one: Publication, other: Publication) -> bool:
    return any(
        calm.since <= min(one.fed_at, other.fed_at) and max(one.fed_at, other.fed_at) <= calm.until
        for calm in record.calms
    )


def _between(record: Record, since: float, until: float) -> list[Publication]:
    fed_at = [each.fed_at for each in record.publications]
    first, last = bisect.bisect_left(fed_at, since), bisect.bisect_right(fed_at, until)
    return record.publications[first:last]


#: All promises, by what is said of each that is broken.
PROMISES: dict[str, Callable[[Record], Iterator[str]]] = {
    "processes do what they are told": troubles,
    "what comes was published and is wanted": deliveries_are_true,
    "nothing comes twice": nothing_comes_twice,
    "order is kept": order_is_kept,
    "reliable messages come once, or a gap counts them": reliable_is_exact,
    "nothing is withheld": nothing_is_withheld,
    "nothing is sent that nobody wants": nothing_is_wasted,
}
