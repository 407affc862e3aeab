"""Handlers of channels: what they are called with, and what becomes of errors."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from jsonbus.core.channel.limits import MESSAGE_BYTES_MAX
from jsonbus.core.channel.wire import BYTES, JSON, PREFIX
from jsonbus.errors import (
    ChannelClosedError,
    ChannelRefusedError,
    LocalError,
)
from jsonbus.sync.channel import Channel
from tests.bus.conftest import OpenBus
from tests.channel_peers import LONG_S, join
from tests.helpers import wait_until
from tests.sync.channels.channel_pair import open_pair


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


def test_a_binding_with_a_handler_has_nothing_to_accept(open_bus: OpenBus) -> None:
    with pytest.raises(LocalError, match="port 'p' has a handler that accepts its channels"):
        open_bus().bind("p", print).accept()


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


def test_handlers_hear_of_the_end_before_the_bus_has_closed(open_bus: OpenBus) -> None:
    here, there, calling, bound, _ = open_pair(open_bus)
    heard: list[tuple[str, str]] = []
    here.on_closed(lambda error: heard.append(("here", error.reason)))
    there.on_closed(lambda error: heard.append(("there", error.reason)))
    bound.close(LONG_S)
    assert ("there", "it was closed here") in heard
    assert wait_until(lambda: ("here", "bound closed it") in heard)
    calling.close()


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
