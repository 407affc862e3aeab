"""AcceptErrors: limits the log when connections cannot be accepted for want of file descriptors.

When accept() fails like this, asyncio stops listening for a second at a time; meanwhile clients
wait in the kernel. But up to Python 3.12 it then tries as often as the socket's backlog is long and
reports each failure with a traceback: a thousand per second, until the disk is full, too. All
reports go through the loop's exception handler, where this class takes them out, counts one for
each pause, and warns at most once a minute.
"""

from __future__ import annotations

import asyncio
import logging
import os
from typing import Any

from ..rate_limited_log import RateLimitedLog

logger = logging.getLogger("jsonbus.gateway")

#: asyncio pauses for a second; failures closer together belong to the same pause.
PAUSE_S_MIN = 0.5

_MESSAGE = "socket.accept() out of system resource"
#: Listening again after a pause fails if the server was closed meanwhile.
_LISTEN_AGAIN = "_start_serving"


class AcceptErrors:
    """Replaces the exception handler of the running loop, from `begin` to `end`."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._before: Any = None
        self._failed_at = float("-inf")
        self._warnings = RateLimitedLog(logger)
        self._pauses = 0

    def begin(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._before = self._loop.get_exception_handler()
        self._loop.set_exception_handler(self._handle)

    def end(self) -> None:
        """Restore the previous handler. Idempotent."""
        if self._loop is not None and self._loop.get_exception_handler() == self._handle:
            self._loop.set_exception_handler(self._before)
        self._loop = None

    def stats(self) -> dict[str, int]:
        return {"accept_pauses": self._pauses}

    def _handle(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        message = str(context.get("message", ""))
        error = context.get("exception")
        if message == _MESSAGE and isinstance(error, OSError):
            self._note(loop.time(), error)
        elif _LISTEN_AGAIN in message and isinstance(error, ValueError):
            logger.debug("! a port was closed during a pause, and is not listened to again")
        elif self._before is not None:
            self._before(loop, context)
        else:
            loop.default_exception_handler(context)

    def _note(self, now: float, error: OSError) -> None:
        is_new = now - self._failed_at >= PAUSE_S_MIN
        self._failed_at = now
        if not is_new:
            return
        self._pauses += 1
        self._warnings.warning(
            "connections cannot be accepted at the moment, and wait: %s; end some clients, or "
            "allow more (ulimit -n)",
            os.strerror(error.errno).lower() if error.errno else error,
        )
