"""Where a benchmark takes place: a private network namespace, else loopback; never a real network.

A namespace of its own keeps everybody else's datagrams away, and lets LCM have the multicast route
it insists on. Making one takes root or user namespaces; `enter` starts the benchmark again in it.
"""

from __future__ import annotations

import os
import platform
import shutil
import socket
import subprocess
import sys
from importlib import metadata
from pathlib import Path

from tools._setup import ROOT
from tools.bench.bus.spec import RECEIVE_BUFFER_BYTES
from tools.bench.child import end_with_parent
from tools.bench.network import Network, Place

GROUP = "239.255.24.16"

#: Tells the benchmark that was started again where it is. Not JSONBUS_…: those are the bus's own.
INSIDE = "BENCH_IN_NAMESPACE"

_PREPARE = (
    "ip link set lo up && ip route add 224.0.0.0/4 dev lo && "
    'exec "$0" "$@"'  # the shell makes room for Python
)
_WAYS = (["unshare", "--net"], ["unshare", "--user", "--map-root-user", "--net"])


def enter(benchmark: str, arguments: list[str]) -> int | None:
    """Run the benchmark again in a namespace; its exit code, or None where that is not possible."""
    if INSIDE in os.environ or shutil.which("unshare") is None or shutil.which("ip") is None:
        return None
    for way in _WAYS:
        prepared = [*way, "sh", "-c", _PREPARE]
        # Python itself is tried: a user namespace may not be let near the folder it is in.
        attempt = subprocess.run([*prepared, sys.executable, "-c", ""], capture_output=True)
        if attempt.returncode == 0:
            # If this process is ended, the other one ends too, in good order.
            again = [sys.executable, "-m", "tools.bench", benchmark, *arguments]
            environment = {**os.environ, INSIDE: "1", "PYTHONPATH": str(ROOT)}
            command = [*prepared, *end_with_parent("TERM"), *again]
            return subprocess.run(command, env=environment).returncode
    return None


class Arena:
    """Group, places, ports and environment for the processes of a benchmark."""

    def __init__(self, first_port: int | None = None, network: str = "lo") -> None:
        self.network = Network(network)
        #: Whether nobody else's datagrams come here.
        self.in_namespace = INSIDE in os.environ or self.network.is_lan
        self.interface = "lo"
        self.group = GROUP
        self.environment = {
            name: value for name, value in os.environ.items() if not name.startswith("JSONBUS_")
        }
        self.environment["PYTHONPATH"] = str(ROOT)
        self.receive_buffer_bytes = _obtain_receive_buffer_bytes()
        self._port = first_port or 10_000 + int.from_bytes(os.urandom(2), "big") % 20_000

    def next_port(self) -> int:
        """Return a free port. Each run gets a new one, so that it does not hear the run before."""
        while True:
            self._port += 1
            if _is_free(self._port):
                return self._port

    def places(self, count: int) -> list[Place]:
        """Where so many processes are."""
        return self.network.places(count)

    def describe(self) -> dict[str, str]:
        """Return the facts that the figures depend on."""
        where = "loopback of this machine"
        if self.in_namespace:
            where = "loopback of a private network namespace"
        if self.network.is_lan:
            where = "a host for each process, joined by veth"
        facts = {
            "python": platform.python_version(),
            "orjson": metadata.version("orjson"),
            "processor": _processor(),
            "processors": str(os.cpu_count()),
            "kernel": platform.release(),
            "network": where,
            "receive buffer": f"{self.receive_buffer_bytes:,} bytes",
        }
        for package in ("eclipse-zenoh", "pyzmq", "lcm", "nats-py"):
            try:
                facts[package] = metadata.version(package)
            except metadata.PackageNotFoundError:
                continue
        return facts


def _obtain_receive_buffer_bytes() -> int:
    """Return the receive buffer that the system grants when a bus asks for the default."""
    from jsonbus.transport import platforms

    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        return platforms.grow_receive_buffer(probe, RECEIVE_BUFFER_BYTES)


def _is_free(port: int) -> bool:
    for kind in (socket.SOCK_DGRAM, socket.SOCK_STREAM):
        with socket.socket(socket.AF_INET, kind) as probe:
            try:
                probe.bind(("", port))
            except OSError:
                return False
    return True


def _processor() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()
