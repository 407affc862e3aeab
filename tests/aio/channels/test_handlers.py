"""Handlers of channels: called in order, one at a time, late ones too, and none for nothing."""

from __future__ import annotations

import asyncio
import logging
import threading
from typing import Any

import pytest

from jsonbus.aio.channel import Channel
from jsonbus.core.channel.limits import MESSAGE_BYTES_MAX
from jsonbus.core.channel.wire import BYTES, JSON, PREFIX
from jsonbus.errors import (
    ChannelClosedError,
    ChannelRefusedError,
    ConfigError,
    LocalError,
)
from tests.aio.channels.channel_pair import open_pair
from tests.aio.running import asynctest, buses, until
from tests.channel_peers import LONG_S, join


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
async def test_handlers_are_decorators_too() -> None:
    async with buses() as open_bus:
        here, there, *_ = await open_pair(open_bus)
        heard: list[Any] = []

        @there.on_message
        def note(value: object) -> None:
            heard.append(value)

        @there.on_closed
        def note_end(error: ChannelClosedError) -> None:
            heard.append(None)

        await here.send(1)
        await here.close(LONG_S)
        assert await until(lambda: heard == [1, None])
        note(2)
        assert heard == [1, None, 2]


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
async def test_a_binding_with_a_handler_has_nothing_to_accept() -> None:
    async with buses() as open_bus:
        binding = open_bus().bind("p", print)
        with pytest.raises(LocalError, match="port 'p' has a handler that accepts its channels"):
            await binding.accept()


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
async def test_an_accept_handler_that_fails_closes_its_channel(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with buses() as open_bus:
        calling, bound = open_bus(), open_bus(name="desk")

        def fail(channel: Channel) -> None:
            raise ZeroDivisionError("spilt milk")

        bound.bind("p", fail)
        channel = await calling.connect("desk", "p", timeout=LONG_S, retry=True)
        with pytest.raises(ChannelClosedError, match="desk closed it"):
            await channel.receive(LONG_S)
        assert "spilt milk" in caplog.text


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


@asynctest
async def test_without_waiting_who_connects_hears_that_it_was_refused() -> None:
    async with buses() as open_bus:
        calling = open_bus()
        open_bus(name="desk")
        heard: list[Any] = []
        channel = await calling.connect("desk", "p", timeout=LONG_S, wait=False)
        channel.on_refused(heard.append)
        channel.on_accept(heard.append)
        channel.on_closed(heard.append)
        assert await until(lambda: heard)
        assert isinstance(heard[0], ChannelRefusedError)
        assert (heard[0].reason, heard[0].node) == ("unbound", "desk")
        assert (channel.state, len(heard)) == ("closed", 1)


@asynctest
async def test_closing_before_it_opens_is_heard_as_a_refusal() -> None:
    async with buses() as open_bus:
        calling = open_bus()
        heard: list[Any] = []
        channel = await calling.connect("nobody", "p", timeout=LONG_S, retry=True, wait=False)
        channel.on_refused(heard.append)
        assert not await channel.close(LONG_S)
        assert await until(lambda: heard)
        assert isinstance(heard[0], ChannelClosedError)
        assert await until(lambda: calling.stats()["channel_attempts_failed"] == 1)


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
async def test_handlers_hear_of_the_end_before_the_bus_has_closed() -> None:
    async with buses() as open_bus:
        here, there, calling, bound, _ = await open_pair(open_bus)
        heard: list[tuple[str, str]] = []
        here.on_closed(lambda error: heard.append(("here", error.reason)))
        there.on_closed(lambda error: heard.append(("there", error.reason)))
        await bound.close(LONG_S)
        assert ("there", "it was closed here") in heard
        assert await until(lambda: ("here", "bound closed it") in heard)
        await calling.close()


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


@asynctest
async def test_a_message_too_large_is_warned_of_once_and_the_next_one_comes(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with buses() as open_bus:
        bus = open_bus()
        heard: list[object] = []
        bus.bind("p", lambda channel: channel.on_message(heard.append))
        with (
            await asyncio.to_thread(join, bus, "p") as plain,
            caplog.at_level(logging.WARNING, "jsonbus"),
        ):
            await asyncio.to_thread(plain.sock.sendall, PREFIX.pack(MESSAGE_BYTES_MAX + 1, BYTES))
            for _ in range(64):
                await asyncio.to_thread(plain.sock.sendall, bytes(1 << 20))
            await asyncio.to_thread(plain.sock.sendall, b"!")
            plain.send(JSON, b"2")
            assert await until(lambda: heard == [2])
        assert "has 67,108,865 bytes" in caplog.text
        assert "Traceback" not in caplog.text


@asynctest
async def test_a_message_that_is_no_json_is_no_failure_of_the_handler(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with buses() as open_bus:
        bus = open_bus()
        heard: list[Any] = []

        def on_accept(channel: Channel) -> None:
            channel.on_message(heard.append)
            channel.on_closed(heard.append)

        bus.bind("p", on_accept)
        with (
            await asyncio.to_thread(join, bus, "p") as plain,
            caplog.at_level(logging.WARNING, "jsonbus"),
        ):
            plain.send(JSON, b"{")
            assert await until(lambda: heard)
        assert "plain sent a message that is not JSON" in str(heard[0])
        assert "plain sent a message that is not JSON" in caplog.text
        assert "Traceback" not in caplog.text


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
