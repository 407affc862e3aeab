"""The ways in which a channel ends: on purpose here, there or at both ends, and by accident."""

from __future__ import annotations

import pytest

from jsonbus.core.channel.limits import INBOX_BYTES_MAX, SILENCE_S
from jsonbus.core.channel.wire import BYTES, CLOSE, END, encode_frame
from tests.core.channel.channel_pair import CUTS, MAX, ChannelPair, Tally, read_frames

in_any_pieces = pytest.mark.parametrize("how", CUTS)


def connect(how: str = "whole") -> ChannelPair:
    return ChannelPair(cut=CUTS[how]).open()


def kinds(data: bytes) -> list[int]:
    """What was said after the greeting."""
    return [kind for kind, _ in read_frames(data)][1:]


# --- On purpose ----------------------------------------------------------------------------------


@pytest.mark.slow
@in_any_pieces
def test_what_was_sent_before_close_arrives(how: str) -> None:
    pair = connect(how)
    pair.ann.send("one", "x" * 50_000, "three")
    pair.ann.end.close(pair.now)
    assert pair.ann.end.state == "closing" and not pair.ann.end.is_confirmed
    pair.move()
    ann, bob = pair.ann.end, pair.bob.end
    assert ann.is_over and bob.is_over and not ann.is_lost and not bob.is_lost
    assert ann.is_confirmed and not ann.is_peer_closed
    assert bob.is_peer_closed and not bob.is_confirmed
    assert (ann.reason, bob.reason) == ("it was closed here", "ann closed it")
    assert pair.bob.take_all() == ["one", "x" * 50_000, "three"]
    assert kinds(pair.bob.was_read) == [BYTES, BYTES, BYTES, CLOSE]
    assert kinds(pair.ann.was_read) == [END]


@in_any_pieces
def test_answerer_closes_as_the_caller_does(how: str) -> None:
    pair = connect(how)
    pair.bob.send("bye")
    pair.bob.end.close(pair.now)
    pair.move()
    assert pair.bob.end.is_confirmed and pair.ann.end.is_over
    assert pair.ann.take_all() == ["bye"]


@in_any_pieces
def test_both_may_close_at_once(how: str) -> None:
    pair = connect(how)
    for side in pair.sides:
        side.send("thrown", "away")
        side.end.close(pair.now)
    pair.move()
    for side in pair.sides:
        end = side.end
        assert end.is_over and end.is_confirmed and end.is_peer_closed and not end.is_lost
        assert end.reason == "it was closed here"
        assert side.tally == Tally(sent=2, discarded=2)
        assert kinds(side.was_read) == [BYTES, BYTES, CLOSE, END]


def test_closing_twice_is_closing_once() -> None:
    pair = connect()
    pair.ann.end.close(pair.now)
    pair.ann.end.close(pair.now)
    pair.move()
    pair.ann.end.close(pair.now)
    assert kinds(pair.bob.was_read) == [CLOSE]
    assert pair.ann.end.is_over


def test_close_throws_away_what_was_not_taken_and_what_still_comes() -> None:
    pair = connect()
    pair.bob.send("taken", "not taken")
    pair.move()
    assert pair.ann.end.take() == (BYTES, b"taken")
    pair.bob.send("under way", "x" * 300)
    pair.bob.write(pair.now)
    pair.ann.read(pair.now, 100)
    assert pair.ann.end.partial_bytes
    pair.ann.end.close(pair.now)
    assert pair.ann.end.partial_bytes == 0
    pair.move()
    assert pair.ann.tally == Tally(received=3, discarded=3)
    assert pair.ann.end.inbox_bytes == 0 and pair.ann.end.take() is None


def test_end_that_is_closing_keeps_nothing_of_what_it_reads() -> None:
    pair = connect()
    pair.ann.end.close(pair.now)
    pair.bob.send("x" * MAX)
    pair.bob.write(pair.now)
    while pair.ann.arriving:
        pair.ann.read(pair.now, 1000)
        assert pair.ann.end.partial_bytes < 5 and pair.ann.end.inbox_bytes == 0
    assert pair.ann.tally == Tally(discarded=1)


def test_what_the_other_end_had_not_sent_is_dropped() -> None:
    pair = connect()
    pair.bob.send("gone", "x" * 50_000)
    pair.ann.end.close(pair.now)
    pair.ann.write(pair.now)
    pair.bob.read(pair.now)
    assert b"".join(pair.bob.end.output(9)) == encode_frame(END)
    pair.move()
    assert pair.bob.tally == Tally(sent=2, unsent=2)
    assert pair.ann.tally == Tally() and pair.ann.end.is_confirmed


@pytest.mark.parametrize("size", [100, 50_000])
@pytest.mark.parametrize("written", [0, 1, 4, 5, 6, 99, 104, 105])
def test_frame_that_has_begun_is_ended_before_the_end_is_told(size: int, written: int) -> None:
    pair = connect()
    pair.bob.send("x" * size, "never")
    pair.bob.write(pair.now, written)
    pair.ann.end.close(pair.now)
    pair.ann.write(pair.now)
    pair.bob.read(pair.now)
    is_out = written > 0
    assert pair.bob.tally == Tally(sent=2, unsent=1 if is_out else 2)
    pair.bob.check()
    pair.move()
    assert kinds(pair.ann.was_read) == ([BYTES, END] if is_out else [END])
    assert pair.ann.tally == Tally(discarded=int(is_out))
    assert pair.ann.end.is_confirmed and pair.bob.end.is_over


def test_close_waits_for_a_slow_application_at_the_other_end() -> None:
    pair = connect()
    size = 50_000
    count = 2 * INBOX_BYTES_MAX // size
    for _ in range(count):
        pair.ann.end.send(BYTES, bytes(size))
    pair.ann.end.close(pair.now)
    pair.bob.end.pause()
    pair.ann.write(pair.now)
    while pair.bob.end.wants_input:
        pair.bob.read(pair.now, size)
    pair.run(10 * SILENCE_S)
    assert (pair.ann.end.state, pair.bob.end.state) == ("closing", "open")
    taken = 0
    while taken < count:
        taken += len(pair.bob.take_all())
        pair.move()
    assert pair.ann.end.is_confirmed and pair.ann.end.is_over and pair.bob.end.is_over


def test_messages_after_the_last_word_are_no_messages() -> None:
    pair = connect()
    pair.ann.send("one")
    pair.ann.end.close(pair.now)
    pair.ann.end._put(encode_frame(BYTES, b"two") + encode_frame(CLOSE))
    pair.move()
    assert pair.bob.take_all() == ["one"]
    assert pair.bob.tally == Tally(received=1)
    assert kinds(pair.ann.was_read) == [END]


def test_messages_can_be_taken_after_the_channel_is_over_until_it_is_closed() -> None:
    pair = connect()
    pair.ann.send("one", "two")
    pair.ann.end.close(pair.now)
    pair.move()
    assert pair.bob.end.is_over
    assert pair.bob.end.take() == (BYTES, b"one")
    pair.bob.end.close(pair.now)
    assert pair.bob.end.take() is None
    assert pair.bob.tally == Tally(received=2, discarded=1)
    assert pair.bob.end.reason == "ann closed it"


# --- The connection ends -------------------------------------------------------------------------


@pytest.mark.parametrize("side", ["ann", "bob"])
def test_connection_that_ends_before_it_was_a_channel_is_lost(side: str) -> None:
    end = getattr(ChannelPair(), side).end
    end.receive_end(0.0)
    assert end.is_over and end.is_lost and "is gone" in end.reason
    assert end.output_bytes == 0


@pytest.mark.parametrize("cut_at", [0, 3, 50])
def test_open_channel_is_lost_and_what_came_can_be_taken(cut_at: int) -> None:
    pair = connect()
    pair.ann.send("whole", "x" * 100)
    pair.ann.write(pair.now, 10 + cut_at)
    pair.bob.send("unsent")
    pair.bob.read(pair.now)
    pair.ann.cut()
    assert pair.tell_end(pair.bob)
    end = pair.bob.end
    assert end.is_over and end.is_lost
    assert end.reason == "ann is gone: its end of the connection closed"
    assert end.partial_bytes == 0 and end.output_bytes == 0
    assert pair.bob.take_all() == ["whole"]
    assert pair.bob.tally == Tally(sent=1, received=1, unsent=1)


def test_close_that_is_not_confirmed_is_no_loss_but_no_success_either() -> None:
    pair = connect()
    pair.ann.send("one", "two")
    pair.ann.end.close(pair.now)
    pair.ann.write(pair.now, 8)
    pair.bob.cut()
    pair.move()
    end = pair.ann.end
    assert end.is_over and not end.is_confirmed and not end.is_lost
    assert end.reason == "it was closed here"


def test_unsent_counts_messages_that_did_not_leave_whole() -> None:
    pair = connect()
    pair.ann.send("one", "two", "x" * 50_000)
    pair.ann.write(pair.now, 8 + 4)
    pair.ann.end.fail("it broke")
    assert pair.ann.tally == Tally(sent=3, unsent=2)


def test_end_that_answers_a_close_is_over_when_the_connection_ends() -> None:
    pair = connect()
    pair.ann.send("one")
    pair.ann.end.close(pair.now)
    pair.ann.write(pair.now)
    pair.bob.read(pair.now)
    pair.bob.end.receive_end(pair.now)
    end = pair.bob.end
    assert end.is_over and not end.is_lost and end.reason == "ann closed it"
    assert pair.bob.take_all() == ["one"]


# --- Nothing can be written ----------------------------------------------------------------------


def test_after_a_failed_write_what_has_come_is_still_read() -> None:
    pair = connect()
    pair.ann.send("one", "two")
    pair.ann.write(pair.now)
    pair.bob.send("unsent")
    end = pair.bob.end
    end.write_failed("broken pipe")
    assert end.state == "closing" and end.is_lost and end.wants_input
    assert end.output_bytes == 0 and not end.is_over
    pair.ann.cut()
    pair.move()
    assert end.is_over and end.is_lost and end.reason == "broken pipe"
    assert pair.bob.take_all() == ["one", "two"]
    assert pair.bob.tally == Tally(sent=1, received=2, unsent=1)


def test_after_a_failed_write_the_inbox_has_its_bound() -> None:
    pair = connect()
    pair.bob.end.write_failed("broken pipe")
    while pair.bob.end.wants_input:
        pair.bob.end.receive(memoryview(encode_frame(BYTES, bytes(1000))), pair.now)
        assert pair.bob.end.inbox_bytes < INBOX_BYTES_MAX + 1100
    assert not pair.bob.end.is_over
    pair.bob.take_all()
    assert pair.bob.end.wants_input


def test_after_a_failed_write_silence_ends_it_with_the_first_reason() -> None:
    pair = connect()
    pair.bob.end.write_failed("broken pipe")
    pair.bob.end.handle_timer(pair.bob.end.timer_at())
    assert pair.bob.end.is_over and pair.bob.end.reason == "broken pipe"


def test_close_after_a_failed_write_ends_it_at_once() -> None:
    pair = connect()
    pair.bob.end.write_failed("broken pipe")
    pair.bob.end.receive(memoryview(encode_frame(BYTES, b"one")), pair.now)
    pair.bob.end.close(pair.now)
    assert pair.bob.end.is_over and pair.bob.end.reason == "broken pipe"
    assert pair.bob.tally == Tally(received=1, discarded=1)


def test_after_a_failed_write_a_close_that_had_come_makes_it_no_loss() -> None:
    pair = connect()
    pair.ann.send("one")
    pair.ann.end.close(pair.now)
    pair.ann.write(pair.now)
    pair.bob.end.write_failed("broken pipe")
    pair.bob.read(pair.now)
    end = pair.bob.end
    assert end.is_over and not end.is_lost and end.reason == "ann closed it"
    assert end.output_bytes == 0
    assert pair.bob.take_all() == ["one"]


@pytest.mark.parametrize("closer", ["ann", "bob"])
def test_failed_write_ends_a_channel_that_is_closing(closer: str) -> None:
    pair = connect()
    getattr(pair, closer).end.close(pair.now)
    pair.ann.write(pair.now)
    pair.bob.read(pair.now)
    pair.bob.end.write_failed("broken pipe")
    assert pair.bob.end.is_over and not pair.bob.end.is_lost and not pair.bob.end.is_confirmed


def test_failed_write_before_it_was_a_channel_ends_it() -> None:
    end = ChannelPair().ann.end
    end.write_failed("connection refused")
    assert end.is_over and end.is_lost and end.reason == "connection refused"
