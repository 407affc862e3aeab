"""Buses of both front ends, as in the tests of the bus."""

from __future__ import annotations

from tests.bus.conftest import open_any, open_over

__all__ = ["open_any", "open_over"]
