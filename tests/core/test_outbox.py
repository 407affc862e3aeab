"""Messages that share datagrams, and the order of everything that leaves."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jsonbus.core.fast_publish import FastPublish
from jsonbus.core.outbox import Outbox
from jsonbus.core.wire.codec import dumps, loads
from jsonbus.core.wire.decode import decode
from jsonbus.core.wire.encode import encode_ping, encode_where
from jsonbus.core.wire.encode_messages import Stamp
from jsonbus.core.wire.frames import FragmentFrame, Frame, MessagesFrame, PingFrame
from jsonbus.errors import PayloadError
from tests.core.generated import unhurried

NOW = 1000.0


def make_outbox(datagram_bytes_max: int = 1400, *, batching: bool = True) -> Outbox:
    return Outbox(
        Stamp("k3v9aaaabbbbcccc", 1),
        datagram_bytes_max,
        500.0,
        batching=batching,
        fast_publish=FastPublish(),
    )


def put(outbox: Outbox, *values: object, topic: str = "t", now: float = NOW) -> list[int]:
    return [outbox.put_message(b"[%b," % dumps(topic), dumps(value), now) for value in values]


def take(outbox: Outbox, now: float = NOW) -> list[Frame]:
    return [decode(datagram) for datagram in outbox.take(now)]


def items(frames: list[Frame]) -> list[list[Any]]:
    return [frame.items for frame in frames if isinstance(frame, MessagesFrame)]


def test_lone_message_is_a_plain_readable_datagram() -> None:
    outbox = make_outbox()
    put(outbox, 1)
    (datagram,) = outbox.take(NOW)
    assert datagram.startswith(b'{"topic":"t","payload":1,')
    assert not outbox.has_output


def test_messages_that_wait_share_a_datagram_in_order() -> None:
    outbox = make_outbox()
    assert put(outbox, 1, 2, 3) == [1, 2, 3]
    (frame,) = take(outbox)
    assert isinstance(frame, MessagesFrame)
    assert frame.items == [["t", 1], ["t", 2], ["t", 3]]
    assert frame.header is not None and frame.header.first_message == 1


def test_numbers_go_on_from_datagram_to_datagram() -> None:
    outbox = make_outbox()
    put(outbox, 1, 2)
    take(outbox)
    put(outbox, 3)
    (frame,) = take(outbox)
    assert frame.header is not None
    assert (frame.header.counter, frame.header.first_message) == (2, 3)
    assert (outbox.datagrams_sent, outbox.messages_sent) == (2, 3)


def test_batches_end_before_they_exceed_a_datagram() -> None:
    outbox = make_outbox()
    put(outbox, *("x" * 300 for _ in range(20)))
    datagrams = outbox.take(NOW)
    assert max(map(len, datagrams)) <= 1400
    assert [len(frame) for frame in items([decode(d) for d in datagrams])] == [4] * 5


@settings(unhurried, max_examples=60)
@given(
    st.lists(st.integers(0, 2**53) | st.text(max_size=300), max_size=30), st.integers(300, 3_000)
)
def test_whatever_is_put_in_comes_out_once_in_order_and_fits(
    values: list[object], datagram_bytes_max: int
) -> None:
    outbox = make_outbox(datagram_bytes_max)
    put(outbox, *values)
    datagrams = outbox.take(NOW)
    frames = items([decode(datagram) for datagram in datagrams])
    assert [value for frame in frames for _, value in frame] == values
    for datagram, frame in zip(datagrams, frames, strict=True):
        assert len(datagram) <= datagram_bytes_max or len(frame) == 1


def test_message_larger_than_a_datagram_goes_alone() -> None:
    outbox = make_outbox()
    outbox.allow_bytes(1_400, 65_507)  # as on loopback
    put(outbox, 1, "x" * 5_000, 2)
    assert [len(frame) for frame in items(take(outbox))] == [1, 1, 1]


def test_message_that_no_datagram_holds_goes_in_slices_between_the_others() -> None:
    outbox = make_outbox()
    put(outbox, 1, "x" * 5_000, 2)
    first, *slices, last = outbox.take(NOW)
    assert items([decode(first), decode(last)]) == [[["t", 1]], [["t", 2]]]
    frames = [decode(each) for each in slices]
    assert len(frames) == 5
    text = ""
    for index, frame in enumerate(frames):
        assert isinstance(frame, FragmentFrame)
        assert (frame.number, frame.index, frame.count) == (2, index, 5)
        assert frame.header.first_message == 2
        text += frame.text
    assert loads(text) == ["t", "x" * 5_000]
    assert outbox.messages_sent == 3
    assert max(map(len, slices)) <= 1_400


def test_without_batching_every_message_goes_alone() -> None:
    outbox = make_outbox(batching=False)
    put(outbox, 1, 2, 3)
    assert items(take(outbox)) == [[["t", 1]], [["t", 2]], [["t", 3]]]


def test_unbatched_until_the_instant_given_and_not_longer() -> None:
    outbox = make_outbox()
    outbox.send_unbatched(NOW + 60)
    outbox.send_unbatched(NOW + 10)  # a shorter wish does not shorten
    put(outbox, 1, 2, now=NOW + 59)
    assert [len(frame) for frame in items(take(outbox))] == [1, 1]
    put(outbox, 1, 2, now=NOW + 60)
    assert [len(frame) for frame in items(take(outbox))] == [2]


def test_control_datagram_never_overtakes_messages() -> None:
    outbox = make_outbox()
    put(outbox, 1, 2)
    outbox.put_control(encode_ping(7), NOW)
    put(outbox, 3)
    frames = take(outbox)
    assert [type(frame) for frame in frames] == [MessagesFrame, PingFrame, MessagesFrame]
    counters = [frame.header.counter for frame in frames if frame.header is not None]
    assert counters == [1, 2, 3]


def test_control_datagram_tells_the_number_of_the_next_message() -> None:
    outbox = make_outbox()
    put(outbox, 1, 2)
    outbox.put_control(encode_ping(7), NOW)
    _, ping = take(outbox)
    assert ping.header is not None and ping.header.first_message == 3


def test_datagrams_carry_the_wall_clock() -> None:
    outbox = make_outbox()
    put(outbox, 1)
    (frame,) = take(outbox)
    assert frame.header is not None and frame.header.sent_us == 1_500_000_000
    outbox.wall_offset_s = 1.0
    put(outbox, 1)
    (frame,) = take(outbox)
    assert frame.header is not None and frame.header.sent_us == 1_001_000_000


def test_outbox_knows_whether_and_about_how_much_waits() -> None:
    outbox = make_outbox()
    assert not outbox.has_output and outbox.size_bytes == 0
    put(outbox, "x" * 100)
    assert outbox.has_output and 100 < outbox.size_bytes < 200
    outbox.put_control(encode_ping(7), NOW)
    assert outbox.size_bytes > 250
    outbox.take(NOW)
    assert not outbox.has_output and outbox.size_bytes == 0
    assert outbox.take(NOW) == []


def test_full_datagram_is_known_before_it_is_taken() -> None:
    outbox = make_outbox()
    put(outbox, "x" * 400)
    assert not outbox.has_full_batch  # another one would fit
    put(outbox, "x" * 400)
    assert not outbox.has_full_batch
    put(outbox, "x" * 400)
    assert outbox.has_full_batch  # a fourth would not
    outbox.take(NOW)
    assert not outbox.has_full_batch


def test_control_datagram_that_cannot_be_written_is_not_counted() -> None:
    outbox = make_outbox()
    with pytest.raises(PayloadError):
        outbox.put_control(encode_where("\ud800"), NOW)
    assert not outbox.has_output
    put(outbox, 1)
    (frame,) = take(outbox)
    assert frame.header is not None and frame.header.counter == 1


def test_without_batching_nothing_waits_for_company() -> None:
    outbox = make_outbox(batching=False)
    put(outbox, 1)
    assert outbox.has_full_batch


def test_datagrams_that_are_nearly_full_are_made_as_long_as_the_longest() -> None:
    outbox = make_outbox()
    for number in range(7):
        put(outbox, f"{number}" + "x" * (250 + number), now=NOW)
    put(outbox, "y" * 600)
    datagrams = outbox.take(NOW)
    kinds = [type(decode(datagram)) for datagram in datagrams]
    assert kinds == [MessagesFrame] * 3
    first, second, single = datagrams
    assert len(first) == len(second)
    assert first.endswith(b" ") or second.endswith(b" ")
    assert single.endswith(b"}")  # single messages are recognized by their last bytes
