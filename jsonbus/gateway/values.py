"""Values as the gateway's clients write and read them."""

from __future__ import annotations

from typing import Any

import orjson

from jsonbus.errors import PayloadError

#: The longest message that a client writes as text, by `/publish` or in a line.
MESSAGE_CHARACTERS_MAX = 5_000


def check_message_length(characters: int) -> None:
    """Raise ValueError, with the reason, for a message that is too long."""
    if characters > MESSAGE_CHARACTERS_MAX:
        raise ValueError(
            f"message has {characters:,} characters, at most {MESSAGE_CHARACTERS_MAX:,} are "
            "allowed: larger ones go by POST /v1/topics/TOPIC"
        )


def parse_text(text: str | bytes) -> Any:
    """Return the value of a text that parses as JSON, otherwise the text itself."""
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        return text if isinstance(text, str) else text.decode()


def to_json(value: Any) -> bytes:
    """Return a value as compact JSON. Raises PayloadError, as for one nested too deeply."""
    try:
        return orjson.dumps(value)
    except TypeError as error:
        raise PayloadError(f"the value cannot be written as JSON: {error}") from error


def to_json_line(value: Any) -> bytes:
    """Return a value as a line of JSON, which reads well in a terminal."""
    return orjson.dumps(value, option=orjson.OPT_APPEND_NEWLINE)


def parse_json(text: str | bytes) -> Any:
    """Return the value of a JSON text. Raises PayloadError if it is not JSON."""
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise PayloadError(f"this is not JSON: {error}") from error
