"""The end of a channel: confirmed or not, from either side, by the bus, by an interruption."""

from __future__ import annotations

from typing import Any

import pytest

from jsonbus.core.channel.wire import CLOSE, END, JSON
from jsonbus.errors import (
    ChannelClosedError,
    ClosedError,
)
from tests.bus.conftest import OpenBus
from tests.channel_peers import BLOCK, LONG_S, PlainListener, join
from tests.helpers import wait_until
from tests.sync.channels.channel_pair import InThread, fill, open_pair


def test_closing_delivers_what_was_sent_before_and_says_whether_it_did(open_bus: OpenBus) -> None:
    here, there, *_ = open_pair(open_bus)
    for number in range(1000):
        here.send(number)
    assert here.close(LONG_S)
    assert here.close(0)
    assert list(there) == list(range(1000))
    with pytest.raises(ChannelClosedError) as caught:
        there.receive()
    assert str(caught.value) == "the channel to calling ('p') is closed: calling closed it"
    assert not caught.value.is_lost
    for use in (lambda: here.send(1), lambda: here.try_send(1), here.receive):
        with pytest.raises(ChannelClosedError, match="it was closed here"):
            use()
    with pytest.raises(ChannelClosedError, match="calling closed it"):
        there.send(1)
    assert not there.close()  # the other was first


def test_closing_is_not_confirmed_before_the_other_side_has_read(open_bus: OpenBus) -> None:
    here, there, *_ = open_pair(open_bus)
    count = fill(here, there)
    assert not here.close(timeout=0.01)
    assert here.state == "closing"
    assert not here.close(timeout=0)
    assert sum(1 for _ in there) == count
    assert here.close(LONG_S)


def test_when_both_close_at_once_both_are_confirmed(open_bus: OpenBus) -> None:
    bus = open_bus()
    binding = bus.bind("p")
    with join(bus, "p") as plain:
        channel = binding.accept(LONG_S)
        closing = InThread(channel.close, LONG_S)
        plain.read_kind(CLOSE)
        plain.send(CLOSE)
        plain.read_kind(END)
        assert channel.state == "closing"
        plain.send(END)
        assert closing.result()
        assert plain.is_ended()


def test_closing_discards_what_was_not_read_and_counts_it(open_bus: OpenBus) -> None:
    here, there, _, bound, _ = open_pair(open_bus)
    for number in range(3):
        here.send(number)
    assert wait_until(lambda: there.pending == 3)
    there.receive()
    assert there.close(LONG_S)
    assert bound.stats()["channel_messages_discarded"] == 2


def test_what_is_discarded_after_the_other_has_closed_counts_too(open_bus: OpenBus) -> None:
    here, there, _, bound, _ = open_pair(open_bus)
    for number in range(3):
        here.send(number)
    assert here.close(LONG_S)
    assert wait_until(lambda: bound.stats()["channels_open"] == 0)
    assert bound.stats()["channel_messages_discarded"] == 0
    assert not there.close(LONG_S)
    assert not there.close(LONG_S)
    assert wait_until(lambda: bound.stats()["channel_messages_discarded"] == 3)


def test_what_could_not_be_sent_since_the_other_closed_is_counted(open_bus: OpenBus) -> None:
    here, there, calling, _, _ = open_pair(open_bus)
    count = fill(here, there)
    closing = InThread(there.close, LONG_S)
    with pytest.raises(ChannelClosedError, match="bound closed it"):
        while True:
            here.send(bytes(1 << 20), LONG_S)
            count += 1
    assert closing.result()
    figures = calling.stats()
    assert figures["channel_messages_sent"] == count
    assert 0 <= figures["channel_messages_unsent"] < count


def test_a_with_block_closes(open_bus: OpenBus) -> None:
    here, there, *_ = open_pair(open_bus)
    with here:
        here.send(1)
    assert list(there) == [1]


def test_closing_while_it_opens_ends_the_attempt(open_bus: OpenBus) -> None:
    calling, bound = open_bus(), open_bus(name="desk")
    channel = calling.connect("nobody", "p", timeout=LONG_S, retry=True, wait=False)
    sending = InThread(channel.send, 1)
    assert not channel.close(LONG_S)
    assert channel.state == "closed"
    with pytest.raises(ChannelClosedError, match="closed"):
        sending.result()
    with PlainListener(bound) as listener:
        channel = calling.connect("desk", "p", timeout=LONG_S, wait=False)
        with listener.accept() as answering:
            assert not channel.close(LONG_S)
            assert answering.is_ended()
    assert wait_until(lambda: calling.stats()["channel_attempts_failed"] == 2)
    assert calling.stats()["channels_opened"] == 0


def test_a_lost_connection_is_told_and_what_came_before_is_received(open_bus: OpenBus) -> None:
    bus = open_bus()
    binding = bus.bind("p")
    plain = join(bus, "p")
    channel = binding.accept(LONG_S)
    plain.send(JSON, b"1")
    assert wait_until(lambda: channel.pending)
    plain.reset()
    assert wait_until(lambda: channel.is_closed)
    assert channel.receive() == 1
    with pytest.raises(ChannelClosedError, match="connection broke") as caught:
        channel.receive()
    assert caught.value.is_lost
    with pytest.raises(ChannelClosedError, match="connection broke"):
        channel.send(1)
    assert not channel.close(LONG_S)
    assert wait_until(lambda: bus.stats()["channels_lost"] == 1)


def test_closing_the_bus_delivers_and_closes_its_channels(open_bus: OpenBus) -> None:
    here, there, calling, *_ = open_pair(open_bus)
    for number in range(100):
        here.send(number)
    calling.close(LONG_S)
    assert (here.state, calling.stats()["channels_open"]) == ("closed", 0)
    assert list(there) == list(range(100))


@pytest.mark.slow
def test_closing_the_bus_ends_whatever_waits_for_its_channels(open_bus: OpenBus) -> None:
    here, there, calling, _, binding = open_pair(open_bus)
    second = calling.connect("bound", "p", timeout=LONG_S, retry=True)
    binding.accept(LONG_S)
    own = calling.bind("own")
    fill(here, there)
    waiting = [
        InThread(lambda: [here.send(BLOCK) for _ in range(1000)]),
        InThread(second.receive),
        InThread(own.accept),
        InThread(lambda: calling.connect("nobody", "p", timeout=LONG_S, retry=True)),
        InThread(lambda: list(own)),
        InThread(lambda: list(second)),
    ]
    calling.close(timeout=0.5)
    assert waiting[4].result() == waiting[5].result() == []
    for each, kind in zip(waiting, 2 * [ChannelClosedError] + [ClosedError], strict=False):
        with pytest.raises(kind):
            each.result()
    with pytest.raises((ChannelClosedError, ClosedError)):
        waiting[3].result()
    for use in (lambda: calling.bind("x"), lambda: calling.connect("bound", "p")):
        with pytest.raises(ClosedError):
            use()
    own.close()


@pytest.mark.slow
def test_who_connects_while_the_bus_closes_does_not_wait_for_ever(open_bus: OpenBus) -> None:
    bound = open_bus(name="desk")
    bound.bind("p", lambda channel: None)
    for _ in range(10):
        calling = open_bus()

        def connect(bus: Any = calling) -> None:
            try:
                while True:
                    bus.connect("desk", "p", timeout=LONG_S, retry=True).close(0)
            except (ClosedError, ChannelClosedError):
                pass

        connecting = [InThread(connect) for _ in range(3)]
        assert wait_until(lambda bus=calling: bus.stats()["channels_opened"] > 3)
        calling.close(LONG_S)
        for each in connecting:
            each.result()
