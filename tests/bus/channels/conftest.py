"""Channels of an open and of a sealed bus: each test runs with both."""

from tests.sealed.both import sealing

__all__ = ["sealing"]
