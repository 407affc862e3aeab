"""Handlers of channels: called in order, one at a time, late ones too, and none for nothing."""

from __future__ import annotations

import asyncio
import threading

import pytest

from jsonbus.aio.channel import Channel
from jsonbus.core.channel.limits import MESSAGE_BYTES_MAX
from jsonbus.errors import (
    ChannelClosedError,
    ConfigError,
    LocalError,
)
from tests.aio.channels.channel_pair import open_pair
from tests.aio.running import asynctest, buses, until
from tests.channel_peers import LONG_S


@asynctest
async def test_handlers_hear_of_opening_of_each_message_and_of_the_end() -> None:
    async with buses() as open_bus:
        calling, bound = open_bus(), open_bus(name="desk")
        heard: list[object] = []
        ended = asyncio.Event()

        def on_closed(error: ChannelClosedError) -> None:
            heard.append(error.reason)
            ended.set()

        def on_accept(channel: Channel) -> None:
            heard.append(channel.port)
            channel.on_message(heard.append)
            channel.on_closed(on_closed)

        bound.bind("p", on_accept)
        channel = await calling.connect("desk", "p", timeout=LONG_S, retry=True)
        for number in range(300):
            await channel.send(number)
        assert await channel.close(LONG_S)
        await asyncio.wait_for(ended.wait(), LONG_S)
        assert heard == ["p", *range(300), f"{calling.name} closed it"]


@asynctest
async def test_late_handlers_get_what_came_before() -> None:
    async with buses() as open_bus:
        here, there, *_ = await open_pair(open_bus)
        for number in range(3):
            await here.send(number)
        assert await here.close(LONG_S)
        assert await until(lambda: there.state == "closed")
        heard: list[object] = []
        there.on_closed(lambda error: heard.append("closed"))
        there.on_message(heard.append)
        assert await until(lambda: heard == [0, 1, 2, "closed"])
        there.on_accept(lambda channel: heard.append(channel is there))
        assert await until(lambda: heard == [0, 1, 2, "closed", True])


@asynctest
async def test_what_is_no_handler_is_refused() -> None:
    async with buses() as open_bus:
        here, _, _, bound, _ = await open_pair(open_bus)
        for give in (here.on_message, here.on_closed, here.on_accept, here.on_refused):
            for wrong in (None, "print"):
                with pytest.raises(ConfigError):
                    give(wrong)  # type: ignore[type-var]
        with pytest.raises(ConfigError):
            bound.bind("q", "print")  # type: ignore[arg-type]
        here.on_message(print)
        with pytest.raises(LocalError, match="a handler for on_message already"):
            here.on_message(print)
        with pytest.raises(LocalError, match="they cannot be received"):
            await here.receive()
        assert bound.bind("q", print).port == "q"


@asynctest
async def test_handlers_may_be_async_and_the_next_call_waits_for_them() -> None:
    async with buses() as open_bus:
        calling, bound = open_bus(), open_bus(name="desk")
        heard: list[object] = []

        async def note(value: object) -> None:
            heard.append(("begin", value))
            await asyncio.sleep(0)
            heard.append(("end", value))

        async def on_closed(error: ChannelClosedError) -> None:
            await note("closed")

        async def on_accept(channel: Channel) -> None:
            await note("accepted")
            channel.on_message(note)
            channel.on_closed(on_closed)

        bound.bind("p", on_accept)
        channel = await calling.connect("desk", "p", timeout=LONG_S, retry=True)
        for number in range(3):
            await channel.send(number)
        assert await channel.close(LONG_S)
        values = ("accepted", 0, 1, 2, "closed")
        expected = [(step, value) for value in values for step in ("begin", "end")]
        assert await until(lambda: heard == expected)


@asynctest
async def test_a_message_handler_that_fails_is_logged_and_the_next_message_comes(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with buses() as open_bus:
        here, there, *_ = await open_pair(open_bus)
        heard: list[int] = []

        def handle(value: int) -> None:
            heard.append(value)
            if value == 1:
                raise ZeroDivisionError("spilt milk")
            if value == 2:
                raise asyncio.CancelledError

        there.on_message(handle)
        for number in range(4):
            await here.send(number)
        assert await until(lambda: heard == [0, 1, 2, 3])
        assert "on_message of the channel to 'calling' failed" in caplog.text
        assert "spilt milk" in caplog.text
        assert there.state == "open"


@asynctest
async def test_without_waiting_who_connects_hears_that_it_is_open() -> None:
    async with buses() as open_bus:
        calling, bound = open_bus(), open_bus(name="desk")
        heard: list[object] = []
        channel = await calling.connect("desk", "p", timeout=LONG_S, retry=True, wait=False)
        channel.on_accept(lambda each: heard.append(each is channel))
        channel.on_refused(heard.append)
        channel.on_message(heard.append)
        assert heard == []
        there = await bound.bind("p").accept(LONG_S)
        await there.send("welcome")
        assert await until(lambda: heard == [True, "welcome"])


@pytest.mark.parametrize("kind", ["on_accept", "on_message", "on_closed"])
@asynctest
async def test_a_handler_may_close_its_channel(kind: str) -> None:
    async with buses() as open_bus:
        here, there, *_ = await open_pair(open_bus)
        confirmed: list[bool] = []
        ended = asyncio.Event()

        async def handle(argument: object) -> None:
            confirmed.append(await there.close(LONG_S))
            confirmed.append(await there.close(LONG_S))

        await here.send(1)
        assert await until(lambda: there.pending)
        getattr(there, kind)(handle)
        if kind == "on_closed":
            assert await here.close(LONG_S)
            assert not await there.close(LONG_S)
            assert await until(lambda: confirmed == [False, False])
            return
        there.on_closed(lambda error: ended.set())
        await asyncio.wait_for(ended.wait(), LONG_S)
        assert confirmed == [True, True]
        assert await until(lambda: here.state == "closed")


@asynctest
async def test_a_handler_may_close_the_bus() -> None:
    async with buses() as open_bus:
        here, there, _, bound, _ = await open_pair(open_bus)
        closed = asyncio.Event()

        async def handle(value: object) -> None:
            await bound.close(LONG_S)
            closed.set()

        there.on_message(handle)
        await here.send(1)
        await asyncio.wait_for(closed.wait(), LONG_S)
        assert bound.is_closed
        with pytest.raises(ChannelClosedError, match="bound closed it"):
            await here.receive(LONG_S)


@asynctest
async def test_one_handler_never_runs_twice_at_once() -> None:
    async with buses() as open_bus:
        here, there, *_ = await open_pair(open_bus, workers=4)
        alone = threading.Lock()
        heard: list[int] = []

        def handle(value: int) -> None:
            assert alone.acquire(blocking=False)
            heard.append(value)
            alone.release()

        there.on_message(handle)
        for number in range(1000):
            await here.send(number)
        assert await until(lambda: heard == list(range(1000)))


@pytest.mark.parametrize("kind", ["on_accept", "on_message"])
@asynctest
async def test_a_handler_that_sends_too_much_has_failed(
    caplog: pytest.LogCaptureFixture, kind: str
) -> None:
    async with buses() as open_bus:
        here, there, *_ = await open_pair(open_bus)
        getattr(there, kind)(lambda argument: there.send(bytes(MESSAGE_BYTES_MAX + 1)))
        await here.send(1)
        assert await until(lambda: f"{kind} of the channel to 'calling' failed" in caplog.text)
        assert "Traceback" in caplog.text
        if kind == "on_accept":
            with pytest.raises(ChannelClosedError):
                await here.receive(LONG_S)


@asynctest
async def test_nobody_keeps_a_channel_that_has_ended_because_it_had_handlers() -> None:
    async with buses() as open_bus:
        calling, bound = open_bus(), open_bus(name="desk")
        bound.bind("p", lambda channel: channel.on_message(print))
        for _ in range(3):
            assert await (await calling.connect("desk", "p", timeout=LONG_S, retry=True)).close(
                LONG_S
            )
        assert await until(lambda: bound.stats()["channels_open"] == 0)
        assert bound._loop.channels is not None
        manager = bound._loop.channels.manager
        assert await until(lambda: not manager.busy)
