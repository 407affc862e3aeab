"""Parameters of a request: from the query, a form (urlencoded or multipart) or a JSON object.

Each may stand in any of these places, but only once in all: of two values, one would be lost in
silence. Names that a route does not know are ignored. Whatever a client can get wrong here is a
`Refusal` that says what; nothing else is raised.
"""

from __future__ import annotations

import email.parser
import json
import re
from collections.abc import Iterator, Sequence
from email.message import Message
from functools import lru_cache
from typing import Any, NamedTuple
from urllib.parse import unquote_to_bytes

from jsonbus.errors import PayloadError

from ..values import parse_json, parse_text, to_json
from .request import HttpRequest, Refusal

#: What a route's parameters may take, in characters.
MESSAGE_CHARACTERS_MAX = 5_000
URL_CHARACTERS_MAX = 1_024
NAME_CHARACTERS_MAX = 128

#: A message of 5,000 characters takes 60,000 bytes at worst, percent-encoded or as \uXXXX pairs;
#: this leaves room for the other parameters, and for the white space of a JSON writer.
FORM_BYTES_MAX = 131_072

#: More than any form of ours has; each part costs the time of a small request.
PARTS_MAX = 100

#: The standard library takes quadratic time to tell parameters of a header apart.
HEADER_BYTES_MAX = 1_024

FORM = "application/x-www-form-urlencoded"
MULTIPART = "multipart/form-data"
JSON = "application/json"

# Some that the standard library knows are no text (zlib), or quadratic in time (punycode).
_CHARSETS = {
    "utf-8": "utf-8",
    "utf8": "utf-8",
    "us-ascii": "ascii",
    "ascii": "ascii",
    "iso-8859-1": "latin-1",
    "latin-1": "latin-1",
    "iso-8859-15": "iso-8859-15",
    "windows-1252": "cp1252",
}

_find_broken_escape = re.compile(r"%(?![0-9A-Fa-f]{2})").search


class ContentType(NamedTuple):
    kind: str  # "application/json", in lower case; "" if none is given
    charset: str  # a name of Python's
    boundary: str | None = None


async def read_parameters(request: HttpRequest, names: Sequence[str]) -> dict[str, Any]:
    """Those of the named parameters that a request has; values are text but for a JSON body's.

    Raises Refusal and ClientGoneError.
    """
    parameters: dict[str, Any] = {}
    query: bytes = request.scope["query_string"]
    if query:
        _add(parameters, read_form(_decode(query, "utf-8", "the query"), "utf-8"), names)
    if request.has_unread_body:
        body = await request.read_body(FORM_BYTES_MAX)
        if body:
            content_type = content_type_of(request)
            _add(parameters, _read_body(body, content_type, names), names)
    return parameters


def text_of(
    parameters: dict[str, Any], name: str, characters_max: int = NAME_CHARACTERS_MAX
) -> str:
    """A parameter that must be there, as text; raises Refusal 400."""
    try:
        text = parameters[name]
    except KeyError:
        raise Refusal(400, f"the parameter {name} is missing") from None
    if not isinstance(text, str):
        raise Refusal(400, f"the parameter {name} must be a string")
    if len(text) > characters_max:
        raise _too_long(name, len(text), characters_max)
    return text


def message_of(parameters: dict[str, Any]) -> Any:
    """The value of the parameter `message`; raises Refusal 400, and PayloadError.

    A text that parses as JSON is that value, else the text is. Of a value that a JSON body gives,
    the characters of its compact JSON count.
    """
    try:
        message = parameters["message"]
    except KeyError:
        raise Refusal(400, "the parameter message is missing") from None
    if isinstance(message, str):
        characters = len(message)
    else:
        characters = len(to_json(message).decode())
    if characters > MESSAGE_CHARACTERS_MAX:
        raise _too_long("message", characters, MESSAGE_CHARACTERS_MAX)
    return parse_text(message) if isinstance(message, str) else message


def flag_of(parameters: dict[str, Any], name: str) -> bool | None:
    """A parameter that is true or false; None if it is missing. Raises Refusal 400."""
    text = parameters.get(name)
    if text is None:
        return None
    if text not in ("true", "false"):
        raise Refusal(400, f"the parameter {name} must be true or false")
    return bool(text == "true")


def texts_of_query(request: HttpRequest, name: str) -> list[str]:
    """All values of a parameter that may be repeated, in order; raises Refusal 400."""
    query = _decode(request.scope["query_string"], "utf-8", "the query")
    return [value for key, value in read_form(query, "utf-8") if key == name]


def content_type_of(request: HttpRequest) -> ContentType:
    """What a request says that its body is; raises Refusal 415 for a charset unknown here."""
    header = request.headers.get(b"content-type", b"")
    if len(header) > HEADER_BYTES_MAX:
        raise Refusal(400, f"the content type takes more than {HEADER_BYTES_MAX:,} bytes")
    return _read_content_type(header)


def read_form(text: str, charset: str) -> Iterator[tuple[str, str]]:
    """Names and values of urlencoded text, in order; raises Refusal 400 if an escape is broken."""
    for pair in text.split("&"):
        if pair:
            name, _, value = pair.partition("=")
            yield _unescape(name, charset), _unescape(value, charset)


def decode_path(raw: bytes) -> str:
    """The percent-encoded path of a request as text; raises Refusal 400 if it is not UTF-8."""
    text = _decode(raw, "utf-8", "the path")
    return _unescape(text.replace("+", "%2B"), "utf-8") if "%" in text else text


def _add(
    parameters: dict[str, Any], pairs: Iterator[tuple[str, Any]], names: Sequence[str]
) -> None:
    for name, value in pairs:
        if name in names:
            if name in parameters:
                raise Refusal(400, f"the parameter {name} comes twice: send it once")
            parameters[name] = value


def _read_body(
    body: bytes, content_type: ContentType, names: Sequence[str]
) -> Iterator[tuple[str, Any]]:
    kind = content_type.kind
    if kind == JSON:
        return iter(_read_json(body, content_type.charset, names).items())
    if kind == FORM:
        if body.lstrip()[:1] == b"{" and _is_json(body):
            # `curl -d` calls everything a form; as one it would lack all parameters.
            raise Refusal(400, f"the body is JSON, but called a form: send {JSON} (curl --json)")
        return read_form(_decode(body, content_type.charset, "the form"), content_type.charset)
    if kind == MULTIPART:
        return _read_multipart(body, content_type)
    said = (
        f"the content type {kind[:80]!r} is not understood" if kind else "no content type is given"
    )
    raise Refusal(415, f"{said}: send {JSON}, {FORM} or {MULTIPART}")


def _is_json(body: bytes) -> bool:
    try:
        parse_json(body)
    except PayloadError:
        return False
    return True


def _read_json(body: bytes, charset: str, names: Sequence[str]) -> dict[str, Any]:
    text = body if charset == "utf-8" else _decode(body, charset, "the body")
    try:
        value = parse_json(text)
    except PayloadError as error:
        raise Refusal(400, f"the body is of type {JSON}, but {error}") from None
    if not isinstance(value, dict):
        raise Refusal(400, "the body must be a JSON object with the parameters' names")
    # The parser keeps the last of two equal keys. To ask another one costs more than all the
    # rest of the request, so only where a key of ours occurs twice, at whatever depth.
    if any(body.count(f'"{name}"'.encode()) > 1 for name in names):
        _check_keys(body.decode(charset), names)
    return value


def _check_keys(text: str, names: Sequence[str]) -> None:
    """Refuse a valid JSON object that has one of the names twice."""
    pairs: list[tuple[str, Any]] = []

    def note(found: list[tuple[str, Any]]) -> None:
        nonlocal pairs
        pairs = found  # the outermost object is the last to be complete

    try:
        json.loads(text, object_pairs_hook=note)
    except RecursionError:
        raise Refusal(400, "the body is nested too deeply: send a flatter value") from None
    _add({}, iter(pairs), names)


def _read_multipart(body: bytes, content_type: ContentType) -> Iterator[tuple[str, Any]]:
    """Fields of a multipart form.

    The parts are told apart here and only their heads given to `email`: its parser follows parts
    within parts, which a form never has, down to the end of the stack.
    """
    if not content_type.boundary:
        raise Refusal(400, f"the content type {MULTIPART} has no boundary")
    # Every delimiter stands at the start of a line; so does the first, if the body begins there.
    pieces = (b"\r\n" + body).split(b"\r\n--" + content_type.boundary.encode("latin-1"))
    if len(pieces) < 2 or not pieces[-1].startswith(b"--"):
        raise Refusal(400, "the multipart form is cut off: its last boundary is missing")
    if len(pieces) > PARTS_MAX + 2:
        raise Refusal(400, f"the multipart form has more than {PARTS_MAX} parts: send fewer")
    for piece in pieces[1:-1]:
        line, found, part = piece.partition(b"\r\n")
        if not found or line.strip(b" \t"):
            raise Refusal(400, "the multipart form has a broken boundary")
        if part.startswith(b"\r\n"):
            head, content = b"", part[2:]
        else:
            head, found, content = part.partition(b"\r\n\r\n")
            if not found:
                raise Refusal(400, "the multipart form has a part without an end of its head")
        yield _read_part(head, content, content_type.charset)


def _read_part(head: bytes, content: bytes, charset: str) -> tuple[str, str]:
    if len(head) > HEADER_BYTES_MAX:
        raise Refusal(
            400,
            f"the multipart form has a part whose head takes more than {HEADER_BYTES_MAX:,} bytes",
        )
    # As UTF-8 where it is: browsers write names so, whatever the standard says of ASCII.
    fields = email.parser.HeaderParser().parsestr(head.decode("utf-8", "replace"))
    if fields.get_content_disposition() != "form-data":
        raise Refusal(400, "the multipart form has a part that is no form-data")
    name = fields.get_param("name", header="content-disposition")
    if not isinstance(name, str):
        raise Refusal(400, "the multipart form has a part without a name")
    if str(fields.get("content-transfer-encoding", "8bit")).lower() not in (
        "7bit",
        "8bit",
        "binary",
    ):
        raise Refusal(400, "the multipart form has an encoded part: send it as it is")
    part_charset = fields.get_param("charset")
    if isinstance(part_charset, str):
        charset = _find_charset(part_charset)
    return name, _decode(content, charset, "the multipart form")


@lru_cache(maxsize=64)
def _read_content_type(header: bytes) -> ContentType:
    message = Message()
    message["content-type"] = header.decode("latin-1")
    kind = header.partition(b";")[0].strip().lower().decode("latin-1")
    charset = message.get_param("charset")
    boundary = message.get_param("boundary")
    return ContentType(
        kind,
        _find_charset(charset) if isinstance(charset, str) else "utf-8",
        boundary if isinstance(boundary, str) else None,
    )


def _find_charset(name: str) -> str:
    try:
        return _CHARSETS[name.strip().lower()]
    except KeyError:
        raise Refusal(415, f"the charset {name[:40]!r} is not understood: send UTF-8") from None


def _unescape(text: str, charset: str) -> str:
    if "+" in text:
        text = text.replace("+", " ")
    if "%" not in text:
        return text
    broken = _find_broken_escape(text)
    if broken:
        raise Refusal(
            400,
            f"the percent-encoding {text[broken.start() : broken.start() + 3]!r} is broken: "
            "write % as %25",
        )
    return _decode(unquote_to_bytes(text.encode(charset)), charset, "the percent-encoding")


def _decode(text: bytes, charset: str, what: str) -> str:
    try:
        return text.decode(charset)
    except UnicodeDecodeError:
        raise Refusal(400, f"{what} is not valid {charset.upper()}: encode it so") from None


def _too_long(name: str, characters: int, characters_max: int) -> Refusal:
    return Refusal(
        400, f"{name} has {characters:,} characters, at most {characters_max:,} are allowed"
    )
