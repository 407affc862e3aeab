"""Nodes on two networks: they send on both, hear once, and one network may break."""

from __future__ import annotations

import pytest

from tests.helpers import wait_until
from tests.netns.commands import TIMEOUT_S, names_known, values
from tools.lab.host import Host
from tools.lab.network import Lab

BOTH = ("--interface", "eth0", "--interface", "eth1")

# Hears 50 messages on both networks, then prints its counters.
COUNTER = """
import json, jsonbus
with jsonbus.Bus(name="counter", interface=["eth0", "eth1"]) as bus:
    reading = bus.subscribe("tick")
    for _ in range(50):
        reading.get()
    print(json.dumps(bus.stats()))
"""


def set_link(host: Host, interface: str, is_up: bool) -> None:
    host.namespace.run("ip", "link", "set", interface, "up" if is_up else "down")


def test_a_node_on_two_networks_sends_on_both_and_hears_once(two_networks: Lab) -> None:
    one, two, three = two_networks.hosts
    on_both = two.start("sub", "tick", "--name", "both", *BOTH)
    counter = two.start_script(COUNTER)
    on_second = three.start("sub", "tick", "--name", "second", "--interface", "eth1")
    assert wait_until(lambda: {"both", "counter", "second"} <= names_known(one, *BOTH), TIMEOUT_S)
    pace = ["--count", "50", "--rate", "100", "--wait", "60"]
    publisher = one.start("pub", "tick", "1", *pace, "--reliable", *BOTH)
    assert publisher.wait(2 * TIMEOUT_S) == 0, publisher.report()
    for listener in (on_both, on_second):
        assert listener.wait_until(lambda p: len(values(p)) >= 50, TIMEOUT_S), listener.report()
        sequences = [each["sequence"] for each in listener.objects()]
        assert len(set(sequences)) == len(sequences) == 50
    assert counter.wait(TIMEOUT_S) == 0, counter.report()
    (stats,) = counter.objects()
    is_sealed = two.key_file is not None
    assert stats["datagrams_replayed" if is_sealed else "datagrams_repeated"] > 0
    assert stats["messages_received"] == 50


@pytest.mark.parametrize("broken", ["eth0", "eth1"])
def test_one_broken_network_does_not_stop_the_other(two_networks: Lab, broken: str) -> None:
    one, two, _ = two_networks.hosts
    listener = two.start("sub", "tick", "--name", "reader", *BOTH)
    publisher = one.start("pub", "tick", "1", "--rate", "20", *BOTH)
    assert listener.wait_until(lambda p: values(p), TIMEOUT_S), publisher.report()
    for is_up in (False, True):
        set_link(one, broken, is_up)
        heard = len(values(listener))
        assert listener.wait_until(lambda p, n=heard: len(values(p)) > n + 20, TIMEOUT_S)
    assert publisher.returncode is None
