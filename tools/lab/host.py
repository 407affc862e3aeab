"""A host of the lab: a network namespace with one interface, and the processes in it."""

from __future__ import annotations

import os
from pathlib import Path

from tools._setup import ROOT
from tools.lab.namespace import Namespace
from tools.lab.process import Process

INTERFACE = "eth0"

# What any language with a UDP socket can do, as one line of this one.
PLAIN_SENDER = (
    "import socket,sys; s=socket.socket(socket.AF_INET,socket.SOCK_DGRAM); "
    "s.setsockopt(0,socket.IP_MULTICAST_IF,socket.inet_aton(sys.argv[1])); "
    "s.sendto(sys.argv[2].encode(),(sys.argv[3],int(sys.argv[4])))"
)


class Host:
    """Made by a Lab, which also closes it."""

    def __init__(self, name: str, address: str, python: str) -> None:
        self.name = name
        self.address = address
        self.namespace = Namespace()
        self.processes: list[Process] = []
        #: With one, the bus is sealed.
        self.key_file: str | None = None
        self._python = python

    def configure(self) -> None:
        """Give the interface, once it is there, its address."""
        run = self.namespace.run
        run("ip", "addr", "add", f"{self.address}/24", "dev", INTERFACE)
        run("ip", "link", "set", INTERFACE, "up")

    def start(self, *arguments: str, is_fed: bool = False) -> Process:
        """Start `jsonbus` with the arguments; with `is_fed`, its input is what `feed` writes."""
        return self._start(arguments[0], "-m", "jsonbus", *arguments, is_fed=is_fed)

    def start_script(self, source: str, *arguments: str) -> Process:
        """Start a Python program that may know nothing of jsonbus."""
        return self._start("script", "-c", source, *arguments)

    def start_program(self, path: Path, *arguments: str) -> Process:
        """Start a Python program that is in a file."""
        return self._start(path.stem, str(path), *arguments)

    def run(self, *arguments: str, timeout_s: float = 60) -> Process:
        """Run `jsonbus` with the arguments to its end."""
        process = self.start(*arguments)
        if process.wait(timeout_s) is None:
            process.kill()
            raise TimeoutError(f"jsonbus {' '.join(arguments)} still ran after {timeout_s} s")
        return process

    def send_plain(self, text: str, group: str = "239.255.24.16", port: int = 2416) -> None:
        """Send one datagram as a program that knows nothing of jsonbus does."""
        argv = [self._python, "-c", PLAIN_SENDER, self.address, text, group, str(port)]
        self.namespace.run(*argv)

    def set_link(self, is_up: bool) -> None:
        """Take the host's interface down, or bring it up again."""
        self.namespace.run("ip", "link", "set", INTERFACE, "up" if is_up else "down")

    def close(self) -> None:
        for process in self.processes:
            process.close()
        self.namespace.close()

    def _start(self, kind: str, *python_arguments: str, is_fed: bool = False) -> Process:
        label = f"{self.name}-{len(self.processes) + 1}-{kind}"
        argv = self.namespace.command(self._python, *python_arguments)
        settings = {**environment(self.key_file), "JSONBUS_INTERFACE": INTERFACE}
        process = Process(label, argv, settings, is_fed=is_fed)
        self.processes.append(process)
        return process


def environment(key_file: str | None) -> dict[str, str]:
    """Return the environment of a process of the lab: this one, without settings of the bus."""
    kept = {name: text for name, text in os.environ.items() if not name.startswith("JSONBUS_")}
    sealed = {} if key_file is None else {"JSONBUS_KEY_FILE": key_file}
    return {**kept, **sealed, "PYTHONPATH": str(ROOT)}
