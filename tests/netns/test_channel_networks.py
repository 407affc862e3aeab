"""Channels and the interfaces of hosts: several, moved to another address, and replaced."""

from __future__ import annotations

from pathlib import Path

from tests.helpers import wait_until
from tests.netns.commands import TIMEOUT_S, events
from tests.netns.conftest import MakeLab
from tools.lab.host import Host
from tools.lab.network import Lab
from tools.lab.process import Process

NODE = Path(__file__).with_name("channel_node.py")
BOTH = ("--interface", "eth0", "--interface", "eth1")
SECOND = ("--interface", "eth1")

# Arguments: address, port.
CALLER = "import socket, sys; socket.create_connection((sys.argv[1], int(sys.argv[2])), 5)"


def listening(host: Host) -> set[tuple[str, int]]:
    """Where somebody listens for TCP on that host."""
    found = set()
    for line in host.namespace.run("cat", "/proc/net/tcp").splitlines()[1:]:
        _, local, _, state, *_ = line.split()
        if state == "0A":
            digits, port = local.split(":")
            found.add((".".join(map(str, reversed(bytes.fromhex(digits)))), int(port, 16)))
    return found


def start_server(host: Host, name: str, *options: str) -> Process:
    server = host.start_program(NODE, *options, "serve", name)
    assert server.wait_until(lambda p: events(p, "ready"), TIMEOUT_S), server.report()
    return server


def is_open(host: Host, address: str, port: int) -> bool:
    """Whether a caller on the host can connect there."""
    caller = host.start_script(CALLER, address, str(port))
    return caller.wait(TIMEOUT_S) == 0


def is_reached(knocker: Process) -> bool:
    """Whether it gets through from now on."""
    before = len(events(knocker, "reached"))
    return knocker.wait_until(lambda p: len(events(p, "reached")) > before, TIMEOUT_S)


def test_a_host_on_two_networks_is_called_by_those_that_its_bus_is_on(two_networks: Lab) -> None:
    one, two, three = two_networks.hosts
    start_server(one, "first")
    start_server(two, "both", *BOTH)
    knockers = [
        three.start_program(NODE, "knock", "knocker-1", "first"),
        three.start_program(NODE, "knock", "knocker-2", "both"),
        three.start_program(NODE, *SECOND, "knock", "knocker-3", "both"),
    ]
    for knocker in knockers:
        assert is_reached(knocker), knocker.report()

    ((address, port),) = listening(one)
    assert address == one.address
    assert is_open(three, address, port)
    assert not is_open(three, "10.78.0.1", port)
    assert {address for address, _ in listening(two)} == {two.address, "10.78.0.2"}


def test_a_node_is_called_where_its_interface_is_now(lab: MakeLab) -> None:
    network = lab(3, hub="bridge")
    one, two, three = network.hosts
    start_server(one, "moving")
    start_server(two, "replaced")
    knockers = [three.start_program(NODE, "knock", f"to-{to}", to) for to in ("moving", "replaced")]
    # A channel that is open meanwhile keeps the port it was accepted at in use.
    sender = three.start_program(NODE, "send", "sender", "replaced", "sink", "--pause", "0.1")
    assert sender.wait_until(lambda p: events(p, "connected"), TIMEOUT_S), sender.report()
    for knocker in knockers:
        assert is_reached(knocker), knocker.report()
    places = {host: listening(host) for host in (one, two)}

    one.namespace.run("ip", "addr", "flush", "dev", "eth0")
    one.namespace.run("ip", "addr", "add", "10.77.0.101/24", "dev", "eth0")
    network.hub.disconnect(two.name)
    assert wait_until(lambda: not listening(two), TIMEOUT_S)
    network.replace_interface(two)
    ((_, port),) = places[one]
    assert wait_until(lambda: listening(one) == {("10.77.0.101", port)}, TIMEOUT_S)
    assert wait_until(lambda: listening(two) == places[two], TIMEOUT_S)
    for knocker in knockers:
        assert is_reached(knocker), knocker.report()
