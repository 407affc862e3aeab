"""Network namespaces that never outlive the process that made them.

A namespace lives as long as a process is in it. Here that is a `cat` which waits for the end of
its input: a pipe whose other end the lab holds, so it ends with the lab however the lab ends, by
`kill -9` too. There are no names under /run/netns to be left behind.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Sequence

COMMANDS = ("ip", "nsenter", "setpriv", "unshare")
COMMAND_TIMEOUT_S = 60


class LabError(Exception):
    """The machine refused something the lab needs; the text says what."""


class Namespace:
    """A network of its own, with loopback up. A context manager; `close` may be repeated."""

    def __init__(self) -> None:
        self._holder = subprocess.Popen(
            ["unshare", "--net", "sh", "-c", "echo ready; exec cat"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        assert self._holder.stdout is not None and self._holder.stderr is not None
        if self._holder.stdout.readline() != b"ready\n":
            reason = self._holder.stderr.read().decode().strip()
            self.close()
            raise LabError(f"cannot make a network namespace ({reason}): run as root")
        try:
            self.run("ip", "link", "set", "lo", "up")
        except LabError:
            self.close()
            raise

    @property
    def holder_id(self) -> int:
        """The process id by which `ip link … netns` and `nsenter` find this namespace."""
        return self._holder.pid

    def command(self, *argv: str) -> list[str]:
        """The command line that runs `argv` in here, under the very process id it is given.

        SIGKILL follows if the thread that started it ends: nodes do not outlive the lab either.
        """
        enter = ["nsenter", f"--net=/proc/{self.holder_id}/ns/net", "--"]
        return [*enter, "setpriv", "--pdeathsig", "KILL", "--", *argv]

    def run(self, *argv: str) -> str:
        """Run a command in here to its end and return its output. Raises LabError if it fails."""
        done = subprocess.run(
            self.command(*argv), capture_output=True, text=True, timeout=COMMAND_TIMEOUT_S
        )
        if done.returncode != 0:
            raise LabError(f"{' '.join(argv)}: {done.stderr.strip() or done.returncode}")
        return done.stdout

    def has_carrier(self, interface: str) -> bool:
        """Return whether the interface and the other end of its cable are up."""
        (link,) = json.loads(self.run("ip", "-json", "link", "show", "dev", interface))
        return bool(link["operstate"] == "UP")

    def close(self) -> None:
        for pipe in (self._holder.stdin, self._holder.stdout, self._holder.stderr):
            assert pipe is not None
            pipe.close()
        self._holder.wait(COMMAND_TIMEOUT_S)

    def __enter__(self) -> Namespace:
        return self

    def __exit__(self, *failure: object) -> None:
        self.close()


def connect(here: Namespace, port: str, there: Namespace, interface: str) -> None:
    """Lay a cable: interface `port` in one namespace, `interface` in the other.

    Runs of datagrams are cut before they enter it: each has its own fate on the way.
    """
    cable = ["ip", "link", "add", port, "type", "veth", "peer", "name", interface]
    here.run(*cable, "netns", str(there.holder_id))
    here.run("ip", "link", "set", port, "up")
    there.run("ip", "link", "set", interface, "gso_max_segs", "1")


def find_obstacle() -> str | None:
    """Return the reason why this machine cannot have a lab, or None if it can."""
    if not sys.platform.startswith("linux"):
        return "network namespaces are Linux's"
    missing = _missing(COMMANDS)
    if missing:
        return f"needs the commands {', '.join(missing)} (packages iproute2 and util-linux)"
    try:
        with Namespace() as here, Namespace() as there:
            connect(here, "probe", there, "eth0")
    except LabError as error:
        return str(error)
    return None


def _missing(commands: Sequence[str]) -> list[str]:
    return [command for command in commands if shutil.which(command) is None]
