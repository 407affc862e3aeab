"""What channels of both front ends share, with real sockets on loopback."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

import jsonbus
from jsonbus.core.channel_budget import Budget
from jsonbus.core.channel_wire import BYTES, PREFIX
from jsonbus.errors import (
    ChannelClosedError,
    ChannelError,
    ChannelRefusedError,
    ChannelTimeoutError,
    MessageTooLargeError,
)
from tests.channel_peers import LONG_S, Plain, join
from tests.helpers import find_free_port, wait_until


@pytest.fixture
def bus() -> Iterator[jsonbus.Bus]:
    """One that has bound the port "p"."""
    with jsonbus.Bus(port=find_free_port(), interface="lo", name="desk") as one:
        yield one


def exchange_of(bus: jsonbus.Bus) -> Any:
    assert bus._loop.channels is not None
    return bus._loop.channels.exchange


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
    exchange = exchange_of(bus)
    exchange._budget = budget = Budget(1 << 20, 64 << 10)
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
            assert wait_until(lambda channel=channel: channel._line in exchange._waiting)
            plain.sock.sendall(bytes(90 << 10))
            assert not channel.pending
        # Memory is short without it, too, but one of those that were begun may go on. Some time
        # later its channel's beat would see that.
        assert len(small[0][1].receive(LONG_S)) == 50 << 10
        assert wait_until(lambda: any(channel.pending for _, channel in begun), 1.0)
        for _, channel in small[1:] + begun:
            channel.receive(1.0)
