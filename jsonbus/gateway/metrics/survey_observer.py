"""SurveyObserver: collects statistics of the bus while at least one page or scraper needs them.

One survey for all users, fed by one passive subscription: it receives messages that travel for
others anyway, so observing changes nothing about what is sent. It begins with the first `acquire`
and ends some seconds after the last `release`, so that a page that is reloaded keeps its rates and
charts. Who shows rates also calls `ask`: a node that publishes much reports its totals only every
12 seconds by itself.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple

import jsonbus
from jsonbus.survey import Asking, Picture, Survey

#: How long the statistics are kept after the last release.
LINGER_S = 10.0

#: Messages that wait for the survey: half a second of a flood. More are dropped and counted.
MAILBOX_MAX = 50_000

#: Events of nodes that joined or left that are remembered.
EVENTS_MAX = 200

#: How long, and how many, nodes that left are still shown.
GONE_S = 120.0
GONE_MAX = 1_000

Take = Callable[[jsonbus.Message], None]


class Gone(NamedTuple):
    """A node that left, as it was last known."""

    info: jsonbus.NodeInfo
    event: jsonbus.NodeEvent


class SurveyObserver:
    """See the head of this file. Use it in the event loop of the bus."""

    def __init__(self, bus: jsonbus.AsyncBus, *, linger_s: float = LINGER_S) -> None:
        self._bus = bus
        self._linger_s = linger_s
        self._lookers = 0
        self._survey: Survey | None = None
        self._asking = Asking()
        self._feed: Any = None
        self._watch: Any = None
        self._ending: asyncio.TimerHandle | None = None
        self._takers: dict[str, list[Take]] = {}
        # Nodes as last seen, until their end was noted; the nodes present at the beginning.
        self._known: dict[str, jsonbus.NodeInfo] = {}
        self._first: set[str] = set()
        self._dropped = 0
        #: The last events of nodes, the newest last.
        self.events: deque[jsonbus.NodeEvent] = deque(maxlen=EVENTS_MAX)
        self._gone: dict[str, Gone] = {}

    @property
    def is_observing(self) -> bool:
        return self._survey is not None

    def acquire(self) -> None:
        """Begin to observe, or go on; every `acquire` has its `release`."""
        self._lookers += 1
        if self._ending is not None:
            self._ending.cancel()
            self._ending = None
        if self._survey is not None:
            return
        self._survey = Survey()
        self._known = {info.node: info for info in self._bus.nodes()}
        self._first = set(self._known)
        self._feed = self._bus.subscribe(
            "**", self._take, in_batches=True, maxsize=MAILBOX_MAX, passive=True
        )
        self._watch = self._bus.on_node(self._note)

    def release(self) -> None:
        """End one use; observation ends some seconds after the last."""
        self._lookers -= 1
        assert self._lookers >= 0
        if self._lookers == 0 and self._survey is not None:
            loop = asyncio.get_running_loop()
            self._ending = loop.call_later(self._linger_s, self.close)

    def close(self) -> None:
        """Stop observing at once. Idempotent."""
        if self._ending is not None:
            self._ending.cancel()
            self._ending = None
        if self._survey is None:
            return
        self._dropped += self._feed.dropped
        self._feed.close()
        self._watch.close()
        self._feed = self._watch = self._survey = None
        self._known.clear()
        self._gone.clear()
        self.events.clear()

    def picture(self) -> Picture:
        """Return the bus at this moment; only while observing."""
        assert self._survey is not None, "the bus is not observed"
        nodes = self._bus.nodes()
        for info in nodes:
            self._known[info.node] = info
            self._gone.pop(info.node, None)
        return self._survey.picture(time.monotonic(), nodes, self._bus.stats())

    async def ask(self) -> None:
        """Ask all nodes for their totals if that is due; a later picture has them."""
        if self._asking.is_due(time.monotonic(), len(self._bus.nodes())):
            await self._bus.ping(timeout=0.0)

    def gone(self) -> list[Gone]:
        """Return the nodes that left a short while ago, the last one first."""
        now = time.time()
        for node in [each for each, gone in self._gone.items() if now - gone.event.at > GONE_S]:
            del self._gone[node]
        return list(reversed(self._gone.values()))

    def follow(self, topic: str, take: Take) -> Callable[[], None]:
        """Hand every message of a topic to `take` while observing; return a function that ends
        this."""
        takers = self._takers.setdefault(topic, [])
        takers.append(take)

        def end() -> None:
            if take in takers:
                takers.remove(take)
            if not takers and self._takers.get(topic) is takers:
                del self._takers[topic]

        return end

    def stats(self) -> dict[str, int]:
        dropped = 0 if self._feed is None else self._feed.dropped
        return {"lookers": self._lookers, "messages_dropped": self._dropped + dropped}

    def _take(self, messages: list[jsonbus.Message]) -> None:
        if self._survey is None:
            return
        self._survey.take(messages)
        if self._takers:
            find = self._takers.get
            for message in messages:
                for take in find(message.topic, ()):
                    take(message)

    def _note(self, event: jsonbus.NodeEvent) -> None:
        if event.kind == "joined":
            if event.node in self._first:
                self._first.discard(event.node)
                return
        else:
            self._first.discard(event.node)
            info = self._known.pop(event.node, None)
            if info is not None:
                self._gone.pop(event.node, None)  # so that the last one is at the end
                self._gone[event.node] = Gone(info, event)
            # Scrapes observe for days, and never call `gone`.
            if len(self._gone) > GONE_MAX:
                del self._gone[next(iter(self._gone))]
        self.events.append(event)
