from __future__ import annotations

from collections.abc import Iterator

import pytest

import jsonbus
from tests.cli.running import Run, run_command
from tests.helpers import find_free_port


@pytest.fixture
def port(monkeypatch: pytest.MonkeyPatch) -> int:
    """A port of the test's own, which commands and buses take from the environment."""
    number = find_free_port()
    monkeypatch.setenv("JSONBUS_PORT", str(number))
    return number


@pytest.fixture
def run(port: int) -> Run:
    """Run a command on the test's own port."""
    return run_command


@pytest.fixture
def bus(port: int) -> Iterator[jsonbus.Bus]:
    """Another node on the same port."""
    with jsonbus.Bus(name="other") as opened:
        yield opened
