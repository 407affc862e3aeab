"""Nodes on two networks: they send on both, hear once, and one network may break."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from lab_host import Host
from lab_hub import Hub
from lab_network import Lab
from lab_shape import Shape

from tests.helpers import wait_until
from tests.netns.commands import TIMEOUT_S, names_known, values
from tests.netns.conftest import MakeLab

BOTH = ("--interface", "eth0", "--interface", "eth1")


@pytest.fixture
def network(lab: MakeLab) -> Iterator[Lab]:
    """Three hosts: the first on both networks, the second too, the third on the second only."""
    made = lab(3)
    with Hub("bridge", 1) as second:
        for number, host in enumerate(made.hosts, 1):
            second.connect(host.namespace, f"second{number}", "eth1")
            host.namespace.run("ip", "addr", "add", f"10.78.0.{number}/24", "dev", "eth1")
            host.namespace.run("ip", "link", "set", "eth1", "up")
        second.start(Shape())
        assert wait_until(lambda: all(h.namespace.has_carrier("eth1") for h in made.hosts), 60)
        yield made


def set_link(host: Host, interface: str, is_up: bool) -> None:
    host.namespace.run("ip", "link", "set", interface, "up" if is_up else "down")


def test_a_node_on_two_networks_sends_on_both_and_hears_once(network: Lab) -> None:
    one, two, three = network.hosts
    on_both = two.start("sub", "tick", "--name", "both", *BOTH)
    on_second = three.start("sub", "tick", "--name", "second", "--interface", "eth1")
    assert wait_until(lambda: {"both", "second"} <= names_known(one, *BOTH), TIMEOUT_S)
    pace = ["--count", "50", "--rate", "100", "--wait", "60"]
    publisher = one.start("pub", "tick", "1", *pace, "--reliable", *BOTH)
    assert publisher.wait(2 * TIMEOUT_S) == 0, publisher.report()
    for listener in (on_both, on_second):
        assert listener.wait_until(lambda p: len(values(p)) >= 50, TIMEOUT_S), listener.report()
        sequences = [each["sequence"] for each in listener.objects()]
        assert len(set(sequences)) == len(sequences) == 50


@pytest.mark.parametrize("broken", ["eth0", "eth1"])
def test_one_broken_network_does_not_stop_the_other(network: Lab, broken: str) -> None:
    one, two, _ = network.hosts
    listener = two.start("sub", "tick", "--name", "reader", *BOTH)
    publisher = one.start("pub", "tick", "1", "--rate", "20", *BOTH)
    assert listener.wait_until(lambda p: values(p), TIMEOUT_S), publisher.report()
    for is_up in (False, True):
        set_link(one, broken, is_up)
        heard = len(values(listener))
        assert listener.wait_until(lambda p, n=heard: len(values(p)) > n + 20, TIMEOUT_S)
    assert publisher.returncode is None
