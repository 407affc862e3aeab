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
    manager, connection = here._manager, here._connection
    assert connection is not None
    came: list[object] = []
    reader = threading.Thread(target=lambda: came.append(here.receive(30)))
    if is_waiting:
        reader.start()
        assert wait_until(lambda: connection.is_read_directly)

    def starve() -> None:
        """In the thread of ChannelIO: nothing is read meanwhile."""
        with here.lock:
            there.send("meanwhile")
            connection.end.liveness.silent_at -= 2 * SILENCE_S
            manager.plan(connection, 0.0)

    manager.post(starve)
    if is_waiting:
        reader.join()
    else:
        came.append(here.receive(30))
    assert came == ["meanwhile"]
    there.send("more")
    assert here.receive(30) == "more"
