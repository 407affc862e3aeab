"""The end of a bus: said goodbye, bounded in time, nothing left waiting."""

from __future__ import annotations

import asyncio
import gc
import logging
import subprocess
import sys
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

import jsonbus
from jsonbus.errors import ClosedError
from tests.aio.running import asynctest, buses, memory_buses, until
from tests.helpers import find_free_port, wait_until
from tests.sealed.material import WITH_DOORS


def names_known_to(bus: jsonbus.AsyncBus | jsonbus.Bus) -> set[str]:
    return {node.name for node in bus.nodes()}


def nodes_by_part(bus: jsonbus.AsyncBus) -> list[list[jsonbus.NodeInfo]]:
    return [loop.look(lambda node, now: node.view.nodes(now)) for loop in bus._loop.with_parts]


@asynctest
async def test_cancelling_the_with_block_closes_too() -> None:
    async with buses() as open_bus:
        opened: list[jsonbus.AsyncBus] = []

        async def stay() -> None:
            async with open_bus() as bus:
                opened.append(bus)
                await asyncio.Event().wait()

        staying = asyncio.create_task(stay())
        await asyncio.sleep(0)
        staying.cancel()
        with pytest.raises(asyncio.CancelledError):
            await staying
        assert opened[0].is_closed


@asynctest
async def test_cancelling_a_close_ends_all_compartments() -> None:
    async with memory_buses() as (network, open_over):
        transport = network.open()
        bus = open_over(transport, key_file=WITH_DOORS)
        parts = bus._loop.with_parts
        assert await bus.wait_until_sure(timeout=30)
        parts[-1].transport._inner.is_jammed = True
        await bus.publish("doors/x", 1)
        closing = asyncio.create_task(bus.close(timeout=60))
        assert await until(lambda: parts[-1].is_closed)
        closing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await closing
        assert all(loop.is_closed for loop in parts)


@asynctest
async def test_many_tasks_may_close_at_once() -> None:
    async with buses() as open_bus:
        bus = open_bus()
        bus.subscribe("x", print)
        await asyncio.wait_for(asyncio.gather(*(bus.close() for _ in range(8))), 30)


@pytest.mark.parametrize(
    "use",
    [
        lambda bus: bus.publish("x", 1),
        lambda bus: bus.subscribe("x"),
        lambda bus: bus.on_node(print),
        lambda bus: bus.serve("x", print),
        lambda bus: bus.request("x"),
        lambda bus: bus.ping(),
        lambda bus: bus.wait_for_subscribers("x"),
        lambda bus: bus.wait_until_sure(),
        lambda bus: bus.flush(),
    ],
)
@asynctest
async def test_a_closed_bus_is_not_used(use: Callable[[jsonbus.AsyncBus], object]) -> None:
    async with buses() as open_bus:
        bus = open_bus()
        await bus.close()
        with pytest.raises(ClosedError):
            result = use(bus)
            assert isinstance(result, Awaitable)
            await result


@asynctest
async def test_a_handler_may_close_the_bus() -> None:
    async with buses() as open_bus:
        bus = open_bus(workers=2)
        closed = asyncio.Event()

        async def handler(message: jsonbus.Message) -> None:
            await bus.close()
            await bus.close()
            closed.set()

        bus.subscribe("x", handler)
        await bus.publish("x", 1)
        await asyncio.wait_for(closed.wait(), 30)
        assert bus.is_closed


@asynctest
async def test_handlers_get_the_time_to_finish() -> None:
    async with buses() as open_bus:
        bus = open_bus()
        started, go_on, finished = asyncio.Event(), asyncio.Event(), asyncio.Event()

        async def handler(message: jsonbus.Message) -> None:
            started.set()
            await go_on.wait()
            finished.set()

        bus.subscribe("x", handler)
        await bus.publish("x", 1)
        await asyncio.wait_for(started.wait(), 30)
        asyncio.get_running_loop().call_later(0.05, go_on.set)
        await bus.close(timeout=60)
        assert finished.is_set()


@asynctest
async def test_a_handler_that_does_not_end_is_cancelled_with_a_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with buses() as open_bus:
        bus = open_bus()
        started, cancelled = asyncio.Event(), asyncio.Event()

        async def handler(message: jsonbus.Message) -> None:
            started.set()
            try:
                await asyncio.Event().wait()
            finally:
                cancelled.set()

        subscription = bus.subscribe("x", handler)
        for number in range(3):
            await bus.publish("x", number)
        await asyncio.wait_for(started.wait(), 30)
        with caplog.at_level(logging.WARNING, "jsonbus.bus"):
            await bus.close(timeout=0.01)
        assert cancelled.is_set()
        assert "took too long" in caplog.text
        assert bus.stats()["messages_unread"] == 2
        assert subscription.dropped == 0


@asynctest
async def test_closing_a_jammed_bus_ends_in_time_and_counts_what_did_not_leave() -> None:
    async with memory_buses() as (network, open_over):
        transport = network.open()
        bus = open_over(transport, mode="basic")
        assert await bus.flush(timeout=30)
        transport.is_jammed = True
        await bus.publish("x", 1)
        await bus.close(timeout=0.05)
        assert bus.stats()["datagrams_unsent"] >= 1


@pytest.mark.parametrize("keys", [None, WITH_DOORS])
@asynctest
async def test_a_forgotten_bus_warns_once_and_says_goodbye(keys: Any) -> None:
    async with buses() as open_bus:
        staying = open_bus(key_file=keys)
        port = staying.config.port
        with pytest.warns(ResourceWarning, match="unclosed <AsyncBus forgotten") as warned:
            bus = jsonbus.AsyncBus(port=port, interface="lo", name="forgotten", key_file=keys)
            assert await until(lambda: "forgotten" in names_known_to(staying))
            del bus
            gc.collect()
        assert await until(lambda: "forgotten" not in names_known_to(staying))
        assert await until(lambda: all(len(nodes) == 1 for nodes in nodes_by_part(staying)))
        assert len(warned) == 1


@pytest.mark.slow
def test_a_bus_forgotten_in_an_event_loop_that_has_ended_says_goodbye() -> None:
    port = find_free_port()

    async def open_and_forget() -> jsonbus.AsyncBus:
        bus = jsonbus.AsyncBus(port=port, interface="lo", name="forgotten")
        bus_waits = await bus.wait_until_sure(timeout=30)
        assert bus_waits
        return bus

    with jsonbus.Bus(port=port, interface="lo") as staying:
        bus = asyncio.run(open_and_forget())
        assert wait_until(lambda: "forgotten" in names_known_to(staying))
        with pytest.warns(ResourceWarning, match="unclosed <AsyncBus forgotten"):
            del bus
            gc.collect()
        assert wait_until(lambda: "forgotten" not in names_known_to(staying))


@pytest.mark.slow
def test_a_bus_that_is_open_when_the_program_ends_says_goodbye() -> None:
    port = find_free_port()
    program = (
        "import asyncio, jsonbus\n"
        "async def main():\n"
        f"    bus = jsonbus.AsyncBus(port={port}, interface='lo', name='script')\n"
        "    bus.subscribe('x', print)\n"
        "    await bus.wait_until_sure(timeout=30)\n"
        "    await asyncio.to_thread(input)\n"
        "    return bus\n"
        "bus = asyncio.run(main())\n"
    )
    with jsonbus.Bus(port=port, interface="lo") as staying:
        with subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE) as process:
            assert wait_until(lambda: "script" in names_known_to(staying))
            process.communicate(b"\n", timeout=60)
        assert process.returncode == 0
        assert wait_until(lambda: "script" not in names_known_to(staying))


FORK = """
import asyncio, os, sys
import jsonbus
from jsonbus.errors import ForkedError

port = int(sys.argv[1])

async def main():
    parent = jsonbus.AsyncBus(port=port, interface="lo", name="parent")
    other = jsonbus.AsyncBus(port=port, interface="lo", name="other")
    subscription = parent.subscribe("x")
    assert await other.wait_for_subscribers("x", timeout=30)
    for number in range(2):
        assert await other.publish("x", number)
        assert (await subscription.get(timeout=30)).value == number
    child = os.fork()
    if child == 0:
        refused = 0
        for use in (
            lambda: parent.subscribe("z"),
            lambda: parent.on_node(print),
            lambda: parent.stats(),
        ):
            try:
                use()
            except ForkedError:
                refused += 1
        for wait in (
            parent.publish("x", 1),
            other.publish("x", 1),
            parent.flush(),
            subscription.get(timeout=0),
        ):
            try:
                await wait
            except ForkedError:
                refused += 1
        assert refused == 7, refused
        subscription.close()
        await parent.close()
        await other.close()
        with jsonbus.Bus(port=port, interface="lo") as own:
            assert own.publish("x", "from the child")
            assert own.flush(timeout=30)
        sys.stdout.flush()
        os._exit(7)
    status = (await asyncio.to_thread(os.waitpid, child, 0))[1]
    assert os.waitstatus_to_exitcode(status) == 7
    assert (await subscription.get(timeout=30)).value == "from the child"
    assert parent.id in {node.node for node in other.nodes()}
    for number in range(20):
        await other.publish("x", number)
    assert [(await subscription.get(timeout=30)).value for _ in range(20)] == list(range(20))
    await parent.close()
    await other.close()
    print("fine")

asyncio.run(main())
"""


@pytest.mark.skipif(sys.platform == "win32", reason="there is no fork on Windows")
def test_a_forked_child_cannot_use_the_bus_and_does_the_parent_no_harm() -> None:
    result = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", FORK, str(find_free_port())],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert (result.returncode, result.stdout) == (0, "fine\n"), result.stderr
