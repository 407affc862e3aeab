"""Whoever can reach a node's TCP port may send what it likes: others notice nothing of it."""

from __future__ import annotations

import contextlib
import json
import random
import resource
import socket
import threading
import time
from collections.abc import Iterator

import pytest

from jsonbus.core.channel.limits import (
    GREETING_S,
    MEMORY_BYTES_MAX,
    MESSAGE_BYTES_MAX,
    UNIDENTIFIED_MAX,
)
from jsonbus.core.channel.wire import BYTES, CLOSE, JSON, PREFIX, REFUSED, encode_frame
from tests.end_to_end.channel.raw_channels import Server, echo, is_hung_up, raw_node, read_frame
from tests.end_to_end.processes import Desk


@pytest.fixture
def server(desk: Desk) -> Server:
    return Server(desk)


@pytest.fixture
def calls() -> Iterator[contextlib.ExitStack]:
    """Connections that are closed after the test."""
    with contextlib.ExitStack() as stack:
        yield stack


def offer(unsent: dict[int, tuple[socket.socket, memoryview]], small: socket.socket) -> None:
    """Send as much as is taken, and see all the time that a small channel is served."""
    quiet_since = time.monotonic()
    while unsent and time.monotonic() - quiet_since < 1.0:
        assert echo(small, JSON, b'"small"')
        for number, (sock, rest) in list(unsent.items()):
            with contextlib.suppress(BlockingIOError):
                rest = rest[sock.send(rest[: 1 << 20]) :]
                quiet_since = time.monotonic()
                unsent[number] = sock, rest
            if not rest:
                del unsent[number]


@pytest.fixture
def many_descriptors() -> Iterator[None]:
    """More than a process usually may have."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < 3 * UNIDENTIFIED_MAX:
        pytest.skip(f"only {hard} open files are allowed (ulimit -Hn)")
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def make_junk(server: Server) -> list[bytes]:
    hello = server.hello(1, "echo")
    return [
        b"",
        b"\0",
        hello[: len(hello) // 2],
        b"GET / HTTP/1.1\r\nHost: node\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",  # TLS
        b"\0" * 100_000,
        b"\xff" * 100_000,
        random.Random(1).randbytes(100_000),
        PREFIX.pack(2**32 - 1, ord("H")) + b"{" * 10_000,
        encode_frame(ord("H"), b"[" * 4_000),
        encode_frame(ord("H"), b'{"v":1}'),
        encode_frame(ord("H"), b'{"v":1e999}'),
        encode_frame(ord("J"), b"1"),
        encode_frame(CLOSE),
        hello + hello,
        hello + encode_frame(JSON, b"1"),  # before it was answered
        server.hello(1, "a\nb"),
        server.hello(1, "echo", to="\0"),
    ]


def test_strangers_are_dropped_in_time_and_hinder_nobody(
    server: Server, calls: contextlib.ExitStack, many_descriptors: None
) -> None:
    channel = calls.enter_context(server.connect(2, "echo"))
    began_at = time.monotonic()
    # More than may be silent at once: those that have been it for longest have to go.
    crowd = [calls.enter_context(server.call()) for _ in range(UNIDENTIFIED_MAX + 76)]
    assert all(is_hung_up(sock) for sock in crowd[:76])
    hurried_s = time.monotonic() - began_at
    junk = make_junk(server)
    strangers = [calls.enter_context(server.call()) for _ in junk]
    for sock, data in zip(strangers, junk, strict=True):
        with contextlib.suppress(ConnectionError):
            sock.sendall(data)
    assert echo(channel, JSON, b'"still here"')
    assert echo(calls.enter_context(server.connect(3, "echo")), JSON, b'"newcomer"')
    assert all(is_hung_up(sock) for sock in strangers)
    assert all(is_hung_up(sock) for sock in crowd)
    assert hurried_s < GREETING_S < time.monotonic() - began_at < 3 * GREETING_S
    standing = server.ask("standing")
    assert standing["channel_connections_dropped"] == len(strangers) + len(crowd)
    assert standing["channels_open"] == 3
    assert echo(channel, JSON, b'"still here"')
    assert server.process.complaints == []


def test_a_caller_that_means_another_node_is_told_that_it_is_gone(
    server: Server, calls: contextlib.ExitStack
) -> None:
    sock = calls.enter_context(server.call())
    sock.sendall(server.hello(1, "echo", to="a" * 16))
    kind, body = read_frame(sock)
    assert (kind, json.loads(body)["why"]) == (REFUSED, "gone")
    assert is_hung_up(sock)


def test_a_peer_that_breaks_the_rules_hurts_its_own_channel_only(
    server: Server, calls: contextlib.ExitStack
) -> None:
    good = calls.enter_context(server.connect(1, "echo"))
    # Of 4 GiB nothing is kept, and what is not known is ignored.
    for number, frame in enumerate([PREFIX.pack(2**32 - 1, BYTES) + bytes(20 << 20), b""], 2):
        bad = calls.enter_context(server.connect(number, "hoard"))
        bad.sendall(encode_frame(0, b"9" * 5_000) + encode_frame(ord("?"), b"x") + frame)
    # Of what nobody takes, some is read.
    flood = calls.enter_context(server.connect(4, "hoard"))
    flood.settimeout(0.5)
    with pytest.raises(TimeoutError):
        while True:
            flood.sendall(encode_frame(BYTES, b"1") * 100_000)
    broken = calls.enter_context(server.connect(5, "echo"))
    broken.sendall(encode_frame(JSON, b'{"a":'))
    assert is_hung_up(broken)
    assert echo(good, JSON, b'"still here"')
    standing = server.ask("standing")
    assert standing["channels_open"] == 5
    assert standing["channels_lost"] == 1
    assert standing["resident_mb"] < 150
    assert server.ask("take", raw_node(4), 100_000) == [1] * 100_000


def test_too_large_a_message_is_told_in_its_place(
    server: Server, calls: contextlib.ExitStack
) -> None:
    sock = calls.enter_context(server.connect(1, "hoard"))
    sock.sendall(encode_frame(BYTES, b"12"))
    sock.sendall(PREFIX.pack(MESSAGE_BYTES_MAX + 1, BYTES) + bytes(MESSAGE_BYTES_MAX + 1))
    sock.sendall(encode_frame(BYTES, b"345"))
    assert server.ask("take", raw_node(1), 3) == [2, MESSAGE_BYTES_MAX + 1, 3]
    assert server.ask("standing")["peak_mb"] < 100


def test_large_messages_that_nobody_takes_have_a_bound_together(
    server: Server, calls: contextlib.ExitStack
) -> None:
    small = calls.enter_context(server.connect(0, "echo"))
    before = server.ask("standing")["resident_mb"]
    frame = memoryview(encode_frame(BYTES, bytes(MESSAGE_BYTES_MAX)))
    unsent = {}
    for number in range(1, 51):
        sock = calls.enter_context(server.connect(number, "hoard"))
        sock.setblocking(False)
        unsent[number] = sock, frame
    offer(unsent, small)
    standing = server.ask("standing")
    # As much of complete messages as of others, the last one, and again to put it together.
    held_max_mb = 2 * (MEMORY_BYTES_MAX + MESSAGE_BYTES_MAX) / 2**20
    assert standing["peak_mb"] - before < held_max_mb
    assert standing["resident_mb"] - before > MEMORY_BYTES_MAX / 2**20 / 2  # it did read
    assert standing["channels_lost"] == 0

    server.ask("drop")
    fresh = calls.enter_context(server.connect(100, "hoard"))
    sender = threading.Thread(target=fresh.sendall, args=(frame,))
    sender.start()
    assert server.ask("take", raw_node(100), 1) == [MESSAGE_BYTES_MAX]
    sender.join()
