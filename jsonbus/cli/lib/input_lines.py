"""Reads the lines of standard input, each a value to publish or to send."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import IO, Any

import click

from ..command import note
from .values import GAP_KEY, LOSSES_KEY, is_printed_message, parse_json

#: A topic and the value to publish to it.
Pair = tuple[str, Any]

#: More than any value may have; a longer line is refused instead of filling the memory.
LINE_BYTES_MAX = 32 << 20

#: Refused lines that are reported one by one; a binary file has a million of them.
REFUSALS_TOLD_MAX = 10


#: The beginnings of lines of recordings and of `sub` that are not values.
_REPORTS = tuple(f'{{"{key}":'.encode() for key in (LOSSES_KEY, GAP_KEY))


class ValueReader:
    """Reads JSON values. Lines that are not JSON are reported and skipped.

    `done` says what is done with a value, for the report of a line that is refused; `remedy` is
    for the first line that is not JSON.
    """

    def __init__(
        self,
        stream: IO[bytes] | None = None,
        *,
        done: str = "published",
        remedy: str = "",
        line_bytes_max: int | None = None,
    ) -> None:
        #: Number of lines that were refused.
        self.refused = 0
        self._stream = stream
        self._done = done
        self._remedy = remedy
        self._line_bytes_max = line_bytes_max or LINE_BYTES_MAX
        self._number = 0

    def __iter__(self) -> Iterator[Any]:
        if sys.stdin.isatty():
            note("one value a line; Ctrl-D ends")
        for line in self._lines(self._stream or sys.stdin.buffer):
            try:
                yield self._read(self._decode(line))
            except ValueError as error:
                self.refuse(str(error))
        if self.refused > REFUSALS_TOLD_MAX:
            note(f"{self.refused:,} lines were not {self._done}")

    def refuse(self, reason: str) -> None:
        """Report why the line that was read last is refused."""
        self.refused += 1
        if self.refused <= REFUSALS_TOLD_MAX:
            note(f"line {self._number:,} is not {self._done}: {reason}")

    def _read(self, line: str) -> Any:
        """Return the value of a line. Raises ValueError."""
        try:
            return parse_json(line)
        except ValueError as error:
            raise self._with_remedy(str(error)) from None

    def _decode(self, line: bytes) -> str:
        try:
            return line.decode()
        except UnicodeDecodeError:
            raise self._with_remedy("it is not UTF-8") from None

    def _with_remedy(self, reason: str) -> ValueError:
        """Return the error, which has the remedy only the first time."""
        remedy, self._remedy = self._remedy, ""
        return ValueError(f"{reason}; {remedy}" if remedy else reason)

    def _lines(self, stream: IO[bytes]) -> Iterator[bytes]:
        """Yield lines without their line end; skip empty ones, refuse those that are too long."""
        bytes_max = self._line_bytes_max
        while line := self._read_line(stream):
            self._number += 1
            if len(line) > bytes_max and not line.endswith(b"\n"):
                self.refuse(f"it has more than {bytes_max:,} bytes")
                while line and not line.endswith(b"\n"):
                    line = self._read_line(stream)
                continue
            line = line.rstrip(b"\r\n")
            if line.strip() and not line.startswith(_REPORTS):
                yield line

    def _read_line(self, stream: IO[bytes]) -> bytes:
        try:
            return stream.readline(self._line_bytes_max + 1)
        except OSError as error:
            raise click.ClickException(f"cannot read standard input: {error.strerror}") from error


class LineReader(ValueReader):
    """Reads pairs of topic and value.

    With `is_text`, every line is a text for `topic`. Otherwise a line is JSON: an object that `sub`
    printed has its own topic, other values are for `topic`. Without `topic`, a line must be an
    object with the keys topic and value.
    """

    def __init__(self, topic: str | None, *, is_text: bool = False) -> None:
        if is_text and topic is None:
            raise click.UsageError("--text needs a TOPIC: lines of text have none")
        is_possible = not is_text and topic is not None
        super().__init__(remedy="--text publishes lines as text" if is_possible else "")
        self._topic = topic
        self._is_text = is_text

    def _read(self, line: str) -> Pair:
        if self._is_text:
            assert self._topic is not None
            return self._topic, line
        value = super()._read(line)
        if isinstance(value, dict):
            if self._topic is None:
                has_topic = "value" in value and isinstance(value.get("topic"), str)
            else:
                has_topic = is_printed_message(value)
            if has_topic:
                return value["topic"], value["value"]
        if self._topic is None:
            raise ValueError('it is not an object {"topic": ..., "value": ...}; or give a TOPIC')
        return self._topic, value
