"""Values as the gateway's clients write and read them."""

from __future__ import annotations

from typing import Any

import orjson

from jsonbus.errors import PayloadError


def parse_text(text: str | bytes) -> Any:
    """A message text that parses as JSON is that value, else the text is."""
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        return text if isinstance(text, str) else text.decode()


def to_json(value: Any) -> bytes:
    """A value as compact JSON; raises PayloadError if it has none (nested too deeply, say)."""
    try:
        return orjson.dumps(value)
    except TypeError as error:
        raise PayloadError(f"the value cannot be written as JSON: {error}") from error


def to_json_line(value: Any) -> bytes:
    """A value of the gateway's own as a line of JSON: it looks well in a terminal."""
    return orjson.dumps(value, option=orjson.OPT_APPEND_NEWLINE)


def parse_json(text: str | bytes) -> Any:
    """The value of a JSON text; raises PayloadError if it is none."""
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise PayloadError(f"this is not JSON: {error}") from error
