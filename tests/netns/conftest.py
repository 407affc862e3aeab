"""Hosts in network namespaces, for tests with real sockets and real processes."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator
from typing import Protocol

import pytest

from tests.helpers import wait_until
from tools.lab.hub import Hub
from tools.lab.namespace import find_obstacle
from tools.lab.network import Lab
from tools.lab.shape import Shape


class MakeLab(Protocol):
    def __call__(
        self,
        hosts: int = 3,
        shape: Shape | None = None,
        *,
        hub: str = "auto",
        is_sealed: bool = False,
    ) -> Lab: ...


@pytest.fixture
def namespaces() -> None:
    """Skip the test, with the reason, where namespaces are not allowed."""
    obstacle = _obstacle()
    if obstacle is not None:
        pytest.skip(obstacle)


@pytest.fixture
def lab(namespaces: None) -> Iterator[MakeLab]:
    """Makes labs that are gone after the test; pytest shows their output if the test fails."""
    with contextlib.ExitStack() as stack:

        def make(
            hosts: int = 3,
            shape: Shape | None = None,
            *,
            hub: str = "auto",
            is_sealed: bool = False,
        ) -> Lab:
            made = stack.enter_context(Lab(hosts, shape, hub=hub, is_sealed=is_sealed))
            stack.callback(lambda: print(made.report()))  # noqa: T201 (for the failing test)
            return made

        yield make


@pytest.fixture(params=[False, True], ids=["open", "sealed"])
def two_networks(lab: MakeLab, request: pytest.FixtureRequest) -> Iterator[Lab]:
    """Three hosts, each on both networks: `eth0` and `eth1`."""
    made = lab(3, is_sealed=request.param)
    with Hub("bridge", 1) as second:
        for number, host in enumerate(made.hosts, 1):
            second.connect(host.namespace, f"second{number}", "eth1")
            host.namespace.run("ip", "addr", "add", f"10.78.0.{number}/24", "dev", "eth1")
            host.namespace.run("ip", "link", "set", "eth1", "up")
        second.start(Shape())
        assert wait_until(lambda: all(h.namespace.has_carrier("eth1") for h in made.hosts), 60)
        yield made


@functools.cache
def _obstacle() -> str | None:
    return find_obstacle()
