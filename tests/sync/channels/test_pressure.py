"""Who does not read holds up who sends, and nobody else; memory has a bound."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest

import jsonbus
from jsonbus.core.channel.budget import Budget
from jsonbus.errors import ChannelClosedError, ChannelTimeoutError
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


# --- All channels of a bus together ---------------------------------------------------------------


def set_budget(bus: jsonbus.Bus, bytes_max: int, each_bytes: int) -> Any:
    """Give a bus less memory for the messages of its channels; returns its manager."""
    assert bus._loop.channels is not None
    manager = bus._loop.channels.manager
    manager.budget = Budget(bytes_max, each_bytes)
    return manager


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
