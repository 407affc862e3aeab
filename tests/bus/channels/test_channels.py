"""Ports that are bound, and attempts to connect to them: granted, refused, repeated."""

from __future__ import annotations

from typing import Any

import pytest

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
from jsonbus.transport import MemoryNetwork
from tests.bus.conftest import OpenBus
from tests.channel_peers import LONG_S, PlainListener, call, count_descriptors
from tests.helpers import wait_until
from tests.sync.channels.channel_pair import InThread, open_pair


def refusal_of(bus: Any, node: str, port: str, **settings: Any) -> ChannelRefusedError:
    with pytest.raises(ChannelRefusedError) as caught:
        bus.connect(node, port, **{"timeout": LONG_S, **settings})
    return caught.value


def test_a_node_is_connected_to_by_its_name_or_its_id(open_bus: OpenBus) -> None:
    calling, bound = open_bus(), open_bus(name="desk")
    binding = bound.bind("p")
    for who in ("desk", bound.id):
        here = calling.connect(who, "p", timeout=LONG_S)
        there = binding.accept(LONG_S)
        assert (here.node, here.name) == (bound.id, "desk")
        assert there.node == calling.id


def test_a_node_may_connect_to_itself(open_bus: OpenBus) -> None:
    bus = open_bus(name="alone")
    assert refusal_of(bus, "alone", "p").reason == "unbound"
    binding = bus.bind("p")
    for who in ("alone", bus.id):
        here = bus.connect(who, "p", timeout=LONG_S)
        there = binding.accept(LONG_S)
        here.send("to myself")
        assert there.receive(LONG_S) == "to myself"
        assert here.close(LONG_S)


def test_a_port_is_a_name_or_a_number(open_bus: OpenBus) -> None:
    calling, bound = open_bus(), open_bus(name="desk")
    binding = bound.bind(5)
    assert binding.port == "5"
    calling.connect("desk", "5", timeout=LONG_S)
    calling.connect("desk", 5, timeout=LONG_S)
    with pytest.raises(LocalError, match="port '5' is bound already: close that binding first"):
        bound.bind("5")


@pytest.mark.parametrize("port", ["", "a\nb", "x" * 256, -1, True, None, 1.5, b"p"])
def test_what_is_no_port_is_refused(open_bus: OpenBus, port: Any) -> None:
    bus = open_bus()
    with pytest.raises(ConfigError, match="is no port"):
        bus.bind(port)
    with pytest.raises(ConfigError, match="is no port"):
        bus.connect("x", port)


@pytest.mark.parametrize("node", ["", None, 7])
def test_what_is_no_node_is_refused(open_bus: OpenBus, node: Any) -> None:
    with pytest.raises(ConfigError, match="connect to a node's name or id"):
        open_bus().connect(node, "p")


@pytest.mark.slow
def test_a_node_that_is_not_there_is_unknown(open_bus: OpenBus) -> None:
    error = refusal_of(open_bus(), "nobody", "p")
    assert (error.reason, error.node, error.port) == ("unknown", "nobody", "p")
    assert str(error) == "there is no node 'nobody': `jsonbus nodes` lists the nodes"


def test_nothing_is_bound_before_it_is_bound(open_bus: OpenBus) -> None:
    calling, bound = open_bus(), open_bus(name="desk")
    error = refusal_of(calling, "desk", "p")
    assert (error.reason, error.node) == ("unbound", "desk")
    assert str(error) == ("nothing is bound to port 'p' of desk: bind it there first, or use retry")
    bound.bind("another")
    assert refusal_of(calling, bound.id, "p").reason == "unbound"
    bound.bind("p")
    calling.connect("desk", "p", timeout=LONG_S, retry=True)
    assert wait_until(lambda: calling.stats()["channel_attempts_failed"] == 2)
    assert wait_until(lambda: bound.stats()["channels_refused"] <= 1)


def test_a_name_of_two_nodes_is_ambiguous_and_their_ids_are_not(open_bus: OpenBus) -> None:
    calling, first, second = open_bus(), open_bus(name="twin"), open_bus(name="twin")
    ids = tuple(sorted((first.id, second.id)))
    assert wait_until(lambda: set(ids) <= {node.node for node in calling.nodes()})
    for bus in (first, second):
        bus.bind("p")
    error = refusal_of(calling, "twin", "p")
    assert (error.reason, error.nodes) == ("ambiguous", ids)
    assert str(error) == (
        f"several nodes are called 'twin': connect to one of the ids {ids[0]}, {ids[1]}"
    )
    for bus in (first, second):
        assert calling.connect(bus.id, "p", timeout=LONG_S).node == bus.id


def test_an_exclusive_port_takes_one_channel_at_a_time(open_bus: OpenBus) -> None:
    calling, bound = open_bus(), open_bus(name="desk")
    binding = bound.bind("p", exclusive=True)
    assert binding.exclusive
    for closes_here in (True, False):
        here = calling.connect("desk", "p", timeout=LONG_S, retry=True)
        there = binding.accept(LONG_S)
        error = refusal_of(calling, "desk", "p")
        assert (error.reason, error.node) == ("taken", "desk")
        assert str(error) == ("port 'p' of desk is exclusive, and taken: try again when it is free")
        assert (here if closes_here else there).close(LONG_S)


def test_who_tries_again_gets_an_exclusive_port_when_it_is_free(open_bus: OpenBus) -> None:
    calling, bound = open_bus(), open_bus(name="desk")
    bound.bind("p", exclusive=True)
    first = calling.connect("desk", "p", timeout=LONG_S, retry=True)
    second = InThread(lambda: calling.connect("desk", "p", timeout=LONG_S, retry=True))
    assert wait_until(lambda: bound.stats()["channels_refused"])
    first.close(LONG_S)
    assert second.result().state == "open"


def test_more_callers_than_may_wait_are_told_that_it_is_busy(open_bus: OpenBus) -> None:
    calling, bound = open_bus(), open_bus(name="desk")
    binding = bound.bind("p")
    for _ in range(ACCEPT_MAX):
        calling.connect("desk", "p", timeout=LONG_S, retry=True)
    assert binding.pending == ACCEPT_MAX
    error = refusal_of(calling, "desk", "p")
    assert (error.reason, error.node) == ("busy", "desk")
    assert str(error) == "desk takes no more channels to 'p' now: try again later"
    binding.accept()
    calling.connect("desk", "p", timeout=LONG_S, retry=True)


def test_a_node_that_does_not_answer_any_more_is_gone(open_bus: OpenBus) -> None:
    calling, leaving = open_bus(), open_bus(name="desk")
    with PlainListener(leaving):
        assert wait_until(lambda: "desk" in {node.name for node in calling.nodes()})
    error = refusal_of(calling, "desk", "p")
    assert error.reason == "gone"
    assert str(error) == (
        "desk does not answer (Connection refused): it left, cannot be reached, or is before 0.5.0"
    )


def test_another_node_in_the_place_of_the_one_that_is_meant_says_so(open_bus: OpenBus) -> None:
    bus = open_bus(name="desk")
    bus.bind("p")
    with call(bus, "p", to="another-node-1") as plain:
        refusal = decode_refusal(plain.read_kind(REFUSED))
        assert (refusal.node, refusal.name, refusal.reason) == (bus.id, "desk", "gone")
        assert plain.is_ended()
    assert wait_until(lambda: bus.stats()["channels_refused"] == 1)


def test_versions_that_do_not_understand_each_other_are_told(open_bus: OpenBus) -> None:
    calling, bound = open_bus(), open_bus(name="desk")
    bound.bind("p")
    with call(bound, "p", version=2) as plain:
        refusal = decode_refusal(plain.read_kind(REFUSED))
    assert (refusal.reason, refusal.detail) == ("version", "the caller speaks 2, this node 1")
    with PlainListener(bound) as listener:
        connecting = InThread(lambda: refusal_of(calling, "desk", "p"))
        with listener.accept() as answering:
            answering.sock.sendall(encode_refusal(Refusal(bound.id, "desk", "version", "new")))
            error = connecting.result()
    assert str(error) == (
        "desk speaks another version of the channel protocol (new): update the older"
    )


def test_who_tries_again_waits_for_the_node_and_for_its_port(open_bus: OpenBus) -> None:
    calling = open_bus()
    connecting = InThread(lambda: calling.connect("desk", "p", timeout=LONG_S, retry=True))
    bound = open_bus(name="desk")
    other = bound.bind("another")
    assert wait_until(lambda: bound.stats()["channels_refused"])
    bound.bind("p")
    assert connecting.result().state == "open"
    assert wait_until(lambda: calling.stats()["channel_attempts_failed"] == 0)
    assert other.pending == 0


def test_who_tries_again_is_told_in_the_end_why_it_was_refused(open_bus: OpenBus) -> None:
    calling, bound = open_bus(), open_bus(name="desk")
    bound.bind("another")
    assert refusal_of(calling, "desk", "p", timeout=0.2, retry=True).reason == "unbound"


def test_a_node_that_says_nothing_is_waited_for_as_long_as_told(open_bus: OpenBus) -> None:
    calling, bound = open_bus(), open_bus(name="desk")
    before = count_descriptors()
    with PlainListener(bound) as listener:
        with pytest.raises(ChannelTimeoutError, match="desk did not answer within 0.2 s"):
            calling.connect("desk", "p", timeout=0.2)
        with listener.accept_silently() as answering:
            assert answering.is_ended()
    assert wait_until(lambda: calling.stats()["channel_attempts_failed"] == 1)
    assert wait_until(lambda: count_descriptors() <= before + 3)  # the thread of channels has some


def test_without_waiting_what_is_sent_waits_until_it_is_open(open_bus: OpenBus) -> None:
    calling, bound = open_bus(), open_bus(name="desk")
    channel = calling.connect("desk", "p", timeout=LONG_S, retry=True, wait=False)
    assert (channel.state, channel.is_closed, channel.node) == ("opening", False, "desk")
    assert (channel.pending, channel.sent, channel.received) == (0, 0, 0)
    assert not channel.try_send("now")
    with pytest.raises(ChannelTimeoutError):
        channel.send("soon", timeout=0.01)
    with pytest.raises(ChannelTimeoutError):
        channel.receive(timeout=0.01)
    sending = InThread(channel.send, "later")
    binding = bound.bind("p")
    there = binding.accept(LONG_S)
    assert there.receive(LONG_S) == "later"
    sending.result()
    assert (channel.state, channel.node) == ("open", bound.id)


@pytest.mark.slow
def test_without_waiting_a_refusal_is_raised_by_whatever_is_done(open_bus: OpenBus) -> None:
    bus = open_bus()
    channel = bus.connect("nobody", "p", wait=False)
    for use in (lambda: channel.send(1), channel.receive, lambda: channel.try_send(1)):
        with pytest.raises(ChannelRefusedError) as caught:
            use()
        assert caught.value.reason == "unknown"
    with pytest.raises(ChannelRefusedError):
        next(channel)
    assert channel.state == "closed"
    assert not channel.close()


def test_channels_are_accepted_in_the_order_in_which_they_came(open_bus: OpenBus) -> None:
    calling, bound = open_bus(), open_bus(name="desk")
    binding = bound.bind("p")
    assert repr(binding) == "<Binding of 'p', 0 pending>"
    with pytest.raises(ChannelTimeoutError, match="nobody connected within 0.01 s"):
        binding.accept(timeout=0.01)
    for number in range(3):
        calling.connect("desk", "p", timeout=LONG_S, retry=True).send(number)
    for number, channel in zip(range(3), binding, strict=False):
        assert channel.receive(LONG_S) == number


def test_closing_a_binding_keeps_what_was_accepted_and_frees_the_port(open_bus: OpenBus) -> None:
    here, there, calling, bound, binding = open_pair(open_bus)
    waiting = calling.connect("bound", "p", timeout=LONG_S, retry=True)
    accepting = InThread(lambda: [channel.name for channel in binding])
    assert wait_until(lambda: binding.pending == 0)
    another = bound.bind("q")
    unaccepted = calling.connect("bound", "q", timeout=LONG_S)
    with another:
        pass
    with pytest.raises(ChannelClosedError, match="bound closed it"):
        unaccepted.receive(LONG_S)
    binding.close()
    binding.close()
    assert accepting.result() == ["calling"]
    assert (binding.is_closed, repr(binding)) == (True, "<Binding of 'p', closed>")
    with pytest.raises(ClosedError, match="the binding of port 'p' is closed"):
        binding.accept()
    assert refusal_of(calling, "bound", "p").reason == "unbound"
    here.send("still there")
    assert there.receive(LONG_S) == "still there"
    assert waiting.state == "open"
    with bound.bind("p"):
        calling.connect("bound", "p", timeout=LONG_S, retry=True)


def test_a_bus_that_cannot_listen_says_so_and_binds_nothing(open_over: OpenBus) -> None:
    bus = open_over(MemoryNetwork().open())
    for _ in range(2):
        with pytest.raises(TransportError, match="cannot listen on 10.0.0.1: Cannot assign"):
            bus.bind("p")


def test_a_message_for_which_the_other_turns_out_to_be_too_small_is_not_sent(
    open_bus: OpenBus,
) -> None:
    calling, bound = open_bus(), open_bus(name="desk")
    with PlainListener(bound) as listener:
        channel = calling.connect("desk", "p", timeout=LONG_S, wait=False)
        sending = InThread(channel.send, bytes(11))
        with listener.accept() as answering:
            answering.sock.sendall(encode_welcome(Welcome(bound.id, 1, "desk", 10)))
            with pytest.raises(MessageTooLargeError, match="at most 10"):
                sending.result()
            channel.send(bytes(10))
            assert answering.read()[1] == bytes(10)
