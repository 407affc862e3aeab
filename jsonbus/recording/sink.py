"""Chooses what writes messages into a file: one class for each format."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import jsonbus

from .output_file import OutputFile
from .records import Losses


class Sink(Protocol):
    """Writes one file in one format."""

    @property
    def size(self) -> int: ...

    @property
    def is_on_disk(self) -> bool: ...

    def write(self, messages: Sequence[jsonbus.Message], size_max: int | None = None) -> int: ...

    def note_losses(self, losses: Losses) -> None: ...

    def flush(self) -> None: ...

    def finish(self) -> None: ...


class _NoSink:
    """Stands for no file: the one before is finished."""

    size = 0
    is_on_disk = True

    def write(self, messages: Sequence[jsonbus.Message], size_max: int | None = None) -> int:
        raise AssertionError("nothing is written without a file")

    def note_losses(self, losses: Losses) -> None:
        pass

    def flush(self) -> None:
        pass

    def finish(self) -> None:
        pass


NO_SINK: Sink = _NoSink()


def make_sink(name: str, output: OutputFile) -> Sink:
    """Return what writes that format into the file."""
    if name == "mcap":
        from .mcap_file import McapSink  # few need it, and it may not be installed

        return McapSink(output)
    from .lines_file import GzipLinesSink, LinesSink

    return GzipLinesSink(output) if name == "jsonl.gz" else LinesSink(output)
