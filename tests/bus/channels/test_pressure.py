"""Senders wait for a slow receiver, and hold up nobody else; memory has a bound."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest

from jsonbus.core.channel.budget import Budget
from jsonbus.core.channel.limits import INBOX_BYTES_MAX, OUTPUT_BYTES_MAX
from jsonbus.errors import ChannelTimeoutError
from jsonbus.frontend.channels.manager import READ_BYTES
from jsonbus.sync.channel import Channel
from tests.bus.conftest import OpenBus
from tests.channel_peers import BLOCK, LONG_S
from tests.helpers import wait_until
from tests.sync.channels.channel_pair import InThread, Pair, fill, open_pair


def open_more(pair: Pair) -> tuple[Channel, Channel]:
    """Another channel between the same two."""
    return pair.calling.connect("bound", "p", timeout=LONG_S, retry=True), pair.binding.accept(
        LONG_S
    )


def test_who_does_not_read_holds_up_who_sends_and_nothing_is_lost(open_bus: OpenBus) -> None:
    here, there, *_ = open_pair(open_bus)
    count = fill(here, there)
    assert not here.try_send(b"no room")
    with pytest.raises(ChannelTimeoutError) as caught:
        here.send(b"no room", timeout=0.01)
    assert str(caught.value) == "there was no room for another message within 0.01 s (bound, 'p')"
    with pytest.raises(ChannelTimeoutError):
        here.send(b"no room", timeout=0)
    assert here.sent == count
    assert here._end is not None and there._end is not None
    assert here._end.output_bytes <= OUTPUT_BYTES_MAX + len(BLOCK) + 5
    assert there._end.inbox_bytes <= INBOX_BYTES_MAX + READ_BYTES + len(BLOCK)
    sending = InThread(here.send, "at last")
    for _ in range(count):
        assert there.receive(LONG_S) == BLOCK
    assert there.receive(LONG_S) == "at last"
    sending.result()
    assert here.try_send("room again")
    assert there.receive(LONG_S) == "room again"


@pytest.mark.slow
def test_small_messages_fill_a_channel_too(open_bus: OpenBus) -> None:
    here, there, *_ = open_pair(open_bus)
    for _ in range(80_000):
        here.send(None)
    assert wait_until(lambda: there._connection is not None and not there._connection.interest[0])
    assert there.pending < 45_000
    assert [there.receive(LONG_S) for _ in range(80_000)] == [None] * 80_000


def test_a_channel_that_is_full_or_flooded_does_not_hold_up_another(open_bus: OpenBus) -> None:
    pair = open_pair(open_bus)
    here, there = open_more(pair)
    flooding, flooded = open_more(pair)
    fill(pair.here, pair.there)
    stop = threading.Event()

    def flood() -> None:
        while not stop.is_set():
            flooding.send(BLOCK)
        flooding.close(LONG_S)

    def drain() -> int:
        return sum(1 for _ in flooded)

    threads = InThread(flood), InThread(drain)
    for number in range(50):
        here.send(number)
        assert there.receive(LONG_S) == number
        there.send(-number)
        assert here.receive(LONG_S) == -number
    stop.set()
    for thread in threads:
        thread.result()


# --- All channels of a bus together ---------------------------------------------------------------


def set_budget(bus: Any, bytes_max: int, each_bytes: int) -> Any:
    """Give a bus less memory for the messages of its channels; returns its manager."""
    assert bus._loop.channels is not None
    manager = bus._loop.channels.manager
    manager.budget = Budget(bytes_max, each_bytes)
    return manager


def test_large_messages_that_do_not_fit_together_come_one_after_the_other(
    open_bus: OpenBus,
) -> None:
    pair = open_pair(open_bus)
    pairs = [(pair.here, pair.there)] + [open_more(pair) for _ in range(4)]
    set_budget(pair.bound, 2 << 20, 64 << 10)
    large = [bytes([number]) * (1 << 20) for number in range(5)]

    def send(number: int) -> None:
        for _ in range(4):
            pairs[number][0].send(large[number])

    def receive(number: int) -> None:
        for _ in range(4):
            assert pairs[number][1].receive(LONG_S) == large[number]

    began_at = time.monotonic()
    calls = [InThread(each, number) for number in range(5) for each in (send, receive)]
    for each in calls:
        each.result()
    # Who waited for memory is told when there is some; the beats of its channel are no help.
    assert time.monotonic() - began_at < 1.9


def test_messages_that_nobody_takes_do_not_keep_small_ones_from_others(open_bus: OpenBus) -> None:
    pair = open_pair(open_bus)
    here, there = open_more(pair)
    manager = set_budget(pair.bound, 256 << 10, 64 << 10)
    pair.here.send(bytes(1 << 20))
    assert wait_until(lambda: pair.there.pending == 1)
    assert wait_until(lambda: manager.budget.is_short)
    for number in range(100):
        here.send(number)
        assert there.receive(LONG_S) == number
    here.send(bytes(600 << 10))  # that is too much now
    with pytest.raises(ChannelTimeoutError):
        there.receive(0.05)
    assert len(pair.there.receive(LONG_S)) == 1 << 20
    assert len(there.receive(LONG_S)) == 600 << 10
    assert wait_until(lambda: not manager.budget.is_short)
