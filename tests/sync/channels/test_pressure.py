"""Who does not read holds up who sends, and nobody else; memory has a bound."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest

import jsonbus
from jsonbus.core.channel.budget import Budget
from jsonbus.core.channel.limits import INBOX_BYTES_MAX, OUTPUT_BYTES_MAX
from jsonbus.errors import ChannelClosedError, ChannelTimeoutError
from jsonbus.frontend.channels.manager import READ_BYTES
from jsonbus.sync.channel import Channel
from tests.channel_peers import BLOCK, LONG_S
from tests.helpers import wait_until
from tests.sync.channels.channel_pair import InThread, Pair, fill, open_pair
from tests.sync.conftest import OpenBus


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


@pytest.mark.slow
@pytest.mark.parametrize("closes", ["here", "there", "calling", "bound"])
def test_who_waits_for_room_is_woken_when_somebody_closes(open_bus: OpenBus, closes: str) -> None:
    pair = open_pair(open_bus)
    fill(pair.here, pair.there)

    def send() -> None:
        while True:  # who closes reads on until it is confirmed: there may be room before
            pair.here.send(BLOCK)

    sending = [InThread(send) for _ in range(3)]
    assert wait_until(lambda: pair.here._senders == 3)
    closing = InThread(getattr(pair, closes).close, 0.3)
    for each in sending:
        with pytest.raises(ChannelClosedError):
            each.result()
    closing.result()


def test_a_slow_handler_holds_up_who_sends_to_it(open_bus: OpenBus) -> None:
    here, there, *_ = open_pair(open_bus)
    go_on = threading.Event()
    heard: list[bytes] = []

    def handle(value: bytes) -> None:
        assert go_on.wait(LONG_S)
        heard.append(value)

    there.on_message(handle)
    count = fill(here, there)
    assert not here.try_send(BLOCK)
    go_on.set()
    here.send(b"last", LONG_S)
    assert wait_until(lambda: len(heard) == count + 1)
    assert heard[-1] == b"last"


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


def set_budget(bus: jsonbus.Bus, bytes_max: int, each_bytes: int) -> Any:
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


def test_waiting_for_a_message_while_memory_is_short_costs_nothing(open_bus: OpenBus) -> None:
    pair = open_pair(open_bus)
    here, there = open_more(pair)
    manager = set_budget(pair.bound, 256 << 10, 64 << 10)
    pair.here.send(bytes(1 << 20))
    assert wait_until(lambda: pair.there.pending == 1)
    assert wait_until(lambda: manager.budget.is_short)
    waiting = InThread(there.receive, LONG_S)
    assert wait_until(lambda: there._receivers or there._poller)
    before_s = time.process_time()
    with pytest.raises(ChannelTimeoutError):
        here.receive(0.2)
    assert time.process_time() - before_s < 0.1
    here.send("now")
    assert waiting.result() == "now"
