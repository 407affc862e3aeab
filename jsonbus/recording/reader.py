"""Reads recordings: the messages of one file, or of several, by the time they were received."""

from __future__ import annotations

import heapq
import io
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Protocol

import jsonbus
from jsonbus.errors import RecordingError

from .formats import check_installed, detect, find_series, peek
from .input_file import BLOCK_BYTES, GunzipFile, InputFile
from .records import Bad, Losses, parse_line

#: More than the largest value with the rest of its line.
LINE_BYTES_MAX = 80 << 20

#: A clock that goes back by more than this was set; by less, two threads raced.
STEP_S = 1.0

#: When a message is due, in seconds since 1970, and the message.
Timed = tuple[float, jsonbus.Message]


class Recording:
    """The messages of some files; `open_recording` makes one.

        for message in open_recording("run.mcap"):
            print(message.received_at, message.topic, message.value)

    Each iteration reads from the beginning. Files are read as they were then, by their contents and
    not their names. Messages come in the order in which they stand in their file, and those of
    several files by the time they were received. What cannot be read is passed over, counted in
    `skipped` and told to `on_trouble`; a file whose end is missing is in `torn`. A file that cannot
    be opened, or is no recording, raises RecordingError; so does a pipe that would be read twice:
    by another iteration, or beside other files, whose first messages are looked at beforehand.
    """

    def __init__(self, *paths: str | Path, on_trouble: Callable[[str], None] | None = None) -> None:
        self._files = [each for path in paths for each in _find_files(Path(path))]
        self._on_trouble = on_trouble
        #: Records that could not be read.
        self.skipped = 0
        #: Files that end in the middle of a record, or without their end.
        self.torn: list[Path] = []
        #: Losses that the recorders of the files reported, by file.
        self.losses: dict[Path, Losses] = {}
        #: Size of all files, and how many of their bytes were read.
        self.size = 0
        self._positions: dict[Path, int] = {}
        self._pipes_read: set[Path] = set()

    @property
    def paths(self) -> list[Path]:
        """The files; for a recording in numbered files, each of them."""
        return list(self._files)

    @property
    def position(self) -> int:
        """Number of bytes that the current iteration has read."""
        return sum(self._positions.values())

    def __iter__(self) -> Iterator[jsonbus.Message]:
        for _, message in self.timed():
            yield message

    def timed(self) -> Iterator[Timed]:
        """Yield the messages with the times at which they were received, which never decrease.

        Where the recorder's clock was set back, what follows continues from there.
        """
        self.skipped = 0
        self.torn.clear()
        self._positions.clear()
        if len(self._files) == 1:
            self.size = _size_of(self._files[0])
            return _timeline(self._read(self._files[0]))
        return self._merged()

    def _merged(self) -> Iterator[Timed]:
        """Merge the files by their first messages, so that only those are open that are read
        side by side.
        """
        waiting: list[tuple[float, int]] = []
        self.size = 0
        for index, path in enumerate(self._files):
            self.size += _size_of(path)
            first = next(self._read(path, is_counted=False), None)
            if first is None:
                for _ in self._read(path):  # it is empty, but the reason may have to be reported
                    pass
            else:
                waiting.append((first.received_at, index))
        heapq.heapify(waiting)
        # The index keeps messages of the same time in the order of the files, and is unique.
        heads: list[tuple[float, int, jsonbus.Message, Iterator[Timed]]] = []
        while heads or waiting:
            if waiting and (not heads or waiting[0] <= heads[0][:2]):
                _, index = heapq.heappop(waiting)
                timeline = _timeline(self._read(self._files[index]))
                at, message = next(timeline)
                heapq.heappush(heads, (at, index, message, timeline))
                continue
            at, index, message, timeline = heads[0]
            yield at, message
            following = next(timeline, None)
            if following is None:
                heapq.heappop(heads)
            else:
                heapq.heapreplace(heads, (following[0], index, following[1], timeline))

    def _read(self, path: Path, *, is_counted: bool = True) -> Iterator[jsonbus.Message]:
        """Yield the messages of one file."""

        def bad(place: str, reason: str, *, is_told: bool = True) -> None:
            if is_counted:
                self.skipped += 1
                if is_told and self._on_trouble is not None:
                    self._on_trouble(f"{path}, {place}, is passed over: {reason}")

        if path in self._pipes_read:  # opening it might wait for ever
            raise RecordingError(str(path), "it is a pipe, which can be read only once")
        with InputFile(path) as file:
            if not file.seekable():
                self._pipes_read.add(path)
            source = _open_source(file, path, bad)
            for each in source:
                if isinstance(each, Losses):
                    self.losses[path] = each
                    continue
                if is_counted:
                    self._positions[path] = file.position
                yield each
            if is_counted:
                self._positions[path] = file.position
                if source.is_torn:
                    self.torn.append(path)


class _Source(Protocol):
    is_torn: bool

    def __iter__(self) -> Iterator[jsonbus.Message | Losses]: ...


class _LinesSource:
    """Reads messages from JSON lines."""

    def __init__(self, stream: io.BufferedReader[Any], path: Path, bad: Bad) -> None:
        self._stream = stream
        self._path = path
        self._bad = bad
        self.is_torn = False

    def __iter__(self) -> Iterator[jsonbus.Message | Losses]:
        number, is_recording = 0, False
        while line := self._stream.readline(LINE_BYTES_MAX):
            number += 1
            is_whole = line.endswith(b"\n")
            if not is_whole and len(line) == LINE_BYTES_MAX:
                raise RecordingError(str(self._path), f"line {number:,} has no end")
            try:
                yield parse_line(line)
            except ValueError as error:
                if not is_whole and (is_recording or line.startswith(b"{")):
                    self.is_torn = True
                    return
                if not line.strip():
                    continue
                if not is_recording:
                    raise RecordingError(
                        str(self._path), f"it is no recording: line {number:,}: {error}"
                    ) from None
                self._bad(f"line {number:,}", str(error))
            is_recording = True
        raw = self._stream.raw
        self.is_torn = isinstance(raw, GunzipFile) and raw.is_torn


def _open_source(file: InputFile, path: Path, bad: Bad) -> _Source:
    stream: io.BufferedReader[Any] = io.BufferedReader(file, BLOCK_BYTES)
    name = detect(peek(stream, 8))
    if name == "mcap":
        check_installed(path, name)
        from .mcap_file import McapSource

        return McapSource(stream, file.size, bad)
    if name == "jsonl.gz":
        stream = io.BufferedReader(GunzipFile(stream, path), BLOCK_BYTES)
    return _LinesSource(stream, path, bad)


def _timeline(messages: Iterator[jsonbus.Message]) -> Iterator[Timed]:
    at, ahead_s = float("-inf"), 0.0
    for message in messages:
        time = message.received_at + ahead_s
        if time < at - STEP_S:
            ahead_s += at - time
        at = max(at, time)
        yield at, message


def _find_files(path: Path) -> list[Path]:
    """Return the file, or those with its name and a number."""
    if path.exists():
        return [path]
    series = [each for _, each in find_series(path)]
    if not series:
        raise RecordingError(str(path), "there is no such file, nor are there numbered ones")
    return series


def _size_of(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0  # opening it will raise the error
