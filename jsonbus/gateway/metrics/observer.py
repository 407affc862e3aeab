"""MetricsObserver: what a scrape of /metrics sees of the bus, beyond the gateway itself.

Scraping counts as looking. The first scrape has the observer begin to look; it ends LINGER_S after
the last one. So a gateway that nobody scrapes pays nothing, and figures of topics count since they
are observed. Bridges are asked at each scrape, which waits a little for their answers; one that is
slow is told as it was before.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence

from ..webhooks.accounts import SubscriberView
from .bridges import Bridges
from .families import Family, NodeFamilies, TopicFamilies, WebhookFamilies, collect_bridges
from .survey_observer import SurveyObserver

#: Five times the longest pause that people commonly leave between scrapes.
LINGER_S = 300.0

#: So long a scrape waits for bridges: many times what an answer takes.
BRIDGES_S = 0.25


class MetricsObserver:
    """See the head of this file. Everything in the event loop of the bus."""

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
        self._nodes = NodeFamilies()
        self._topics = TopicFamilies()
        self._webhooks = WebhookFamilies()

    async def scrape(self) -> list[Family]:
        """All of it now; the gateway looks at the bus from now on, for a while."""
        self._look()
        # One after the other: counters that are told in another order than they were read in would
        # seem to fall.
        async with self._turn:
            return await self._collect()

    def close(self) -> None:
        """Look no more; again is nothing."""
        if self._ending is not None:
            self._ending.cancel()
            self._ending = None
            self._observer.release()

    def _look(self) -> None:
        if self._ending is None:
            self._observer.acquire()
        else:
            self._ending.cancel()
        self._ending = asyncio.get_running_loop().call_later(self._linger_s, self.close)

    async def _collect(self) -> list[Family]:
        await self._bridges.look(BRIDGES_S)
        now, wall = time.monotonic(), time.time()
        families: list[Family] = []
        if self._observer.is_observing:  # the gateway may have begun to close meanwhile
            picture = self._observer.picture()
            # On a large bus each of these takes some 20 ms, between which others have a turn.
            await asyncio.sleep(0)
            nodes = [view.info for view in picture.nodes]
            families += self._nodes.collect(nodes, wall)
            await asyncio.sleep(0)
            families += self._topics.collect(picture)
            await asyncio.sleep(0)
        families += self._webhooks.collect(self._subscribers())
        families += collect_bridges(self._bridges.states(), self._bridges.left_out, now, wall)
        return families
