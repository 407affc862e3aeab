"""Decides which segments a log keeps. Deletes whole segments, oldest first, and never the tail."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import TypeVar

from ..errors import LogCorruptError
from .partition import Partition

_Subject = TypeVar("_Subject")
_logger = logging.getLogger("jsonbus.bridge")


class Retention:
    """By age: deletes segments all of whose rows are older. By size: deletes the oldest while
    there is too much.
    """

    def __init__(
        self, bytes_max: int | None, age_max_s: float | None, now: Callable[[], float]
    ) -> None:
        self.rows_expired = 0
        self._bytes_max = bytes_max
        self._age_max_s = age_max_s
        self._now = now
        self._has_warned = False

    def apply(self, partitions: Sequence[Partition]) -> int:
        """Delete what is not to be kept, and return how many rows that were."""
        before = self.rows_expired
        for partition in partitions:
            self._attempt(self._drop_expired, partition)
        self._attempt(self._drop_excess, partitions)
        return self.rows_expired - before

    def _attempt(self, drop: Callable[[_Subject], None], subject: _Subject) -> None:
        try:
            drop(subject)
        except (OSError, LogCorruptError) as error:
            # A disk without room for a name, or too many open files: try again next time.
            level = logging.DEBUG if self._has_warned else logging.WARNING
            _logger.log(level, "old rows could not be deleted and will be later: %s", error)
            self._has_warned = True

    def _drop_expired(self, partition: Partition) -> None:
        if self._age_max_s is None:
            return
        before_us = (self._now() - self._age_max_s) * 1e6
        while (oldest := partition.view.segments[0]).blocks and oldest.received_max_us < before_us:
            if len(partition.view.segments) == 1:
                # An empty segment takes its place: its name remembers where the log continues.
                partition.roll()
            self.rows_expired += partition.drop_oldest()

    def _drop_excess(self, partitions: Sequence[Partition]) -> None:
        if self._bytes_max is None:
            return
        while sum(each.size_bytes for each in partitions) > self._bytes_max:
            able = [each for each in partitions if len(each.view.segments) > 1]
            if not able:
                return
            # The oldest of all partitions, so that all reach equally far back.
            oldest = min(able, key=lambda each: each.view.segments[0].received_max_us)
            self.rows_expired += oldest.drop_oldest()
