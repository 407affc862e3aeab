"""Flushes several partitions: writes all, then syncs all at once, then makes all visible."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa

from ..errors import LogCorruptError, LogFullError, LogWriteError
from .disk import FULL_ERRNOS
from .partition import Partition

#: The most syncs that wait for the disk at once.
_SYNCS_MAX = 8

Failures = dict[int, Exception]  # by partition


class Flusher:
    """Writes to the partitions of a log. Used by one thread at a time."""

    def __init__(self, partitions: Sequence[Partition]) -> None:
        self.syncs = 0
        self._partitions = partitions
        workers = min(_SYNCS_MAX, len(partitions))
        self._pool = ThreadPoolExecutor(workers, thread_name_prefix="jsonbus-log-sync")

    def flush(self, batches: Mapping[int, pa.RecordBatch | None]) -> Failures:
        """Give each partition its rows, or None (see Partition.stage), and return the errors by
        partition.
        """
        failures: Failures = {}
        dirty: dict[int, int] = {}  # partition: descriptor
        for number, rows in batches.items():
            try:
                fd = self._partitions[number].stage(rows)
            except (OSError, LogCorruptError) as error:
                failures[number] = error
            else:
                if fd is not None:
                    dirty[number] = fd
        for number, failure in self._sync(dirty).items():
            if failure is None:
                self._partitions[number].confirm()
            else:
                self._partitions[number].reject()
                failures[number] = failure
        return failures

    def close(self) -> None:
        """End the threads."""
        self._pool.shutdown()

    def _sync(self, dirty: dict[int, int]) -> dict[int, Exception | None]:
        """Sync all descriptors, and return the outcome of each."""
        self.syncs += len(dirty)
        if len(dirty) == 1:
            return {number: _try_sync(fd) for number, fd in dirty.items()}
        return dict(zip(dirty, self._pool.map(_try_sync, dirty.values()), strict=True))


def as_error(failures: Failures, directory: Path) -> LogWriteError:
    """Return the error that `append` raises."""
    numbers = tuple(sorted(failures))
    named = ", ".join(map(str, numbers))
    cause = failures[numbers[0]]
    rows = f"rows of partitions {named} of the log in {directory}"
    error = LogWriteError(f"the disk did not take {rows}: {cause}", numbers)
    if all(isinstance(each, OSError) and each.errno in FULL_ERRNOS for each in failures.values()):
        text = f"the disk has no room for {rows} ({cause}): make room, or keep less"
        error = LogFullError(text, numbers)
    error.__cause__ = cause
    return error


def _try_sync(fd: int) -> Exception | None:
    try:
        os.fdatasync(fd)
    except OSError as error:
        return error
    return None
