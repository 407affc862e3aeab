"""RateLimitedLog: warn of a cause at most once a minute; log every other occasion at DEBUG."""

from __future__ import annotations

import logging
import time

#: Often enough to be noticed while the cause lasts.
PAUSE_S = 60.0


class RateLimitedLog:
    """The warnings of one cause, which thousands of clients may trigger at the same time."""

    def __init__(self, logger: logging.Logger) -> None:
        self._logger = logger
        self._next_at = float("-inf")

    def warning(self, text: str, *arguments: object) -> None:
        """Log at WARNING if the last warning is PAUSE_S old, otherwise at DEBUG."""
        self._logger.log(self._level(logging.WARNING), text, *arguments, stacklevel=2)

    def exception(self, text: str, *arguments: object) -> None:
        """Log the exception being handled, at ERROR or DEBUG by the same rule."""
        level = self._level(logging.ERROR)
        self._logger.log(level, text, *arguments, exc_info=True, stacklevel=2)

    def _level(self, level: int) -> int:
        now = time.monotonic()
        if now < self._next_at:
            return logging.DEBUG
        self._next_at = now + PAUSE_S
        return level
