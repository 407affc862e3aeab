"""Lines of standard input, each a value to publish or to send."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import IO, Any

import click

from ..command import note
from .values import LOSSES_KEY, is_printed_message, parse_json, shorten

#: A topic and the value to publish to it.
Pair = tuple[str, Any]

#: More than any value may have; beyond, a line is refused instead of filling the memory.
LINE_BYTES_MAX = 32 << 20

#: Refused lines that are told one by one; a binary file has a million of them.
REFUSALS_TOLD_MAX = 10


#: How a line of a recording begins that is no value.
_LOSSES = f'{{"{LOSSES_KEY}":'.encode()


class ValueReader:
    """Reads JSON values; tells about lines that are none and goes on with the next.

    `done` is what happens to a value, and does not to a line that is refused.
    """

    def __init__(
        self,
        stream: IO[bytes] | None = None,
        *,
        done: str = "published",
        line_bytes_max: int | None = None,
    ) -> None:
        #: Lines of which nothing became.
        self.refused = 0
        self._stream = stream
        self._done = done
        self._line_bytes_max = line_bytes_max or LINE_BYTES_MAX
        self._number = 0

    def __iter__(self) -> Iterator[Any]:
        if sys.stdin.isatty():
            note("one value a line; Ctrl-D ends")
        for line in self._lines(self._stream or sys.stdin.buffer):
            try:
                yield self._read(line.decode())
            except ValueError as error:
                self.refuse(str(error))
        if self.refused > REFUSALS_TOLD_MAX:
            note(f"{self.refused:,} lines were not {self._done}")

    def refuse(self, reason: str) -> None:
        """Tell why nothing becomes of the line that was read last."""
        self.refused += 1
        if self.refused <= REFUSALS_TOLD_MAX:
            note(f"line {self._number:,} is not {self._done}: {reason}")

    def _read(self, line: str) -> Any:
        """What a line stands for; raises ValueError."""
        try:
            return parse_json(line)
        except ValueError as error:
            raise ValueError(f"{shorten(line)} is not JSON: {error}") from None

    def _lines(self, stream: IO[bytes]) -> Iterator[bytes]:
        """Lines without their end; empty ones and those that are too long are passed over."""
        bytes_max = self._line_bytes_max
        while line := self._read_line(stream):
            self._number += 1
            if len(line) > bytes_max and not line.endswith(b"\n"):
                self.refuse(f"it has more than {bytes_max:,} bytes")
                while line and not line.endswith(b"\n"):
                    line = self._read_line(stream)
                continue
            line = line.rstrip(b"\r\n")
            if line.strip() and not line.startswith(_LOSSES):
                yield line

    def _read_line(self, stream: IO[bytes]) -> bytes:
        try:
            return stream.readline(self._line_bytes_max + 1)
        except OSError as error:
            raise click.ClickException(f"cannot read standard input: {error.strerror}") from error


class LineReader(ValueReader):
    """Reads pairs of topic and value.

    With is_text, every line is a text for `topic`. Else a line is JSON: an object that `sub`
    printed has its own topic; other values are for `topic`; without `topic`, any object with the
    keys topic and value will do, and nothing else.
    """

    def __init__(self, topic: str | None, *, is_text: bool = False) -> None:
        if is_text and topic is None:
            raise click.UsageError("--text needs a TOPIC: lines of text carry none")
        super().__init__()
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
            raise ValueError('it is no object {"topic": ..., "value": ...}; or give a TOPIC')
        return self._topic, value
