"""The judges of the lab: each finds its promise broken, and nothing in a run where all is well."""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from jsonbus.sealed.datagrams import Answer, Sealer
from jsonbus.sealed.keys import parse_ring
from tests.sealed.material import ring, write_ring
from tools.lab.promises import figures
from tools.lab.promises.plan import SECONDS, Plan
from tools.lab.promises.record import Calm, Delivery, Gap, Life, Publication, Record, Sighting
from tools.lab.promises.tap import facts_of, payload_of
from tools.lab.promises.unsealing import Unsealing

TOPIC = "lab/0/x"
LEAVING_AT = 200.0


def make_record(*, is_reliable: bool = True) -> Record:
    """Five messages, published in calm at 100 to 104, that came at once, but for the third."""
    publisher = Life("pub1.1", "host1", 0.0, is_reliable=is_reliable)
    subscriber = Life("sub2.1", "host2", 0.0, (TOPIC,))
    record = Record(lives={each.name: each for each in (publisher, subscriber)})
    for number in range(5):
        at = 100.0 + number
        record.publications.append(Publication(number, TOPIC, publisher.name, at))
        sequence = number + 3 if is_reliable else None
        record.sightings.append(Sighting(at, number, TOPIC, sequence, "p1", is_repair=False))
        if number != 2:
            subscriber.deliveries.append(Delivery(number, TOPIC, "p1", at))
    return record


def subscriber_of(record: Record) -> Life:
    return record.lives["sub2.1"]


def deliver(record: Record, number: int, topic: str = TOPIC) -> None:
    subscriber_of(record).deliveries.append(Delivery(number, topic, "p1", 110.0))


def tell_gap(record: Record, first: int, last: int) -> None:
    subscriber_of(record).gaps.append(Gap("p1", TOPIC, first, last))


def found_in(record: Record) -> dict[str, list[str]]:
    return {promise: faults for promise, faults in figures.broken(record).items() if faults}


def test_a_gap_counts_exactly_what_did_not_come() -> None:
    record = make_record()
    tell_gap(record, 5, 5)
    assert found_in(record) == {}


RELIABLE = "reliable messages come once, or a gap counts them"


@pytest.mark.parametrize(
    ("gaps", "fault"),
    [
        ([], "sequence 5 of 7 never came, and no gap counts it"),
        ([(4, 5)], "sequence 4 came, and was told as missing"),
        ([(5, 5), (5, 5)], "sequence 5 was told as missing 2 times"),
        ([(5, 5), (8, 9)], "counts more than the 7 that were published"),
    ],
)
def test_a_gap_that_counts_wrong_breaks_a_promise(gaps: list[tuple[int, int]], fault: str) -> None:
    record = make_record()
    for first, last in gaps:
        tell_gap(record, first, last)
    assert list(found_in(record)) == [RELIABLE]
    (told,) = found_in(record)[RELIABLE]
    assert fault in told


@pytest.mark.parametrize(("count", "is_kept"), [(2, True), (3, False)])
def test_a_gap_may_count_messages_that_never_reached_the_network(count: int, is_kept: bool) -> None:
    record = make_record()
    tell_gap(record, 5, 5)
    record.publications += [Publication(5 + each, "lab/0/y", "pub1.1", 106.0) for each in range(2)]
    subscriber_of(record).gaps.append(Gap("p1", "lab/0/y", 1, count))
    assert (found_in(record) == {}) is is_kept


def test_messages_after_the_last_that_came_are_missed_too() -> None:
    record = make_record()
    tell_gap(record, 5, 5)
    del subscriber_of(record).deliveries[-1]
    assert "sequence 7 of 7 never came" in found_in(record)[RELIABLE][0]
    # Unless nobody can know whether their publisher read them before its end.
    record.lives["pub1.1"].ended_at = 104.5
    assert found_in(record) == {}


def test_a_subscriber_that_ended_had_no_time_to_print_the_last_gaps() -> None:
    record = make_record()
    subscriber_of(record).ended_at = 105.0
    assert found_in(record) == {}
    subscriber_of(record).ended_at = LEAVING_AT
    assert list(found_in(record)) == [RELIABLE]


def test_a_topic_has_one_count() -> None:
    record = make_record()
    tell_gap(record, 5, 5)
    record.sightings.append(Sighting(120.0, 3, TOPIC, 9, "p1", is_repair=True))
    assert "had the sequence 6 before" in found_in(record)[RELIABLE][0]


@pytest.mark.parametrize(
    ("promise", "harm"),
    [
        ("what comes was published and is wanted", lambda record: deliver(record, 99)),
        ("what comes was published and is wanted", lambda record: deliver(record, 4, "lab/0/y")),
        (
            "what comes was published and is wanted",
            lambda record: setattr(subscriber_of(record), "patterns", ("lab/5/*",)),
        ),
        ("nothing comes twice", lambda record: deliver(record, 4)),
        ("order is kept", lambda record: deliver(record, 2)),
        ("processes do what they are told", lambda record: record.unmet.append("silence")),
        (
            "processes do what they are told",
            lambda record: subscriber_of(record).troubles.append("a traceback"),
        ),
    ],
)
@pytest.mark.parametrize("is_reliable", [True, False])
def test_what_never_may_happen_is_found(
    promise: str, harm: Callable[[Record], None], is_reliable: bool
) -> None:
    record = make_record(is_reliable=is_reliable)
    record.calms.append(Calm(90.0, 104.5))
    harm(record)
    assert promise in found_in(record)


def test_plain_messages_may_change_places_where_the_network_does_that() -> None:
    record = make_record(is_reliable=False)
    deliver(record, 2)
    assert found_in(record) == {}


def test_nothing_may_be_withheld_in_calm() -> None:
    record = make_record(is_reliable=False)
    assert found_in(record) == {}
    record.calms.append(Calm(101.5, 102.5))
    ((promise, (told,)),) = found_in(record).items()
    assert promise == "nothing is withheld"
    assert "number=2" in told and "was sent, but never came to sub2.1" in told
    subscriber_of(record).ended_at = 102.0  # then it was no calm for this one
    assert found_in(record) == {}


def test_nothing_may_be_sent_in_calm_that_nobody_wants() -> None:
    record = make_record(is_reliable=False)
    record.calms.append(Calm(300.0, 305.0))
    seen = Sighting(301.0, 4, "lab/5/y", None, "p1", is_repair=False)
    record.sightings.append(seen)
    assert list(found_in(record)) == ["nothing is sent that nobody wants"]
    record.sightings[-1] = dataclasses.replace(seen, at=299.0)
    assert found_in(record) == {}


def test_the_same_seed_gives_the_same_plan() -> None:
    hosts = [f"host{number}" for number in range(1, 9)]
    plans = [Plan(seed, hosts).round(30.0) for seed in (7, 7, 8)]
    assert plans[0] == plans[1] != plans[2]


def test_a_plan_has_all_faults_and_one_at_a_time_for_a_host() -> None:
    faults = Plan(1, [f"host{number}" for number in range(1, 9)]).round(600.0)
    assert {each.kind for each in faults} == SECONDS.keys()
    free_at: dict[str, float] = {}
    for each in faults:
        assert 0 <= each.begins_s <= each.ends_s <= 600.0
        for host in each.hosts if each.kind != "split" else ():
            assert free_at.get(host, -math.inf) <= each.begins_s
            free_at[host] = each.ends_s


def frame(data: bytes, *, port: int = 2416, options: bytes = b"") -> bytes:
    """A frame as a cable carries it."""
    segment = b"\x13\x88" + port.to_bytes(2, "big") + (len(data) + 8).to_bytes(2, "big") + b"\0\0"
    head = bytes([0x45 + len(options) // 4]) + b"\0" * 8 + b"\x11" + b"\0" * 10 + options
    return b"\0" * 12 + b"\x08\x00" + head + segment + data + b"padding"


def test_the_tap_finds_the_datagram_in_a_frame() -> None:
    assert payload_of(frame(b"abc")) == b"abc"
    assert payload_of(frame(b"abc", options=b"\x94\x04\0\0")) == b"abc"  # as IGMP has them
    assert payload_of(frame(b"abc", port=53)) == b""
    assert payload_of(b"\0" * 12 + b"\x08\x06" + b"\0" * 28) == b""  # ARP
    assert payload_of(b"\0" * 20) == b""


def test_the_tap_opens_what_is_sealed_whenever_and_however_often_it_comes(tmp_path: Path) -> None:
    keys = parse_ring(ring())
    unseal = Unsealing(str(write_ring(tmp_path / "lab.key", ring()))).unseal
    for salt in (bytes(16), bytes(range(16))):
        sealer = Sealer(keys, keys.keys[0], salt)
        sealed = [sealer.seal(b"%d" % number) for number in range(3000)]
        assert [int(unseal(each)) for each in sealed] == list(range(3000))
        assert unseal(sealed[0]) == unseal(sealed[0]) == b"0"
        assert unseal(sealer.seal(Answer(bytes(16), 1.0).encode())) == b""
    with pytest.raises(AssertionError, match="not sealed with a key"):
        unseal(b'{"topic":"door","payload":"open"}')


@pytest.mark.parametrize(
    ("topic", "payload", "header", "messages"),
    [
        (TOPIC, {"number": 7}, {"s": 3}, [(7, TOPIC, 3)]),
        (TOPIC, {"number": 7}, {}, [(7, TOPIC, None)]),
        (
            "jsonbus.batch",
            [[TOPIC, {"number": 7}], [TOPIC, {"number": 8}, 4], ["other", 5]],
            {},
            [(7, TOPIC, None), (8, TOPIC, 4)],
        ),
        ("jsonbus.repair", [[TOPIC, {"number": 7}, 3, 12]], {}, [(7, TOPIC, 3)]),
        ("jsonbus.frag", '["lab/0/x",{"number":7,"p', {"f": [9, 0, 3, 5]}, [(7, TOPIC, 5)]),
        ("jsonbus.frag", '["lab/0/x",{"number":7,"p', {"f": [9, 0, 3]}, [(7, TOPIC, None)]),
    ],
)
def test_the_tap_reads_every_kind_of_message(
    topic: str, payload: object, header: dict[str, object], messages: list[tuple[int, str, int]]
) -> None:
    datagram = {"topic": topic, "payload": payload, "jb": {"n": "p1", **header}}
    assert facts_of(datagram) == {"node": "p1", "topic": topic, "messages": messages}


def test_the_tap_reads_digests_and_passes_over_what_has_no_messages() -> None:
    header = {"n": "p1", "dig": [2, "0123456789abcdef"]}
    presence = {"topic": "jsonbus.presence", "payload": None, "jb": header}
    facts = {"node": "p1", "topic": "jsonbus.presence", "digest": [2, "0123456789abcdef"]}
    assert facts_of(presence) == facts
    later = {"topic": "jsonbus.frag", "payload": "xx", "jb": {"n": "p1", "f": [9, 1, 3]}}
    assert facts_of(later) == {"node": "p1", "topic": "jsonbus.frag"}


def test_the_table_has_every_promise() -> None:
    record = make_record()
    relay = {"lost": 1, "cut": 2, "repeated": 3, "delayed": 4}
    text = figures.write(figures.table(record, Counter(), relay), figures.broken(record))
    assert "5  messages given to publishers" in text
    assert f"1  times broken: {RELIABLE}" in text
    assert "0  times broken: order is kept" in text
