"""Three hosts find each other, in each mode."""

from __future__ import annotations

import pytest

from tests.helpers import wait_until
from tests.netns.commands import TIMEOUT_S, names_known, values
from tests.netns.conftest import MakeLab

MODES = ["basic", "master", "delayed"]


@pytest.mark.parametrize("mode", MODES)
def test_three_hosts_hear_each_other(lab: MakeLab, mode: str) -> None:
    one, two, three = lab(3).hosts
    if mode == "master":
        three.start("node", "--master", "--name", "boss")
    options = ["--mode", mode]
    listeners = [host.start("sub", "greeting/**", *options) for host in (one, two)]
    three.start("pub", "greeting/morning", '{"from": 3}', "--rate", "10", *options)
    one.start("pub", "greeting/evening", '{"from": 1}', "--rate", "10", *options)
    for listener in listeners:
        assert listener.wait_until(lambda p: {"from": 1} in values(p), TIMEOUT_S)
        assert listener.wait_until(lambda p: {"from": 3} in values(p), TIMEOUT_S)


@pytest.mark.parametrize("mode", ["master", "delayed"])
def test_a_value_nobody_subscribes_to_does_not_leave_the_host(lab: MakeLab, mode: str) -> None:
    one, two = lab(2).hosts
    if mode == "master":
        one.start("node", "--master")
    listener = one.start("sub", "wanted", "--mode", mode)
    publisher = two.run("pub", "wanted", "1", "--wait", "60", "--mode", mode)
    assert publisher.returncode == 0, publisher.report()
    assert listener.wait_until(lambda p: values(p) == [1], TIMEOUT_S)

    def is_suppressed() -> bool:
        # On a busy machine a newcomer may be left in doubt for once, and then it sends.
        newcomer = two.run("pub", "unwanted", "1", "--mode", mode)
        return "nobody subscribes to unwanted: nothing was sent" in newcomer.errors()

    assert wait_until(is_suppressed, TIMEOUT_S)


@pytest.mark.parametrize("mode", ["master", "delayed"])
def test_a_late_publisher_knows_at_once_who_subscribes(lab: MakeLab, mode: str) -> None:
    one, two, three = lab(3).hosts
    if mode == "master":
        two.start("node", "--master", "--name", "boss")
    listener = one.start("sub", "news", "--name", "reader", "--mode", mode)
    assert wait_until(lambda: "reader" in names_known(two, "--mode", mode), TIMEOUT_S)

    def is_heard() -> bool:
        # Without --wait: it holds the value until it knows, instead of losing it. On a busy
        # machine the others may be silent for so long that it has to believe it is alone.
        late = three.run("pub", "news", '"late"', "--mode", mode)
        assert late.returncode == 0, late.report()
        return "nobody subscribes" not in late.errors()

    assert wait_until(is_heard, TIMEOUT_S)
    assert listener.wait_until(lambda p: values(p) == ["late"], TIMEOUT_S)


def test_a_late_subscriber_gets_what_was_suppressed_before_it_came(lab: MakeLab) -> None:
    one, two, three = lab(3).hosts
    one.start("node", "--name", "bystander")
    two.start("pub", "clock", "1", "--rate", "10", "--name", "clock")
    assert wait_until(lambda: {"bystander", "clock"} <= names_known(three), TIMEOUT_S)
    late = three.start("sub", "clock")
    assert late.wait_until(lambda p: 1 in values(p), TIMEOUT_S)


def test_a_subscriber_that_leaves_with_a_goodbye_is_forgotten_at_once(lab: MakeLab) -> None:
    one, two = lab(2).hosts
    watcher = two.start("node", "--name", "watcher")
    listener = one.start("sub", "news", "--name", "reader")
    assert watcher.wait_until(lambda p: "'reader'" in p.errors(), TIMEOUT_S)
    listener.interrupt()
    assert listener.wait(TIMEOUT_S) == 0, listener.report()
    assert watcher.wait_until(lambda p: ") left" in p.errors(), TIMEOUT_S)
    assert wait_until(lambda: names_known(two) == {"watcher"}, TIMEOUT_S)


def test_thirty_nodes_that_start_at_once_all_find_each_other(lab: MakeLab) -> None:
    network = lab(3)
    wanted = {f"{host.name}.{number}" for host in network.hosts for number in range(10)}
    for host in network.hosts:
        for number in range(10):
            name = f"{host.name}.{number}"
            host.start("node", "--name", name, "--sub", f"to/{name}")
    nodes = [process for host in network.hosts for process in host.processes]
    for node in nodes:
        assert node.wait_until(lambda p: p.errors().count(") joined") >= 29, TIMEOUT_S), node.label
    publisher = network.hosts[0].start("pub", "to/host3.9", '"hello"', "--wait", "60")
    assert publisher.wait(2 * TIMEOUT_S) == 0, publisher.report()
    assert nodes[-1].wait_until(lambda p: values(p) == ["hello"], TIMEOUT_S)
    assert wait_until(lambda: wanted <= names_known(network.hosts[1]), TIMEOUT_S)
