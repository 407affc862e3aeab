"""Sealed channels without a socket: the format, any cut of the stream, a man in the middle."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

import jsonbus
from jsonbus.errors import TransportError
from jsonbus.sealed.keys import parse_ring
from jsonbus.sealed.records import (
    FIRST_BYTES_MAX,
    LENGTH_BYTES,
    MAGIC,
    OFFER_BYTES,
    RECORD_BYTES_MAX,
    SEALED_BYTES_MAX,
    TAG_BYTES,
    Offer,
    Records,
    check_beginning,
    choose_key,
    cut,
)
from tests.sealed.material import OTHER_SECRET, key, ring

RING = parse_ring(ring())
KEY = RING.keys[0]

#: Of the session that `open_session` opens: its offers, and the records "hello" and "more" of each.
CALLER_OFFER = (
    "4a425301"
    "a2c9565a"
    "8f40c5adb68f25624ae5b214ea767a6ec94d829d3d7b5e1ad1ba6f3e2138285f"
    "202122232425262728292a2b2c2d2e2f303132333435363738393a3b3c3d3e3f"
)
LISTENER_OFFER = (
    "4a425301"
    "a2c9565a"
    "79a631eede1bf9c98f12032cdeadd0e7a079398fc786b88cc846ec89af85a51a"
    "606162636465666768696a6b6c6d6e6f707172737475767778797a7b7c7d7e7f"
)
CALLER_RECORDS = [
    "0000001598659d7917c6d1bc5f3d970096042efec93920a64e",
    "0000001421da1b05b6928f73eab3efc5bd92bd37fa491ed1",
]
LISTENER_RECORDS = [
    "00000015821ebc0fe2e188d519775e71a9bb0f3d7854702539",
    "000000145f54674e3455e0fc328d0975ded9425918995523",
]


def count_up(begin: int) -> Callable[[int], bytes]:
    """Random bytes that are none: from this number on, each one more than the one before."""
    numbers = (number % 256 for number in range(begin, begin + 1000))
    return lambda count: bytes(next(numbers) for _ in range(count))


class Session(NamedTuple):
    """What the caller and the listener hold once they have agreed."""

    caller: Records
    listener: Records


def open_session(begin: int = 0) -> Session:
    called, answered = Offer(RING, KEY, count_up(begin)), Offer(RING, KEY, count_up(begin + 64))
    return Session(
        called.agree(answered.data, is_caller=True), answered.agree(called.data, is_caller=False)
    )


def read(records: Records, *pieces: bytes) -> bytes:
    """What a side opens of a stream that comes in these pieces, until it fails."""
    buffer = memoryview(bytearray(2 * SEALED_BYTES_MAX))
    plaintext = b""
    for piece in pieces:
        for at in range(0, len(piece), SEALED_BYTES_MAX):
            part = piece[at : at + SEALED_BYTES_MAX]
            held_bytes = records.resume(buffer)
            buffer[held_bytes : held_bytes + len(part)] = part
            plaintext += buffer[: records.open(buffer, held_bytes + len(part))]
    return plaintext


def cut_at(stream: bytes, places: list[int]) -> Iterator[bytes]:
    ends = [0, *sorted(place % (len(stream) + 1) for place in places), len(stream)]
    return (stream[begin:end] for begin, end in pairwise(ends))


# --- The format -----------------------------------------------------------------------------------


def test_offers_and_records_are_those_of_the_format() -> None:
    """Computed by other means: X25519, HMAC and AES-GCM, by hand."""
    called, answered = Offer(RING, KEY, count_up(0)), Offer(RING, KEY, count_up(64))
    assert called.data.hex() == CALLER_OFFER
    assert answered.data.hex() == LISTENER_OFFER
    caller, listener = open_session()
    assert [caller.seal(text).hex() for text in (b"hello", b"more")] == CALLER_RECORDS
    assert [listener.seal(text).hex() for text in (b"hello", b"more")] == LISTENER_RECORDS


def test_the_page_for_other_languages_has_this_session() -> None:
    page = (Path(jsonbus.__file__).parent / "sealed" / "README.md").read_text(encoding="utf-8")
    shown = re.sub(r"\s", "", page)
    for offer in (CALLER_OFFER, LISTENER_OFFER):
        assert offer[16:80] in shown
    assert CALLER_RECORDS[0] + LISTENER_RECORDS[0] in shown


def test_an_offer_is_made_of_key_id_public_key_and_random_bytes() -> None:
    offer = Offer(RING, KEY, count_up(0))
    assert len(offer.data) == OFFER_BYTES == 72
    assert offer.data[:8] == MAGIC + RING.wire_id(KEY)
    assert offer.data[40:] == bytes(range(32, 64))


def test_a_record_has_at_most_64_kib() -> None:
    caller, listener = open_session()
    texts = [b"x", bytes(FIRST_BYTES_MAX), bytes(RECORD_BYTES_MAX)]
    records = [caller.seal(text) for text in texts]
    assert [len(record) for record in records] == [
        LENGTH_BYTES + len(text) + TAG_BYTES for text in texts
    ]
    assert len(records[-1]) == SEALED_BYTES_MAX
    assert read(listener, *records) == b"".join(texts)


@given(st.lists(st.binary(max_size=200), max_size=8), st.integers(0, 1))
def test_pieces_are_cut_into_records_and_nothing_is_lost(pieces: list[bytes], skipped: int) -> None:
    pieces = [b"first", *pieces]
    assert b"".join(cut(pieces, skipped)) == b"".join(pieces)[skipped:]


@pytest.mark.parametrize("before", [0, 1, 5, RECORD_BYTES_MAX - 1, RECORD_BYTES_MAX])
@pytest.mark.parametrize("size", [2, 5, RECORD_BYTES_MAX, RECORD_BYTES_MAX + 1, 200_000])
def test_no_record_ends_one_byte_into_a_piece(before: int, size: int) -> None:
    pieces = [bytes(before), memoryview(bytes(size)), b"last"]
    records = [bytes(record) for record in cut(pieces)]
    assert b"".join(records) == b"".join(pieces)
    assert all(0 < len(record) <= RECORD_BYTES_MAX for record in records)
    ends = [sum(map(len, records[:count])) for count in range(1, len(records) + 1)]
    assert before + 1 not in ends
    assert before + size + 1 not in ends


# --- Agreeing -------------------------------------------------------------------------------------


def test_what_one_side_seals_the_other_opens() -> None:
    caller, listener = open_session()
    for number in range(3):
        assert read(listener, caller.seal(b"there %d" % number)) == b"there %d" % number
        assert read(caller, listener.seal(b"back %d" % number)) == b"back %d" % number
    assert caller.is_proved and listener.is_proved


def test_each_session_has_keys_of_its_own() -> None:
    records = {open_session(begin).caller.seal(b"same") for begin in (0, 1, 2)}
    assert len(records) == 3


@pytest.mark.parametrize("count", range(len(MAGIC)))
def test_what_is_no_offer_is_known_by_its_first_wrong_byte(count: int) -> None:
    check_beginning(MAGIC[:count])
    with pytest.raises(TransportError, match="does not speak to this sealed bus"):
        check_beginning(MAGIC[:count] + b"?")
    with pytest.raises(TransportError, match="does not speak to this sealed bus"):
        choose_key(RING, MAGIC[:count] + b"?" + bytes(OFFER_BYTES - count - 1))


@pytest.mark.parametrize(
    "other", [ring(key(secret=OTHER_SECRET)), ring(key("k2")), ring(bus="shop")]
)
def test_a_key_of_another_bus_is_not_answered(other: dict[str, object]) -> None:
    stranger = parse_ring(other)
    with pytest.raises(TransportError, match="no key of this bus"):
        choose_key(RING, Offer(stranger, stranger.keys[0], count_up(0)).data)


def test_the_key_that_a_caller_names_is_chosen() -> None:
    both = parse_ring(ring(key(), key("k2", OTHER_SECRET)))
    for each in both.keys:
        assert choose_key(both, Offer(both, each, count_up(0)).data) == each


def test_an_answer_with_another_key_is_refused() -> None:
    both = parse_ring(ring(key(), key("k2", OTHER_SECRET)))
    called, answered = (Offer(both, each, count_up(0)) for each in both.keys)
    with pytest.raises(TransportError, match="does not speak to this sealed bus"):
        called.agree(answered.data, is_caller=True)


def test_an_offer_that_comes_back_is_refused() -> None:
    called = Offer(RING, KEY, count_up(0))
    with pytest.raises(TransportError, match="sent back what was sent to it"):
        called.agree(called.data, is_caller=True)


def test_two_callers_that_are_led_to_each_other_share_no_keys() -> None:
    ann, bob = Offer(RING, KEY, count_up(0)), Offer(RING, KEY, count_up(64))
    of_ann = ann.agree(bob.data, is_caller=True)
    of_bob = bob.agree(ann.data, is_caller=True)
    assert read(of_bob, of_ann.seal(b"hello")) == b""
    assert read(of_ann, of_bob.seal(b"hello")) == b""


def test_a_public_key_that_makes_the_secret_known_to_everybody_is_refused() -> None:
    called = Offer(RING, KEY, count_up(0))
    for point in (bytes(32), b"\x01" + bytes(31)):
        with pytest.raises(TransportError, match="public key"):
            called.agree(called.data[:8] + point + bytes(32), is_caller=True)


def test_who_names_a_key_without_having_it_fails_with_its_first_record() -> None:
    liar = parse_ring(ring(key(secret=OTHER_SECRET)))
    called, answered = Offer(liar, liar.keys[0], count_up(0)), Offer(RING, KEY, count_up(64))
    named = answered.data[:8] + called.data[8:]
    listener = answered.agree(named, is_caller=False)
    caller = called.agree(called.data[:8] + answered.data[8:], is_caller=True)
    assert read(listener, caller.seal(b"hello")) == b""
    assert "has not the key it names" in listener.failure
    assert not listener.is_proved
    assert read(caller, listener.seal(b"welcome")) == b""


def test_a_caller_without_a_key_cannot_have_much_kept() -> None:
    _, listener = open_session()
    announced = (FIRST_BYTES_MAX + TAG_BYTES + 1).to_bytes(4, "big")
    assert read(listener, announced) == b""
    assert "the key it names" in listener.failure


# --- Any cut of the stream ------------------------------------------------------------------------

TEXTS = st.lists(st.binary(min_size=1, max_size=300), max_size=8)


@given(TEXTS, st.lists(st.integers(0, 1 << 20)))
def test_the_stream_may_come_in_any_pieces(texts: list[bytes], places: list[int]) -> None:
    caller, listener = open_session()
    stream = b"".join(caller.seal(text) for text in texts)
    assert read(listener, *cut_at(stream, places)) == b"".join(texts)
    assert (listener.held_bytes, listener.failure) == (0, "")


def test_large_records_may_come_byte_by_byte() -> None:
    caller, listener = open_session()
    read(listener, caller.seal(b"hello"))
    texts = [bytes([number]) * RECORD_BYTES_MAX for number in range(3)]
    stream = b"".join(caller.seal(text) for text in texts)
    ends = [*range(50), *range(50, len(stream) - 50, 1009), *range(len(stream) - 50, len(stream))]
    assert read(listener, *cut_at(stream, ends)) == b"".join(texts)


@given(TEXTS, st.integers(0, 1 << 20))
def test_of_a_stream_that_ends_too_early_whole_records_are_given_out(
    texts: list[bytes], place: int
) -> None:
    caller, listener = open_session()
    records = [caller.seal(text) for text in texts]
    stream = b"".join(records)
    end = place % (len(stream) + 1)
    ends = [sum(map(len, records[:count])) for count in range(len(records) + 1)]
    whole = max(count for count, each in enumerate(ends) if each <= end)
    assert read(listener, stream[:end]) == b"".join(texts[:whole])
    assert (listener.held_bytes > 0) == (end not in ends)


# --- Who stands in the middle ---------------------------------------------------------------------


def make_stream(count: int = 6) -> tuple[Session, list[bytes]]:
    """A session and what its caller has sent in it: as many records as are asked for."""
    session = open_session()
    return session, [session.caller.seal(b"record %d" % number) for number in range(count)]


def opened(session: Session, records: list[bytes]) -> int:
    """How many records were opened before the channel failed. They are the first ones, in order."""
    text = read(session.listener, b"".join(records))
    count = len(text) // len(b"record 0")
    assert text == b"".join(b"record %d" % number for number in range(count))
    return count


@pytest.mark.parametrize("first", range(5))
def test_swapped_records_end_the_session_where_they_are(first: int) -> None:
    session, records = make_stream()
    records[first], records[first + 1] = records[first + 1], records[first]
    assert opened(session, records) == first
    assert "fails verification" in session.listener.failure


@pytest.mark.parametrize("place", range(6))
def test_a_repeated_record_ends_the_session(place: int) -> None:
    session, records = make_stream()
    assert opened(session, [*records[: place + 1], records[place], *records[place + 1 :]]) == (
        place + 1
    )
    assert "fails verification" in session.listener.failure


@pytest.mark.parametrize("place", range(5))
def test_a_dropped_record_ends_the_session(place: int) -> None:
    session, records = make_stream()
    assert opened(session, records[:place] + records[place + 1 :]) == place
    assert "fails verification" in session.listener.failure


def test_a_bit_flipped_anywhere_ends_the_session_where_it_is() -> None:
    _, records = make_stream(3)
    stream = b"".join(records)
    for place in range(len(stream)):
        for bit in (1, 128):
            session, _ = make_stream(0)
            damaged = bytearray(stream)
            damaged[place] ^= bit
            # A length that was made greater waits for bytes, so let some follow.
            text = read(session.listener, bytes(damaged) + bytes(RECORD_BYTES_MAX))
            whole = place // len(records[0])
            assert text == b"".join(b"record %d" % number for number in range(whole))
            assert session.listener.failure


def test_a_byte_put_in_or_left_out_anywhere_ends_the_session() -> None:
    _, records = make_stream(3)
    stream = b"".join(records)
    for place in range(len(stream)):
        for changed in (
            stream[:place] + b"\x00" + stream[place:],
            stream[:place] + stream[place + 1 :],
        ):
            session, _ = make_stream(0)
            text = read(session.listener, changed + bytes(RECORD_BYTES_MAX))
            assert b"".join(b"record %d" % number for number in range(3)).startswith(text)
            assert session.listener.failure


#: What can be done to a stream: a part of it is moved, said twice, left out, or changed.
TAMPERING = st.tuples(
    st.sampled_from(["move", "repeat", "leave out", "flip", "insert"]),
    st.integers(0, 1 << 16),
    st.integers(1, 80),
    st.integers(0, 1 << 16),
)


@given(TEXTS, st.lists(TAMPERING, min_size=1, max_size=3), st.lists(st.integers(0, 1 << 16)))
def test_whatever_is_done_to_a_stream_only_its_untouched_beginning_is_opened(
    texts: list[bytes], tampering: list[tuple[str, int, int, int]], places: list[int]
) -> None:
    caller, listener = open_session()
    records = [caller.seal(text) for text in texts]
    stream = b"".join(records)
    changed = stream
    for what, begin, size, other in tampering:
        at = begin % (len(changed) + 1)
        part, rest = changed[at : at + size], changed[:at] + changed[at + size :]
        to = other % (len(rest) + 1)
        if what == "move":
            changed = rest[:to] + part + rest[to:]
        elif what == "repeat":
            changed = changed[:at] + part + changed[at:]
        elif what == "leave out":
            changed = rest
        elif what == "flip":
            changed = (
                changed[:at] + bytes(byte ^ 1 << other % 8 for byte in part) + changed[at + size :]
            )
        else:
            changed = changed[:at] + bytes([other % 256]) * size + changed[at:]
    same = next(
        (at for at, both in enumerate(zip(stream, changed, strict=False)) if both[0] != both[1]),
        min(len(stream), len(changed)),
    )
    ends = [sum(map(len, records[:count])) for count in range(len(records) + 1)]
    untouched = max(count for count, end in enumerate(ends) if end <= same)
    assert read(listener, *cut_at(changed, places)) == b"".join(texts[:untouched])


def test_reflected_records_are_not_opened() -> None:
    session, records = make_stream()
    assert read(session.caller, b"".join(records)) == b""
    assert session.caller.failure


def test_records_of_another_session_are_not_opened() -> None:
    session, records = make_stream()
    other = open_session(1)
    read(other.listener, other.caller.seal(b"hello"))
    assert read(other.listener, *records[1:]) == b""
    assert other.listener.failure
    # The same offer of the caller once more, as one who has recorded it can send it.
    answered = Offer(RING, KEY, count_up(200))
    again = answered.agree(Offer(RING, KEY, count_up(0)).data, is_caller=False)
    assert read(again, *records) == b""


def test_a_change_of_an_offer_anywhere_leaves_no_session() -> None:
    for place in range(OFFER_BYTES):
        called, answered = Offer(RING, KEY, count_up(0)), Offer(RING, KEY, count_up(64))
        changed = bytearray(called.data)
        changed[place] ^= 1
        try:
            choose_key(RING, bytes(changed))
            listener = answered.agree(bytes(changed), is_caller=False)
        except TransportError:
            continue
        caller = called.agree(answered.data, is_caller=True)
        assert read(listener, caller.seal(b"hello")) == b"", place
        assert listener.failure
        assert read(caller, listener.seal(b"welcome")) == b"", place


def test_nothing_is_opened_after_a_failure() -> None:
    session, records = make_stream()
    assert opened(session, [bytes(len(records[0]))]) == 0
    failure = session.listener.failure
    assert read(session.listener, *records) == b""
    assert session.listener.failure == failure
