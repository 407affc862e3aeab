"""Writes a recording: one file or several, until it is full or closed."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from time import monotonic

import jsonbus
from jsonbus.errors import (
    ClosedError,
    ConfigError,
    JsonBusError,
    LocalError,
    PayloadError,
    RecordingError,
)

from .formats import check_installed, delete, find_series, format_of, numbered
from .output_file import OutputFile
from .records import Losses
from .sink import make_sink


class RecordingWriter:
    """A recording that grows; `create_recording` makes one.

        with jsonbus.Bus() as bus, create_recording("run.mcap") as recording:
            bus.subscribe("**", recording.write, in_batches=True, overflow="block")
            ...

    May be used from any thread. What `write` was given is on disk after at most 128 KB more, or
    after `flush`, which is to be called now and then: a crash costs what came since.
    """

    def __init__(
        self,
        path: str | Path,
        *,
        format: str | None = None,
        force: bool = False,
        count_max: int | None = None,
        bytes_max: int | None = None,
        rotate_bytes: int | None = None,
        rotate_s: float | None = None,
        keep: int | None = None,
    ) -> None:
        self._path = Path(path)
        self._format = format_of(self._path, format)
        self._is_series = rotate_bytes is not None or rotate_s is not None
        if keep is not None and not self._is_series:
            raise ConfigError("to keep some files only, the recording has to be in several")
        if self._is_series and force:
            raise ConfigError("numbered files are never overwritten: there is nothing to force")
        check_installed(self._path, self._format)
        self._force = force
        self._count_max = count_max
        self._bytes_max = bytes_max
        self._rotate_bytes = rotate_bytes
        self._rotate_s = rotate_s
        self._keep = keep
        self._lock = threading.Lock()
        self._is_closed = False
        self._failure: JsonBusError | None = None
        self._messages_before = 0  # in files that are finished
        self._flushed = 0  # of the current file, those that are on disk
        self._bytes_before = 0
        self._refused = 0  # messages that came with the failure, and after it
        series = find_series(self._path) if self._is_series else []
        # After the files of an earlier recording, which belong to the series: nothing is
        # overwritten, and a restarted recorder continues.
        self._number = series[-1][0] + 1 if series else 0
        self._kept = [each for _, each in series]
        #: Number of messages that were accepted.
        self.messages = 0
        #: True if a limit is reached: it accepts no more.
        self.is_full = False
        #: The files written so far, the current one last, without deleted ones.
        self.paths: list[Path] = []
        #: Files that were deleted, also of an earlier recording, to keep only so many.
        self.deleted = 0
        self._open_file()

    @property
    def bytes(self) -> int:
        """Size of all files if they were closed now."""
        return self._bytes_before + self._sink.size

    @property
    def failure(self) -> JsonBusError | None:
        """Why it accepts no more messages, if that is an error."""
        return self._failure

    @property
    def written(self) -> int:
        """Number of messages in the files; after a failure, only those on disk."""
        return self.messages if self._failure is None else self._messages_before + self._flushed

    @property
    def unwritten(self) -> int:
        """After a failure, the number of messages that are not on disk."""
        if self._failure is None:
            return 0
        return self._refused + self.messages - self.written

    def write(self, messages: Sequence[jsonbus.Message]) -> int:
        """Add messages, in order, and return how many were accepted: fewer than all if it
        `is_full`.

        Raises RecordingError (for example if the disk is full), then and ever after; PayloadError
        for a value that is not JSON, in which case none is added; ClosedError.
        """
        with self._lock:
            taken, wanted = 0, len(messages)
            try:
                self._check()
                if self._count_max is not None:
                    messages = messages[: self._count_max - self.messages]
                while taken < len(messages) and not self.is_full:
                    taken += self._write_to_file(messages[taken:] if taken else messages)
            except JsonBusError:
                self._refused += len(messages) - taken
                raise
            if taken < wanted or self.messages == self._count_max:
                self.is_full = True
            return taken

    def note_losses(self, losses: Losses) -> None:
        """Record how many messages are missing so far."""
        with self._lock:
            self._check()
            with self._failing():
                self._sink.note_losses(losses)

    def flush(self) -> None:
        """Make everything written so far survive the end of this process, but not of the
        machine.
        """
        with self._lock:
            self._check()
            with self._failing():
                self._sink.flush()
            self._flushed = self.messages - self._messages_before

    def close(self) -> None:
        """Finish the file. Idempotent. Raises RecordingError."""
        with self._lock:
            if self._is_closed:
                return
            self._is_closed = True
            try:
                if self._failure is None:
                    self._finish_file()
            finally:
                self._output.close()

    def __enter__(self) -> RecordingWriter:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # The following methods are called with the lock held.

    def _check(self) -> None:
        if self._is_closed:
            raise ClosedError(f"the recording {self._path} is closed")
        if self._failure is not None:
            raise self._failure

    @contextmanager
    def _failing(self) -> Iterator[None]:
        """Accept nothing more after an error, unless it is the caller's mistake."""
        try:
            yield
        except PayloadError:
            raise
        except (RecordingError, LocalError) as error:
            self._failure = error
            raise

    def _write_to_file(self, messages: Sequence[jsonbus.Message]) -> int:
        """Add as many as the current file takes, and start the next file if those are not all."""
        with self._failing():
            if self._is_file_over():
                self._finish_file()
                bytes_before = self.bytes
                self._open_file()
                self._bytes_before = bytes_before
            size_max, is_last = self._size_max()
            taken = self._sink.write(messages, size_max)
            if taken == 0 and not is_last and not self._has_messages:
                # Larger than a file: it gets a file to itself, if the total limit allows it.
                taken = self._sink.write(messages[:1], self._bytes_left)
                is_last = taken == 0
        self.messages += taken
        if self._sink.is_on_disk:
            self._flushed = self.messages - self._messages_before
        if taken < len(messages):
            if is_last:
                self.is_full = True
            else:
                self._ends_at = 0.0
        return taken

    @property
    def _has_messages(self) -> bool:
        return self.messages > self._messages_before

    def _is_file_over(self) -> bool:
        return self._has_messages and monotonic() >= self._ends_at

    @property
    def _bytes_left(self) -> int | None:
        """Return how many bytes the current file may have, by the limit of the whole recording."""
        return None if self._bytes_max is None else self._bytes_max - self._bytes_before

    def _size_max(self) -> tuple[int | None, bool]:
        """Return how large the current file may get, and whether that ends the whole recording."""
        left = self._bytes_left
        if left is None:
            return self._rotate_bytes, False
        if self._rotate_bytes is None or left <= self._rotate_bytes:
            return left, True
        return self._rotate_bytes, False

    def _open_file(self) -> None:
        path = numbered(self._path, self._number) if self._is_series else self._path
        output = OutputFile(path, force=self._force)
        try:
            self._delete_oldest()
        except BaseException:
            output.close()
            raise
        self._output = output
        self._number += 1
        self._sink = make_sink(self._format, self._output)
        self._ends_at = float("inf") if self._rotate_s is None else monotonic() + self._rotate_s
        self.paths.append(path)
        self._kept.append(path)

    def _delete_oldest(self) -> None:
        while self._keep is not None and len(self._kept) >= self._keep:
            delete(oldest := self._kept.pop(0))
            self.deleted += 1
            if oldest in self.paths[:1]:
                del self.paths[0]

    def _finish_file(self) -> None:
        with self._failing():
            self._sink.finish()
        self._messages_before = self.messages
        self._flushed = 0  # the next file may fail to open
        self._output.close()
