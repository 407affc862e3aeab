"""Two ends of a channel: opening, messages, closing. Each case in any pieces."""

from __future__ import annotations

import pytest

from jsonbus.core.channel.end import ChannelEnd
from jsonbus.core.channel.limits import (
    INBOX_BYTES_MAX,
    MESSAGE_OVERHEAD_BYTES,
    OUTPUT_BYTES_MAX,
    WHOLE_BYTES_MIN,
)
from jsonbus.core.channel.wire import (
    BYTES,
    CLOSE,
    HELLO,
    JSON,
    PREFIX_BYTES,
    SKIPPED,
    WELCOME,
    encode_frame,
    encode_hello,
)
from tests.core.channel import channel_pair
from tests.core.channel.channel_pair import (
    CUTS,
    MAX,
    START,
    UNBOUND,
    ChannelPair,
    Tally,
    read_frames,
)

in_any_pieces = pytest.mark.parametrize("how", CUTS)


def connect(how: str = "whole") -> ChannelPair:
    return ChannelPair(cut=CUTS[how]).open()


# --- Opening -------------------------------------------------------------------------------------


@in_any_pieces
def test_caller_and_answerer_know_each_other_once_they_are_connected(how: str) -> None:
    pair = ChannelPair(cut=CUTS[how])
    assert [side.end.state for side in pair.sides] == ["opening", "opening"]
    pair.move()
    ann, bob = pair.ann.end, pair.bob.end
    assert ann.state == bob.state == "open"
    assert (ann.node, ann.name) == ("id-bob", "bob")
    assert (bob.node, bob.name) == ("id-ann", "ann")
    assert bob.hello == channel_pair.HELLO
    assert [kind for kind, _ in read_frames(pair.bob.was_read)] == [HELLO]
    assert [kind for kind, _ in read_frames(pair.ann.was_read)] == [WELCOME]


@in_any_pieces
def test_refused_caller_knows_why_and_both_ends_are_over(how: str) -> None:
    pair = ChannelPair(cut=CUTS[how], refusal=UNBOUND)
    pair.move()
    ann, bob = pair.ann.end, pair.bob.end
    assert ann.is_over and bob.is_over
    assert ann.refusal == UNBOUND
    assert ann.reason == "bob refused it (unbound)" and bob.reason == "refused (unbound)"
    assert not ann.is_lost and not bob.is_lost


def test_refusing_end_reads_no_more_and_is_over_when_that_is_written() -> None:
    end = ChannelEnd(MAX, START)
    end.receive(memoryview(encode_hello(channel_pair.HELLO)), START)
    end.refuse(UNBOUND)
    assert end.state == "closing" and not end.wants_input
    end.written(1, START)
    assert not end.is_over
    end.written(end.output_bytes, START)
    assert end.is_over


def test_node_without_a_name_is_called_by_its_id() -> None:
    pair = ChannelPair(
        hello=channel_pair.HELLO._replace(name=""),
        welcome=channel_pair.WELCOME._replace(name=""),
    ).open()
    assert (pair.ann.end.name, pair.bob.end.name) == ("id-bob", "id-ann")


def test_each_end_sends_what_both_can_take() -> None:
    hello = channel_pair.HELLO._replace(message_bytes_max=10)
    pair = ChannelPair(hello=hello).open()
    assert pair.ann.end.send_bytes_max == pair.bob.end.send_bytes_max == 10


@pytest.mark.parametrize("side", ["ann", "bob"])
def test_end_that_is_closed_before_it_opened_is_over_at_once(side: str) -> None:
    end = getattr(ChannelPair(), side).end
    end.close(START)
    assert end.is_over and not end.is_lost
    assert end.reason == "it was closed here"
    assert end.output_bytes == 0


# --- Messages ------------------------------------------------------------------------------------


@in_any_pieces
def test_messages_arrive_in_order_both_ways(how: str) -> None:
    pair = connect(how)
    texts = ["one", "", "three", "x" * (WHOLE_BYTES_MIN + 1), "five"]
    pair.ann.send(*texts)
    pair.bob.send(*reversed(texts))
    pair.move()
    assert pair.bob.take_all() == texts
    assert pair.ann.take_all() == texts[::-1]
    size = sum(map(len, texts))
    for side in pair.sides:
        assert side.tally == Tally(sent=5, received=5)
        assert (side.end.bytes_sent, side.end.bytes_received) == (size, size)


def test_json_and_bytes_are_told_apart() -> None:
    pair = connect()
    pair.ann.end.send(JSON, b"[1]")
    pair.ann.end.send(BYTES, b"[1]")
    pair.move()
    assert [pair.bob.end.take() for _ in range(3)] == [(JSON, b"[1]"), (BYTES, b"[1]"), None]


@pytest.mark.parametrize("size", [WHOLE_BYTES_MIN - 1, WHOLE_BYTES_MIN, WHOLE_BYTES_MIN + 1])
def test_message_is_the_same_on_the_wire_whether_its_body_is_copied_or_not(size: int) -> None:
    pair = connect()
    body = b"x" * size
    pair.ann.end.send(BYTES, body)
    assert b"".join(pair.ann.end.output(64)) == encode_frame(BYTES, body)
    assert pair.ann.end.output_bytes == size + PREFIX_BYTES


def test_output_gives_no_more_pieces_than_were_asked_for() -> None:
    pair = connect()
    pair.ann.send("a", "b", "c")
    assert pair.ann.end.output(2) == [encode_frame(BYTES, b"a"), encode_frame(BYTES, b"b")]
    assert len(pair.ann.end.output(3)) == len(pair.ann.end.output(4)) == 3


@pytest.mark.slow
@in_any_pieces
def test_too_large_message_is_skipped_in_its_place_and_the_channel_goes_on(how: str) -> None:
    pair = connect(how)
    pair.ann.send("before")
    pair.ann.end._put(encode_frame(BYTES, bytes(MAX + 1)))  # no end of ours sends it
    pair.ann.send("after")
    pair.move()
    end = pair.bob.end
    assert [end.take() for _ in range(3)] == [
        (BYTES, b"before"),
        (SKIPPED, b"%d" % (MAX + 1)),
        (BYTES, b"after"),
    ]
    assert pair.bob.tally == Tally(received=2, skipped=1)
    assert end.state == "open" and end.inbox_bytes == 0


@in_any_pieces
def test_kinds_that_are_not_known_and_greetings_come_too_late_and_are_ignored(how: str) -> None:
    pair = connect(how)
    for kind in (0, 255, ord("?"), HELLO, WELCOME, ord("E")):
        pair.ann.end._put(encode_frame(kind, b"7"))
    pair.ann.send("after")
    pair.move()
    assert pair.bob.take_all() == ["after"]
    assert pair.bob.tally == Tally(received=1) and pair.bob.end.state == "open"


# --- Bounds --------------------------------------------------------------------------------------


def test_sender_has_room_until_so_much_waits() -> None:
    pair = connect()
    ann = pair.ann.end
    while ann.has_room:
        assert ann.output_bytes < OUTPUT_BYTES_MAX
        ann.send(BYTES, bytes(MAX))
    assert ann.output_bytes < OUTPUT_BYTES_MAX + MAX + 2 * PREFIX_BYTES
    ann.written(MAX, START)
    assert ann.has_room


@pytest.mark.parametrize("size", [0, 1000, MAX])
def test_end_is_not_read_while_too_much_waits_for_its_application(size: int) -> None:
    end = connect().bob.end
    frame = memoryview(encode_frame(BYTES, bytes(size)))
    while end.wants_input:
        assert end.inbox_bytes < INBOX_BYTES_MAX
        end.receive(frame, START)
    assert INBOX_BYTES_MAX <= end.inbox_bytes < INBOX_BYTES_MAX + size + MESSAGE_OVERHEAD_BYTES
    assert len(end.inbox) * (size + MESSAGE_OVERHEAD_BYTES) == end.inbox_bytes
    assert end.take() == (BYTES, bytes(size))
    assert end.wants_input


def test_what_is_not_read_yet_arrives_when_the_application_takes_again() -> None:
    pair = connect()
    count = 3 * INBOX_BYTES_MAX // 50_000
    for _ in range(count):
        pair.ann.end.send(BYTES, bytes(50_000))
    pair.ann.write(pair.now)
    taken = 0
    while taken < count:
        while pair.bob.end.wants_input and pair.bob.arriving:
            pair.bob.read(pair.now, 50_000)
        taken += len(pair.bob.take_all())
    assert pair.bob.end.received == taken == count


def test_partial_bytes_are_those_of_the_message_that_is_not_complete() -> None:
    pair = connect()
    pair.ann.send("one", "x" * 100)
    pair.ann.write(pair.now)
    pair.bob.read(pair.now, 8 + 5 + 30)
    assert pair.bob.end.partial_bytes == 30
    pair.move()
    assert pair.bob.end.partial_bytes == 0


# --- Nonsense ------------------------------------------------------------------------------------

JUNK = {
    "http": b"GET / HTTP/1.1\r\nHost: example.org\r\n\r\n",
    "tls": bytes.fromhex("16030100c8010000c40303") + bytes(190),
    "zeros": bytes(5000),
    "message first": encode_frame(JSON, b"1"),
    "close first": encode_frame(CLOSE),
    "no object": encode_frame(HELLO, b"[]"),
    "too long": encode_frame(HELLO, b" " * 4097),
    "welcome to a listener": encode_frame(WELCOME, b"{}"),
    "hello twice": encode_hello(channel_pair.HELLO) * 2,
    "hello and a message": encode_hello(channel_pair.HELLO) + encode_frame(JSON, b"1"),
    "hello and a large one": encode_hello(channel_pair.HELLO) + encode_frame(JSON, bytes(5000)),
}


@in_any_pieces
@pytest.mark.parametrize("data", JUNK.values(), ids=JUNK.keys())
def test_who_speaks_something_else_is_not_listened_to(data: bytes, how: str) -> None:
    pair = ChannelPair()
    end = pair.bob.end
    pair.bob.arriving += data
    while pair.bob.arriving and end.wants_input:
        pair.bob.read(pair.now, CUTS[how](len(pair.bob.arriving)))
    assert end.is_over and end.is_lost
    assert end.reason.startswith("what came from an unknown node is no channel")
    assert not end.inbox and end.partial_bytes == 0 and end.output_bytes == 0
    assert pair.bob.tally == Tally()


@pytest.mark.parametrize("data", [b"HTTP/1.1 400 Bad Request\r\n\r\n", encode_frame(JSON, b"1")])
def test_who_answers_with_something_else_is_not_listened_to(data: bytes) -> None:
    pair = ChannelPair()
    pair.ann.arriving += data
    pair.ann.read(pair.now)
    assert pair.ann.end.is_over and pair.ann.end.refusal is None
    assert "id-bob" in pair.ann.end.reason
    assert not pair.ann.end.inbox


def test_nothing_is_taken_from_a_connection_that_is_over() -> None:
    pair = connect()
    pair.bob.end.fail("it broke")
    pair.bob.end.receive(memoryview(encode_frame(JSON, b"1") * 3), pair.now)
    pair.bob.end.receive_end(pair.now)
    pair.bob.end.write_failed("again")
    assert pair.bob.tally == Tally() and pair.bob.end.reason == "it broke"
