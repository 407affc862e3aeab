"""The version of this package; nodes announce it to each other."""

from __future__ import annotations

__version__ = "0.6.0"
