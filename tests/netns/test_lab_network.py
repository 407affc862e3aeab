"""The lab's own parts: hosts hear each other, links misbehave as told, nothing is left behind."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.helpers import wait_until
from tests.netns.conftest import MakeLab
from tests.netns.plain import COUNTER, GROUP, LISTENER, PORT, RUN
from tools.lab.host import Host
from tools.lab.hub import Hub, has_netem
from tools.lab.namespace import LabError, Namespace
from tools.lab.network import Lab
from tools.lab.process import Process
from tools.lab.shape import Shape

ROOT = Path(__file__).resolve().parents[2]
FRAMES = 100


def listen(host: Host) -> Process:
    process = host.start_script(LISTENER, host.address, GROUP, str(PORT))
    assert process.wait_until(lambda p: p.lines() == ["ready"], 60), process.report()
    return process


def listen_everywhere(network: Lab) -> list[Process]:
    """Listeners on all hosts that hear the first, proven by a number below zero."""
    listeners = [listen(host) for host in network.hosts]

    def all_hear() -> bool:
        network.hosts[0].send_plain("-1")
        return all(len(listener.lines()) > 1 for listener in listeners)

    assert wait_until(all_hear, 60)
    return listeners


def count_out(host: Host) -> None:
    sender = host.start_script(COUNTER, host.address, GROUP, str(PORT), str(FRAMES))
    assert sender.wait(60) == 0, sender.report()


def heard(process: Process) -> list[int]:
    return [int(line) for line in process.lines()[1:] if int(line) >= 0]


def has_settled(lab: Lab) -> bool:
    """Whether the relay has sent on, or lost, at least every numbered frame to each other host."""
    counts = lab.hub.relay_counts()
    others = len(lab.hosts) - 1
    return counts["sent"] + counts["lost"] >= FRAMES * others


@pytest.mark.parametrize("hub", ["bridge", "relay"])
def test_every_host_hears_every_frame_of_a_clean_network(lab: MakeLab, hub: str) -> None:
    network = lab(3, hub=hub)
    listeners = listen_everywhere(network)
    count_out(network.hosts[0])
    for listener in listeners:
        assert listener.wait_until(lambda p: len(heard(p)) == FRAMES, 60)
        assert heard(listener) == list(range(FRAMES))


def test_datagrams_of_a_run_are_frames_of_their_own(lab: MakeLab) -> None:
    network = lab(2, hub="relay")
    before = network.hub.relay_counts()["heard"]
    host = network.hosts[0]
    sender = host.start_script(RUN, host.address, GROUP, str(PORT), str(FRAMES))
    assert sender.wait(60) == 0, sender.report()
    assert wait_until(lambda: network.hub.relay_counts()["heard"] >= before + FRAMES, 60)


def test_a_relay_loses_what_the_shape_says(lab: MakeLab) -> None:
    network = lab(2, Shape(loss=0.5), hub="relay")
    listener = listen(network.hosts[1])
    count_out(network.hosts[0])
    assert wait_until(lambda: has_settled(network), 60)
    counts = network.hub.relay_counts()
    # Deterministic up to a few frames of the hosts' own (the kernel says hello on a new link).
    assert 0.3 < counts["lost"] / counts["heard"] < 0.7
    assert counts["sent"] + counts["lost"] == counts["heard"]
    assert 0 < len(heard(listener)) < FRAMES


def test_a_relay_repeats_and_delays_what_the_shape_says(lab: MakeLab) -> None:
    network = lab(2, Shape(repeat=1, delay_ms=20), hub="relay")
    listener = listen_everywhere(network)[1]
    count_out(network.hosts[0])
    assert listener.wait_until(lambda p: len(heard(p)) == 2 * FRAMES, 60)
    assert sorted(set(heard(listener))) == list(range(FRAMES))
    counts = network.hub.relay_counts()
    assert counts["delayed"] >= 2 * FRAMES
    assert counts["repeated"] >= FRAMES


def test_jitter_changes_the_order(lab: MakeLab) -> None:
    network = lab(2, Shape(delay_ms=50, jitter_ms=50), hub="relay")
    listener = listen_everywhere(network)[1]
    count_out(network.hosts[0])
    assert listener.wait_until(lambda p: len(heard(p)) == FRAMES, 60)
    assert heard(listener) != sorted(heard(listener)) == list(range(FRAMES))


def test_a_relay_can_be_told_to_misbehave_later(lab: MakeLab) -> None:
    network = lab(2, hub="relay")
    listener = listen_everywhere(network)[1]
    count_out(network.hosts[0])
    assert listener.wait_until(lambda p: len(heard(p)) == FRAMES, 60)
    network.hub.shape(Shape(loss=1))
    lost_before = network.hub.relay_counts()["lost"]
    count_out(network.hosts[0])
    assert wait_until(lambda: network.hub.relay_counts()["lost"] >= lost_before + FRAMES, 60)
    assert len(heard(listener)) == FRAMES


def test_a_relay_can_make_one_host_deaf(lab: MakeLab) -> None:
    network = lab(3, hub="relay")
    _, deaf, other = listen_everywhere(network)
    network.hub.shape(Shape(loss=1), "host2")
    count_out(network.hosts[0])
    assert other.wait_until(lambda p: len(heard(p)) == FRAMES, 60)
    assert wait_until(lambda: network.hub.relay_counts()["lost"] >= FRAMES, 60)
    assert heard(deaf) == []
    count_out(network.hosts[1])  # it is not mute, and hears itself
    assert other.wait_until(lambda p: len(heard(p)) == 2 * FRAMES, 60)
    network.hub.shape(Shape())
    count_out(network.hosts[0])
    assert deaf.wait_until(lambda p: len(heard(p)) == 2 * FRAMES, 60)


def test_a_relay_can_split_the_network_and_heal_it(lab: MakeLab) -> None:
    network = lab(4, hub="relay")
    one, two, three, four = listen_everywhere(network)
    network.hub.split(["host1", "host2"])
    count_out(network.hosts[0])
    count_out(network.hosts[2])
    for listener in (one, two, three, four):
        assert listener.wait_until(lambda p: len(heard(p)) == FRAMES, 60)
    network.hub.split()
    count_out(network.hosts[0])
    for listener, count in ((two, 2), (three, 2), (four, 2)):
        assert listener.wait_until(lambda p, n=count: len(heard(p)) == n * FRAMES, 60)
    assert network.hub.relay_counts()["cut"] >= 4 * FRAMES


def test_only_a_relay_can_split(lab: MakeLab) -> None:
    with pytest.raises(LabError, match="not a relay"):
        lab(2, hub="bridge").hub.split(["host1"])


def test_netem_loses_what_the_shape_says(lab: MakeLab) -> None:
    if not has_netem():
        pytest.skip("this kernel has no netem; the relay covers the same behaviour")
    network = lab(2, Shape(loss=1), hub="bridge")
    listener = listen(network.hosts[1])
    count_out(network.hosts[0])
    network.hub.shape(Shape())
    count_out(network.hosts[0])
    assert listener.wait_until(lambda p: len(heard(p)) == FRAMES, 60)


def test_a_bridge_cannot_be_shaped_without_netem(lab: MakeLab) -> None:
    if has_netem():
        pytest.skip("this kernel has netem")
    with pytest.raises(LabError, match="use a hub of the kind relay"):
        lab(2, Shape(loss=0.5), hub="bridge")


def test_a_link_taken_down_is_silent_until_it_is_up_again(lab: MakeLab) -> None:
    network = lab(2, hub="relay")
    far = network.hosts[1]
    listener = listen(far)
    far.set_link(False)
    count_out(network.hosts[0])
    far.set_link(True)

    def is_heard() -> bool:
        # Again and again: for a moment after a link has come up the kernel still throws away
        # what is sent by it.
        network.hosts[0].send_plain("1000")
        return 1000 in heard(listener)

    assert wait_until(is_heard, 60)


def test_only_a_bridge_can_have_its_cables_replaced(lab: MakeLab) -> None:
    network = lab(1, hub="relay")
    with pytest.raises(LabError, match="only the cables of a bridge"):
        network.replace_interface(network.hosts[0])


def test_a_hub_of_an_unknown_kind_is_refused() -> None:
    with pytest.raises(ValueError, match="none of auto, bridge, relay"):
        Hub("ring", 1)


def test_a_command_that_fails_in_a_namespace_says_why(namespaces: None) -> None:
    with Namespace() as namespace:
        with pytest.raises(LabError, match="ip link set nope0 up: .*nope0"):
            namespace.run("ip", "link", "set", "nope0", "up")


def test_nothing_is_left_of_a_lab_that_failed_to_open(namespaces: None, tmp_path: Path) -> None:
    before = _children()
    with pytest.raises(LabError, match="the relay failed: .*no-python"):
        Lab(2, hub="relay", python=str(tmp_path / "no-python"))
    assert _children() == before


def test_nothing_is_left_of_a_lab_that_was_killed(namespaces: None) -> None:
    script = (
        "import time\n"
        "from tools.lab.network import Lab\n"
        "lab = Lab(2, hub='relay')\n"
        "process = lab.hosts[0].start_script('import time; time.sleep(600)')\n"
        "print(process._popen.pid, lab.hosts[0].namespace.holder_id,"
        " lab.hub.namespace.holder_id, lab.hub._relay.pid, flush=True)\n"
        "time.sleep(600)\n"
    )
    argv = [sys.executable, "-c", script]
    with subprocess.Popen(argv, cwd=ROOT, stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdout is not None
        left = [int(word) for word in owner.stdout.readline().split()]
        assert len(left) == 4 and all(_is_alive(process) for process in left)
        owner.send_signal(signal.SIGKILL)
    assert wait_until(lambda: not any(_is_alive(process) for process in left), 60)


def _is_alive(process: int) -> bool:
    return process in {each for each, _ in _processes()}


def _children() -> set[int]:
    return {process for process, parent in _processes() if parent == os.getpid()}


def _processes() -> list[tuple[int, int]]:
    """Every process with its parent, but for those that are dead and nobody has waited for."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # it ended while we looked
            state, parent = path.read_text().rpartition(")")[2].split()[:2]
            if state != "Z":
                found.append((int(path.parent.name), int(parent)))
    return found
