"""Helpers of all tests: waiting on conditions, free ports, programs and signals."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator

import pytest

#: Programs that tests use as people do, and the Debian packages that have them.
PACKAGES = {"curl": "curl", "groff": "groff-base", "nc": "netcat-openbsd"}


def wait_until(condition: Callable[[], object], timeout_s: float = 30.0) -> bool:
    """Wait for the condition and return whether it came true in time; assert the result.

    The timeout is for machines that are slow or busy: a test that passes never waits for it.
    """
    deadline = time.monotonic() + timeout_s
    pause_s = 0.001
    while not condition():
        if time.monotonic() >= deadline:
            return bool(condition())
        time.sleep(pause_s)
        pause_s = min(pause_s * 1.5, 0.05)
    return True


def need_program(name: str) -> None:
    """Install a program of PACKAGES if it is missing; skip the test if that is not possible."""
    if shutil.which(name):
        return
    if os.geteuid() == 0 and shutil.which("apt-get"):
        environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
        for command in (["update"], ["install", "-y", "--no-install-recommends", PACKAGES[name]]):
            subprocess.run(["apt-get", "-q", *command], env=environment, capture_output=True)
    if not shutil.which(name):
        pytest.skip(f"{name} is not installed (Debian: {PACKAGES[name]}), and cannot be here")


@contextlib.contextmanager
def heeding_hangup() -> Iterator[None]:
    """Let SIGHUP end the processes that are started in the block, also in a run under nohup.

    Commands leave ignored what their caller ignores, and nohup ignores SIGHUP.
    """
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread may set handlers
        return
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    try:
        yield
    finally:
        signal.signal(signal.SIGHUP, before)


@contextlib.contextmanager
def no_descriptors(but: int = 0) -> Iterator[None]:
    """Take all file descriptors but so many: this process can open no more in the block."""
    import resource  # not on Windows

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    highest = max(int(each) for each in os.listdir("/proc/self/fd"))
    with contextlib.ExitStack() as stack:
        resource.setrlimit(resource.RLIMIT_NOFILE, (highest + 1 + but, hard))
        stack.callback(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))
        taken = []
        with contextlib.suppress(OSError):
            while True:
                taken.append(stack.enter_context(socket.socket()))
        assert len(taken) >= but
        for each in taken[:but]:
            each.close()
        yield


def find_free_port() -> int:
    """Return a UDP port that nobody uses, not even shared, and that was not returned before.

    Many nodes may share a port, so two tests with the same one would hear each other.
    """
    for port in _ports:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            try:
                probe.bind(("", port))  # without SO_REUSEADDR: refused if anybody has it
            except OSError:
                continue
            return port
    raise AssertionError("no free UDP port")


def _count_from_anywhere(first: int, last: int) -> Iterator[int]:
    """Yield each number once, from a random start, so that parallel test runs rarely collide."""
    count = last - first + 1
    start = int.from_bytes(os.urandom(4), "big") % count
    for step in range(count):
        yield first + (start + step) % count


# Below the range from which Linux takes the ports of sockets that did not ask for one.
_ports = _count_from_anywhere(10_000, 32_000)
