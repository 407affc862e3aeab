"""Where the demo's buses are: on this machine, on ports of their own."""

from __future__ import annotations

import os
import socket

import click

#: Loopback whatever it is called here (lo, lo0); and TTL 0, so that nothing can leave this machine.
LOOPBACK = "127.0.0.1"
TTL = 0

#: Below the ports that systems give out by themselves.
PORTS = range(10_000, 32_000)


def find_free_port() -> int:
    """A UDP port that nobody has, not even shared: a bus of the demo's own."""
    start = int.from_bytes(os.urandom(2), "big")
    for step in range(len(PORTS)):
        port = PORTS[(start + step) % len(PORTS)]
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            try:
                probe.bind(("", port))  # without SO_REUSEADDR: refused if anybody has it
            except OSError:
                continue
            return port
    raise click.ClickException("no UDP port is free: something uses them all")
