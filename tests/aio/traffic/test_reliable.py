"""Reliable topics over networks that lose, in an event loop."""

from __future__ import annotations

import pytest

from jsonbus.errors import ClosedError, ConfigError
from tests.aio.running import asynctest, memory_buses


@asynctest
async def test_only_a_function_is_taken_and_only_by_an_open_bus() -> None:
    async with memory_buses() as (network, open_over):
        bus = open_over(network.open())
        with pytest.raises(ConfigError):
            bus.on_gap("print")  # type: ignore[arg-type]
        await bus.close()
        with pytest.raises(ClosedError):
            bus.on_gap(print)
