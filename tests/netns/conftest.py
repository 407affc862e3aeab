"""Hosts in network namespaces, for tests with real sockets and real processes."""

from __future__ import annotations

import contextlib
import functools
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

import pytest

# The lab is made of scripts, which import each other by bare name.
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))

from lab_namespace import find_obstacle
from lab_network import Lab
from lab_shape import Shape


class MakeLab(Protocol):
    def __call__(self, hosts: int = 3, shape: Shape | None = None, *, hub: str = "auto") -> Lab: ...


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

        def make(hosts: int = 3, shape: Shape | None = None, *, hub: str = "auto") -> Lab:
            made = stack.enter_context(Lab(hosts, shape, hub=hub))
            stack.callback(lambda: print(made.report()))  # noqa: T201 (for the failing test)
            return made

        yield make


@functools.cache
def _obstacle() -> str | None:
    return find_obstacle()
