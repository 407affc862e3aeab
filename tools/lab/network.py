"""Lab: some hosts on one hub, in namespaces of this machine."""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
import time

from tools.lab.host import INTERFACE, Host, environment
from tools.lab.hub import Hub
from tools.lab.namespace import LabError
from tools.lab.process import Process
from tools.lab.shape import Shape

CARRIER_TIMEOUT_S = 60


class Lab:
    """A context manager: at its end, however it comes, no process and no namespace is left.

    Use it from the thread that outlives it: the processes die with the thread that started them.
    If it is sealed, all its processes have a key that was made for it.
    """

    def __init__(
        self,
        hosts: int,
        shape: Shape | None = None,
        *,
        hub: str = "auto",
        seed: int = 1,
        python: str = sys.executable,
        is_sealed: bool = False,
    ) -> None:
        shape = shape or Shape()
        with contextlib.ExitStack() as stack:
            self.hub = stack.enter_context(Hub(hub, seed, python))
            self.hosts: list[Host] = []
            self._python = python
            self._key_file: str | None = None
            for number in range(1, hosts + 1):
                host = Host(f"host{number}", f"10.77.0.{number}", python)
                stack.callback(host.close)
                self.hub.connect(host.namespace, host.name, INTERFACE)
                host.configure()
                self.hosts.append(host)
            if is_sealed:
                self._seal(stack)
            self.hub.start(shape)
            self._wait_for_carriers()
            self._stack = stack.pop_all()

    def replace_interface(self, host: Host) -> None:
        """Give a host a new interface under the old name, as a driver that restarts does."""
        self.hub.reconnect(host.namespace, host.name, INTERFACE)
        host.configure()
        self._wait_for_carriers()

    def start_in_hub(self, module: str, *arguments: str) -> Process:
        """Start a Python module of ours in the hub, where all that hosts send comes by."""
        argv = self.hub.namespace.command(self._python, "-m", module, *arguments)
        process = Process(f"hub-{module}", argv, environment(self._key_file))
        self._stack.callback(process.close)
        return process

    def report(self) -> str:
        """Return the last output of every process."""
        return "\n".join(process.report() for host in self.hosts for process in host.processes)

    def close(self) -> None:
        self._stack.close()

    def __enter__(self) -> Lab:
        return self

    def __exit__(self, *failure: object) -> None:
        self.close()

    def _seal(self, stack: contextlib.ExitStack) -> None:
        """Make a key for all hosts, in a file that is open here and has no other name."""
        with tempfile.TemporaryDirectory() as folder:
            path = f"{folder}/lab.key"
            keygen = self.hosts[0].run("keygen", path, "--bus", "lab")
            if keygen.returncode != 0:
                raise LabError(f"cannot make a key: {keygen.errors().strip()}")
            file = stack.enter_context(open(path))
        self._key_file = f"/proc/{os.getpid()}/fd/{file.fileno()}"
        for host in self.hosts:
            host.key_file = self._key_file

    def _wait_for_carriers(self) -> None:
        """Return once all links work: the kernel takes a moment, up to a second, to notice."""
        deadline = time.monotonic() + CARRIER_TIMEOUT_S
        for host in self.hosts:
            for namespace, name in ((host.namespace, INTERFACE), (self.hub.namespace, host.name)):
                while not namespace.has_carrier(name):
                    if time.monotonic() >= deadline:
                        raise LabError(f"the link of {host.name} did not come up")
                    time.sleep(0.01)
