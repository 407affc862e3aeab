"""MetricsObserver: what a scrape of /metrics sees of the bus, beyond the gateway itself.

The first scrape starts to observe the bus; observation ends LINGER_S after the last one. So a
gateway that is not scraped pays nothing, and the figures of topics count from the first scrape.
Each scrape asks the bridges and waits a little for their answers; for a slow bridge it reports the
last state.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence

from prometheus_client.core import Metric

from ..webhooks.accounts import SubscriberView
from .bridges import Bridges
from .families import Families, collect_bridges
from .survey_observer import SurveyObserver

#: Five times the longest interval that is common between scrapes.
LINGER_S = 300.0

#: How long a scrape waits for bridges: many times what an answer takes.
BRIDGES_S = 0.25


class MetricsObserver:
    """See the head of this file. Use it in the event loop of the bus."""

    def __init__(
        self,
        observer: SurveyObserver,
        bridges: Bridges,
        subscribers: Callable[[], Sequence[SubscriberView]],
        *,
        linger_s: float = LINGER_S,
    ) -> None:
        self._observer = observer
        self._bridges = bridges
        self._subscribers = subscribers
        self._linger_s = linger_s
        self._ending: asyncio.TimerHandle | None = None
        self._turn = asyncio.Lock()
        self._families = Families()

    async def scrape(self) -> list[Metric]:
        """Return all families now, and observe the bus for a while."""
        self._observe()
        # One scrape after the other: counters reported in another order than they were read would
        # seem to fall.
        async with self._turn:
            return await self._collect()

    def close(self) -> None:
        """Stop observing. Idempotent."""
        if self._ending is not None:
            self._ending.cancel()
            self._ending = None
            self._observer.release()

    def _observe(self) -> None:
        if self._ending is None:
            self._observer.acquire()
        else:
            self._ending.cancel()
        self._ending = asyncio.get_running_loop().call_later(self._linger_s, self.close)

    async def _collect(self) -> list[Metric]:
        await self._bridges.look(BRIDGES_S)
        now, wall = time.monotonic(), time.time()
        collected: list[Metric] = []
        if self._observer.is_observing:  # the gateway may have begun to close meanwhile
            picture = self._observer.picture()
            # On a large bus each of these takes some 20 ms; other tasks run in between.
            await asyncio.sleep(0)
            nodes = [view.info for view in picture.nodes]
            collected += self._families.of_nodes(nodes, wall)
            await asyncio.sleep(0)
            collected += self._families.of_topics(picture)
            await asyncio.sleep(0)
        collected += self._families.of_webhooks(self._subscribers())
        collected += collect_bridges(self._bridges.states(), self._bridges.left_out, now, wall)
        return collected
