"""Ports that are bound, and attempts to connect to them: granted, refused, repeated."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

import jsonbus
from jsonbus.core.channel.limits import ACCEPT_MAX
from jsonbus.core.channel.wire import (
    REFUSED,
    Refusal,
    Welcome,
    decode_refusal,
    encode_refusal,
    encode_welcome,
)
from jsonbus.errors import (
    ChannelClosedError,
    ChannelRefusedError,
    ChannelTimeoutError,
    ClosedError,
    ConfigError,
    LocalError,
    MessageTooLargeError,
    TransportError,
)
from tests.aio.channels.channel_pair import InTask, open_pair
from tests.aio.running import asynctest, buses, memory_buses, until
from tests.channel_peers import LONG_S, PlainListener, call, count_descriptors


async def refusal_of(
    bus: jsonbus.AsyncBus, node: str, port: str, **settings: Any
) -> ChannelRefusedError:
    with pytest.raises(ChannelRefusedError) as caught:
        await bus.connect(node, port, **{"timeout": LONG_S, **settings})
    return caught.value


@asynctest
async def test_a_node_is_connected_to_by_its_name_or_its_id() -> None:
    async with buses() as open_bus:
        calling, bound = open_bus(), open_bus(name="desk")
        binding = bound.bind("p")
        for who in ("desk", bound.id):
            here = await calling.connect(who, "p", timeout=LONG_S)
            there = await binding.accept(LONG_S)
            assert (here.node, here.name) == (bound.id, "desk")
            assert there.node == calling.id


@asynctest
async def test_a_node_may_connect_to_itself() -> None:
    async with buses() as open_bus:
        bus = open_bus(name="alone")
        assert (await refusal_of(bus, "alone", "p")).reason == "unbound"
        binding = bus.bind("p")
        for who in ("alone", bus.id):
            here = await bus.connect(who, "p", timeout=LONG_S)
            there = await binding.accept(LONG_S)
            await here.send("to myself")
            assert await there.receive(LONG_S) == "to myself"
            assert await here.close(LONG_S)


@asynctest
async def test_a_port_is_a_name_or_a_number() -> None:
    async with buses() as open_bus:
        calling, bound = open_bus(), open_bus(name="desk")
        binding = bound.bind(5)
        assert binding.port == "5"
        await calling.connect("desk", "5", timeout=LONG_S)
        await calling.connect("desk", 5, timeout=LONG_S)
        with pytest.raises(LocalError, match="port '5' is bound already: close that binding first"):
            bound.bind("5")


@pytest.mark.parametrize("port", ["", "a\nb", "x" * 256, -1, True, None, 1.5, b"p"])
@asynctest
async def test_what_is_no_port_is_refused(port: Any) -> None:
    async with buses() as open_bus:
        bus = open_bus()
        with pytest.raises(ConfigError, match="is no port"):
            bus.bind(port)
        with pytest.raises(ConfigError, match="is no port"):
            await bus.connect("x", port)


@pytest.mark.parametrize("node", ["", None, 7])
@asynctest
async def test_what_is_no_node_is_refused(node: Any) -> None:
    async with buses() as open_bus:
        with pytest.raises(ConfigError, match="connect to a node's name or id"):
            await open_bus().connect(node, "p")


@pytest.mark.slow
@asynctest
async def test_a_node_that_is_not_there_is_unknown() -> None:
    async with buses() as open_bus:
        error = await refusal_of(open_bus(), "nobody", "p")
        assert (error.reason, error.node, error.port) == ("unknown", "nobody", "p")
        assert str(error) == "there is no node 'nobody': `jsonbus nodes` lists the nodes"


@asynctest
async def test_nothing_is_bound_before_it_is_bound() -> None:
    async with buses() as open_bus:
        calling, bound = open_bus(), open_bus(name="desk")
        error = await refusal_of(calling, "desk", "p")
        assert (error.reason, error.node) == ("unbound", "desk")
        assert str(error) == (
            "nothing is bound to port 'p' of desk: bind it there first, or use retry"
        )
        bound.bind("another")
        assert (await refusal_of(calling, bound.id, "p")).reason == "unbound"
        bound.bind("p")
        await calling.connect("desk", "p", timeout=LONG_S, retry=True)
        assert await until(lambda: calling.stats()["channel_attempts_failed"] == 2)
        assert await until(lambda: bound.stats()["channels_refused"] <= 1)


@asynctest
async def test_a_name_of_two_nodes_is_ambiguous_and_their_ids_are_not() -> None:
    async with buses() as open_bus:
        calling, first, second = open_bus(), open_bus(name="twin"), open_bus(name="twin")
        ids = tuple(sorted((first.id, second.id)))
        assert await until(lambda: set(ids) <= {node.node for node in calling.nodes()})
        for bus in (first, second):
            bus.bind("p")
        error = await refusal_of(calling, "twin", "p")
        assert (error.reason, error.nodes) == ("ambiguous", ids)
        assert str(error) == (
            f"several nodes are called 'twin': connect to one of the ids {ids[0]}, {ids[1]}"
        )
        for bus in (first, second):
            assert (await calling.connect(bus.id, "p", timeout=LONG_S)).node == bus.id


@asynctest
async def test_an_exclusive_port_takes_one_channel_at_a_time() -> None:
    async with buses() as open_bus:
        calling, bound = open_bus(), open_bus(name="desk")
        binding = bound.bind("p", exclusive=True)
        assert binding.exclusive
        for closes_here in (True, False):
            here = await calling.connect("desk", "p", timeout=LONG_S, retry=True)
            there = await binding.accept(LONG_S)
            error = await refusal_of(calling, "desk", "p")
            assert (error.reason, error.node) == ("taken", "desk")
            assert str(error) == (
                "port 'p' of desk is exclusive, and taken: try again when it is free"
            )
            assert await (here if closes_here else there).close(LONG_S)


@asynctest
async def test_who_tries_again_gets_an_exclusive_port_when_it_is_free() -> None:
    async with buses() as open_bus:
        calling, bound = open_bus(), open_bus(name="desk")
        bound.bind("p", exclusive=True)
        first = await calling.connect("desk", "p", timeout=LONG_S, retry=True)
        second = InTask(calling.connect("desk", "p", timeout=LONG_S, retry=True))
        assert await until(lambda: bound.stats()["channels_refused"])
        await first.close(LONG_S)
        assert (await second.result()).state == "open"


@asynctest
async def test_more_callers_than_may_wait_are_told_that_it_is_busy() -> None:
    async with buses() as open_bus:
        calling, bound = open_bus(), open_bus(name="desk")
        binding = bound.bind("p")
        for _ in range(ACCEPT_MAX):
            await calling.connect("desk", "p", timeout=LONG_S, retry=True)
        assert binding.pending == ACCEPT_MAX
        error = await refusal_of(calling, "desk", "p")
        assert (error.reason, error.node) == ("busy", "desk")
        assert str(error) == "desk takes no more channels to 'p' now: try again later"
        await binding.accept()
        await calling.connect("desk", "p", timeout=LONG_S, retry=True)


@asynctest
async def test_a_node_that_does_not_answer_any_more_is_gone() -> None:
    async with buses() as open_bus:
        calling, leaving = open_bus(), open_bus(name="desk")
        with PlainListener(leaving):
            assert await until(lambda: "desk" in {node.name for node in calling.nodes()})
        error = await refusal_of(calling, "desk", "p")
        assert error.reason == "gone"
        assert str(error) == (
            "desk does not answer (Connection refused): "
            "it left, cannot be reached, or is before 0.5.0"
        )


@asynctest
async def test_another_node_in_the_place_of_the_one_that_is_meant_says_so() -> None:
    async with buses() as open_bus:
        bus = open_bus(name="desk")
        bus.bind("p")
        with await asyncio.to_thread(call, bus, "p", to="another-node-1") as plain:
            refusal = decode_refusal(await asyncio.to_thread(plain.read_kind, REFUSED))
            assert (refusal.node, refusal.name, refusal.reason) == (bus.id, "desk", "gone")
            assert await asyncio.to_thread(plain.is_ended)
        assert await until(lambda: bus.stats()["channels_refused"] == 1)


@asynctest
async def test_versions_that_do_not_understand_each_other_are_told() -> None:
    async with buses() as open_bus:
        calling, bound = open_bus(), open_bus(name="desk")
        bound.bind("p")
        with await asyncio.to_thread(call, bound, "p", version=2) as plain:
            refusal = decode_refusal(await asyncio.to_thread(plain.read_kind, REFUSED))
        assert (refusal.reason, refusal.detail) == ("version", "the caller speaks 2, this node 1")
        with PlainListener(bound) as listener:
            connecting = InTask(refusal_of(calling, "desk", "p"))
            with await asyncio.to_thread(listener.accept) as answering:
                answering.sock.sendall(encode_refusal(Refusal(bound.id, "desk", "version", "new")))
                error = await connecting.result()
        assert str(error) == (
            "desk speaks another version of the channel protocol (new): update the older"
        )


@asynctest
async def test_who_tries_again_waits_for_the_node_and_for_its_port() -> None:
    async with buses() as open_bus:
        calling = open_bus()
        connecting = InTask(calling.connect("desk", "p", timeout=LONG_S, retry=True))
        bound = open_bus(name="desk")
        other = bound.bind("another")
        assert await until(lambda: bound.stats()["channels_refused"])
        bound.bind("p")
        assert (await connecting.result()).state == "open"
        assert await until(lambda: calling.stats()["channel_attempts_failed"] == 0)
        assert other.pending == 0


@asynctest
async def test_who_tries_again_is_told_in_the_end_why_it_was_refused() -> None:
    async with buses() as open_bus:
        calling, bound = open_bus(), open_bus(name="desk")
        bound.bind("another")
        assert (await refusal_of(calling, "desk", "p", timeout=0.2, retry=True)).reason == "unbound"


@asynctest
async def test_a_node_that_says_nothing_is_waited_for_as_long_as_told() -> None:
    async with buses() as open_bus:
        calling, bound = open_bus(), open_bus(name="desk")
        before = count_descriptors()
        with PlainListener(bound) as listener:
            with pytest.raises(ChannelTimeoutError, match="desk did not answer within 0.2 s"):
                await calling.connect("desk", "p", timeout=0.2)
            with await asyncio.to_thread(listener.accept) as answering:
                assert await asyncio.to_thread(answering.is_ended)
        assert await until(lambda: calling.stats()["channel_attempts_failed"] == 1)
        assert await until(
            lambda: count_descriptors() <= before + 3
        )  # the thread of channels has some


@asynctest
async def test_without_waiting_what_is_sent_waits_until_it_is_open() -> None:
    async with buses() as open_bus:
        calling, bound = open_bus(), open_bus(name="desk")
        channel = await calling.connect("desk", "p", timeout=LONG_S, retry=True, wait=False)
        assert (channel.state, channel.is_closed, channel.node) == ("opening", False, "desk")
        assert (channel.pending, channel.sent, channel.received) == (0, 0, 0)
        assert not channel.try_send("now")
        with pytest.raises(ChannelTimeoutError):
            await channel.send("soon", timeout=0.01)
        with pytest.raises(ChannelTimeoutError):
            await channel.receive(timeout=0.01)
        sending = InTask(channel.send("later"))
        binding = bound.bind("p")
        there = await binding.accept(LONG_S)
        assert await there.receive(LONG_S) == "later"
        await sending.result()
        assert (channel.state, channel.node) == ("open", bound.id)


@pytest.mark.slow
@asynctest
async def test_without_waiting_a_refusal_is_raised_by_whatever_is_done() -> None:
    async with buses() as open_bus:
        bus = open_bus()
        channel = await bus.connect("nobody", "p", wait=False)
        for use in (lambda: channel.send(1), channel.receive, lambda: anext(channel)):
            with pytest.raises(ChannelRefusedError) as caught:
                await use()
            assert caught.value.reason == "unknown"
        with pytest.raises(ChannelRefusedError):
            channel.try_send(1)
        assert channel.state == "closed"
        assert not await channel.close()


@asynctest
async def test_channels_are_accepted_in_the_order_in_which_they_came() -> None:
    async with buses() as open_bus:
        calling, bound = open_bus(), open_bus(name="desk")
        binding = bound.bind("p")
        assert repr(binding) == "<Binding of 'p', 0 pending>"
        with pytest.raises(ChannelTimeoutError, match="nobody connected within 0.01 s"):
            await binding.accept(timeout=0.01)
        for number in range(3):
            await (await calling.connect("desk", "p", timeout=LONG_S, retry=True)).send(number)
        for number in range(3):
            assert await (await anext(binding)).receive(LONG_S) == number


@asynctest
async def test_many_tasks_accept_and_each_channel_goes_to_one() -> None:
    async with buses() as open_bus:
        calling, bound = open_bus(), open_bus(name="desk")
        binding = bound.bind("p")
        accepting = [InTask(binding.accept(LONG_S)) for _ in range(8)]
        for number in range(8):
            await (await calling.connect("desk", "p", timeout=LONG_S, retry=True)).send(number)
        accepted = [await each.result() for each in accepting]
        assert sorted([await each.receive(LONG_S) for each in accepted]) == list(range(8))


@asynctest
async def test_closing_a_binding_keeps_what_was_accepted_and_frees_the_port() -> None:
    async with buses() as open_bus:
        here, there, calling, bound, binding = await open_pair(open_bus)
        waiting = await calling.connect("bound", "p", timeout=LONG_S, retry=True)

        async def accept_all() -> list[str]:
            return [channel.name async for channel in binding]

        accepting = InTask(accept_all())
        assert await until(lambda: binding.pending == 0)
        another = bound.bind("q")
        unaccepted = await calling.connect("bound", "q", timeout=LONG_S)
        with another:
            pass
        with pytest.raises(ChannelClosedError, match="bound closed it"):
            await unaccepted.receive(LONG_S)
        binding.close()
        binding.close()
        assert await accepting.result() == ["calling"]
        assert (binding.is_closed, repr(binding)) == (True, "<Binding of 'p', closed>")
        with pytest.raises(ClosedError, match="the binding of port 'p' is closed"):
            await binding.accept()
        assert (await refusal_of(calling, "bound", "p")).reason == "unbound"
        await here.send("still there")
        assert await there.receive(LONG_S) == "still there"
        assert waiting.state == "open"
        with bound.bind("p"):
            await calling.connect("bound", "p", timeout=LONG_S, retry=True)


@asynctest
async def test_a_bus_that_cannot_listen_says_so_and_binds_nothing() -> None:
    async with memory_buses() as (network, open_over):
        bus = open_over(network.open())
        for _ in range(2):
            with pytest.raises(TransportError, match="cannot listen on 10.0.0.1: Cannot assign"):
                bus.bind("p")


@asynctest
async def test_a_channel_costs_no_thread_and_no_task_however_many_there_are() -> None:
    async with buses() as open_bus:
        calling, bound = open_bus(), open_bus(name="desk")
        threads, tasks = threading.active_count(), len(asyncio.all_tasks())
        descriptors = count_descriptors()
        binding = bound.bind("p")
        for _ in range(20):
            await calling.connect("desk", "p", timeout=LONG_S, retry=True)
            await binding.accept(LONG_S)
        assert (threading.active_count(), len(asyncio.all_tasks())) == (threads, tasks)
        assert count_descriptors() >= descriptors + 40
        await calling.close()
        await bound.close()
        assert count_descriptors() < descriptors


@asynctest
async def test_a_message_for_which_the_other_turns_out_to_be_too_small_is_not_sent() -> None:
    async with buses() as open_bus:
        calling, bound = open_bus(), open_bus(name="desk")
        with PlainListener(bound) as listener:
            channel = await calling.connect("desk", "p", timeout=LONG_S, wait=False)
            sending = InTask(channel.send(bytes(11)))
            with await asyncio.to_thread(listener.accept) as answering:
                answering.sock.sendall(encode_welcome(Welcome(bound.id, 1, "desk", 10)))
                with pytest.raises(MessageTooLargeError, match="at most 10"):
                    await sending.result()
                await channel.send(bytes(10))
                assert (await asyncio.to_thread(answering.read))[1] == bytes(10)
