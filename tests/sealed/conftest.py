"""Buses of either front end, each test with both."""

from tests.bus.conftest import open_any

__all__ = ["open_any"]
