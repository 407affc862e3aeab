"""Lines of standard input, each a value to publish."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import IO, Any

import click

from .command import note
from .values import is_printed_message, parse_json, shorten

#: A topic and the value to publish to it.
Pair = tuple[str, Any]

#: More than any value may have; beyond, a line is refused instead of filling the memory.
LINE_BYTES_MAX = 32 << 20

#: Refused lines that are told one by one; a binary file has a million of them.
REFUSALS_TOLD_MAX = 10


class LineReader:
    """Reads pairs of topic and value; tells about lines that are none and goes on with the next.

    With is_text, every line is a text for `topic`. Else a line is JSON: an object that `sub`
    printed has its own topic; other values are for `topic`; without `topic`, any object with the
    keys topic and value will do, and nothing else.
    """

    def __init__(self, topic: str | None, *, is_text: bool = False) -> None:
        if is_text and topic is None:
            raise click.UsageError("--text needs a TOPIC: lines of text carry none")
        #: Lines that were not published.
        self.refused = 0
        self._topic = topic
        self._is_text = is_text
        self._number = 0

    def __iter__(self) -> Iterator[Pair]:
        if sys.stdin.isatty():
            note("one value a line; Ctrl-D ends")
        for line in self._lines(sys.stdin.buffer):
            try:
                yield self._read(line.decode())
            except ValueError as error:
                self.refuse(str(error))
        if self.refused > REFUSALS_TOLD_MAX:
            note(f"{self.refused:,} lines were not published")

    def refuse(self, reason: str) -> None:
        """Tell why the line that was read last is not published."""
        self.refused += 1
        if self.refused <= REFUSALS_TOLD_MAX:
            note(f"line {self._number:,} is not published: {reason}")

    def _read(self, line: str) -> Pair:
        if self._is_text:
            assert self._topic is not None
            return self._topic, line
        try:
            value = parse_json(line)
        except ValueError as error:
            raise ValueError(f"{shorten(line)} is not JSON: {error}") from None
        if isinstance(value, dict):
            if self._topic is None:
                has_topic = "value" in value and isinstance(value.get("topic"), str)
            else:
                has_topic = is_printed_message(value)
            if has_topic:
                return value["topic"], value["value"]
        if self._topic is None:
            raise ValueError('it is no object {"topic": ..., "value": ...}; or give a TOPIC')
        return self._topic, value

    def _lines(self, stream: IO[bytes]) -> Iterator[bytes]:
        """Lines without their end; empty ones and those that are too long are passed over."""
        while line := self._read_line(stream):
            self._number += 1
            if len(line) > LINE_BYTES_MAX and not line.endswith(b"\n"):
                self.refuse(f"it has more than {LINE_BYTES_MAX:,} bytes")
                while line and not line.endswith(b"\n"):
                    line = self._read_line(stream)
                continue
            line = line.rstrip(b"\r\n")
            if line.strip():
                yield line

    def _read_line(self, stream: IO[bytes]) -> bytes:
        try:
            return stream.readline(LINE_BYTES_MAX + 1)
        except OSError as error:
            raise click.ClickException(f"cannot read standard input: {error.strerror}") from error
