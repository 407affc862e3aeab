"""The end of a channel: confirmed or not, from either side, by the bus, by an interruption."""

from __future__ import annotations

import subprocess
import sys
import threading

import pytest

from jsonbus.errors import (
    ChannelRefusedError,
    ChannelTimeoutError,
    ClosedError,
)
from tests.channel_peers import LONG_S, count_descriptors
from tests.helpers import find_free_port, wait_until
from tests.sync.channels.channel_pair import InThread, open_pair
from tests.sync.conftest import OpenBus


def test_many_threads_may_close_at_once_from_both_sides(open_bus: OpenBus) -> None:
    here, there, *_ = open_pair(open_bus)
    closing = [InThread(each.close, LONG_S) for each in (here, there) * 4]
    assert any([each.result() for each in closing])  # all of them: they are waited for
    assert (here.state, there.state) == ("closed", "closed")


def test_a_channel_that_is_closed_as_it_opens_does_not_stay_open(open_bus: OpenBus) -> None:
    calling, bound = open_bus(), open_bus(name="desk")
    binding = bound.bind("p")
    channels = [calling.connect("desk", "p", timeout=LONG_S, wait=False) for _ in range(100)]
    for channel in channels:
        channel.close(0)
    assert wait_until(lambda: all(channel.state == "closed" for channel in channels))
    assert wait_until(lambda: calling.stats()["channels_open"] == 0)
    assert wait_until(lambda: bound.stats()["channels_open"] == 0)
    binding.close()


@pytest.mark.slow
def test_the_first_channel_may_be_wanted_while_the_bus_closes(open_bus: OpenBus) -> None:
    bus, other = open_bus(name="closing"), open_bus(name="other")
    other.subscribe("x")
    assert bus.wait_for_subscribers("x", timeout=LONG_S)
    bus.publish("x", 1, reliable=True)  # closing waits for a moment, in case that was lost
    closing = InThread(bus.close, LONG_S)

    def bind_until_closed() -> None:
        for number in range(1_000_000):
            bus.bind(number).close()

    with pytest.raises(ClosedError):
        bind_until_closed()
    closing.result()
    assert not [each for each in threading.enumerate() if each.name.endswith(bus.name)]


def test_after_closing_no_descriptor_is_left(open_bus: OpenBus) -> None:
    bound = open_bus(name="desk")
    binding = bound.bind("p")
    calling = open_bus()
    with calling.connect("desk", "p", timeout=LONG_S, retry=True):
        there = binding.accept(LONG_S)
        with pytest.raises(ChannelTimeoutError):
            there.receive(0.2)  # what a bus has for threads that wait, it keeps
    for bus in (calling, bound):
        assert wait_until(lambda bus=bus: bus.stats()["channels_open"] == 0)
    before = count_descriptors()
    for _ in range(5):
        here, there = (
            calling.connect("desk", "p", timeout=LONG_S, retry=True),
            binding.accept(LONG_S),
        )
        with pytest.raises(ChannelRefusedError):
            calling.connect("desk", "nothing", timeout=LONG_S)
        here.send(1)
        assert here.close(LONG_S)
        assert list(there) == [1]
    assert wait_until(lambda: count_descriptors() == before)


FORK = """
import os, sys
import jsonbus
from jsonbus.errors import ForkedError

port = int(sys.argv[1])
parent = jsonbus.Bus(port=port, interface="lo", name="parent")
other = jsonbus.Bus(port=port, interface="lo", name="other")
binding = parent.bind("p")
here = other.connect("parent", "p", timeout=30)
there = binding.accept(30)
opening = other.connect("nobody", "p", timeout=60, retry=True, wait=False)
child = os.fork()
if child == 0:
    refused = 0
    uses = [
        lambda: parent.bind("q"), lambda: parent.connect("other", "q"), lambda: binding.accept(1)
    ]
    for channel in (here, there, opening):
        uses += [
            lambda channel=channel: channel.send(1),
            lambda channel=channel: channel.try_send(1),
            lambda channel=channel: channel.receive(1),
            lambda channel=channel: channel.on_message(print),
        ]
    for use in uses:
        try:
            use()
        except ForkedError:
            refused += 1
    assert refused == len(uses), (refused, len(uses))
    for channel in (here, there, opening):
        assert not channel.close()
    binding.close()
    parent.close()
    other.close()
    with jsonbus.Bus(port=port, interface="lo") as own:
        own.connect("parent", "p", timeout=30).send("from the child")
    sys.exit(7)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
assert binding.accept(30).receive(30) == "from the child"
for number in range(20):
    here.send(number)
    there.send(-number)
assert [there.receive(30) for _ in range(20)] == list(range(20))
assert [here.receive(30) for _ in range(20)] == [-number for number in range(20)]
assert opening.state == "opening"
assert here.close(30)
parent.close()
other.close()
print("fine")
"""


@pytest.mark.skipif(sys.platform == "win32", reason="there is no fork on Windows")
def test_a_forked_child_cannot_use_a_channel_and_does_the_parent_no_harm() -> None:
    result = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", FORK, str(find_free_port())],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert (result.returncode, result.stdout) == (0, "fine\n"), result.stderr


def test_many_threads_may_close_a_binding_at_once(open_bus: OpenBus) -> None:
    bus = open_bus()
    for _ in range(50):
        binding = bus.bind("p")
        for each in [InThread(binding.close) for _ in range(4)]:
            each.result()
