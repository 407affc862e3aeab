"""Sealed connections over loopback: what the kernel takes, what it does not, and strangers."""

from __future__ import annotations

import random
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from typing import NamedTuple

import pytest

from jsonbus.core.channel.end import CLOSING, OPEN, ChannelEnd
from jsonbus.core.channel.wire import BYTES, CLOSE, END, FrameReader, Hello, Welcome, encode_frame
from jsonbus.errors import TransportError
from jsonbus.sealed.keys import parse_ring
from jsonbus.sealed.records import MAGIC, OFFER_BYTES, RECORD_BYTES_MAX, SEALED_BYTES_MAX
from jsonbus.sealed.tcp import SealedTcp
from tests.channel_peers import LONG_S
from tests.helpers import wait_until
from tests.sealed.material import OTHER_SECRET, key, ring

RING = parse_ring(ring())
HELLO = Hello("id-ann", 17, "ann", "id-bob", "door", 64 << 20, 20)
WELCOME = Welcome("id-bob", 18, "bob", 64 << 20, 20)


class Sockets(NamedTuple):
    """Both ends of a TCP connection."""

    calling: socket.socket
    answering: socket.socket


class Pair(NamedTuple):
    """Both ends of a sealed connection."""

    caller: SealedTcp
    listener: SealedTcp


@pytest.fixture
def sockets() -> Iterator[Sockets]:
    with ExitStack() as stack:
        listening = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        # Set before connecting, so that the kernel cannot keep more.
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 32 << 10)
        calling = stack.enter_context(socket.socket())
        calling.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 32 << 10)
        calling.connect(listening.getsockname())
        answering = stack.enter_context(listening.accept()[0])
        for each in (calling, answering):
            each.settimeout(LONG_S)
        yield Sockets(calling, answering)


@pytest.fixture
def pair(sockets: Sockets) -> Pair:
    """Agreed; the caller's hello has come."""
    caller = SealedTcp(sockets.calling, RING, is_caller=True)
    listener = SealedTcp(sockets.answering, RING, is_caller=False)
    caller.finish_dialing()
    assert caller.write([b"hel", b"lo"]) == 5
    assert read(listener, 0) == b""  # the offer
    assert read(caller, 0) == b""
    assert read(listener, 5) == b"hello"
    return Pair(caller, listener)


BUFFER = memoryview(bytearray(256 << 10))


def read(tcp: SealedTcp, size: int) -> bytes:
    """So many bytes of plaintext; of 0, what comes with one call that gets something."""
    data = b""

    def is_done() -> bool:
        nonlocal data
        before = tcp._records
        count = tcp.read_into(BUFFER)
        if count:
            data += BUFFER[:count]
        return len(data) >= size if size else tcp._records is not before

    assert wait_until(is_done)
    return data


def read_until_failure(tcp: SealedTcp) -> tuple[bytes, str]:
    """What comes, and the reason why nothing more does; "" if the connection was closed."""
    data, reason = b"", ""

    def is_done() -> bool:
        nonlocal data, reason
        try:
            count = tcp.read_into(BUFFER)
        except TransportError as error:
            reason = str(error)
            return True
        data += BUFFER[: count or 0]
        return count == 0

    assert wait_until(is_done)
    return data, reason


def receive(sock: socket.socket, size: int) -> bytes:
    sock.setblocking(True)
    return sock.recv(size, socket.MSG_WAITALL)


# --- What is written and read ---------------------------------------------------------------------


def test_what_one_side_writes_the_other_reads(pair: Pair) -> None:
    for writer, reader in (pair, reversed(pair)):
        assert writer.write([b"one, ", b"two, ", memoryview(b"three")]) == 15
        assert read(reader, 15) == b"one, two, three"
        assert reader.read_into(BUFFER) is None


def test_nothing_on_the_wire_is_plain(sockets: Sockets) -> None:
    caller = SealedTcp(sockets.calling, RING, is_caller=True)
    caller.finish_dialing()
    caller.write([encode_frame(BYTES, b"secret word")])
    wire = receive(sockets.answering, OFFER_BYTES)
    sockets.answering.sendall(MAGIC + wire[4:8] + wire[8:40] + bytes(32))
    assert caller.read_into(BUFFER) is None
    wire += sockets.answering.recv(1 << 16)
    assert len(wire) == OFFER_BYTES + 4 + 5 + 11 + 16
    assert b"secret" not in wire and b"word" not in wire


def test_what_the_kernel_does_not_take_is_reported_when_it_has_it(pair: Pair) -> None:
    body = random.Random(1).randbytes(40 * RECORD_BYTES_MAX)
    left = memoryview(body)
    got = b""
    fill = pair.caller.write([left])
    assert 0 < fill < len(body)
    assert pair.caller.write([left[fill:]]) == 0  # full: nothing of it is sealed, nor sent
    left = left[fill:]
    assert fill % RECORD_BYTES_MAX == RECORD_BYTES_MAX - 1  # all but the last byte
    while len(got) < len(body):
        count = pair.listener.read_into(BUFFER)
        got += BUFFER[: count or 0]
        if left:
            left = left[pair.caller.write([left]) :]
    assert got == body
    assert pair.caller._unwritten == b""


def test_pieces_of_any_size_arrive_whole_whatever_the_kernel_takes(pair: Pair) -> None:
    dice = random.Random(7)
    waiting: list[bytes | memoryview] = []
    sent, got = b"", b""
    for _ in range(2000):
        if len(waiting) < 50 and len(sent) < 4 << 20:
            waiting.append(dice.randbytes(dice.choice((1, 2, 5, 100, 20_000, 65_535, 65_536))))
            sent += waiting[-1]
        if waiting:
            count = pair.caller.write(waiting[:20])
            while count:
                if count < len(waiting[0]):
                    waiting[0] = memoryview(waiting[0])[count:]
                    break
                count -= len(waiting.pop(0))
        if dice.random() < 0.7:
            got += BUFFER[: pair.listener.read_into(BUFFER) or 0]
    while waiting or len(got) < len(sent):
        got += BUFFER[: pair.listener.read_into(BUFFER) or 0]
        if waiting and (count := pair.caller.write(waiting[:1])):
            waiting[0] = memoryview(waiting[0])[count:]
            if not waiting[0]:
                waiting.pop(0)
    assert got == sent


def test_a_buffer_of_one_record_is_enough_to_read_with(pair: Pair) -> None:
    body = random.Random(2).randbytes(3 * RECORD_BYTES_MAX)
    small = memoryview(bytearray(SEALED_BYTES_MAX))
    left, got = memoryview(body), b""
    while len(got) < len(body):
        left = left[pair.caller.write([left]) :] if left else left
        got += small[: pair.listener.read_into(small) or 0]
    assert got == body


def test_a_part_of_a_record_is_told_as_a_sign_of_life(pair: Pair) -> None:
    pair.caller.write([bytes(8 * RECORD_BYTES_MAX)])
    assert not pair.listener.has_heard_part
    small = memoryview(bytearray(SEALED_BYTES_MAX))
    assert wait_until(lambda: pair.listener.read_into(small) is None)
    assert pair.listener.has_heard_part
    while pair.listener._records is not None and pair.listener.has_heard_part:
        pair.listener.read_into(small)
    assert not pair.listener.has_heard_part


# --- With the ends of a channel -------------------------------------------------------------------


def flush(end: ChannelEnd, tcp: SealedTcp) -> None:
    """What `Connection.flush` does."""
    while end.output_bytes and (count := tcp.write(end.output(64))):
        end.written(count, 0.0)


@pytest.mark.parametrize("seed", range(20))
def test_an_end_that_drops_its_output_breaks_no_frame(pair: Pair, seed: int) -> None:
    """The other side closes while this one has much to write: what has begun is ended, then E."""
    dice = random.Random(seed)
    end = ChannelEnd(64 << 20, 0.0, hello=HELLO)
    end.written(end.output_bytes, 0.0)
    welcome = ChannelEnd(64 << 20, 0.0)
    welcome.hello = HELLO
    welcome.welcome(WELCOME)
    end.receive(memoryview(b"".join(welcome.output(9))), 0.0)
    assert end.state == OPEN
    while end.has_room:
        end.send(BYTES, bytes(dice.choice((0, 1, 100, 16_000, 17_000, 65_531, 65_532, 200_000))))
        if dice.random() < 0.5:
            flush(end, pair.caller)
    flush(end, pair.caller)
    was_unwritten = len(pair.caller._unwritten) > 0
    end.receive(memoryview(encode_frame(CLOSE)), 0.0)
    assert end.state == CLOSING
    reader, kinds = FrameReader(64 << 20), []

    def is_done() -> bool:
        flush(end, pair.caller)
        count = pair.listener.read_into(BUFFER)
        kinds.extend(kind for kind, _ in reader.feed(BUFFER[: count or 0]))
        return kinds[-1:] == [END]

    assert was_unwritten and not end.is_over
    assert wait_until(is_done)
    assert end.is_over and set(kinds) == {BYTES, END}
    assert reader.is_between_frames


# --- Who cuts, changes, or has no key -------------------------------------------------------------


def test_a_cut_within_a_record_is_told(pair: Pair) -> None:
    record = pair.caller._records
    assert record is not None
    data = record.seal(b"first") + record.seal(b"second")[:-1]
    pair.caller.sock.sendall(data)
    pair.caller.sock.close()
    assert read_until_failure(pair.listener) == (b"first", "the connection was cut within a record")


def test_the_end_of_the_connection_is_told_as_of_an_open_one(pair: Pair) -> None:
    pair.caller.write([b"last"])
    pair.caller.close()
    assert read_until_failure(pair.listener) == (b"last", "")


def test_a_changed_record_ends_the_connection_for_reading_and_writing(pair: Pair) -> None:
    records = pair.caller._records
    assert records is not None
    changed = bytearray(records.seal(b"changed"))
    changed[-1] ^= 1
    pair.caller.sock.sendall(changed)
    data, reason = read_until_failure(pair.listener)
    assert (data, reason.startswith("a record that fails verification came")) == (b"", True)
    with pytest.raises(TransportError, match="fails verification"):
        pair.listener.write([b"answer"])
    assert not pair.listener.is_foreign  # it had the key, whoever changed this


def test_good_records_before_a_changed_one_in_the_same_read_are_given_out(pair: Pair) -> None:
    records = pair.caller._records
    assert records is not None
    pair.caller.sock.sendall(records.seal(b"first") + bytes(40))
    data, reason = read_until_failure(pair.listener)
    assert (data, "a record of 0 bytes came" in reason) == (b"first", True)
    assert read_until_failure(pair.caller)[0] == b""  # it was hung up at once


@pytest.mark.parametrize(
    "said", [b"\x00\x00\x00\x10H", b"GET / HTTP/1.1\r\n\r\n", b"JBS\x02", b"JBT", b"\x16\x03\x01"]
)
def test_a_listener_tells_nothing_to_who_does_not_speak_to_it(
    sockets: Sockets, said: bytes
) -> None:
    listener = SealedTcp(sockets.answering, RING, is_caller=False)
    sockets.calling.sendall(said)
    data, reason = read_until_failure(listener)
    assert (data, reason) == (b"", "it does not speak to this sealed bus")
    assert listener.is_foreign
    listener.close()
    assert receive(sockets.calling, 1) == b""


def test_a_listener_answers_no_key_that_it_does_not_have(sockets: Sockets) -> None:
    other = parse_ring(ring(key("k9", OTHER_SECRET)))
    caller = SealedTcp(sockets.calling, other, is_caller=True)
    listener = SealedTcp(sockets.answering, RING, is_caller=False)
    caller.finish_dialing()
    caller.write([b"hello"])
    assert read_until_failure(listener) == (b"", "it has no key of this bus")
    listener.close()
    _, reason = read_until_failure(caller)
    assert reason == (
        "it closed the connection at once: it lacks the key 'k9', or its bus is not sealed"
    )
    assert listener.is_foreign and not caller.is_foreign


def test_who_replays_an_offer_gets_no_further(sockets: Sockets) -> None:
    """All that a listener says to who knows no secret is one offer, which is random."""
    listener = SealedTcp(sockets.answering, RING, is_caller=False)
    name = MAGIC + RING.wire_id(RING.keys[0])
    sockets.calling.sendall(name + bytes(range(64)))
    assert wait_until(lambda: listener.read_into(BUFFER) is None and listener._records is not None)
    assert receive(sockets.calling, OFFER_BYTES)[:8] == name
    sockets.calling.sendall((100).to_bytes(4, "big") + bytes(100))
    assert "has not the key it names" in read_until_failure(listener)[1]
    assert listener.is_foreign


def test_a_caller_says_nothing_to_a_listener_that_is_not_sealed(sockets: Sockets) -> None:
    caller = SealedTcp(sockets.calling, RING, is_caller=True)
    caller.finish_dialing()
    caller.write([b"hello"])
    sockets.answering.sendall(b"\x00\x00\x00\x10W")
    assert read_until_failure(caller) == (b"", "it does not speak to this sealed bus")
    assert caller.is_foreign
    caller.close()
    assert len(receive(sockets.answering, 1000)) == OFFER_BYTES
