"""Opens buses in memory, each with keys of its own."""

from __future__ import annotations

import pytest

from jsonbus.transport import MemoryNetwork
from tests.bus.conftest import OpenBus


@pytest.fixture
def open_key(open_over: OpenBus, network: MemoryNetwork) -> OpenBus:
    """Opens a bus with these keys in memory."""
    return lambda keys, **settings: open_over(network.open(), key_file=keys, **settings)
