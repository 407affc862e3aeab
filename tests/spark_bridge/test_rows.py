"""Messages become the rows that a naive row-by-row model makes of them."""

from __future__ import annotations

import datetime
import json
import zlib
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import jsonbus
from jsonbus.core.message import make_message
from jsonbus.core.wire.names import NESTING_LEVELS_MAX
from spark_bridge import rows as rows_module
from spark_bridge.log.block import ROWS_WITHOUT_OFFSET
from spark_bridge.rows import Gap, Lot, RowMaker

TOPICS = ("a", "b", "sensors/1", "sensors/2", "ü/→", "long/" + "x" * 200)
INTEGER_MAX = 2**53  # of the wire format

text = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | text
    | st.sampled_from(["", "\n", "line\nline\r\n", "\u2028\x00\\n", "x" * 5000])
)
values = st.recursive(
    scalars,
    lambda each: (
        st.lists(each, max_size=4)
        | st.dictionaries(text, each, max_size=4)
        | st.dictionaries(st.integers(-9, 9), each, max_size=3)  # published in this process
    ),
    max_leaves=10,
)
times = st.floats(0, 2**33)
origins = st.builds(
    jsonbus.Origin,
    node=st.sampled_from(["node-1", "node-2", "plain:127.0.0.1:5"]),
    name=st.just("name"),
    incarnation=st.integers(0, INTEGER_MAX),
    sent_at=times,
    received_at=times,
    is_retained=st.booleans(),
)
steps = st.tuples(
    st.integers(0, 3),  # whose datagram it was in
    st.sampled_from(TOPICS),
    values,
    # How far its number is from that of the origin's message before; None: a plain sender.
    st.none() | st.just(1) | st.just(1) | st.just(1) | st.integers(-3, 5),
)


def make_messages(whose: Sequence[jsonbus.Origin], plan: Sequence[Any]) -> list[jsonbus.Message]:
    sequences = dict.fromkeys(range(len(whose)), 1000)
    messages = []
    for number, topic, value, step in plan:
        number %= len(whose)
        if step is not None:
            sequences[number] += step
        sequence = None if step is None else sequences[number]
        messages.append(make_message(topic, value, sequence, whose[number]))
    return messages


def to_datetime(seconds: float) -> datetime.datetime:
    epoch = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
    return epoch + datetime.timedelta(microseconds=round(seconds * 1_000_000))


def model(messages: Sequence[jsonbus.Message], partitions: int) -> dict[int, list[dict[str, Any]]]:
    rows: dict[int, list[dict[str, Any]]] = defaultdict(list)
    for message in messages:
        rows[zlib.crc32(message.topic.encode()) % partitions].append(
            {
                "topic": message.topic,
                "value": json.loads(json.dumps(message.value)),
                "node": message.node,
                "incarnation": message.incarnation,
                "sequence": message.sequence,
                "timestamp": to_datetime(message.sent_at),
                "received_at": to_datetime(message.received_at),
                "retained": message.retained,
                "gap": None,
            }
        )
    return dict(rows)


def made(maker: RowMaker, lots: Sequence[Lot]) -> dict[int, list[dict[str, Any]]]:
    rows: dict[int, list[dict[str, Any]]] = defaultdict(list)
    for lot in lots:
        for partition, batch in maker.make(lot).items():
            batch.validate(full=True)
            assert batch.schema.equals(ROWS_WITHOUT_OFFSET)
            for row in batch.to_pylist():
                rows[partition].append({**row, "value": json.loads(row["value"])})
    return dict(rows)


def collect(messages: Sequence[jsonbus.Message], cuts: Sequence[int] = ()) -> list[Lot]:
    """Lots as the recorder fills them, in calls that end at these places."""
    lots = [Lot()]
    places = sorted({min(each, len(messages)) for each in cuts} | {0, len(messages)})
    for start, end in zip(places, places[1:], strict=False):
        batch = messages[start:end]
        while batch:
            taken = lots[-1].add(batch)
            assert 0 <= taken <= len(batch)
            batch = batch[taken:]
            if batch:
                lots.append(Lot())
    return lots


@given(
    st.lists(origins, min_size=1, max_size=4),
    st.lists(steps, max_size=30),
    st.lists(st.integers(0, 30), max_size=8),
    st.integers(1, 5),
)
def test_any_messages_become_rows_in_order(
    whose: list[jsonbus.Origin], plan: list[Any], cuts: list[int], partitions: int
) -> None:
    messages = make_messages(whose, plan)
    assert made(RowMaker(partitions), collect(messages, cuts)) == model(messages, partitions)


def test_a_value_with_as_many_levels_as_may_be_keeps_its_place() -> None:
    value: object = ",\n,"
    for _ in range(NESTING_LEVELS_MAX):
        value = [value]
    origin = make_origin()
    values = ["before", value, {1: "a key of this process"}, ",\n,", None]
    messages = [make_message("a", each, number, origin) for number, each in enumerate(values)]
    assert made(RowMaker(1), collect(messages)) == model(messages, 1)


def make_run(
    origin: jsonbus.Origin, sequences: Sequence[int | None], topic: str = "a"
) -> list[jsonbus.Message]:
    return [make_message(topic, each, each, origin) for each in sequences]


def make_origin(node: str = "node") -> jsonbus.Origin:
    return jsonbus.Origin(node, node, 1, 1.0, 2.0)


@pytest.mark.parametrize(
    "sequences", [[10, 13, 12], [10, 10, 12], [10, None, 12], [10, 12, 13], [10, 12, 11, 13], [5]]
)
def test_numbers_are_kept_though_first_and_last_look_like_a_run(sequences: list[int]) -> None:
    messages = make_run(make_origin(), sequences)
    assert made(RowMaker(1), collect(messages)) == model(messages, 1)


def test_a_repaired_message_between_those_of_a_datagram_keeps_its_origin() -> None:
    first, repaired = make_origin("first"), make_origin("repaired")
    messages = make_run(first, [10]) + make_run(repaired, [8]) + make_run(first, [12])
    assert made(RowMaker(1), collect(messages)) == model(messages, 1)


def test_a_topic_is_always_in_one_partition(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows_module, "TOPICS_REMEMBERED_MAX", 10)
    maker, other = RowMaker(7), RowMaker(7)
    topics = [f"topic/{number}" for number in range(100)]
    places = [maker.partition_of(each) for each in topics]
    assert set(places) == set(range(7))
    assert [other.partition_of(each) for each in reversed(topics)] == places[::-1]
    assert [maker.partition_of(each) for each in topics] == places
    assert maker.partition_of(None) == 0
    # For ever: the partitions of logs that exist depend on it.
    assert [RowMaker(4).partition_of(each) for each in ("a", "sensors/1", "ü")] == [3, 3, 1]


@given(st.lists(st.integers(0, 400), min_size=1, max_size=30), st.integers(1, 300))
def test_a_lot_takes_no_more_text_than_it_may_but_for_one_message(
    sizes: list[int], bytes_max: int
) -> None:
    origin = make_origin()
    messages = [make_message("t", "x" * size, number, origin) for number, size in enumerate(sizes)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rows_module, "LOT_BYTES_MAX", bytes_max)
        lots = collect(messages)
        assert made(RowMaker(2), lots) == model(messages, 2)
        for lot in lots:
            # The last call is taken whole if it is small enough, or a single message.
            assert lot.plain_bytes <= 2 * bytes_max + max(sizes) + 2


def test_a_lot_takes_no_more_messages_than_it_may(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows_module, "LOT_ROWS_MAX", 100)
    origin, lot = make_origin(), Lot()
    batches = [make_run(origin, range(start, start + 60)) for start in range(0, 300, 60)]
    assert [lot.add(each) for each in batches] == [60, 60, 0, 0, 0]
    assert made(RowMaker(1), [lot]) == model(batches[0] + batches[1], 1)


def test_large_values_and_many_of_them_keep_their_order() -> None:
    origin = make_origin()
    messages = [
        make_message(
            f"t/{number % 3}", {"n": number, "text": "ü\n" * (number * 1000)}, number, origin
        )
        for number in range(60)
    ]
    assert made(RowMaker(3), collect(messages, range(0, 60, 7))) == model(messages, 3)


def test_an_empty_lot_makes_no_rows() -> None:
    assert RowMaker(4).make(Lot()) == {}


def test_gaps_become_rows_where_the_messages_would_be() -> None:
    maker = RowMaker(4)
    gaps = [
        Gap("a", "node", 3, 5.0),
        Gap(None, None, 7, 6.0),
        Gap("d", None, 1, 7.25),
    ]
    rows = maker.make_gaps(gaps)
    assert {partition: batch.column("gap").to_pylist() for partition, batch in rows.items()} == {
        maker.partition_of("a"): [3],
        0: [7, 1],
    }
    for batch in rows.values():
        batch.validate(full=True)
        assert batch.schema.equals(ROWS_WITHOUT_OFFSET)
        assert batch.column("value").null_count == batch.num_rows
    unknown, known = rows[0].to_pylist()
    assert unknown["topic"] is None and known["topic"] == "d"
    assert known["timestamp"] == known["received_at"] == to_datetime(7.25)
    assert known["retained"] is False
    (told,) = rows[maker.partition_of("a")].to_pylist()
    assert (told["topic"], told["node"]) == ("a", "node")
