"""What channels of both front ends share, with real sockets on loopback."""

from __future__ import annotations

import copy
import pickle
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

import jsonbus
from jsonbus.core.channel.budget import Budget
from jsonbus.core.channel.wire import (
    BYTES,
    HELLO,
    JSON,
    PREFIX,
    WELCOME,
    Hello,
    encode_frame,
    encode_hello,
)
from jsonbus.errors import (
    ChannelClosedError,
    ChannelError,
    ChannelRefusedError,
    ChannelTimeoutError,
    MessageTooLargeError,
)
from tests.channel_peers import LONG_S, Plain, call, count_descriptors, join
from tests.helpers import find_free_port, wait_until


@pytest.fixture
def bus() -> Iterator[jsonbus.Bus]:
    """One that has bound the port "p"."""
    with jsonbus.Bus(port=find_free_port(), interface="lo", name="desk") as one:
        yield one


def manager_of(bus: jsonbus.Bus) -> Any:
    assert bus._loop.channels is not None
    return bus._loop.channels.manager


@pytest.mark.parametrize(
    "error",
    [
        ChannelRefusedError("desk", "p", "ambiguous", "", ("a", "b")),
        ChannelClosedError("desk", "p", "it broke", is_lost=True),
        ChannelTimeoutError("desk", "p", "no message came", 0.5),
        MessageTooLargeError("desk", "p", 11, 10),
    ],
)
def test_an_error_of_a_channel_can_be_copied_whole(error: ChannelError) -> None:
    for other in (copy.copy(error), pickle.loads(pickle.dumps(error))):
        assert (type(other), str(other), vars(other)) == (type(error), str(error), vars(error))


def test_messages_begun_go_on_as_soon_as_complete_ones_were_taken(bus: jsonbus.Bus) -> None:
    binding = bus.bind("p")
    manager = manager_of(bus)
    manager.budget = budget = Budget(1 << 20, 64 << 10)
    with ExitStack() as stack:

        def connect() -> tuple[Plain, Any]:
            plain = stack.enter_context(join(bus, "p"))
            return plain, binding.accept(LONG_S)

        def begin(plain: Plain, channel: Any) -> None:
            """Most of a message of 700 KiB."""
            plain.sock.sendall(PREFIX.pack(700 << 10, BYTES) + bytes(600 << 10))
            assert wait_until(lambda: channel._end.partial_bytes == 600 << 10)

        begun = [connect() for _ in range(2)]
        for plain, channel in begun:
            begin(plain, channel)
        assert budget.is_short
        # Little is read in any case: now what is complete is as much as there may be.
        small = [connect() for _ in range(21)]
        for plain, channel in small:
            plain.send(BYTES, bytes(50 << 10))
            assert wait_until(lambda channel=channel: channel.pending == 1)
        for plain, channel in begun:
            plain.sock.sendall(bytes(10 << 10))
            assert wait_until(lambda channel=channel: channel._connection in manager._waiting)
            plain.sock.sendall(bytes(90 << 10))
            assert not channel.pending
        # Memory is short without it, too, but one of those that were begun may go on. Some time
        # later its channel's beat would see that.
        assert len(small[0][1].receive(LONG_S)) == 50 << 10
        assert wait_until(lambda: any(channel.pending for _, channel in begun), 1.0)
        for _, channel in small[1:] + begun:
            channel.receive(1.0)


# --- Who calls ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "words",
    [
        b"GET / HTTP/1.1\r\nHost: desk\r\n\r\n",
        encode_frame(HELLO, b"{}"),
        encode_frame(HELLO, b"no JSON"),
        encode_frame(JSON, b"1"),
        encode_frame(WELCOME, b"{}"),
        PREFIX.pack(1 << 30, HELLO),
        b"",
    ],
)
def test_who_is_no_node_is_dropped_and_counted(bus: jsonbus.Bus, words: bytes) -> None:
    binding = bus.bind("p")
    with call(bus) as plain:
        plain.sock.sendall(words)
        plain.sock.shutdown(socket.SHUT_WR)
        assert plain.is_ended()
    assert wait_until(lambda: bus.stats()["channel_connections_dropped"] == 1)
    assert (binding.pending, bus.stats()["channels_opened"]) == (0, 0)


def test_who_says_more_than_hello_before_it_is_welcome_is_dropped(bus: jsonbus.Bus) -> None:
    bus.bind("p")
    with call(bus) as plain:
        hello = encode_hello(Hello("caller-node-1", 1, "plain", bus.id, "p", 1 << 20))
        plain.sock.sendall(hello + encode_frame(JSON, b"1"))
        assert plain.is_ended()


def test_the_one_that_is_silent_for_longest_makes_room_for_others(
    bus: jsonbus.Bus, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("jsonbus.frontend.channels.listener.UNIDENTIFIED_MAX", 3)
    binding = bus.bind("p")
    with ExitStack() as stack:
        silent = [stack.enter_context(call(bus)) for _ in range(3)]
        assert wait_until(lambda: len(manager_of(bus).listener._unidentified) == 3)
        with join(bus, "p"):
            assert silent[0].is_ended()
            binding.accept(LONG_S)
        assert len(manager_of(bus).listener._unidentified) == 2
    assert wait_until(lambda: bus.stats()["channel_connections_dropped"] == 3)


def test_a_caller_that_comes_in_single_bytes_is_answered(bus: jsonbus.Bus) -> None:
    binding = bus.bind("p")
    hello = encode_hello(Hello("caller-node-1", 1, "plain", bus.id, "p", 1 << 20))
    with call(bus) as plain:
        for at in range(len(hello)):
            plain.sock.sendall(hello[at : at + 1])
        plain.read_kind(WELCOME)
        channel = binding.accept(LONG_S)
        for byte in encode_frame(JSON, b'"slow"') + encode_frame(ord("?"), b"later"):
            plain.sock.sendall(bytes([byte]))
        plain.send(JSON, b"2")
        assert [channel.receive(LONG_S) for _ in range(2)] == ["slow", 2]


def test_a_listener_follows_the_addresses_of_the_bus(bus: jsonbus.Bus) -> None:
    bus.bind("p")
    manager = manager_of(bus)
    place = manager.listener.own_place()
    assert place[0] == "127.0.0.1"
    addresses = ["127.0.0.2"]
    bus._loop.addresses = lambda: addresses
    manager.listener.follow_addresses()
    assert wait_until(lambda: manager.listener.own_place() == ("127.0.0.2", place[1]))
    join(bus, "p").close()
    addresses[:] = ["127.0.0.1"]
    manager.listener.follow_addresses()
    assert wait_until(lambda: manager.listener.own_place() == place)
    join(bus, "p").close()
    bus.close()
    before = count_descriptors()
    manager.listener.follow_addresses()
    assert count_descriptors() == before


NO_ROOM = """
import resource, sys
import jsonbus
from jsonbus.errors import ChannelError, TransportError

with jsonbus.Bus(port=int(sys.argv[1]), interface="lo", name="desk") as bus:
    binding = bus.bind("p")
    kept = [bus.connect("desk", "p", timeout=30), binding.accept(30)]
    resource.setrlimit(resource.RLIMIT_NOFILE, (40, 40))
    try:
        for _ in range(40):
            kept.append(bus.connect("desk", "p", timeout=0.3))
        raise SystemExit("there was room")
    except ChannelError as error:
        kept.append(error)
    kept[0].send("still there")
    assert kept[1].receive(30) == "still there"
    for channel in kept[2:-1]:
        channel.close(1)
    assert bus.connect("desk", "p", timeout=30, retry=True).state == "open"
print("fine")
"""


@pytest.mark.slow
def test_without_descriptors_what_is_open_goes_on_and_callers_come_in_later() -> None:
    result = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", NO_ROOM, str(find_free_port())],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert (result.returncode, result.stdout) == (0, "fine\n"), result.stderr


# --- The end --------------------------------------------------------------------------------------


def test_what_is_posted_when_all_is_over_is_done_at_once(bus: jsonbus.Bus) -> None:
    bus.bind("p")
    manager = manager_of(bus)
    done: list[str] = []
    manager.post(lambda: done.append("by ChannelIO"))
    assert wait_until(lambda: done)
    bus.close()
    assert manager.is_over
    manager.post(lambda: done.append("here"))
    assert done == ["by ChannelIO", "here"]
