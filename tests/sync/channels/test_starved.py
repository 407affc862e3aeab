"""A process that did not run for a while has not been listening: nobody else was silent."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

import jsonbus
from jsonbus.core.channel.limits import SILENCE_S
from jsonbus.sync.channel import Channel
from tests.helpers import find_free_port, wait_until


@pytest.fixture
def pair() -> Iterator[tuple[Channel, Channel]]:
    port = find_free_port()
    with jsonbus.Bus(name="here", port=port) as here, jsonbus.Bus(name="there", port=port) as there:
        binding = there.bind("news")
        channel = here.connect("there", "news", 30, retry=True)
        yield channel, binding.accept(30)


@pytest.mark.parametrize("is_waiting", [False, True])
def test_what_came_meanwhile_is_heard_before_silence_is_judged(
    pair: tuple[Channel, Channel], is_waiting: bool
) -> None:
    here, there = pair
    exchange, line = here._exchange, here._line
    assert line is not None
    came: list[object] = []
    reader = threading.Thread(target=lambda: came.append(here.receive(30)))
    if is_waiting:
        reader.start()
        assert wait_until(lambda: line.is_lent)

    def starve() -> None:
        """In the operator's thread: nothing is read meanwhile."""
        with here.lock:
            there.send("meanwhile")
            line.end._heard_at -= 2 * SILENCE_S
            exchange.plan(line, 0.0)

    exchange.post(starve)
    if is_waiting:
        reader.join()
    else:
        came.append(here.receive(30))
    assert came == ["meanwhile"]
    there.send("more")
    assert here.receive(30) == "more"
