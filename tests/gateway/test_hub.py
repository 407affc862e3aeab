"""The hub over real buses: what is wanted, what passes, what is retained, what is stored first."""

from __future__ import annotations

import asyncio
import logging

import pytest

import jsonbus
from jsonbus.core.membership import liveness
from jsonbus.errors import (
    BacklogFullError,
    InvalidTopicError,
    PayloadTooLargeError,
)
from jsonbus.gateway.hub import Hub, Published
from tests.aio.running import asynctest, buses, memory_buses, until


class Sink:
    """A kind of clients that keeps what it is given."""

    def __init__(self) -> None:
        self.messages: list[jsonbus.Message] = []

    def take(self, messages: list[jsonbus.Message]) -> None:
        self.messages += messages

    @property
    def values(self) -> list[object]:
        return [message.value for message in self.messages]


class Shelf:
    """A backlog for some topics, which may be full."""

    def __init__(self, *topics: str) -> None:
        self.topics = topics
        self.is_full = False
        self.stored: list[tuple[str, bytes]] = []

    def wants(self, topic: str) -> bool:
        return topic in self.topics

    async def accept(self, topic: str, payload: bytes) -> int:
        if self.is_full:
            raise BacklogFullError("the shelf is full")
        self.stored.append((topic, payload))
        return 1


@asynctest
async def test_what_clients_want_comes_once_and_in_order() -> None:
    async with buses() as open_bus:
        bus, other = open_bus(), open_bus()
        hub, sink = Hub(bus), Sink()
        hub.add_sink(sink.take)
        await hub.want("a/*")
        await hub.want("a/**")
        assert await other.wait_for_subscribers("a/b/c", timeout=30)
        for number in range(300):
            await other.publish("a/b", number)
        assert await until(lambda: len(sink.messages) == 300)
        assert sink.values == list(range(300))
        assert hub.stats()["messages_received"] == 300


@asynctest
async def test_a_pattern_is_given_up_with_its_last_client() -> None:
    async with buses() as open_bus:
        bus, other = open_bus(), open_bus()
        hub = Hub(bus)
        await hub.want("a")
        await hub.want("a")
        assert await other.wait_for_subscribers("a", timeout=30)
        hub.unwant("a")
        assert bus.has_subscribers("a")
        hub.unwant("a")
        assert not bus.has_subscribers("a")
        assert await until(lambda: not other.has_subscribers("a"))
        await hub.want("a")
        assert bus.has_subscribers("a")


@asynctest
async def test_what_is_wanted_from_the_start_is_counted_like_the_rest() -> None:
    async with buses() as open_bus:
        bus = open_bus()
        hub = Hub(bus)
        with pytest.raises(InvalidTopicError):
            hub.want_first(["a", "b//"])
        assert hub.stats()["patterns_wanted"] == 0
        hub.want_first(["a", "b"])
        await hub.want("a")
        for pattern, is_wanted in (("a", True), ("b", False), ("a", False)):
            hub.unwant(pattern)
            assert bus.has_subscribers(pattern) is is_wanted
        await hub.want("c")
        assert bus.has_subscribers("c")


@asynctest
async def test_a_pattern_that_is_none_is_refused_and_not_counted() -> None:
    async with buses() as open_bus:
        hub = Hub(open_bus())
        with pytest.raises(InvalidTopicError):
            await hub.want("a//b")
        assert hub.stats()["patterns_wanted"] == 0


@asynctest
async def test_own_messages_pass_like_those_of_others() -> None:
    async with buses() as open_bus:
        hub, sink = Hub(open_bus()), Sink()
        hub.add_sink(sink.take)
        await hub.want("a")
        assert await hub.publish("a", 1) == Published(webhooks=0, is_sent=True)
        assert await until(lambda: sink.values == [1])
        assert sink.messages[0].origin.node == hub.node


@pytest.mark.slow
@asynctest
async def test_a_newcomer_gets_retained_values_and_the_others_do_not_get_them_again() -> None:
    async with buses() as open_bus:
        bus, other = open_bus(), open_bus()
        hub, sink = Hub(bus), Sink()
        hub.add_sink(sink.take)
        assert await other.wait_until_sure(timeout=30)
        await other.publish("door/hall", "open", retain=True)
        assert await hub.want("door/hall") == []  # it is on its way
        assert await until(lambda: sink.values == ["open"])
        assert sink.messages[0].retained
        for pattern in ("door/hall", "door/*", "**"):
            (retained,) = await hub.want(pattern)
            assert (retained.value, retained.retained) == ("open", True)
        await other.publish("door/hall", "shut")
        assert await until(lambda: "shut" in sink.values)
        assert sink.values == ["open", "shut"]


@pytest.mark.slow
def test_a_newcomer_gets_the_retained_value_of_a_node_that_was_away(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(liveness, "HEARTBEAT_MIN_S", 0.1)  # so that it is soon taken for gone

    @asynctest
    async def run() -> None:
        async with memory_buses() as (network, open_bus):
            transport = network.open()
            bus, other = open_bus(network.open()), open_bus(transport)
            hub, sink = Hub(bus), Sink()
            hub.add_sink(sink.take)
            assert await other.wait_until_sure(timeout=30)
            await other.publish("a", 1, retain=True)
            await hub.want("a")
            assert await until(lambda: sink.values == [1])
            hub.unwant("a")
            transport.is_plugged = False
            # Both, or the other one would not see that this one wants the topic anew.
            assert await until(lambda: len(bus.nodes()) == len(other.nodes()) == 1)
            transport.is_plugged = True
            assert await until(lambda: len(bus.nodes()) == len(other.nodes()) == 2)
            assert await hub.want("a") == []
            assert await until(lambda: sink.values == [1, 1])

    run()


@asynctest
async def test_a_message_is_stored_before_it_is_published() -> None:
    async with buses() as open_bus:
        shelf, sink = Shelf("a"), Sink()
        hub = Hub(open_bus(), shelf)
        hub.add_sink(sink.take)
        await hub.want("**")
        assert await hub.publish("a", {"x": 1}) == Published(webhooks=1, is_sent=True)
        assert shelf.stored == [("a", b'{"x":1}')]
        shelf.is_full = True
        with pytest.raises(BacklogFullError, match="try again later"):
            await hub.publish("a", 2)
        await hub.publish("b", 3)
        assert await until(lambda: len(sink.messages) == 2)
        assert sink.values == [{"x": 1}, 3]
        assert len(shelf.stored) == 1


@asynctest
async def test_what_the_bus_would_refuse_is_not_stored() -> None:
    async with buses() as open_bus:
        bus = open_bus()
        shelf = Shelf("a", "a//b")
        hub = Hub(bus, shelf)
        with pytest.raises(InvalidTopicError):
            await hub.publish("a//b", 1)
        with pytest.raises(PayloadTooLargeError):
            await hub.publish("a", "x" * bus.config.value_bytes_max)
        assert shelf.stored == []


@asynctest
async def test_a_sink_that_waits_holds_up_and_one_that_fails_hurts_nobody(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with buses() as open_bus:
        hub, sink = Hub(open_bus()), Sink()
        may_go = asyncio.Event()

        async def wait(messages: list[jsonbus.Message]) -> None:
            await may_go.wait()

        def fail(messages: list[jsonbus.Message]) -> None:
            raise RuntimeError("broken")

        for take in (wait, fail, sink.take):
            hub.add_sink(take)
        await hub.want("a")
        with caplog.at_level(logging.ERROR):
            await hub.publish("a", 1)
            assert await until(lambda: sink.values == [1])  # who does not wait has it at once
            await hub.publish("a", 2)
            for _ in range(10):
                await asyncio.sleep(0)
            assert sink.values == [1]
            may_go.set()
            assert await until(lambda: sink.values == [1, 2])
        assert "1 messages were not passed on" in caplog.text
