"""The switch that joins the hosts: a bridge shaped by netem, or a relay where netem is missing."""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
from collections.abc import Sequence

from tools._setup import ROOT
from tools.lab.namespace import LabError, Namespace, connect
from tools.lab.relay import Order
from tools.lab.shape import Shape

RELAY = "tools.lab.relay"
BRIDGE = "bridge"
STOP_TIMEOUT_S = 60


@functools.cache
def has_netem() -> bool:
    """Whether this kernel and its tools can shape a link themselves."""
    try:
        with Namespace() as namespace:
            namespace.run("tc", "qdisc", "add", "dev", "lo", "root", "netem", "loss", "1%")
    except LabError:
        return False
    return True


class Hub:
    """A namespace with one port per host. A context manager.

    Connect the hosts, then `start`. `kind` is "bridge", "relay", or "auto": a bridge if it will
    do, that is if netem is there or nothing is to be shaped.
    """

    def __init__(self, kind: str, seed: int, python: str = sys.executable) -> None:
        if kind not in ("auto", "bridge", "relay"):
            raise ValueError(f"kind {kind!r} is none of auto, bridge, relay")
        self.kind = kind
        self.namespace = Namespace()
        self._seed = seed
        self._python = python
        self._order = Order()  # what the relay was told last
        self._ports: list[str] = []
        self._relay: subprocess.Popen[str] | None = None

    def connect(self, host: Namespace, port: str, interface: str) -> None:
        """Lay a cable from a port of the hub to an interface of the host."""
        connect(self.namespace, port, host, interface)
        self._ports.append(port)

    def reconnect(self, host: Namespace, port: str, interface: str) -> None:
        """Replace a cable, or one that was taken away: port and interface are new ones."""
        if self.kind != "bridge":
            raise LabError("only the cables of a bridge can be replaced")
        if port in self._ports:
            self.disconnect(port)
        self.connect(host, port, interface)
        self.namespace.run("ip", "link", "set", port, "master", BRIDGE)

    def disconnect(self, port: str) -> None:
        """Take a cable away, with both its ends: whoever was there says nothing more."""
        self.namespace.run("ip", "link", "del", port)
        self._ports.remove(port)

    def start(self, shape: Shape) -> None:
        if self.kind == "auto":
            self.kind = "bridge" if shape.is_clean or has_netem() else "relay"
        if self.kind == "relay":
            self._start_relay()
        else:
            self._start_bridge()
        if not shape.is_clean:
            self.shape(shape)

    def shape(self, shape: Shape, *ports: str) -> None:
        """Let the links to these hosts misbehave this way from now on; to all if none is named."""
        if self._relay is not None:
            shapes = {**self._order.shapes, **dict.fromkeys(ports, shape)} if ports else {}
            base = self._order.shape if ports else shape
            self._command_relay(Order(base, shapes, self._order.parts))
        elif has_netem():
            for port in ports or self._ports:
                netem = ["root", "netem", *shape.netem_arguments()]
                self.namespace.run("tc", "qdisc", "replace", "dev", port, *netem)
        else:
            raise LabError("this kernel has no netem: use a hub of the kind relay")

    def split(self, *parts: Sequence[str]) -> None:
        """Let the hosts of a part hear each other only, and all others each other. None: heal."""
        order = Order(self._order.shape, self._order.shapes, [list(part) for part in parts])
        self._command_relay(order)

    def relay_counts(self) -> dict[str, int]:
        """How many frames the relay has heard, cut, lost, delayed, repeated and sent so far."""
        return self._command_relay(self._order)

    def close(self) -> None:
        relay, self._relay = self._relay, None
        if relay is not None:
            try:
                relay.communicate(timeout=STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                relay.kill()
                relay.communicate()
        self.namespace.close()

    def __enter__(self) -> Hub:
        return self

    def __exit__(self, *failure: object) -> None:
        self.close()

    def _start_bridge(self) -> None:
        run = self.namespace.run
        run("ip", "link", "add", BRIDGE, "type", "bridge")
        # No snooping: with nobody to ask who is in which group, a bridge would stop forwarding to
        # hosts it has not heard from for some minutes.
        run("ip", "link", "set", BRIDGE, "type", "bridge", "mcast_snooping", "0")
        run("ip", "link", "set", BRIDGE, "up")
        for port in self._ports:
            run("ip", "link", "set", port, "master", BRIDGE)

    def _start_relay(self) -> None:
        argv = [self._python, "-m", RELAY, str(self._seed), *self._ports]
        self._relay = subprocess.Popen(
            self.namespace.command(*argv),
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._read_counts()

    def _command_relay(self, order: Order) -> dict[str, int]:
        if self._relay is None:
            raise LabError("the hub is not a relay")
        assert self._relay.stdin is not None
        self._order = order
        self._relay.stdin.write(order.line())
        self._relay.stdin.flush()
        return self._read_counts()

    def _read_counts(self) -> dict[str, int]:
        assert self._relay is not None
        assert self._relay.stdout is not None and self._relay.stderr is not None
        line = self._relay.stdout.readline()
        if not line:
            raise LabError(f"the relay failed: {self._relay.stderr.read().strip()}")
        counts: dict[str, int] = json.loads(line)
        return counts
