"""The rhythms of many topics.

Threads: as with a survey, one takes and another looks; a lock keeps them apart.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence

import jsonbus

from .intervals import WINDOW_MESSAGES, Rhythm, RhythmView

#: Topics that are remembered, unless told otherwise: with full windows, 60 MB.
RHYTHMS_MAX = 2_000


class Rhythms:
    """How regularly messages come, and how large they are, topic by topic."""

    def __init__(self, window: int = WINDOW_MESSAGES, topics_max: int = RHYTHMS_MAX) -> None:
        #: Messages that were counted, duplicates included.
        self.taken = 0
        #: Topics that made room for others; those that were silent longest.
        self.forgotten = 0
        self._window = window
        self._topics_max = topics_max
        self._lock = threading.Lock()
        self._rhythms: dict[str, Rhythm] = {}

    def take(self, messages: Sequence[jsonbus.Message], count_max: int | None = None) -> None:
        """Count messages, in the order in which they came; no more than `count_max` in all.

        Retained messages, which are of the past, are left out.
        """
        with self._lock:
            for message in messages:
                if message.origin.is_retained:
                    continue
                if self.taken == count_max:
                    return
                self.taken += 1
                rhythm = self._rhythms.get(message.topic)
                if rhythm is None:
                    rhythm = self._add(message.topic)
                rhythm.take(message)

    def views(self, now: float) -> dict[str, RhythmView]:
        """All topics at this moment, sorted; `now` in seconds since 1970."""
        with self._lock:
            return {name: rhythm.view(now) for name, rhythm in sorted(self._rhythms.items())}

    def _add(self, topic: str) -> Rhythm:
        if len(self._rhythms) >= self._topics_max:
            silent = min(self._rhythms, key=lambda name: self._rhythms[name].last_at)
            del self._rhythms[silent]
            self.forgotten += 1
        rhythm = self._rhythms[topic] = Rhythm(self._window)
        return rhythm
