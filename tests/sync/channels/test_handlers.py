"""Handlers of channels: called in order, one at a time, late ones too, and none for nothing."""

from __future__ import annotations

import threading

import pytest

from jsonbus.core.channel.limits import MESSAGE_BYTES_MAX
from jsonbus.errors import (
    ChannelClosedError,
    ConfigError,
    LocalError,
)
from jsonbus.sync.channel import Channel
from tests.channel_peers import LONG_S
from tests.helpers import wait_until
from tests.sync.channels.channel_pair import open_pair
from tests.sync.conftest import OpenBus


def test_handlers_hear_of_opening_of_each_message_and_of_the_end(open_bus: OpenBus) -> None:
    calling, bound = open_bus(), open_bus(name="desk")
    heard: list[object] = []
    ended = threading.Event()

    def on_closed(error: ChannelClosedError) -> None:
        heard.append(error.reason)
        ended.set()

    def on_accept(channel: Channel) -> None:
        heard.append(channel.port)
        channel.on_message(heard.append)
        channel.on_closed(on_closed)

    bound.bind("p", on_accept)
    channel = calling.connect("desk", "p", timeout=LONG_S, retry=True)
    for number in range(300):
        channel.send(number)
    assert channel.close(LONG_S)
    assert ended.wait(LONG_S)
    assert heard == ["p", *range(300), f"{calling.name} closed it"]


def test_late_handlers_get_what_came_before(open_bus: OpenBus) -> None:
    here, there, *_ = open_pair(open_bus)
    for number in range(3):
        here.send(number)
    assert here.close(LONG_S)
    assert wait_until(lambda: there.state == "closed")
    heard: list[object] = []
    there.on_closed(lambda error: heard.append("closed"))
    there.on_message(heard.append)
    assert wait_until(lambda: heard == [0, 1, 2, "closed"])
    there.on_accept(lambda channel: heard.append(channel is there))
    assert wait_until(lambda: heard == [0, 1, 2, "closed", True])


def test_what_is_no_handler_is_refused(open_bus: OpenBus) -> None:
    here, _, _, bound, _ = open_pair(open_bus)

    async def wait(value: object) -> None:
        pass

    for wrong in (None, "print", wait):
        for give in (here.on_message, here.on_closed, here.on_accept, here.on_refused):
            with pytest.raises(ConfigError):
                give(wrong)  # type: ignore[type-var]
    for wrong in ("print", wait):
        with pytest.raises(ConfigError):
            bound.bind("q", wrong)  # type: ignore[arg-type]
    here.on_message(print)
    with pytest.raises(LocalError, match="a handler for on_message already"):
        here.on_message(print)
    with pytest.raises(LocalError, match="they cannot be received"):
        here.receive()
    assert bound.bind("q", print).port == "q"


def test_a_message_handler_that_fails_is_logged_and_the_next_message_comes(
    open_bus: OpenBus, caplog: pytest.LogCaptureFixture
) -> None:
    here, there, *_ = open_pair(open_bus)
    heard: list[int] = []

    def handle(value: int) -> None:
        heard.append(value)
        if value == 1:
            raise ZeroDivisionError("spilt milk")
        if value == 2:
            raise SystemExit

    there.on_message(handle)
    for number in range(4):
        here.send(number)
    assert wait_until(lambda: heard == [0, 1, 2, 3])
    assert "on_message of the channel to 'calling' failed" in caplog.text
    assert "spilt milk" in caplog.text
    assert there.state == "open"


def test_without_waiting_who_connects_hears_that_it_is_open(open_bus: OpenBus) -> None:
    calling, bound = open_bus(), open_bus(name="desk")
    heard: list[object] = []
    channel = calling.connect("desk", "p", timeout=LONG_S, retry=True, wait=False)
    channel.on_accept(lambda each: heard.append(each is channel))
    channel.on_refused(heard.append)
    channel.on_message(heard.append)
    assert heard == []
    there = bound.bind("p").accept(LONG_S)
    there.send("welcome")
    assert wait_until(lambda: heard == [True, "welcome"])


@pytest.mark.parametrize("kind", ["on_accept", "on_message", "on_closed"])
def test_a_handler_may_close_its_channel(open_bus: OpenBus, kind: str) -> None:
    here, there, *_ = open_pair(open_bus)
    confirmed: list[bool] = []
    ended = threading.Event()

    def handle(argument: object) -> None:
        confirmed.append(there.close(LONG_S))
        confirmed.append(there.close(LONG_S))

    here.send(1)
    assert wait_until(lambda: there.pending)
    getattr(there, kind)(handle)
    if kind == "on_closed":
        assert here.close(LONG_S)
        assert not there.close(LONG_S)
        assert wait_until(lambda: confirmed == [False, False])
        return
    there.on_closed(lambda error: ended.set())
    assert ended.wait(LONG_S)
    assert confirmed == [True, True]
    assert wait_until(lambda: here.state == "closed")


def test_a_handler_may_close_the_bus(open_bus: OpenBus) -> None:
    here, there, _, bound, _ = open_pair(open_bus)
    closed = threading.Event()

    def handle(value: object) -> None:
        bound.close(LONG_S)
        closed.set()

    there.on_message(handle)
    here.send(1)
    assert closed.wait(LONG_S)
    assert bound.is_closed
    with pytest.raises(ChannelClosedError, match="bound closed it"):
        here.receive(LONG_S)


def test_one_handler_never_runs_twice_at_once(open_bus: OpenBus) -> None:
    here, there, *_ = open_pair(open_bus, workers=4)
    alone = threading.Lock()
    heard: list[int] = []

    def handle(value: int) -> None:
        assert alone.acquire(blocking=False)
        heard.append(value)
        alone.release()

    there.on_message(handle)
    for number in range(1000):
        here.send(number)
    assert wait_until(lambda: heard == list(range(1000)))


@pytest.mark.parametrize("kind", ["on_accept", "on_message"])
def test_a_handler_that_sends_too_much_has_failed(
    open_bus: OpenBus, caplog: pytest.LogCaptureFixture, kind: str
) -> None:
    here, there, *_ = open_pair(open_bus)
    getattr(there, kind)(lambda argument: there.send(bytes(MESSAGE_BYTES_MAX + 1)))
    here.send(1)
    assert wait_until(lambda: f"{kind} of the channel to 'calling' failed" in caplog.text)
    assert "Traceback" in caplog.text
    if kind == "on_accept":
        with pytest.raises(ChannelClosedError):
            here.receive(LONG_S)


def test_nobody_keeps_a_channel_that_has_ended_because_it_had_handlers(open_bus: OpenBus) -> None:
    calling, bound = open_bus(), open_bus(name="desk")
    bound.bind("p", lambda channel: channel.on_message(print))
    for _ in range(3):
        assert calling.connect("desk", "p", timeout=LONG_S, retry=True).close(LONG_S)
    assert wait_until(lambda: bound.stats()["channels_open"] == 0)
    assert bound._loop.channels is not None
    manager = bound._loop.channels.manager
    assert wait_until(lambda: not manager.busy)
