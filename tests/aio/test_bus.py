"""What an application sees of a bus in an event loop."""

from __future__ import annotations

import asyncio
import socket
import threading
from dataclasses import dataclass
from typing import Any

import pytest

import jsonbus
from jsonbus.errors import ConfigError, InvalidTopicError, LocalError, PayloadError, TransportError
from jsonbus.transport import MemoryNetwork
from tests.aio.running import asynctest, buses, memory_buses, until


@asynctest
async def test_a_handler_gets_what_another_bus_publishes() -> None:
    async with buses() as open_bus:
        kitchen, hall = open_bus(name="kitchen"), open_bus(name="hall")
        got: list[jsonbus.Message] = []
        hall.subscribe("sensors/**", handler=got.append)
        assert await kitchen.wait_for_subscribers("sensors/kitchen", timeout=30)
        assert await until(lambda: "kitchen" in {node.name for node in hall.nodes()})

        assert await kitchen.publish("sensors/kitchen", {"temp": 21.5})

        assert await until(lambda: got)
        message = got[0]
        assert (message.topic, message.value) == ("sensors/kitchen", {"temp": 21.5})
        assert (message.node, message.name) == (kitchen.id, "kitchen")
        assert message.sequence == 1
        assert message.received_at == pytest.approx(message.sent_at, abs=30)


@asynctest
async def test_iterating_gives_the_messages_in_order() -> None:
    async with buses() as open_bus:
        publisher, reader = open_bus(), open_bus()
        subscription = reader.subscribe("count")
        assert await publisher.wait_for_subscribers("count", timeout=30)

        for number in range(100):
            await publisher.publish("count", number)

        got: list[object] = []
        async for message in subscription:
            got.append(message.value)
            if len(got) == 100:
                break
        assert got == list(range(100))


@pytest.mark.slow
@asynctest
async def test_what_is_published_before_anybody_is_known_is_held_and_arrives() -> None:
    async with buses() as open_bus:
        reader = open_bus()
        subscription = reader.subscribe("early")
        assert await reader.wait_until_sure(timeout=30)

        async def publish_early() -> bool:
            publisher = open_bus()
            assert await publisher.publish("early", "bird")
            assert await publisher.flush(timeout=30)
            # A reader that was stalled for half a second counts as absent: then once more.
            return await until(lambda: subscription.pending, timeout_s=1)

        assert await until(publish_early)
        assert (await subscription.get(timeout=0)).value == "bird"


@pytest.mark.slow
@asynctest
async def test_publishing_what_nobody_wants_sends_nothing() -> None:
    async with buses() as open_bus:
        bus = open_bus()

        async def is_refused() -> bool:
            return not await bus.publish("nobody/wants", 1)

        assert await until(is_refused)
        assert not bus.has_subscribers("nobody/wants")
        assert bus.stats()["messages_suppressed"] >= 1
        assert bus.stats()["messages_sent"] == 0


@asynctest
async def test_a_bus_hears_itself() -> None:
    async with buses() as open_bus:
        bus = open_bus()
        subscription = bus.subscribe("here")
        assert await bus.publish("here", [1, 2])
        message = await subscription.get(timeout=30)
        assert (message.value, message.node) == ([1, 2], bus.id)


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
async def test_values_become_instances_of_the_type_asked_for() -> None:
    @dataclass
    class Reading:
        temp: float

    async with buses() as open_bus:
        bus = open_bus()
        subscription = bus.subscribe("sensors", as_type=Reading)
        plain = bus.subscribe("sensors")
        await bus.publish("sensors", Reading(20.5))
        assert (await subscription.get(timeout=30)).value == Reading(20.5)
        assert (await plain.get(timeout=30)).value == {"temp": 20.5}


@asynctest
async def test_unsubscribing_is_known_to_the_others() -> None:
    async with buses() as open_bus:
        publisher, reader = open_bus(), open_bus()
        subscription = reader.subscribe("news")
        assert await publisher.wait_for_subscribers("news", timeout=30)
        subscription.close()
        assert await until(lambda: not publisher.has_subscribers("news"))


@asynctest
async def test_waiting_for_subscribers_ends_with_the_first_or_with_the_time() -> None:
    async with buses() as open_bus:
        bus = open_bus()
        assert not await bus.wait_for_subscribers("late", timeout=0)
        asyncio.get_running_loop().call_later(0.05, bus.subscribe, "late")
        assert await bus.wait_for_subscribers("late", timeout=30)


@asynctest
async def test_the_bus_tells_who_is_there_and_what_they_want() -> None:
    async with buses() as open_bus:
        kitchen, hall = open_bus(name="kitchen"), open_bus(name="hall")
        hall.subscribe("sensors/*")
        assert await until(lambda: {node.name for node in kitchen.nodes()} == {"kitchen", "hall"})
        assert await until(lambda: kitchen.subscriptions().get("sensors/*") == [hall.id])
        explanation = kitchen.explain("sensors/door")
        assert explanation.verdict == "sent"
        assert explanation.wanted_by == ("hall",)


@asynctest
async def test_a_ping_finds_the_others() -> None:
    async with buses() as open_bus:
        asking, answering = open_bus(), open_bus(name="answering")
        pongs: list[str] = []

        async def ping_again() -> bool:
            pongs.extend(pong.name for pong in await asking.ping(timeout=0.2))
            return "answering" in pongs

        assert await until(ping_again)
        assert answering.id != asking.id


@asynctest
async def test_figures_are_flat_numbers_of_node_transport_and_mailboxes() -> None:
    async with buses() as open_bus:
        figures = open_bus(receive_buffer_bytes=65_536).stats()
        assert all(type(figure) is int for figure in figures.values())
        assert figures["receive_buffer_asked_bytes"] == 65_536
        assert {
            "kernel_drops",
            "send_failures",
            "datagrams_unsent",
            "messages_dropped",
            "messages_published",
        } <= figures.keys()


@pytest.mark.slow
@asynctest
async def test_flushing_waits_for_what_is_held() -> None:
    async with buses() as open_bus:
        publisher = open_bus()
        await publisher.publish("early", 1)
        assert await publisher.flush(timeout=30)
        assert publisher.stats()["messages_waiting_to_be_sure"] == 0


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


@pytest.mark.parametrize("topic", ["", "a//b", "a/*", "jsonbus.x", None, ["list"]])
@asynctest
async def test_a_wrong_topic_is_refused_and_the_bus_goes_on(topic: str) -> None:
    async with buses() as open_bus:
        bus = open_bus()
        subscription = bus.subscribe("**")
        with pytest.raises(InvalidTopicError):
            await bus.publish(topic, 1)
        await bus.publish("right", 2)
        assert (await subscription.get(timeout=30)).value == 2


@asynctest
async def test_a_value_that_is_not_json_is_refused_and_the_bus_goes_on() -> None:
    async with buses() as open_bus:
        bus = open_bus()
        subscription = bus.subscribe("x")
        with pytest.raises(PayloadError):
            await bus.publish("x", object())
        await bus.publish("x", 2)
        assert (await subscription.get(timeout=30)).value == 2


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
        transport.send(b"{}")


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({"maxsize": 0}, "maxsize"),
        ({"overflow": "explode"}, "overflow"),
        ({"handler": 5}, "handler"),
        ({"as_type": object}, "object"),
    ],
)
@asynctest
async def test_wrong_arguments_of_a_subscription_are_refused(
    arguments: dict[str, Any], reason: str
) -> None:
    async with buses() as open_bus:
        bus = open_bus()
        with pytest.raises(ConfigError, match=reason):
            bus.subscribe("x", **arguments)
        assert not bus.has_subscribers("x")


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


@pytest.mark.parametrize("seconds", [-1, float("nan"), float("inf"), "1", None, True])
@asynctest
async def test_a_wrong_time_to_wait_is_refused(seconds: float) -> None:
    async with buses() as open_bus:
        bus = open_bus()
        for wait in (bus.flush, bus.wait_until_sure, bus.ping, bus.close):
            with pytest.raises(ConfigError, match="seconds"):
                await wait(seconds)


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


@asynctest
async def test_a_bus_cannot_be_entered_twice() -> None:
    async with buses() as open_bus:
        async with open_bus() as bus:
            with pytest.raises(LocalError, match="already"):
                await bus.__aenter__()


@asynctest
async def test_messages_of_a_plain_sender_arrive() -> None:
    async with buses() as open_bus:
        bus = open_bus()
        subscription = bus.subscribe("hello")
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sensor:
            sensor.setsockopt(
                socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton("127.0.0.1")
            )
            sensor.sendto(b'{"topic":"hello","payload":1}', (bus.config.group, bus.config.port))
        message = await subscription.get(timeout=30)
        assert (message.value, message.sequence) == (1, None)
        assert message.node.startswith("plain:127.0.0.1")
