"""Ports that are bound, and attempts to connect to them: granted, refused, repeated."""

from __future__ import annotations

import threading

from tests.channel_peers import LONG_S, count_descriptors
from tests.helpers import wait_until
from tests.sync.channels.channel_pair import InThread
from tests.sync.conftest import OpenBus


def test_many_threads_accept_and_each_channel_goes_to_one(open_bus: OpenBus) -> None:
    calling, bound = open_bus(), open_bus(name="desk")
    binding = bound.bind("p")
    accepting = [InThread(binding.accept, LONG_S) for _ in range(8)]
    for number in range(8):
        calling.connect("desk", "p", timeout=LONG_S, retry=True).send(number)
    assert sorted(each.result().receive(LONG_S) for each in accepting) == list(range(8))


def test_a_channel_costs_one_thread_however_many_there_are(open_bus: OpenBus) -> None:
    calling, bound = open_bus(name="calling"), open_bus(name="desk")

    def threads() -> list[str]:
        return sorted(each.name for each in threading.enumerate() if "jsonbus-" in each.name)

    before = threads()
    assert not [name for name in before if "channels" in name]
    descriptors = count_descriptors()
    binding = bound.bind("p")
    assert set(threads()) - set(before) == {"jsonbus-channels-desk"}
    pairs = []
    for _ in range(20):
        pairs.append(
            (calling.connect("desk", "p", timeout=LONG_S, retry=True), binding.accept(LONG_S))
        )
    added = ["jsonbus-channels-calling", "jsonbus-channels-desk"]
    assert sorted(set(threads()) - set(before)) == added
    assert len(threads()) == len(before) + 2
    assert count_descriptors() >= descriptors + 40
    calling.close()
    bound.close()
    assert wait_until(lambda: not [name for name in threads() if "channels" in name])
    assert count_descriptors() < descriptors
