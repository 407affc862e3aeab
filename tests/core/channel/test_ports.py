"""Ports: what may be bound, who is let in, and how the others are refused."""

from __future__ import annotations

import pytest

from jsonbus.core.channel.limits import MESSAGE_BYTES_MAX
from jsonbus.core.channel.ports import Ports, check_port, make_hello
from jsonbus.core.channel.wire import Hello, Refusal, Welcome, decode_hello, encode_hello
from jsonbus.core.settings import NodeSettings
from jsonbus.errors import ConfigError, LocalError
from tests.core.channel.channel_pair import read_frames

OWN = NodeSettings("id-bob", 18, "bob")
CALLER = NodeSettings("id-ann", 17, "ann")


def make_ports(channels_max: int = 10) -> Ports[str]:
    return Ports(OWN, channels_max)


def call(port: str = "door", to: str = "id-bob") -> Hello:
    return make_hello(CALLER, to, port)


def refusal(reason: str, detail: str = "") -> Refusal:
    return Refusal("id-bob", "bob", reason, detail)


# --- Names of ports ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("port", "name"),
    [("door", "door"), ("7", "7"), (7, "7"), (0, "0"), (2**53, str(2**53)), ("ü" * 127, "ü" * 127)],
)
def test_port_is_a_name_or_a_number(port: object, name: str) -> None:
    assert check_port(port) == name


@pytest.mark.parametrize(
    "port",
    ["", "x" * 256, "ü" * 128, "a\nb", "\x9b", "\ud800", -1, 2**53 + 1, 10**5000, 1.0, True]
    + [None, b"door", ["door"]],
    ids=lambda port: f"{type(port).__name__}",
)
def test_what_cannot_travel_is_no_port(port: object) -> None:
    with pytest.raises(ConfigError, match="port"):
        check_port(port)


@pytest.mark.parametrize("port", ['"' * 255, 2**53, "ü" * 127])
def test_every_port_arrives_as_it_was_checked(port: object) -> None:
    hello = call(check_port(port))
    ((_, body),) = read_frames(encode_hello(hello))
    assert decode_hello(body) == hello


# --- Binding -------------------------------------------------------------------------------------


def test_caller_of_a_bound_port_is_given_to_who_bound_it() -> None:
    ports = make_ports()
    ports.bind("door", "doorkeeper", exclusive=False)
    ports.bind("7", "seven", exclusive=True)
    assert ports.judge(call("door")) == "doorkeeper"
    assert ports.judge(call("7")) == "seven"


def test_port_cannot_be_bound_twice() -> None:
    ports = make_ports()
    ports.bind("door", "first", exclusive=False)
    with pytest.raises(LocalError, match="'door' is bound already"):
        ports.bind("door", "second", exclusive=False)
    assert ports.judge(call()) == "first"
    ports.unbind("door")
    ports.bind("door", "second", exclusive=True)
    assert ports.judge(call()) == "second"


def test_port_that_is_not_bound_refuses() -> None:
    ports = make_ports()
    assert ports.judge(call()) == refusal("unbound")
    ports.bind("door", "x", exclusive=False)
    assert ports.judge(call("Door")) == refusal("unbound")
    ports.unbind("door")
    assert ports.judge(call()) == refusal("unbound")


# --- Who is let in -------------------------------------------------------------------------------


def test_port_takes_many_channels() -> None:
    ports = make_ports()
    ports.bind("door", "x", exclusive=False)
    for _ in range(9):
        assert ports.judge(call()) == "x"
        ports.opened("door")


def test_exclusive_port_takes_one_channel_at_a_time() -> None:
    ports = make_ports()
    ports.bind("door", "x", exclusive=True)
    ports.bind("window", "y", exclusive=True)
    assert ports.judge(call()) == "x"
    ports.opened("door")
    assert ports.judge(call()) == refusal("taken")
    assert ports.judge(call("window")) == "y"
    ports.closed("door")
    assert ports.judge(call()) == "x"


def test_channel_of_a_former_binding_keeps_an_exclusive_port_taken() -> None:
    ports = make_ports()
    ports.bind("door", "before", exclusive=False)
    ports.opened("door")
    ports.opened("door")
    ports.unbind("door")
    ports.bind("door", "after", exclusive=True)
    for _ in range(2):
        assert ports.judge(call()) == refusal("taken")
        ports.closed("door")
    assert ports.judge(call()) == "after"


def test_channels_of_all_ports_are_bounded() -> None:
    ports = make_ports(channels_max=2)
    ports.bind("door", "x", exclusive=False)
    ports.bind("window", "y", exclusive=False)
    ports.opened("door")
    ports.opened("window")
    assert ports.judge(call()) == refusal("busy", "2 channels")
    assert ports.judge(call("cellar")) == refusal("unbound")
    ports.closed("window")
    assert ports.judge(call()) == "x"


def test_caller_who_means_another_node_is_told_who_is_here() -> None:
    ports = make_ports()
    ports.bind("door", "x", exclusive=False)
    assert ports.judge(call(to="id-eve")) == refusal("gone", "this is id-bob")
    assert ports.judge(call(to="bob")) == refusal("gone", "this is id-bob")


@pytest.mark.parametrize("version", [0, 2])
def test_caller_of_another_version_is_told_both(version: int) -> None:
    ports = make_ports()
    ports.bind("door", "x", exclusive=False)
    hello = Hello("", 0, "", "", "", 0, version=version)  # nothing else can be read of it
    detail = f"the caller speaks {version}, this node 1"
    assert ports.judge(hello) == refusal("version", detail)


def test_caller_whose_turn_would_not_come_is_told_so() -> None:
    assert make_ports().make_busy() == refusal("busy", "many wait to be accepted")


def test_welcome_and_hello_tell_who_speaks_and_what_it_takes() -> None:
    assert make_ports().make_welcome() == Welcome("id-bob", 18, "bob", MESSAGE_BYTES_MAX, 20)
    assert call() == Hello("id-ann", 17, "ann", "id-bob", "door", MESSAGE_BYTES_MAX, 20)
