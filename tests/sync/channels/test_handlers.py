"""Handlers of channels: called in order, one at a time, late ones too, and none for nothing."""

from __future__ import annotations

import logging
import threading
from typing import Any

import pytest

from jsonbus.core.channel.limits import MESSAGE_BYTES_MAX
from jsonbus.core.channel.wire import BYTES, JSON, PREFIX
from jsonbus.errors import (
    ChannelClosedError,
    ChannelRefusedError,
    ConfigError,
    LocalError,
)
from jsonbus.sync.channel import Channel
from tests.channel_peers import LONG_S, join
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


def test_handlers_are_decorators_too(open_bus: OpenBus) -> None:
    here, there, *_ = open_pair(open_bus)
    heard: list[Any] = []

    @there.on_message
    def note(value: object) -> None:
        heard.append(value)

    @there.on_closed
    def note_end(error: ChannelClosedError) -> None:
        heard.append(None)

    here.send(1)
    here.close(LONG_S)
    assert wait_until(lambda: heard == [1, None])
    note(2)
    assert heard == [1, None, 2]


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


def test_a_binding_with_a_handler_has_nothing_to_accept(open_bus: OpenBus) -> None:
    with pytest.raises(LocalError, match="port 'p' has a handler that accepts its channels"):
        open_bus().bind("p", print).accept()


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


def test_an_accept_handler_that_fails_closes_its_channel(
    open_bus: OpenBus, caplog: pytest.LogCaptureFixture
) -> None:
    calling, bound = open_bus(), open_bus(name="desk")

    def fail(channel: Channel) -> None:
        raise ZeroDivisionError("spilt milk")

    bound.bind("p", fail)
    channel = calling.connect("desk", "p", timeout=LONG_S, retry=True)
    with pytest.raises(ChannelClosedError, match="desk closed it"):
        channel.receive(LONG_S)
    assert "spilt milk" in caplog.text


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


def test_without_waiting_who_connects_hears_that_it_was_refused(open_bus: OpenBus) -> None:
    calling = open_bus()
    open_bus(name="desk")
    heard: list[Any] = []
    channel = calling.connect("desk", "p", timeout=LONG_S, wait=False)
    channel.on_refused(heard.append)
    channel.on_accept(heard.append)
    channel.on_closed(heard.append)
    assert wait_until(lambda: heard)
    assert isinstance(heard[0], ChannelRefusedError)
    assert (heard[0].reason, heard[0].node) == ("unbound", "desk")
    assert (channel.state, len(heard)) == ("closed", 1)


def test_closing_before_it_opens_is_heard_as_a_refusal(open_bus: OpenBus) -> None:
    calling = open_bus()
    heard: list[Any] = []
    channel = calling.connect("nobody", "p", timeout=LONG_S, retry=True, wait=False)
    channel.on_refused(heard.append)
    assert not channel.close(LONG_S)
    assert wait_until(lambda: heard)
    assert isinstance(heard[0], ChannelClosedError)
    assert wait_until(lambda: calling.stats()["channel_attempts_failed"] == 1)


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


def test_handlers_hear_of_the_end_before_the_bus_has_closed(open_bus: OpenBus) -> None:
    here, there, calling, bound, _ = open_pair(open_bus)
    heard: list[tuple[str, str]] = []
    here.on_closed(lambda error: heard.append(("here", error.reason)))
    there.on_closed(lambda error: heard.append(("there", error.reason)))
    bound.close(LONG_S)
    assert ("there", "it was closed here") in heard
    assert wait_until(lambda: ("here", "bound closed it") in heard)
    calling.close()


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


def test_a_message_too_large_is_warned_of_once_and_the_next_one_comes(
    open_bus: OpenBus, caplog: pytest.LogCaptureFixture
) -> None:
    bus = open_bus()
    heard: list[object] = []
    bus.bind("p", lambda channel: channel.on_message(heard.append))
    with join(bus, "p") as plain, caplog.at_level(logging.WARNING, "jsonbus"):
        plain.sock.sendall(PREFIX.pack(MESSAGE_BYTES_MAX + 1, BYTES))
        for _ in range(64):
            plain.sock.sendall(bytes(1 << 20))
        plain.sock.sendall(b"!")
        plain.send(JSON, b"2")
        assert wait_until(lambda: heard == [2])
    assert "has 67,108,865 bytes" in caplog.text
    assert "Traceback" not in caplog.text


def test_a_message_that_is_no_json_is_no_failure_of_the_handler(
    open_bus: OpenBus, caplog: pytest.LogCaptureFixture
) -> None:
    bus = open_bus()
    heard: list[Any] = []

    def on_accept(channel: Channel) -> None:
        channel.on_message(heard.append)
        channel.on_closed(heard.append)

    bus.bind("p", on_accept)
    with join(bus, "p") as plain, caplog.at_level(logging.WARNING, "jsonbus"):
        plain.send(JSON, b"{")
        assert wait_until(lambda: heard)
    assert "plain sent a message that is not JSON" in str(heard[0])
    assert "plain sent a message that is not JSON" in caplog.text
    assert "Traceback" not in caplog.text


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
