"""A network of a test's own: interfaces to add, break and remove without touching the machine's.

The test runs in a thread that has left the process's network namespace for a new one. Sockets
made there and commands started there belong to the new one; it is gone with the last of them, so
there is nothing to clean up, whatever happens to the test.
"""

from __future__ import annotations

import ctypes
import functools
import os
import shlex
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import ParamSpec

import pytest

from jsonbus.transport import platforms
from tests.helpers import wait_until

P = ParamSpec("P")

_CLONE_NEWNET = 0x4000_0000


def in_private_namespace(test: Callable[P, None]) -> Callable[P, None]:
    """Run the test in a network namespace with nothing but loopback, which is up.

    Skips it, with the reason, where that is not allowed.
    """

    @functools.wraps(test)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        failures: list[BaseException] = []

        def body() -> None:
            try:
                _enter_new_namespace()
                ip("link set lo up")
                test(*args, **kwargs)
            except BaseException as failure:  # handed to the thread that waits below
                failures.append(failure)

        thread = threading.Thread(target=body, name="private-namespace")
        thread.start()
        thread.join()
        if failures:
            raise failures[0]

    return run


def ip(arguments: str) -> None:
    """Run `ip` in the calling thread's namespace; fails the test if it fails."""
    refusal = _run(f"ip {arguments}")
    assert refusal is None, f"ip {arguments}: {refusal}"


def add_cable(name: str, address: str | None = None) -> None:
    """A pair of interfaces joined by a cable, both up: `name`, and `name`-end."""
    refusal = _run(f"ip link add {name} type veth peer name {name}-end")
    if refusal is not None:
        pytest.skip(f"this kernel has no veth interfaces: {refusal}")
    if address is not None:
        ip(f"addr add {address}/24 dev {name}")
    ip(f"link set {name}-end up")
    ip(f"link set {name} up")
    # The kernel tells of a carrier up to a second after it is there.
    assert wait_until(lambda: has_carrier(name))


def slow_down(name: str) -> None:
    """Let an interface send 1 MB/s, and queue the rest for as long as the sender has memory."""
    refusal = _run(f"tc qdisc add dev {name} root tbf rate 8mbit burst 2000 limit 100000000")
    if refusal is not None:
        pytest.skip(f"cannot slow an interface down here: {refusal}")


def give_far_end(name: str, address: str) -> str:
    """An address for the far end of a cable, so that a transport can open there; its name.

    Both ends are in one namespace, and a host drops what comes in from one of its own addresses
    unless told not to.
    """
    Path("/proc/sys/net/ipv4/conf/all/accept_local").write_text("1")
    ip(f"addr add {address}/24 dev {name}-end")
    return f"{name}-end"


def has_carrier(name: str) -> bool:
    flags = platforms.interface_flags(name)
    return flags is not None and flags.has_carrier


def _run(command: str) -> str | None:
    """Run a command; None if it succeeded, else why not."""
    argv = shlex.split(command)
    if shutil.which(argv[0]) is None:
        return f"needs the command {argv[0]}"
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60)
    return None if done.returncode == 0 else done.stderr.strip()


def _enter_new_namespace() -> None:
    if not sys.platform.startswith("linux"):
        pytest.skip("network namespaces are Linux's")
    if shutil.which("ip") is None:
        pytest.skip("needs the command `ip` (package iproute2)")
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(_CLONE_NEWNET) != 0:
        reason = os.strerror(ctypes.get_errno())
        pytest.skip(f"may not make a network namespace ({reason}): run as root")
