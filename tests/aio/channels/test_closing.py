"""The end of a channel: confirmed or not, from either side, by the bus, by an interruption."""

from __future__ import annotations

import asyncio
import subprocess
import sys

import pytest

from jsonbus.core.channel.wire import CLOSE, END, Welcome, encode_welcome
from jsonbus.errors import ChannelClosedError, ChannelRefusedError, ClosedError, LocalError
from tests.aio.channels.channel_pair import InTask, fill, open_pair
from tests.aio.running import asynctest, buses, until
from tests.channel_peers import LONG_S, PlainListener, count_descriptors
from tests.helpers import find_free_port


@asynctest
async def test_many_tasks_may_close_at_once_from_both_sides() -> None:
    async with buses() as open_bus:
        here, there, *_ = await open_pair(open_bus)
        closing = [InTask(each.close(LONG_S)) for each in (here, there) * 4]
        assert any([await each.result() for each in closing])
        assert (here.state, there.state) == ("closed", "closed")


@asynctest
async def test_a_channel_that_is_closed_as_it_opens_does_not_stay_open() -> None:
    async with buses() as open_bus:
        calling, bound = open_bus(), open_bus(name="desk")
        with PlainListener(bound) as listener:
            channel = await calling.connect("desk", "p", timeout=LONG_S, wait=False)
            with await asyncio.to_thread(listener.accept) as answering:
                await asyncio.sleep(0)
                answering.sock.sendall(encode_welcome(Welcome(bound.id, 1, "desk", 10)))
                # This task goes on before the loop reads that.
                await asyncio.sleep(0)
                assert channel.state == "opening"
                channel.begin_close()
                assert await until(lambda: channel.state != "closed")
                await asyncio.to_thread(answering.read_kind, CLOSE)
                answering.send(END)
                assert await channel.close(LONG_S)
        assert calling.stats()["channels_open"] == 0


@asynctest
async def test_the_first_channel_may_be_wanted_while_the_bus_closes() -> None:
    async with buses() as open_bus:
        bus, other = open_bus(), open_bus()
        other.subscribe("x")
        assert await bus.wait_for_subscribers("x", timeout=LONG_S)
        await bus.publish("x", 1, reliable=True)  # closing waits, in case that was lost
        closing = InTask(bus.close(LONG_S))
        await asyncio.sleep(0)
        with pytest.raises(ClosedError):
            bus.bind("p")
        with pytest.raises(ClosedError):
            await bus.connect("x", "p")
        await closing.result()


@asynctest
async def test_a_close_of_the_bus_that_is_cancelled_leaves_nobody_waiting() -> None:
    async with buses() as open_bus:
        here, there, calling, *_ = await open_pair(open_bus)
        own = calling.bind("own")
        await fill(here, there)  # so that closing has to wait
        waiting = [
            InTask(own.accept()),
            InTask(here.receive()),
            InTask(here.send(b"more")),
            InTask(calling.connect("nobody", "p", timeout=LONG_S, retry=True)),
        ]
        await asyncio.sleep(0)
        closing = asyncio.create_task(calling.close(LONG_S))
        await asyncio.sleep(0)
        closing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await closing
        assert calling.is_closed
        for each in waiting:
            with pytest.raises((ClosedError, ChannelClosedError)):
                await each.result()


@asynctest
async def test_after_closing_no_descriptor_is_left() -> None:
    async with buses() as open_bus:
        bound = open_bus(name="desk")
        binding = bound.bind("p")
        calling = open_bus()
        async with await calling.connect("desk", "p", timeout=LONG_S, retry=True):
            await binding.accept(LONG_S)
        for bus in (calling, bound):
            assert await until(lambda bus=bus: bus.stats()["channels_open"] == 0)
        before = count_descriptors()
        for _ in range(5):
            here = await calling.connect("desk", "p", timeout=LONG_S, retry=True)
            there = await binding.accept(LONG_S)
            with pytest.raises(ChannelRefusedError):
                await calling.connect("desk", "nothing", timeout=LONG_S)
            await here.send(1)
            assert await here.close(LONG_S)
            assert [each async for each in there] == [1]
        assert await until(lambda: count_descriptors() == before)


@asynctest
async def test_a_channel_is_for_the_event_loop_of_its_bus() -> None:
    async with buses() as open_bus:
        here, there, calling, bound, binding = await open_pair(open_bus)

        def use_elsewhere() -> int:
            refused = 0
            for use in (
                lambda: here.try_send(1),
                lambda: here.on_message(print),
                lambda: binding.close(),
                lambda: bound.bind("q"),
                lambda: asyncio.run(here.send(1)),
                lambda: asyncio.run(here.receive()),
                lambda: asyncio.run(here.close()),
                lambda: asyncio.run(binding.accept()),
                lambda: asyncio.run(calling.connect("bound", "p")),
            ):
                with pytest.raises(LocalError, match="belongs to the event loop"):
                    use()
                refused += 1
            return refused

        assert await asyncio.to_thread(use_elsewhere) == 9
        await here.send(1)
        assert await there.receive(LONG_S) == 1


FORK = """
import asyncio, os, sys
import jsonbus
from jsonbus.errors import ForkedError

port = int(sys.argv[1])

async def main():
    parent = jsonbus.AsyncBus(port=port, interface="lo", name="parent")
    other = jsonbus.AsyncBus(port=port, interface="lo", name="other")
    binding = parent.bind("p")
    here = await other.connect("parent", "p", timeout=30)
    there = await binding.accept(30)
    opening = await other.connect("nobody", "p", timeout=60, retry=True, wait=False)
    child = os.fork()
    if child == 0:
        refused = 0
        for channel in (here, there, opening):
            for use in (lambda: channel.try_send(1), lambda: channel.on_message(print)):
                try:
                    use()
                except ForkedError:
                    refused += 1
            for wait in (channel.send(1), channel.receive(1), binding.accept(1)):
                try:
                    await wait
                except ForkedError:
                    refused += 1
            assert not await channel.close()
        assert refused == 15, refused
        binding.close()
        await parent.close()
        await other.close()
        with jsonbus.Bus(port=port, interface="lo") as own:
            own.connect("parent", "p", timeout=30).send("from the child")
        sys.stdout.flush()
        os._exit(7)
    status = (await asyncio.to_thread(os.waitpid, child, 0))[1]
    assert os.waitstatus_to_exitcode(status) == 7
    accepted = await binding.accept(30)
    assert await accepted.receive(30) == "from the child"
    for number in range(20):
        await here.send(number)
        await there.send(-number)
    assert [await there.receive(30) for _ in range(20)] == list(range(20))
    assert [await here.receive(30) for _ in range(20)] == [-number for number in range(20)]
    assert opening.state == "opening"
    assert await here.close(30)
    await parent.close()
    await other.close()
    print("fine")

asyncio.run(main())
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
