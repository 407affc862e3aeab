"""Messages on a channel: what may be sent, in which order it comes, what is too large."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from jsonbus.core.channel.limits import MESSAGE_BYTES_MAX
from jsonbus.core.channel.wire import BYTES, JSON, PREFIX, WELCOME
from jsonbus.errors import (
    ChannelClosedError,
    ChannelTimeoutError,
    ConfigError,
    MessageTooLargeError,
    PayloadError,
)
from tests.aio.channels.channel_pair import InTask, open_pair
from tests.aio.running import asynctest, buses, until
from tests.channel_peers import LONG_S, NO_JSON, VALUES, call, join


@asynctest
async def test_messages_go_both_ways_and_keep_their_types() -> None:
    async with buses() as open_bus:
        here, there, *_ = await open_pair(open_bus)
        for sender, receiver in ((here, there), (there, here)):
            for value, expected in VALUES:
                await sender.send(value)
                got = await receiver.receive(LONG_S)
                assert (type(got), got) == (type(expected), expected)


@asynctest
async def test_what_was_sent_does_not_change_with_the_array_it_was_in() -> None:
    async with buses() as open_bus:
        here, there, *_ = await open_pair(open_bus)
        array = bytearray(1 << 20)
        for _ in range(3):
            await here.send(array)
        array[:] = b"\1" * len(array)
        assert [await there.receive(LONG_S) for _ in range(3)] == [bytes(1 << 20)] * 3


@asynctest
async def test_a_value_that_is_no_json_is_refused_and_the_channel_goes_on() -> None:
    async with buses() as open_bus:
        here, there, *_ = await open_pair(open_bus)
        for value in NO_JSON:
            with pytest.raises(PayloadError):
                await here.send(value)
            with pytest.raises(PayloadError):
                here.try_send(value)
        await here.send("fine")
        assert await there.receive(LONG_S) == "fine"
        assert (here.sent, there.received) == (1, 1)


@asynctest
async def test_the_largest_message_passes_and_one_byte_more_is_refused() -> None:
    async with buses() as open_bus:
        here, there, calling, *_ = await open_pair(open_bus)
        with pytest.raises(MessageTooLargeError) as caught:
            await here.send(bytes(MESSAGE_BYTES_MAX + 1))
        error = caught.value
        assert (error.size_bytes, error.limit_bytes) == (MESSAGE_BYTES_MAX + 1, MESSAGE_BYTES_MAX)
        assert str(error) == (
            "a message on the channel to bound ('p') has 67,108,865 bytes, at most 67,108,864 are "
            "taken: send it in pieces"
        )
        with pytest.raises(MessageTooLargeError):
            here.try_send("x" * MESSAGE_BYTES_MAX)  # and two quotes
        largest = bytearray(MESSAGE_BYTES_MAX)
        largest[:3], largest[-3:] = b"abc", b"xyz"
        sending = InTask(here.send(largest))
        assert await there.receive(LONG_S) == largest
        await sending.result()
        assert calling.stats()["channel_bytes_sent"] == MESSAGE_BYTES_MAX


@asynctest
async def test_a_message_too_large_for_who_receives_is_told_in_its_place() -> None:
    async with buses() as open_bus:
        bus = open_bus()
        binding = bus.bind("p")
        with await asyncio.to_thread(join, bus, "p") as plain:
            channel = await binding.accept(LONG_S)
            plain.send(JSON, b"1")
            await asyncio.to_thread(plain.sock.sendall, PREFIX.pack(MESSAGE_BYTES_MAX + 1, BYTES))
            for _ in range(64):
                await asyncio.to_thread(plain.sock.sendall, bytes(1 << 20))
            await asyncio.to_thread(plain.sock.sendall, b"!")
            plain.send(JSON, b"2")
            assert await channel.receive(LONG_S) == 1
            with pytest.raises(MessageTooLargeError) as caught:
                await channel.receive(LONG_S)
            assert caught.value.size_bytes == MESSAGE_BYTES_MAX + 1
            assert await channel.receive(LONG_S) == 2
            assert channel.received == 2
            assert bus.stats()["channel_messages_too_large"] == 1


@asynctest
async def test_what_the_other_side_takes_is_what_may_be_sent() -> None:
    async with buses() as open_bus:
        bus = open_bus()
        binding = bus.bind("p")
        with await asyncio.to_thread(call, bus, "p", message_bytes_max=10) as plain:
            channel = await binding.accept(LONG_S)
            with pytest.raises(MessageTooLargeError, match="at most 10 are"):
                await channel.send(bytes(11))
            await channel.send(b"0123456789")
            await asyncio.to_thread(plain.read_kind, WELCOME)
            assert await asyncio.to_thread(plain.read) == (BYTES, b"0123456789")


@asynctest
async def test_a_message_that_is_no_json_ends_the_channel() -> None:
    async with buses() as open_bus:
        bus = open_bus()
        binding = bus.bind("p")
        with await asyncio.to_thread(join, bus, "p") as plain:
            channel = await binding.accept(LONG_S)
            plain.send(JSON, b"{")
            with pytest.raises(
                ChannelClosedError, match="plain sent a message that is not JSON"
            ) as got:
                await channel.receive(LONG_S)
            assert got.value.is_lost
            assert channel.is_closed
            assert await asyncio.to_thread(plain.is_ended)


@asynctest
async def test_messages_stay_in_order_both_ways_at_once() -> None:
    async with buses() as open_bus:
        here, there, *_ = await open_pair(open_bus)
        count = 3000

        async def send(channel: Any) -> None:
            for number in range(count):
                await channel.send(number)

        async def receive(channel: Any) -> list[int]:
            return [await channel.receive(LONG_S) for _ in range(count)]

        calls = [InTask(send(each)) for each in (here, there)]
        answers = [InTask(receive(each)) for each in (here, there)]
        for each in calls:
            await each.result()
        for each in answers:
            assert await each.result() == list(range(count))


@asynctest
async def test_many_tasks_share_a_channel_and_each_message_is_received_once() -> None:
    async with buses() as open_bus:
        here, there, *_ = await open_pair(open_bus)
        count = 500
        got: list[list[tuple[int, int]]] = [[] for _ in range(4)]

        async def send(sender: int) -> None:
            for number in range(count):
                await here.send([sender, number])

        async def receive(receiver: int) -> None:
            async for sender, number in there:
                got[receiver].append((sender, number))

        receivers = [InTask(receive(each)) for each in range(4)]
        senders = [InTask(send(each)) for each in range(4)]
        for each in senders:
            await each.result()
        assert await here.close(LONG_S)
        for each in receivers:
            await each.result()
        assert sorted(sum(got, [])) == [(s, n) for s in range(4) for n in range(count)]
        for messages in got:
            for sender in range(4):
                numbers = [number for who, number in messages if who == sender]
                assert numbers == sorted(numbers)


@asynctest
async def test_iterating_ends_when_the_channel_is_closed() -> None:
    async with buses() as open_bus:
        here, there, *_ = await open_pair(open_bus)
        for number in range(3):
            await here.send(number)
        assert await here.close(LONG_S)
        assert [each async for each in there] == [0, 1, 2]
        assert [each async for each in there] == []
        assert [each async for each in here] == []


@asynctest
async def test_iterating_raises_when_the_connection_is_lost() -> None:
    async with buses() as open_bus:
        bus = open_bus()
        binding = bus.bind("p")
        plain = await asyncio.to_thread(join, bus, "p")
        channel = await binding.accept(LONG_S)
        plain.send(JSON, b"1")
        plain.close()
        received = []
        with pytest.raises(ChannelClosedError, match="plain is gone") as caught:
            async for value in channel:
                received.append(value)
        assert received == [1]
        assert caught.value.is_lost
        assert await until(lambda: bus.stats()["channels_lost"] == 1)


@asynctest
async def test_nothing_received_in_time_is_a_timeout() -> None:
    async with buses() as open_bus:
        here, *_ = await open_pair(open_bus)
        with pytest.raises(ChannelTimeoutError) as caught:
            await here.receive(timeout=0.01)
        assert str(caught.value) == "no message came within 0.01 s (bound, 'p')"
        assert isinstance(caught.value, TimeoutError)
        with pytest.raises(ChannelTimeoutError):
            await here.receive(timeout=0)


@asynctest
async def test_a_channel_tells_what_it_is() -> None:
    async with buses() as open_bus:
        here, there, calling, bound, _ = await open_pair(open_bus)
        assert (here.node, here.name, here.port) == (bound.id, "bound", "p")
        assert (there.node, there.name, there.port) == (calling.id, "calling", "p")
        assert (here.state, here.is_closed) == ("open", False)
        assert repr(here) == "<Channel to bound ('p') open>"
        await here.send(1)
        await here.send(2)
        assert await until(lambda: there.pending == 2)
        assert (here.sent, there.received) == (2, 2)
        await there.receive()
        assert (there.pending, there.received) == (1, 2)
        await here.close(LONG_S)
        assert (here.state, here.is_closed) == ("closed", True)
        assert await until(lambda: there.is_closed)
        assert await there.receive() == 2
        with pytest.raises(ChannelClosedError, match="calling closed it"):
            await there.receive()


@pytest.mark.parametrize("seconds", [-1, float("nan"), "1", True])
@asynctest
async def test_times_that_are_none_are_refused(seconds: Any) -> None:
    async with buses() as open_bus:
        here, _, calling, _, binding = await open_pair(open_bus)
        for use in (
            lambda: here.send(1, seconds),
            lambda: here.receive(seconds),
            lambda: here.close(seconds),
            lambda: binding.accept(seconds),
            lambda: calling.connect("bound", "p", seconds),
        ):
            with pytest.raises(ConfigError, match="seconds"):
                await use()
        assert here.state == "open"


@asynctest
async def test_the_counters_of_both_sides_are_exact() -> None:
    async with buses() as open_bus:
        before = open_bus(name="without").stats()
        here, there, calling, bound, _ = await open_pair(open_bus)
        await here.send(b"12345")
        await here.send(1)
        await there.send("two")
        assert await there.receive(LONG_S) == b"12345"
        assert await here.receive(LONG_S) == "two"
        assert await until(lambda: there.pending == 1)

        def figures(bus: Any) -> dict[str, int]:
            return {
                name.removeprefix("channel"): count
                for name, count in bus.stats().items()
                if name.startswith("channel") and count
            }

        sent = {
            "_messages_sent": 2,
            "_bytes_sent": 6,
            "_messages_received": 1,
            "_bytes_received": 5,
        }
        assert figures(calling) == {"s_open": 1, "s_opened": 1, **sent}
        got = {"_messages_sent": 1, "_bytes_sent": 5, "_messages_received": 2, "_bytes_received": 6}
        assert figures(bound) == {"s_open": 1, "s_opened": 1, **got}
        assert await here.close(LONG_S)
        assert await until(lambda: there.state == "closed")
        assert await until(lambda: figures(calling) == {"s_opened": 1, **sent})
        assert await until(lambda: figures(bound) == {"s_opened": 1, **got})
        assert before.keys() == calling.stats().keys()
        await calling.close()
        assert figures(calling) == {"s_opened": 1, **sent}
