"""The end of a bus: said goodbye, bounded in time, nothing left waiting."""

from __future__ import annotations

import gc
import json
import logging
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any

import pytest

import jsonbus
from jsonbus.errors import ClosedError
from jsonbus.transport import MemoryNetwork
from tests.helpers import find_free_port, wait_until
from tests.sealed.material import WITH_DOORS
from tests.sync.conftest import OpenBus


def names_known_to(bus: jsonbus.Bus) -> set[str]:
    return {node.name for node in bus.nodes()}


def nodes_by_part(bus: jsonbus.Bus) -> list[list[jsonbus.NodeInfo]]:
    return [loop.look(lambda node, now: node.view.nodes(now)) for loop in bus._loop.with_parts]


def test_many_threads_may_close_at_once(open_bus: OpenBus) -> None:
    bus = open_bus()
    bus.subscribe("x", print)
    threads = [threading.Thread(target=bus.close) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
        assert not thread.is_alive()


@pytest.mark.parametrize(
    "use",
    [
        lambda bus: bus.publish("x", 1),
        lambda bus: bus.subscribe("x"),
        lambda bus: bus.on_node(print),
        lambda bus: bus.serve("x", print),
        lambda bus: bus.request("x"),
        lambda bus: bus.ping(),
        lambda bus: bus.wait_for_subscribers("x"),
        lambda bus: bus.wait_until_sure(),
        lambda bus: bus.flush(),
    ],
)
def test_a_closed_bus_is_not_used(open_bus: OpenBus, use: Callable[[jsonbus.Bus], object]) -> None:
    bus = open_bus()
    bus.close()
    with pytest.raises(ClosedError):
        use(bus)


def test_a_handler_may_close_the_bus(open_bus: OpenBus) -> None:
    bus = open_bus(workers=2)
    closed = threading.Event()

    def handler(message: jsonbus.Message) -> None:
        bus.close()
        bus.close()
        closed.set()

    bus.subscribe("x", handler)
    bus.publish("x", 1)
    assert closed.wait(30)
    assert bus.is_closed


def test_handlers_get_the_time_to_finish(open_bus: OpenBus) -> None:
    bus = open_bus()
    started, go_on, finished = threading.Event(), threading.Event(), threading.Event()

    def handler(message: jsonbus.Message) -> None:
        started.set()
        assert go_on.wait(60)
        finished.set()

    bus.subscribe("x", handler)
    bus.publish("x", 1)
    assert started.wait(30)
    timer = threading.Timer(0.05, go_on.set)
    timer.start()
    bus.close(timeout=60)
    assert finished.is_set()
    timer.join()


def test_a_handler_that_does_not_end_is_left_behind_with_a_warning(
    open_bus: OpenBus, caplog: pytest.LogCaptureFixture
) -> None:
    bus = open_bus()
    started, go_on = threading.Event(), threading.Event()

    def handler(message: jsonbus.Message) -> None:
        started.set()
        assert go_on.wait(60)

    subscription = bus.subscribe("x", handler)
    for number in range(3):
        bus.publish("x", number)
    assert started.wait(30)
    with caplog.at_level(logging.WARNING, "jsonbus.bus"):
        bus.close(timeout=0.01)
    assert "still runs a handler" in caplog.text
    go_on.set()
    assert wait_until(lambda: bus.stats()["messages_unread"] == 2)
    assert subscription.dropped == bus.stats()["messages_dropped"] == 0


def test_closing_a_jammed_bus_ends_in_time_and_counts_what_did_not_leave(
    network: MemoryNetwork,
) -> None:
    transport = network.open()
    bus = jsonbus.Bus.over(transport, mode="basic")
    assert bus.flush(timeout=30)
    transport.is_jammed = True
    publisher = threading.Thread(target=bus.publish, args=("x", 1))
    publisher.start()
    bus.close(timeout=0.05)
    publisher.join(30)
    assert not publisher.is_alive()
    assert bus.stats()["datagrams_unsent"] >= 1


@pytest.mark.parametrize("keys", [None, WITH_DOORS])
def test_a_forgotten_bus_warns_once_and_says_goodbye(open_bus: OpenBus, keys: Any) -> None:
    staying = open_bus(key_file=keys)
    port = staying.config.port
    with pytest.warns(ResourceWarning, match="unclosed <Bus forgotten") as warned:
        bus = jsonbus.Bus(port=port, interface="lo", name="forgotten", key_file=keys)
        assert wait_until(lambda: "forgotten" in names_known_to(staying))
        del bus
        gc.collect()
    assert wait_until(lambda: "forgotten" not in names_known_to(staying))
    assert wait_until(lambda: all(len(nodes) == 1 for nodes in nodes_by_part(staying)))
    assert len(warned) == 1


@pytest.mark.slow
def test_a_bus_that_is_open_when_the_program_ends_says_goodbye(open_bus: OpenBus) -> None:
    staying = open_bus()
    program = (
        "import jsonbus\n"
        f"bus = jsonbus.Bus(port={staying.config.port}, interface='lo', name='script')\n"
        "bus.subscribe('x', print)\n"
        "bus.wait_until_sure(timeout=30)\n"
        "input()\n"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE) as process:
        assert wait_until(lambda: "script" in names_known_to(staying))
        process.communicate(b"\n", timeout=60)
    assert process.returncode == 0
    assert wait_until(lambda: "script" not in names_known_to(staying))


FORK = """
import json, os, sys, threading
import jsonbus
from jsonbus.errors import ForkedError

settings = {"port": int(sys.argv[1]), "interface": "lo", "key_file": json.loads(sys.argv[2])}
parent = jsonbus.Bus(name="parent", **settings)
other = jsonbus.Bus(name="other", **settings)
subscription = parent.subscribe("doors/x")
parent.subscribe("y", print)
watch = parent.on_node(lambda event: None)
assert other.wait_for_subscribers("doors/x", timeout=30)
locks = (parent._loop.workers._lock, parent._loop.lock)
held, done = threading.Event(), threading.Event()

def hold():
    with locks[0], locks[1]:
        held.set()
        done.wait()

with parent:
    # A thread that does not exist in the child may hold any lock of the bus.
    holder = threading.Thread(target=hold)
    holder.start()
    held.wait()
    child = os.fork()
    if child != 0:
        done.set()
        holder.join()
    if child == 0:
        refused = 0
        for use in (
            lambda: parent.publish("doors/x", 1),
            lambda: parent.subscribe("z"),
            lambda: parent.subscribe("z", print),
            lambda: parent.serve("z", print),
            lambda: parent.on_node(print),
            lambda: parent.stats(),
            lambda: parent.flush(),
            lambda: parent.wait_until_sure(),
            lambda: subscription.get(timeout=0),
            lambda: next(subscription),
        ):
            try:
                use()
            except ForkedError:
                refused += 1
        assert refused == 10, refused
        subscription.close()
        watch.close()
        parent.close()
        other.close()
        with jsonbus.Bus(**settings) as own:
            assert own.publish("doors/x", "from the child")
            assert own.flush(timeout=30)
        sys.exit(7)  # runs exit handlers, leaves with blocks
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    assert subscription.get(timeout=30).value == "from the child"
    assert parent.id in {node.node for node in other.nodes()}
    for number in range(20):
        other.publish("doors/x", number)
    assert [subscription.get(timeout=30).value for _ in range(20)] == list(range(20))
    assert not watch.is_closed
other.close()
print("fine")
"""


@pytest.mark.slow
@pytest.mark.parametrize("keys", [None, WITH_DOORS])
@pytest.mark.skipif(sys.platform == "win32", reason="there is no fork on Windows")
def test_a_forked_child_cannot_use_the_bus_and_does_the_parent_no_harm(keys: Any) -> None:
    result = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", FORK, str(find_free_port()), json.dumps(keys)],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert (result.returncode, result.stdout) == (0, "fine\n"), result.stderr
