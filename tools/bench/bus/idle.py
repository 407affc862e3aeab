"""What a bus costs that does nothing: nodes with a subscription each, and nobody publishes.

Each node is a process. They are copies of one that has imported the library, so that sixty start
within seconds. Beside them a bare receiver waits for the same datagrams and forgets them: what the
system charges for waking a process that often is the floor.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator

from tools._setup import say
from tools.bench.arena import Arena
from tools.bench.bus.floods import Plan
from tools.bench.bus.floor import RECEIVE_BYTES
from tools.bench.child import Child, RunError, cpu_clock_s
from tools.bench.measures import Sample
from tools.bench.worker import read_commands, run, write_answer

#: So long the nodes may take to join, one after the other, and then to agree.
JOIN_S_MAX = 120.0
SETTLE_S_MAX = 60.0
#: No process outlives its benchmark by more than this.
LIFE_S = 300


def measure_idle(arena: Arena, plan: Plan) -> Iterator[Sample]:
    for nodes in plan.idle_nodes:
        say(f"growth: {nodes} idle nodes")
        where = [arena.group, str(arena.next_port()), arena.interface]
        child = Child("idle nodes", "tools.bench.bus.idle", [str(nodes), *where], arena.environment)
        try:
            yield _measure(child, nodes, plan.idle_s)
        finally:
            child.end()


def _measure(child: Child, nodes: int, seconds: float) -> Sample:
    pids: list[int] = child.hear(JOIN_S_MAX)["pids"]
    *node_pids, floor_pid = pids
    deadline = time.monotonic() + SETTLE_S_MAX
    while child.ask("look")["settled"] < nodes:
        if time.monotonic() > deadline:
            raise RunError(f"{nodes} idle nodes did not agree within {SETTLE_S_MAX:.0f} s")
        time.sleep(0.1)
    time.sleep(seconds)
    received = child.ask("look")["received"]
    begun_s, cpu_s = time.monotonic(), [cpu_clock_s(pid) for pid in pids]
    time.sleep(seconds)
    floor_s = cpu_clock_s(floor_pid) - cpu_s[-1]
    used_s = sum(map(cpu_clock_s, node_pids)) - sum(cpu_s[:-1])
    passed_s = time.monotonic() - begun_s
    received = child.ask("look")["received"] - received
    extra = {
        "bare_ms": 1e3 * floor_s / passed_s,
        "datagrams_s": received / nodes / passed_s,
    }
    return Sample("growth-idle", f"{nodes:,}", 1e3 * used_s / nodes / passed_s, extra)


# --- In the process that makes the others ---------------------------------------------------------


def main() -> None:
    nodes, group, port, interface = sys.argv[1:]
    copies = []
    for _ in range(int(nodes)):
        copies.append(_Copy(lambda ask: _be_node(group, int(port), interface, ask)))
        copies[-1].look()  # it has joined: sixty at once would take long on a busy machine
    floor = _Copy(lambda _: _be_floor(group, int(port), interface))
    write_answer({"pids": [copy.pid for copy in (*copies, floor)]})
    for _ in read_commands():
        looks = [copy.look() for copy in copies]
        known = sum(nodes_known == len(copies) for nodes_known, _ in looks)
        write_answer({"settled": known, "received": sum(received for _, received in looks)})


class _Copy:
    """A copy of this process that answers with two numbers; it ends when this one does."""

    def __init__(self, be: Callable[[int], object]) -> None:
        here, there = socket.socketpair()
        self._socket = here
        self.pid = os.fork()
        if self.pid:
            there.close()
            return
        here.close()
        signal.alarm(LIFE_S)
        run(lambda: be(there.fileno()))

    def look(self) -> tuple[int, int]:
        """How many nodes it knows if it is sure, else 0; and how many datagrams it received."""
        self._socket.send(b"?")
        known, received = self._socket.recv(100).split()
        return int(known), int(received)


def _be_node(group: str, port: int, interface: str, asked: int) -> None:
    import jsonbus

    bus = jsonbus.Bus(group=group, port=port, interface=interface)
    bus.subscribe("sensors/**", lambda message: None)
    bus.wait_until_sure(JOIN_S_MAX)
    while os.read(asked, 1):
        known = len(bus.nodes()) if bus.state == "sure" else 0
        os.write(asked, b"%d %d" % (known, bus.stats()["datagrams_received"]))


def _be_floor(group: str, port: int, interface: str) -> None:
    from jsonbus.transport import platforms
    from jsonbus.transport.interfaces import choose_interfaces

    sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    platforms.bind_to_group(sock, group, port)
    for chosen in choose_interfaces([interface]):
        platforms.join(sock, group, chosen)
    sock.setblocking(False)
    while True:
        select.select([sock], [], [])
        with contextlib.suppress(BlockingIOError):
            while True:
                sock.recv(RECEIVE_BYTES)


if __name__ == "__main__":
    run(main)
