"""The doctor between hosts: it measures what the network does to datagrams, and says where."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.helpers import wait_until
from tests.netns.commands import TIMEOUT_S, has_logged
from tests.netns.conftest import MakeLab
from tests.netns.plain import GROUP, PORT
from tools.lab.host import INTERFACE, Host
from tools.lab.shape import Shape

Report = dict[str, Any]


def listen_on(host: Host) -> None:
    listener = host.start("doctor", "--listen", "--name", "listener")
    assert listener.wait_until(lambda p: has_logged(p, "answers echoes on"), TIMEOUT_S)


def look_until(
    host: Host, condition: Callable[[Report], object], code: int = 0, timeout: str = "3"
) -> Report:
    """Run the doctor until it reports that: on a busy machine a run may come too short."""
    reports: list[Report] = []

    def is_reported() -> bool:
        process = host.run("doctor", "--timeout", timeout, timeout_s=TIMEOUT_S)
        reports.extend(process.objects())
        return process.returncode == code and bool(condition(reports[-1]))

    assert wait_until(is_reported, 2 * TIMEOUT_S), reports[-1:]
    return reports[-1]


def levels(report: Report, check: str) -> list[str]:
    return [each["level"] for each in report["findings"] if each["check"] == check]


def listener_of(report: Report) -> Report:
    (listener,) = report["facts"]["listeners"]
    assert isinstance(listener, dict)
    return listener


def test_a_clean_network_passes_every_size(lab: MakeLab) -> None:
    one, two = lab(2).hosts
    listen_on(two)
    report = look_until(
        one, lambda report: levels(report, "echo") == levels(report, "size") == ["ok"]
    )
    listener = listener_of(report)
    assert (listener["name"], listener["address"]) == ("listener", two.address)
    assert not listener["is_here"]
    assert [each["answered"] == each["sent"] for each in listener["sizes"]] == [True] * 6
    assert levels(report, "firewall") == []


def test_loss_is_measured_and_told_for_each_way(lab: MakeLab) -> None:
    one, two = lab(2, Shape(loss=0.3)).hosts
    listen_on(two)

    def is_lossy(report: Report) -> bool:
        if not report["facts"]["listeners"]:
            return False  # all that it said was lost
        small = listener_of(report)["sizes"][0]
        return small["lost_there"] > 0 < small["lost_back"]

    # Of a hundred, half get lost: more than anybody should live with.
    report = look_until(one, is_lossy, code=1)
    small = listener_of(report)["sizes"][0]
    assert 0 < small["answered"] < small["sent"]
    assert "problem" in levels(report, "echo")


def test_repeats_are_noticed_at_both_ends(lab: MakeLab) -> None:
    one, two = lab(2, Shape(repeat=0.5)).hosts
    listen_on(two)

    def are_noticed(report: Report) -> bool:
        listeners = report["facts"]["listeners"]
        return (
            bool(listeners)
            and min(listeners[0]["repeated_there"], listeners[0]["repeated_back"]) > 0
        )

    look_until(one, are_noticed)


def test_a_link_that_carries_less_than_nodes_send_is_a_problem(lab: MakeLab) -> None:
    one, two = lab(2).hosts
    two.namespace.run("ip", "link", "set", INTERFACE, "mtu", "1000")
    listen_on(two)
    report = look_until(one, lambda report: levels(report, "size") == ["problem"], code=1)
    sizes = listener_of(report)["sizes"]
    assert [each["answered"] > 0 for each in sizes] == [True] + [False] * 5
    assert sizes[1]["lost_there"] == sizes[1]["sent"]
    assert levels(report, "echo") == ["ok"]


@pytest.fixture
def one_way(lab: MakeLab) -> tuple[Host, Host]:
    """A network on which the first host reaches nobody, and is reached by all."""
    one, two = lab(2).hosts
    # As a firewall would, the other host drops what comes from the first: its way back is none.
    strict = f"echo 1 > /proc/sys/net/ipv4/conf/{INTERFACE}/rp_filter"
    two.namespace.run("sh", "-c", strict)
    two.namespace.run("ip", "route", "add", "blackhole", f"{one.address}/32")
    return one, two


def test_a_listener_that_hears_nothing_is_a_problem_with_the_direction(
    one_way: tuple[Host, Host],
) -> None:
    one, two = one_way
    listen_on(two)
    report = look_until(one, lambda report: "problem" in levels(report, "echo"), code=1)
    (problem,) = [each for each in report["findings"] if each["level"] == "problem"]
    assert "what this machine sends does not arrive there" in problem["text"]
    assert two.address in problem["remedy"]


def test_a_network_without_anybody_is_a_hint_at_firewalls_and_no_problem(lab: MakeLab) -> None:
    (one,) = lab(1).hosts
    report = look_until(one, lambda report: levels(report, "firewall") == ["note"], timeout="0.5")
    assert levels(report, "loopback") == ["ok"]
    assert report["facts"]["machine"]["default_route"] is None
    assert report["facts"]["joined"]["interfaces"] == [INTERFACE]


def test_an_interface_that_is_down_is_a_problem(lab: MakeLab) -> None:
    (one,) = lab(1).hosts
    one.set_link(False)
    report = look_until(
        one, lambda report: "problem" in levels(report, "interface"), code=1, timeout="0.5"
    )
    assert "problem" in levels(report, "loopback")


def test_nodes_of_another_host_are_heard_and_so_is_noise(lab: MakeLab) -> None:
    one, two = lab(2).hosts
    two.start("node", "--name", "attic")

    def is_complete(report: Report) -> bool:
        nodes = report["facts"]["nodes"]
        return [each["name"] for each in nodes] == ["attic"] and not nodes[0]["is_here"]

    report = look_until(one, is_complete, timeout="1")
    assert levels(report, "nodes") == ["ok"]
    noise = two.start_script(NOISE, two.address, GROUP, str(PORT))
    look_until(one, lambda report: levels(report, "foreign") == ["warning"], timeout="0.5")
    noise.kill()


NOISE = (
    "import socket,sys,time; s=socket.socket(socket.AF_INET,socket.SOCK_DGRAM); "
    "s.setsockopt(0,socket.IP_MULTICAST_IF,socket.inet_aton(sys.argv[1]))\n"
    "for _ in range(6000): s.sendto(b'noise',(sys.argv[2],int(sys.argv[3]))); time.sleep(0.02)"
)
