"""Time at the ends of a channel: greetings that do not come, beats, and silence."""

from __future__ import annotations

import math

import pytest

from jsonbus.core.channel.end import ChannelEnd
from jsonbus.core.channel.limits import ANSWER_S, BEAT_S, GREETING_S, SILENCE_S, UNANSWERED_S
from jsonbus.core.channel.wire import (
    BEAT,
    BYTES,
    CLOSE,
    END,
    HELLO,
    OLD_SILENCE_S,
    encode_frame,
    encode_hello,
)
from tests.core.channel import channel_pair
from tests.core.channel.channel_pair import MAX, START, ChannelPair, read_frames


def kinds(data: bytes) -> list[int]:
    """What was said after the greeting."""
    return [kind for kind, _ in read_frames(data)][1:]


# --- Greetings -----------------------------------------------------------------------------------


def test_who_says_nothing_is_not_waited_for() -> None:
    end = ChannelEnd(MAX, START)
    assert end.timer_at() == START + GREETING_S
    end.handle_timer(START + GREETING_S - 0.001)
    assert not end.is_over
    end.handle_timer(START + GREETING_S)
    assert end.is_over and end.reason == "it said nothing for 5 s"
    assert end.timer_at() == math.inf


def test_single_bytes_do_not_prolong_a_greeting() -> None:
    end = ChannelEnd(MAX, START)
    data = encode_hello(channel_pair.HELLO)
    for number in range(10):
        end.receive(memoryview(data[number : number + 1]), START + number * 0.4)
    assert end.timer_at() == START + GREETING_S
    end.handle_timer(START + GREETING_S)
    assert end.is_over and end.partial_bytes == 0


def test_caller_has_no_clock_of_its_own_until_it_is_answered() -> None:
    end = ChannelPair().ann.end
    assert end.timer_at() == math.inf
    end.handle_timer(START + 1000)
    assert end.state == "opening"


# --- Beats ---------------------------------------------------------------------------------------


def test_ends_that_have_nothing_to_say_hear_each_other_for_ever() -> None:
    pair = ChannelPair().open()
    pair.run(20 * SILENCE_S)
    count = int(20 * SILENCE_S / BEAT_S)
    # One more answers the welcome. Beats are not answered: that would never end.
    assert kinds(pair.bob.was_read) == [BEAT] * (count + 1)
    assert kinds(pair.ann.was_read) == [BEAT] * count
    assert {side.end.state for side in pair.sides} == {"open"}
    assert pair.bob.take_all() == []


def test_what_was_sent_is_answered_soon() -> None:
    pair = ChannelPair().open()
    pair.run(BEAT_S * 0.5)
    pair.ann.send("x")
    pair.move()
    before = len(pair.ann.was_read)
    pair.run(ANSWER_S - 0.1)
    assert len(pair.ann.was_read) == before
    pair.run(0.2)
    assert kinds(pair.ann.was_read)[-1] == BEAT
    before = len(pair.ann.was_read)
    pair.run(BEAT_S - 0.3)
    assert len(pair.ann.was_read) == before


def test_end_of_an_earlier_version_hears_beats_as_often_as_it_needs() -> None:
    pair = ChannelPair(hello=channel_pair.HELLO._replace(silence_s=OLD_SILENCE_S)).open()
    pair.run(10 * BEAT_S)
    assert len(kinds(pair.ann.was_read)) == 10 * BEAT_S / ANSWER_S
    assert len(kinds(pair.bob.was_read)) == 10


def test_end_that_speaks_sends_no_beats() -> None:
    pair = ChannelPair().open()
    for _ in range(20):
        pair.ann.send("x")
        pair.move()
        pair.run(BEAT_S * 0.9)
    assert set(kinds(pair.bob.was_read)) == {BYTES}
    assert BEAT in kinds(pair.ann.was_read)


def test_no_beat_waits_behind_what_is_not_written_yet() -> None:
    pair = ChannelPair().open()
    end = pair.ann.end
    end.handle_timer(end.timer_at())
    assert end.output(9) == [encode_frame(BEAT)]
    end.handle_timer(START + 2 * BEAT_S)
    assert end.output(9) == [encode_frame(BEAT)]
    assert end.timer_at() == START + SILENCE_S


def test_end_that_has_closed_says_nothing_after_that() -> None:
    pair = ChannelPair().open()
    pair.ann.end.close(pair.now)
    pair.ann.write(pair.now)
    pair.bob.end.pause()
    for _ in range(10):
        pair.now += BEAT_S
        for side in pair.sides:
            side.end.handle_timer(pair.now)
        pair.bob.write(pair.now)
        pair.ann.read(pair.now)
        assert pair.ann.end.output_bytes == 0
    assert kinds(pair.bob.was_read + pair.bob.arriving) == [CLOSE]
    assert pair.ann.end.state == "closing"


# --- Silence -------------------------------------------------------------------------------------


def test_end_that_hears_nothing_takes_the_other_for_gone() -> None:
    pair = ChannelPair().open()
    end = pair.ann.end
    pair.ann.write(START)
    end.handle_timer(START + SILENCE_S - 0.001)
    assert not end.is_over
    end.written(end.output_bytes, START + SILENCE_S - 0.001)
    end.handle_timer(START + SILENCE_S)
    assert end.is_lost and end.is_over and not end.is_confirmed
    assert end.reason == "bob was not heard for 20 s"
    assert end.timer_at() == math.inf


def test_end_whose_close_is_not_answered_gives_up_sooner() -> None:
    pair = ChannelPair().open()
    end = pair.ann.end
    end.close(START + 1.0)
    pair.ann.write(START + 1.0)
    end.handle_timer(START + 1.0 + UNANSWERED_S - 0.001)
    assert not end.is_over
    end.handle_timer(START + 1.0 + UNANSWERED_S)
    assert end.is_over and not end.is_confirmed and not end.is_lost
    assert end.reason == "it was closed here"
    assert end.timer_at() == math.inf


def test_end_that_gets_no_answer_gives_up_sooner() -> None:
    pair = ChannelPair().open()
    end = pair.ann.end
    for at in (START + 3.0, START + 4.0):
        pair.ann.send("x")
        pair.ann.write(at)
    gone_at = START + 3.0 + UNANSWERED_S
    assert end.silent_at() == gone_at
    end.handle_timer(gone_at - 0.001)
    assert end.state == "open"
    end.handle_timer(gone_at)
    assert end.is_lost and end.reason == f"bob was not heard for {gone_at - START:g} s"


def test_end_whose_messages_are_not_accepted_gives_up_sooner() -> None:
    pair = ChannelPair().open()
    end = pair.ann.end
    pair.ann.send("x" * 1000)
    pair.ann.write(START, 500)
    for number in range(1, 10):  # the other reads nothing, but it is there
        at = START + number * ANSWER_S
        end.receive(memoryview(encode_frame(BEAT)), at)
        end.handle_timer(at)
    assert end.state == "open" and end.silent_at() == at + UNANSWERED_S


def test_any_byte_is_a_sign_of_life() -> None:
    pair = ChannelPair().open()
    data = encode_frame(BYTES, bytes(50))
    for number in range(50):
        at = START + number * (SILENCE_S - 0.1)
        pair.ann.end.handle_timer(at)
        pair.ann.write(at)
        pair.ann.end.receive(memoryview(data[number : number + 1]), at)
    assert pair.ann.end.state == "open"


def test_end_that_is_not_read_is_never_judged() -> None:
    pair = ChannelPair().open()
    end = pair.ann.end
    end.pause()
    end.pause()
    for number in range(100):
        end.handle_timer(START + number * SILENCE_S)
        end.written(end.output_bytes, START + number * SILENCE_S)
    assert end.state == "open"
    now = START + 100 * SILENCE_S
    end.resume(now)
    end.resume(now + 5)  # that it is read still is no news
    assert end.timer_at() <= now + SILENCE_S
    end.handle_timer(now + SILENCE_S)
    assert end.is_over and end.is_lost


def test_end_that_is_not_read_goes_on_with_its_beats() -> None:
    pair = ChannelPair().open()
    pair.ann.end.pause()
    for number in range(1, 10):
        at = START + number * BEAT_S
        pair.ann.end.handle_timer(at)
        assert pair.ann.write(at) == len(encode_frame(BEAT))


def test_close_looks_at_the_clock_again_although_nobody_took_the_messages() -> None:
    pair = ChannelPair().open()
    end = pair.ann.end
    end.pause()
    end.close(START + 100)
    pair.ann.write(START + 100)
    assert end.timer_at() == START + 100 + UNANSWERED_S
    end.handle_timer(START + 100 + UNANSWERED_S)
    assert end.is_over


def begin_answering_a_close() -> ChannelPair:
    """Bob has written the beginning of a large message when he reads that Ann has closed."""
    pair = ChannelPair().open()
    pair.bob.send("x" * 50_000)
    pair.bob.write(pair.now, 1000)
    pair.ann.end.close(pair.now)
    pair.ann.write(pair.now)
    pair.bob.read(pair.now)
    pair.attend(pair.bob)
    assert not pair.bob.end.wants_input
    return pair


def test_end_that_cannot_answer_a_close_gives_up() -> None:
    pair = begin_answering_a_close()
    pair.bob.end.handle_timer(START + UNANSWERED_S - 0.001)
    assert pair.bob.end.state == "closing"
    assert pair.bob.end.timer_at() == START + UNANSWERED_S
    pair.bob.end.handle_timer(START + UNANSWERED_S)
    assert pair.bob.end.is_over and not pair.bob.end.is_lost
    assert pair.bob.end.reason == "ann closed it" and pair.bob.end.unsent == 1


def test_end_that_answers_a_close_may_take_long_for_what_it_has_begun() -> None:
    pair = begin_answering_a_close()
    while not pair.bob.end.is_over:
        pair.now += UNANSWERED_S - 1
        for side in pair.sides:
            side.end.handle_timer(pair.now)
        assert pair.bob.write(pair.now, 5000)
        pair.ann.read(pair.now)
    assert pair.now > START + 5 * UNANSWERED_S
    assert pair.ann.end.is_confirmed and pair.ann.end.discarded == 1
    assert kinds(pair.ann.was_read) == [BYTES, END]


def test_refusal_that_is_not_taken_is_given_up() -> None:
    end = ChannelEnd(MAX, START)
    end.receive(memoryview(encode_hello(channel_pair.HELLO)), START)
    end.refuse(channel_pair.UNBOUND)
    end.pause()
    assert end.timer_at() == START + UNANSWERED_S
    end.handle_timer(START + UNANSWERED_S)
    assert end.is_over and not end.is_lost and end.reason == "refused (unbound)"


@pytest.mark.parametrize("kind", [BEAT, HELLO])
def test_closed_end_has_no_timer(kind: int) -> None:
    pair = ChannelPair().open()
    pair.ann.end.fail("it broke")
    pair.ann.end.receive(memoryview(encode_frame(kind)), START)
    pair.ann.end.handle_timer(START + 1000)
    assert pair.ann.end.timer_at() == math.inf and pair.ann.end.output_bytes == 0


def test_a_lone_beat_changes_nothing_else() -> None:
    pair = ChannelPair().open()
    end, beat = pair.ann.end, encode_frame(BEAT)
    assert not end.receive(memoryview(beat), START)
    assert end.receive(memoryview(beat[:2]), START)
    assert end.receive(memoryview(beat[2:]), START)
    begun = encode_frame(BYTES, beat)
    assert end.receive(memoryview(begun[: -len(beat)]), START)
    assert end.receive(memoryview(beat), START)  # not a beat, but a message's body
    assert end.take() == (BYTES, beat)
