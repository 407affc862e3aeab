"""Messages on a channel: what may be sent, in which order it comes, what is too large."""

from __future__ import annotations

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
from tests.bus.conftest import OpenBus
from tests.channel_peers import LONG_S, NO_JSON, VALUES, call, join
from tests.helpers import wait_until
from tests.sync.channels.channel_pair import InThread, open_pair


def test_messages_go_both_ways_and_keep_their_types(open_bus: OpenBus) -> None:
    here, there, *_ = open_pair(open_bus)
    for sender, receiver in ((here, there), (there, here)):
        for value, expected in VALUES:
            sender.send(value)
            got = receiver.receive(LONG_S)
            assert (type(got), got) == (type(expected), expected)


def test_what_was_sent_does_not_change_with_the_array_it_was_in(open_bus: OpenBus) -> None:
    here, there, *_ = open_pair(open_bus)
    array = bytearray(1 << 20)
    for _ in range(3):
        here.send(array)
    array[:] = b"\1" * len(array)
    assert [there.receive(LONG_S) for _ in range(3)] == [bytes(1 << 20)] * 3


def test_a_value_that_is_no_json_is_refused_and_the_channel_goes_on(open_bus: OpenBus) -> None:
    here, there, *_ = open_pair(open_bus)
    for value in NO_JSON:
        with pytest.raises(PayloadError):
            here.send(value)
        with pytest.raises(PayloadError):
            here.try_send(value)
    here.send("fine")
    assert there.receive(LONG_S) == "fine"
    assert (here.sent, there.received) == (1, 1)


def test_the_largest_message_passes_and_one_byte_more_is_refused(open_bus: OpenBus) -> None:
    here, there, calling, *_ = open_pair(open_bus)
    with pytest.raises(MessageTooLargeError) as caught:
        here.send(bytes(MESSAGE_BYTES_MAX + 1))
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
    sending = InThread(here.send, largest)
    assert there.receive(LONG_S) == largest
    sending.result()
    assert calling.stats()["channel_bytes_sent"] == MESSAGE_BYTES_MAX


def test_a_message_too_large_for_who_receives_is_told_in_its_place(open_bus: OpenBus) -> None:
    bus = open_bus()
    binding = bus.bind("p")
    with join(bus, "p") as plain:
        channel = binding.accept(LONG_S)
        plain.send(JSON, b"1")
        plain.sock.sendall(PREFIX.pack(MESSAGE_BYTES_MAX + 1, BYTES))
        for _ in range(64):
            plain.sock.sendall(bytes(1 << 20))
        plain.sock.sendall(b"!")
        plain.send(JSON, b"2")
        assert channel.receive(LONG_S) == 1
        with pytest.raises(MessageTooLargeError) as caught:
            channel.receive(LONG_S)
        assert caught.value.size_bytes == MESSAGE_BYTES_MAX + 1
        assert channel.receive(LONG_S) == 2
        assert channel.received == 2
        assert bus.stats()["channel_messages_too_large"] == 1


def test_what_the_other_side_takes_is_what_may_be_sent(open_bus: OpenBus) -> None:
    bus = open_bus()
    binding = bus.bind("p")
    with call(bus, "p", message_bytes_max=10) as plain:
        channel = binding.accept(LONG_S)
        with pytest.raises(MessageTooLargeError, match="at most 10 are"):
            channel.send(bytes(11))
        channel.send(b"0123456789")
        plain.read_kind(WELCOME)
        assert plain.read() == (BYTES, b"0123456789")


def test_a_message_that_is_no_json_ends_the_channel(open_bus: OpenBus) -> None:
    bus = open_bus()
    binding = bus.bind("p")
    with join(bus, "p") as plain:
        channel = binding.accept(LONG_S)
        plain.send(JSON, b"{")
        with pytest.raises(
            ChannelClosedError, match="plain sent a message that is not JSON"
        ) as got:
            channel.receive(LONG_S)
        assert got.value.is_lost
        assert channel.is_closed
        assert plain.is_ended()


def test_messages_stay_in_order_both_ways_at_once(open_bus: OpenBus) -> None:
    here, there, *_ = open_pair(open_bus)
    count = 3000

    def send(channel: Any) -> None:
        for number in range(count):
            channel.send(number)

    def receive(channel: Any) -> list[int]:
        return [channel.receive(LONG_S) for _ in range(count)]

    calls = [InThread(send, each) for each in (here, there)]
    answers = [InThread(receive, each) for each in (here, there)]
    for each in calls:
        each.result()
    for each in answers:
        assert each.result() == list(range(count))


def test_iterating_ends_when_the_channel_is_closed(open_bus: OpenBus) -> None:
    here, there, *_ = open_pair(open_bus)
    for number in range(3):
        here.send(number)
    assert here.close(LONG_S)
    assert list(there) == [0, 1, 2]
    assert list(there) == []
    assert list(here) == []


def test_iterating_raises_when_the_connection_is_lost(open_bus: OpenBus) -> None:
    bus = open_bus()
    binding = bus.bind("p")
    plain = join(bus, "p")
    channel = binding.accept(LONG_S)
    plain.send(JSON, b"1")
    plain.close()
    received = []
    with pytest.raises(ChannelClosedError, match="plain is gone") as caught:
        for value in channel:
            received.append(value)
    assert received == [1]
    assert caught.value.is_lost
    assert wait_until(lambda: bus.stats()["channels_lost"] == 1)


def test_nothing_received_in_time_is_a_timeout(open_bus: OpenBus) -> None:
    here, *_ = open_pair(open_bus)
    with pytest.raises(ChannelTimeoutError) as caught:
        here.receive(timeout=0.01)
    assert str(caught.value) == "no message came within 0.01 s (bound, 'p')"
    assert isinstance(caught.value, TimeoutError)
    with pytest.raises(ChannelTimeoutError):
        here.receive(timeout=0)


def test_a_channel_tells_what_it_is(open_bus: OpenBus) -> None:
    here, there, calling, bound, _ = open_pair(open_bus)
    assert (here.node, here.name, here.port) == (bound.id, "bound", "p")
    assert (there.node, there.name, there.port) == (calling.id, "calling", "p")
    assert (here.state, here.is_closed) == ("open", False)
    assert repr(here) == "<Channel to bound ('p') open>"
    here.send(1)
    here.send(2)
    assert wait_until(lambda: there.pending == 2)
    assert (here.sent, there.received) == (2, 2)
    there.receive()
    assert (there.pending, there.received) == (1, 2)
    here.close(LONG_S)
    assert (here.state, here.is_closed) == ("closed", True)
    assert wait_until(lambda: there.is_closed)
    assert there.receive() == 2
    with pytest.raises(ChannelClosedError, match="calling closed it"):
        there.receive()


@pytest.mark.parametrize("seconds", [-1, float("nan"), "1", True])
def test_times_that_are_none_are_refused(open_bus: OpenBus, seconds: Any) -> None:
    here, _, calling, _, binding = open_pair(open_bus)
    for use in (
        lambda: here.send(1, seconds),
        lambda: here.receive(seconds),
        lambda: here.close(seconds),
        lambda: binding.accept(seconds),
        lambda: calling.connect("bound", "p", seconds),
    ):
        with pytest.raises(ConfigError, match="seconds"):
            use()
    assert here.state == "open"


def test_the_counters_of_both_sides_are_exact(open_bus: OpenBus) -> None:
    before = open_bus(name="without").stats()
    here, there, calling, bound, _ = open_pair(open_bus)
    here.send(b"12345")
    here.send(1)
    there.send("two")
    assert there.receive(LONG_S) == b"12345"
    assert here.receive(LONG_S) == "two"
    assert wait_until(lambda: there.pending == 1)

    def figures(bus: Any) -> dict[str, int]:
        return {
            name.removeprefix("channel"): count
            for name, count in bus.stats().items()
            if name.startswith("channel") and count
        }

    sent = {"_messages_sent": 2, "_bytes_sent": 6, "_messages_received": 1, "_bytes_received": 5}
    assert figures(calling) == {"s_open": 1, "s_opened": 1, **sent}
    got = {"_messages_sent": 1, "_bytes_sent": 5, "_messages_received": 2, "_bytes_received": 6}
    assert figures(bound) == {"s_open": 1, "s_opened": 1, **got}
    assert here.close(LONG_S)
    assert wait_until(lambda: there.state == "closed")
    assert wait_until(lambda: figures(calling) == {"s_opened": 1, **sent})
    assert wait_until(lambda: figures(bound) == {"s_opened": 1, **got})
    assert before.keys() == calling.stats().keys()
    calling.close()
    assert figures(calling) == {"s_opened": 1, **sent}
