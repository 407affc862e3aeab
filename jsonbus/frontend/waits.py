"""Handlers that would wait for themselves.

A handler may send a request. If its own bus serves the topic, the reply needs a worker of the same
bus, and the service must not itself be waiting for that handler. Both can be known beforehand, so a
request that could only time out is refused at once.
"""

from __future__ import annotations

from collections.abc import Hashable

from jsonbus.errors import LocalError


class ServiceWaits:
    """Which handlers of one bus wait for which of its own services. Needs outside exclusion."""

    def __init__(self, workers: int) -> None:
        self._workers = workers
        self._waiting: dict[Hashable, Hashable] = {}

    def begin(self, handler: Hashable, service: Hashable, topic: str) -> None:
        """Note that a handler waits for a service; raises LocalError if it would for ever.

        Both are named by their subscriptions: the handler of one never runs twice at once.
        """
        reached: Hashable | None = service
        while reached is not None:
            if reached is handler:
                raise LocalError(
                    f"the handler that serves {topic!r} is waiting for this one, which cannot "
                    "wait for it in turn: call its function instead"
                )
            reached = self._waiting.get(reached)
        if len(self._waiting) + 1 >= self._workers:
            raise LocalError(
                f"all workers of this bus would wait for {topic!r}, which it serves itself: "
                "give it more workers, or call the function instead"
            )
        self._waiting[handler] = service

    def end(self, handler: Hashable) -> None:
        self._waiting.pop(handler, None)
