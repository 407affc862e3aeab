"""How messages become datagrams, whichever way they come: each number and counter once."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from jsonbus.core.fast_publish import BATCH_MESSAGES_MAX, FastPublish
from jsonbus.core.outbox import Outbox
from jsonbus.core.wire.codec import dumps, loads
from jsonbus.core.wire.decode import decode
from jsonbus.core.wire.encode import encode_ping
from jsonbus.core.wire.encode_messages import BATCH_OVERHEAD_BYTES, Stamp
from jsonbus.core.wire.frames import FragmentFrame, MessagesFrame, PingFrame
from jsonbus.core.wire.names import DATAGRAM_BYTES_MAX, NODE_ID_BYTES_MAX
from jsonbus.core.wire.topics import is_valid_topic
from tests.core.generated import json_values, unhurried

NOW = 1000.0
NODE = "k3v9aaaabbbbcccc"


def make_outbox(datagram_bytes_max: int = 1400) -> tuple[Outbox, FastPublish]:
    fast_publish = FastPublish()
    stamp = Stamp(NODE, 1)
    outbox = Outbox(stamp, datagram_bytes_max, 0.0, batching=True, fast_publish=fast_publish)
    outbox.allow_bytes(datagram_bytes_max, DATAGRAM_BYTES_MAX)  # as on loopback: nothing is cut
    return outbox, fast_publish


def lane_of(topic: str) -> bytes:
    return b"[%b," % dumps(topic)


def gather(fast_publish: FastPublish, *values: object, topic: str = "t") -> None:
    """What a front end does on the short way."""
    fast_publish.queued.extend(lane_of(topic) + dumps(value) for value in values)


def size_in_batch(value: object) -> int:
    return len(lane_of("t") + dumps(value) + b"],")


def values_of(datagrams: list[bytes]) -> list[list[Any]]:
    frames = [decode(datagram) for datagram in datagrams]
    return [[item[1] for item in f.items] for f in frames if isinstance(f, MessagesFrame)]


# --- Gathered, then packed ------------------------------------------------------------------------


def test_at_most_so_many_messages_share_a_datagram() -> None:
    outbox, fast_publish = make_outbox(60_000)
    gather(fast_publish, *range(2 * BATCH_MESSAGES_MAX + 5))
    batches = values_of(outbox.take(NOW))
    assert [len(batch) for batch in batches] == [BATCH_MESSAGES_MAX, BATCH_MESSAGES_MAX, 5]
    gather(fast_publish, *range(BATCH_MESSAGES_MAX))
    assert [len(batch) for batch in values_of(outbox.take(NOW))] == [BATCH_MESSAGES_MAX]


def test_rest_that_does_not_fill_a_datagram_is_kept_and_leaves_first_next_time() -> None:
    outbox, fast_publish = make_outbox()
    gather(fast_publish, *(f"{number:0300}" for number in range(10)))  # four fill a datagram
    first = values_of(outbox.take(NOW, keeps_rest=True))
    assert [len(batch) for batch in first] == [4, 4]
    assert outbox.has_output and outbox.messages_sent == 8 and outbox.messages_put == 10
    gather(fast_publish, *(f"{number:0300}" for number in range(10, 13)))
    second = values_of(outbox.take(NOW, keeps_rest=True))
    assert [len(batch) for batch in second] == [4]
    third = values_of(outbox.take(NOW))
    assert [int(value) for batch in first + second + third for value in batch] == list(range(13))


def test_what_fits_one_datagram_is_not_kept() -> None:
    outbox, fast_publish = make_outbox()
    gather(fast_publish, 1, 2)
    assert values_of(outbox.take(NOW, keeps_rest=True)) == [[1, 2]]
    assert not outbox.has_output


def test_message_larger_than_a_datagram_is_not_kept() -> None:
    outbox, fast_publish = make_outbox()
    gather(fast_publish, "x" * 5_000)
    assert len(outbox.take(NOW, keeps_rest=True)) == 1
    assert not outbox.has_output


class Shared(list[bytes]):
    """A list to which another thread adds a message whenever this one has just changed it."""

    def __init__(self) -> None:
        self.late = [lane_of("t") + dumps("late")]

    def append(self, message: bytes) -> None:
        super().append(message)
        self._meet()

    def __delitem__(self, place: Any) -> None:
        super().__delitem__(place)
        self._meet()

    def _meet(self) -> None:
        while self.late:
            super().append(self.late.pop())


def make_shared_outbox() -> tuple[Outbox, FastPublish]:
    fast_publish = FastPublish()
    fast_publish.queued = Shared()
    return Outbox(Stamp(NODE, 1), 1400, 0.0, batching=True, fast_publish=fast_publish), fast_publish


def test_rest_stays_before_what_another_thread_adds_meanwhile() -> None:
    outbox, fast_publish = make_shared_outbox()
    gather(fast_publish, *("x" * 300 for _ in range(5)), "last")
    assert sum(map(len, values_of(outbox.take(NOW, keeps_rest=True)))) == 4
    assert values_of(outbox.take(NOW)) == [["x" * 300, "last", "late"]]


def test_message_knows_its_number_although_another_thread_adds_one_behind_it() -> None:
    outbox, _ = make_shared_outbox()
    assert outbox.put_message(lane_of("t"), dumps("first"), NOW) == 1
    assert outbox.put_message(lane_of("t"), dumps("third"), NOW) == 3
    assert values_of(outbox.take(NOW)) == [["first", "late", "third"]]


def test_nothing_is_kept_behind_a_control_datagram() -> None:
    outbox, fast_publish = make_outbox()
    gather(fast_publish, *("x" * 300 for _ in range(10)))
    outbox.put_control(encode_ping(1), NOW)
    frames = [decode(datagram) for datagram in outbox.take(NOW, keeps_rest=True)]
    assert [type(frame) for frame in frames] == [MessagesFrame] * 3 + [PingFrame]
    assert not outbox.has_output


@settings(unhurried, max_examples=100)
@given(
    st.lists(st.integers(0, 600), min_size=1, max_size=120),
    st.integers(300, 3_000),
    st.booleans(),
)
def test_only_the_last_datagram_has_room_for_the_message_after_it(
    sizes: list[int], datagram_bytes_max: int, keeps_rest: bool
) -> None:
    outbox, fast_publish = make_outbox(datagram_bytes_max)
    values = ["x" * size for size in sizes]
    gather(fast_publish, *values)
    datagrams = outbox.take(NOW, keeps_rest=keeps_rest)
    batches = values_of(datagrams)
    packed = [value for batch in batches for value in batch]
    assert packed == values[: len(packed)]
    room = datagram_bytes_max - BATCH_OVERHEAD_BYTES + NODE_ID_BYTES_MAX - len(NODE)
    count = 0
    for datagram, batch in zip(datagrams, batches, strict=True):
        assert len(datagram) <= datagram_bytes_max or len(batch) == 1
        count += len(batch)
        if count < len(values) and len(batch) < BATCH_MESSAGES_MAX:
            assert sum(map(size_in_batch, [*batch, values[count]])) > room
    rest = values[count:]
    assert values_of(outbox.take(NOW)) == ([rest] if rest else [])


def test_large_messages_among_small_ones_leave_in_order() -> None:
    outbox, fast_publish = make_outbox()
    values = [1, "x" * 5_000, 2, 3, "x" * 1_200, 4, "x" * 5_000, "x" * 5_000, 5]
    gather(fast_publish, *values)
    assert values_of(outbox.take(NOW)) == [
        [1],
        ["x" * 5_000],
        [2, 3, "x" * 1_200, 4],
        ["x" * 5_000],
        ["x" * 5_000],
        [5],
    ]


def test_messages_that_gathered_before_less_was_allowed_fit_what_is_allowed_now() -> None:
    outbox, fast_publish = make_outbox(9_000)
    gather(fast_publish, *("x" * 100 for _ in range(60)))
    assert outbox.size_bytes > 6_000
    outbox.allow_bytes(1_400)
    datagrams = outbox.take(NOW)
    assert max(map(len, datagrams)) <= 1_400
    assert sum(map(len, values_of(datagrams))) == 60


def test_limits_of_the_short_way_follow_what_is_allowed() -> None:
    outbox, fast_publish = make_outbox(1_400)
    small = fast_publish.size_max, fast_publish.alone_min
    outbox.allow_bytes(9_000)
    assert fast_publish.size_max > 5 * small[0] > 0
    assert fast_publish.alone_min > 5 * small[1] > 0
    outbox.allow_bytes(1_400)
    assert (fast_publish.size_max, fast_publish.alone_min) == small
    gather(fast_publish, "x" * fast_publish.alone_min, "x" * fast_publish.alone_min)
    assert len(outbox.take(NOW)) == 2


@pytest.mark.parametrize(
    ("size", "typical"), [(0, BATCH_MESSAGES_MAX), (290, 4), (600, 2), (5_000, 1)]
)
def test_messages_that_fill_a_datagram_are_known_from_the_last_ones(
    size: int, typical: int
) -> None:
    outbox, fast_publish = make_outbox()
    assert outbox.typical_count == BATCH_MESSAGES_MAX
    gather(fast_publish, *("x" * size for _ in range(10)))
    outbox.take(NOW)
    assert outbox.typical_count == typical
    gather(fast_publish, *("x" * size for _ in range(typical)))
    assert outbox.has_full_batch
    assert len(outbox.take(NOW)) == 1


# --- Topics ---------------------------------------------------------------------------------------


topics = st.text(
    st.sampled_from('a"\\/[],: ü%') | st.characters(codec="utf-8"), min_size=1, max_size=40
).filter(is_valid_topic)


@pytest.mark.slow
@settings(unhurried)
@given(topics, json_values)
def test_message_alone_in_its_datagram_has_its_topic_and_value(topic: str, value: Any) -> None:
    outbox, fast_publish = make_outbox()
    expected = [[topic, loads(dumps(value))]]
    if b"\\" in lane_of(topic):  # such a topic has no prefix
        outbox.put_message(lane_of(topic), dumps(value), NOW)
    else:
        gather(fast_publish, value, topic=topic)
    outbox.put_control(encode_ping(1), NOW)
    outbox.put_message(lane_of(topic), dumps(value), NOW)
    queued, _, put = map(decode, outbox.take(NOW))
    lone = outbox.make_single(lane_of(topic), dumps(value), NOW)
    assert lone is not None
    for number, frame in enumerate((queued, put, decode(lone)), 1):
        assert isinstance(frame, MessagesFrame) and frame.header is not None
        assert (frame.items, frame.header.first_message) == (expected, number)


@pytest.mark.parametrize("topic", ['"', '""', "\\", "\\\\", '\\"', '"\\', '\\\\"', '",', '\\",1'])
def test_quotes_and_backslashes_at_the_end_of_a_topic(topic: str) -> None:
    outbox, _ = make_outbox()
    outbox.put_message(lane_of(topic), dumps('a",b'), NOW)
    (frame,) = map(decode, outbox.take(NOW))
    assert isinstance(frame, MessagesFrame) and frame.items == [[topic, 'a",b']]


# --- All ways at once -----------------------------------------------------------------------------


class EveryWayOut(RuleBasedStateMachine):
    """Whatever is put in comes out once, in order, with numbers and counters that go on by one."""

    def __init__(self) -> None:
        super().__init__()
        self.outbox, self.fast_publish = make_outbox()
        self.put: list[int] = []  # sizes
        self.out: list[int] = []
        self.counter = 0
        self.text = ""  # of slices

    def _value(self, size: int) -> str:
        self.put.append(size)
        return "x" * size

    def _see(self, datagrams: list[bytes]) -> None:
        for datagram in datagrams:
            frame = decode(datagram)
            assert frame.header is not None
            self.counter += 1
            assert frame.header.counter == self.counter
            assert frame.header.first_message == len(self.out) + 1
            if isinstance(frame, FragmentFrame):
                self.text += frame.text
                if frame.index == frame.count - 1:
                    self.out.append(len(loads(self.text)[1]))
                    self.text = ""
            if isinstance(frame, MessagesFrame):
                self.out += [len(value) for _, value in frame.items]

    @rule(size=st.integers(0, 400) | st.sampled_from([700, 1_300, 6_000]))
    def publish(self, size: int) -> None:
        number = self.outbox.put_message(b'["t",', dumps(self._value(size)), NOW)
        assert number == len(self.put)

    @rule(sizes=st.lists(st.integers(0, 300) | st.just(1_500), max_size=130))
    def gather(self, sizes: list[int]) -> None:
        gather(self.fast_publish, *map(self._value, sizes))

    @rule(size=st.integers(0, 2_000))
    def send_alone(self, size: int) -> None:
        is_free = not self.outbox.has_output
        datagram = self.outbox.make_single(b'["t",', dumps("x" * size), NOW)
        assert (datagram is not None) == is_free
        if datagram is not None:
            self.put.append(size)
            self._see([datagram])

    @rule()
    def control(self) -> None:
        self.outbox.put_control(encode_ping(1), NOW)

    @rule(size=st.sampled_from([500, 1_400, 9_000]))
    def allow(self, size: int) -> None:
        self.outbox.allow_bytes(size)

    @rule()
    def look(self) -> None:
        assert (self.outbox.size_bytes > 0) == self.outbox.has_output
        assert self.outbox.has_full_batch <= self.outbox.has_output

    @rule()
    def take_full_ones(self) -> None:
        self._see(self.outbox.take(NOW, keeps_rest=True))

    @rule()
    def take_all(self) -> None:
        self._see(self.outbox.take(NOW))
        assert self.out == self.put and not self.outbox.has_output

    @invariant()
    def counts_are_right(self) -> None:
        assert self.out == self.put[: len(self.out)]
        assert self.outbox.messages_put == len(self.put)
        assert len(self.out) <= self.outbox.messages_sent <= len(self.put)
        assert self.outbox.datagrams_sent == self.counter

    def teardown(self) -> None:
        self.take_all()


TestEveryWayOut = EveryWayOut.TestCase
TestEveryWayOut.settings = settings(unhurried, max_examples=60, stateful_step_count=30)
