"""What an application sees of a bus in an event loop."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

import jsonbus
from jsonbus.errors import ConfigError, LocalError, TransportError
from jsonbus.transport import MemoryNetwork
from tests.aio.running import asynctest, buses, memory_buses


@asynctest
async def test_a_decorated_function_is_a_handler_and_stays_itself() -> None:
    async with buses() as open_bus:
        bus = open_bus()
        rung = asyncio.Event()

        @bus.on("alarm/**")
        async def alarm(message: jsonbus.Message) -> str:
            rung.set()
            return message.topic

        await bus.publish("alarm/fire", None)
        await asyncio.wait_for(rung.wait(), 30)
        assert asyncio.iscoroutinefunction(alarm)


@asynctest
async def test_flushing_gives_up_when_the_time_is_over() -> None:
    async with memory_buses() as (network, open_over):
        transport = network.open()
        bus = open_over(transport, mode="basic")
        assert await bus.flush(timeout=30)
        transport.is_jammed = True
        await bus.publish("x", 1)
        assert not await bus.flush(timeout=0.01)
        transport.is_jammed = False
        assert await bus.flush(timeout=30)


@asynctest
async def test_wrong_settings_and_a_missing_interface_open_nothing() -> None:
    with pytest.raises(ConfigError):
        jsonbus.AsyncBus(port=0)
    with pytest.raises(TypeError):
        jsonbus.AsyncBus(colour="red")  # type: ignore[call-arg]
    with pytest.raises(TransportError):
        jsonbus.AsyncBus(interface="no-such-interface")


def test_an_event_loop_that_cannot_watch_sockets_opens_nothing() -> None:
    class Blind(asyncio.SelectorEventLoop):
        def add_reader(self, *arguments: Any) -> None:  # type: ignore[override]  # none is used
            raise NotImplementedError

    transport = MemoryNetwork().open()

    async def open_bus() -> None:
        jsonbus.AsyncBus.over(transport)

    with asyncio.Runner(loop_factory=Blind) as runner:
        with pytest.raises(TransportError, match="cannot watch sockets"):
            runner.run(open_bus())
    with pytest.raises(TransportError, match="closed"):
        transport.send((b"{}",))


def test_a_bus_is_not_made_outside_an_event_loop() -> None:
    with pytest.raises(LocalError, match="coroutine"):
        jsonbus.AsyncBus(interface="lo")


@asynctest
async def test_a_bus_is_not_used_from_another_thread_or_loop() -> None:
    async with buses() as open_bus:
        bus = open_bus()
        subscription = bus.subscribe("x")
        raised: list[str] = []

        def use() -> None:
            for look in (bus.stats, bus.nodes, subscription.close):
                with pytest.raises(LocalError) as caught:
                    look()
                raised.append(str(caught.value))
            for wait in (bus.publish("x", 1), bus.flush(), bus.close(), subscription.get()):
                with pytest.raises(LocalError) as caught:
                    asyncio.run(wait)
                raised.append(str(caught.value))

        thread = threading.Thread(target=use)
        thread.start()
        await asyncio.to_thread(thread.join, 30)
        assert len(raised) == 7
        assert all("event loop" in text for text in raised)
        assert not bus.is_closed


@asynctest
async def test_a_bus_has_a_name_an_id_its_settings_and_a_readable_form() -> None:
    async with buses() as open_bus:
        bus, other = open_bus(name="kitchen", mode="basic"), open_bus()
        assert bus.name == "kitchen"
        assert bus.config.mode == "basic"
        assert repr(bus).startswith(f"<AsyncBus kitchen 239.255.24.16:{bus.config.port} ")
        assert bus.id != other.id
        assert other.name
        subscription = bus.subscribe("a/*")
        assert repr(subscription) == "<Subscription a/* 0 pending>"
