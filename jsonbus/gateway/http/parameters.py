"""Reads the parameters of a request: from the query, a form (urlencoded or multipart) or JSON.

A parameter may be in any of these places, but only once in all: of two values, one would be lost
silently. An unknown name is refused: it is a known one misspelt, or an option that does nothing.
Every mistake of a client is a `Refusal` with the reason; nothing else is raised. FastAPI reads a
parameter from the query or from one kind of body, not from either, ignores unknown ones, and
replaces what is not UTF-8: hence these readers.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterable, Iterator, Sequence
from difflib import get_close_matches
from email.message import Message
from functools import lru_cache
from typing import Any, NamedTuple
from urllib.parse import unquote_to_bytes

from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser, parse_options_header

from jsonbus.errors import PayloadError

from ..values import parse_json
from .answers import Refusal
from .request import HttpRequest

#: A message of 5,000 characters takes at most 60,000 bytes, percent-encoded or as \uXXXX pairs.
#: The rest is for the other parameters and for white space in JSON.
FORM_BYTES_MAX = 131_072

#: Far more than any operation needs; each part costs as much time as a small request.
PARTS_MAX = 100

#: Splitting the options of a header takes quadratic time.
HEADER_BYTES_MAX = 1_024

FORM = "application/x-www-form-urlencoded"
MULTIPART = "multipart/form-data"
JSON = "application/json"

# Not all of Python's codecs: some are no text (zlib) or take quadratic time (punycode).
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

_UNENCODED = (b"7bit", b"8bit", b"binary")
_LONG_HEADER = (
    f"the multipart form has a part with a header of more than {HEADER_BYTES_MAX:,} bytes"
)

# It warns of every malformed form, which any client can send; the client gets the reason.
logging.getLogger("python_multipart").setLevel(logging.ERROR)

_find_broken_escape = re.compile(r"%(?![0-9A-Fa-f]{2}).{0,2}", re.DOTALL).search

_Pairs = Iterable[tuple[str, Any]]


class ContentType(NamedTuple):
    kind: str  # "application/json", in lower case; "" if none is given
    charset: str  # a name of Python's
    boundary: str | None = None


async def read_parameters(request: HttpRequest, names: Sequence[str]) -> dict[str, Any]:
    """Return the named parameters of a request; values are text, except in a JSON body.

    Raises Refusal and ClientGoneError.
    """
    parameters = read_query(request, names)
    if request.has_unread_body:
        body = await request.read_body(FORM_BYTES_MAX)
        if body:
            _add(parameters, _read_body(body, content_type_of(request), names), names)
    return parameters


def read_query(request: HttpRequest, names: Sequence[str]) -> dict[str, Any]:
    """Return the parameters of the query, which are text; raises Refusal 400."""
    parameters: dict[str, Any] = {}
    _add(parameters, _read_query(request), names)
    return parameters


def text_of_query(request: HttpRequest, name: str) -> str | None:
    """Return one parameter of the query, whatever else is there; raises Refusal 400."""
    parameters: dict[str, Any] = {}
    _add(parameters, (pair for pair in _read_query(request) if pair[0] == name), (name,))
    return parameters.get(name)


def check_query(request: HttpRequest, names: Sequence[str]) -> None:
    """Raise Refusal 400 for a malformed query or an unknown name; a known one may be repeated."""
    for name, _ in _read_query(request):
        _check_known(name, names)


def content_type_of(request: HttpRequest) -> ContentType:
    """Return the content type of a request; raises Refusal 415 for an unknown charset."""
    header = request.headers.get(b"content-type", b"")
    if len(header) > HEADER_BYTES_MAX:
        raise Refusal(400, f"the content type takes more than {HEADER_BYTES_MAX:,} bytes")
    return _read_content_type(header)


def _read_query(request: HttpRequest) -> Iterator[tuple[str, str]]:
    return read_form(_decode(request.scope["query_string"], "utf-8", "the query"), "utf-8")


def read_form(text: str, charset: str) -> Iterator[tuple[str, str]]:
    """Yield names and values of urlencoded text; raises Refusal 400 if an escape is broken."""
    for pair in text.split("&"):
        if pair:
            name, _, value = pair.partition("=")
            yield _unescape(name, charset), _unescape(value, charset)


def decode_path(raw: bytes) -> str:
    """Return the percent-encoded path as text; raises Refusal 400 if it is not UTF-8."""
    text = _decode(raw, "utf-8", "the path")
    return _unescape(text.replace("+", "%2B"), "utf-8") if "%" in text else text


def _add(parameters: dict[str, Any], pairs: _Pairs, names: Sequence[str]) -> None:
    for name, value in pairs:
        _check_known(name, names)
        if name in parameters:
            raise Refusal(400, f"the parameter {name} comes twice: send it once")
        parameters[name] = value


def _check_known(name: str, names: Sequence[str]) -> None:
    if name in names:
        return
    reason = f"the parameter {name[:40]!r} is unknown"
    if not names:
        raise Refusal(400, f"{reason}: this takes no parameters")
    nearest = find_nearest(name[:40], names)
    hint = f"did you mean {nearest}? " if nearest else ""
    raise Refusal(400, f"{reason}: {hint}known here: {', '.join(names)}")


def find_nearest(name: str, names: Iterable[str]) -> str | None:
    """Return the name that was meant, if one resembles it: `name` means `subscriberName`."""
    by_lower = {each.lower(): each for each in names}
    lower = name.lower()
    nearest = get_close_matches(lower, by_lower, n=1)
    nearest += [each for each in by_lower if len(lower) > 2 and lower in each]
    return by_lower[nearest[0]] if nearest else None


def _read_body(body: bytes, content_type: ContentType, names: Sequence[str]) -> _Pairs:
    kind = content_type.kind
    if kind == JSON:
        return _read_json(body, content_type.charset, names).items()
    if kind == FORM:
        if body.lstrip()[:1] == b"{" and _is_json(body):
            # `curl -d` labels everything a form; read as a form, it has no parameters.
            raise Refusal(400, f"the body is JSON, but labelled a form: send {JSON} (curl --json)")
        return read_form(_decode(body, content_type.charset, "the form"), content_type.charset)
    if kind == MULTIPART:
        return _read_multipart(body, content_type)
    unknown = f"the content type {kind[:80]!r} is not understood"
    reason = unknown if kind else "no content type is given"
    raise Refusal(415, f"{reason}: send {JSON}, {FORM} or {MULTIPART}")


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
    # The parser keeps the last of two equal keys. A second parser costs more than the rest of the
    # request, so it runs only if one of our keys occurs twice, at any depth.
    if any(body.count(f'"{name}"'.encode()) > 1 for name in names):
        try:
            pairs = json.loads(body.decode(charset), object_pairs_hook=list)
        except RecursionError:
            raise Refusal(400, "the body is nested too deeply: send a flatter value") from None
        _add({}, pairs, names)
    return value


class _MultipartFields:
    """Collects the fields of a multipart form from the callbacks of python-multipart."""

    def __init__(self, charset: str) -> None:
        self.fields: list[tuple[str, str]] = []
        self.is_complete = False
        self._charset = charset
        self._headers: dict[bytes, bytes] = {}
        self._name = b""
        self._content = bytearray()
        self._parts = 0

    def on_part_begin(self) -> None:
        self._parts += 1
        if self._parts > PARTS_MAX:
            raise Refusal(400, f"the multipart form has more than {PARTS_MAX} parts: send fewer")
        self._headers, self._content = {}, bytearray()

    def on_header_field(self, data: bytes, start: int, end: int) -> None:
        # Whole, like its value: the body comes in one piece.
        self._name = data[start:end].lower()
        self.on_header_value(data, end, end)  # an empty value is not reported

    def on_header_value(self, data: bytes, start: int, end: int) -> None:
        self._headers[self._name] = data[start:end]
        if len(self._name) + end - start > HEADER_BYTES_MAX:
            raise Refusal(400, _LONG_HEADER)

    def on_part_data(self, data: bytes, start: int, end: int) -> None:
        self._content += data[start:end]

    def on_part_end(self) -> None:
        kind, options = parse_options_header(self._headers.get(b"content-disposition"))
        if kind.lower() != b"form-data" or b"name" not in options:
            raise Refusal(400, "the multipart form has a part that is no form-data with a name")
        if self._headers.get(b"content-transfer-encoding", b"8bit").lower() not in _UNENCODED:
            raise Refusal(400, "the multipart form has an encoded part: send it as it is")
        _, of_type = parse_options_header(self._headers.get(b"content-type"))
        charset = self._charset
        if b"charset" in of_type:
            charset = _find_charset(of_type[b"charset"].decode("latin-1"))
        # Browsers write names as UTF-8.
        name = options[b"name"].decode("utf-8", "replace")
        self.fields.append((name, _decode(bytes(self._content), charset, "the multipart form")))

    def on_end(self) -> None:
        self.is_complete = True


def _read_multipart(body: bytes, content_type: ContentType) -> _Pairs:
    if not content_type.boundary:
        raise Refusal(400, f"the content type {MULTIPART} has no boundary")
    fields = _MultipartFields(content_type.charset)
    callbacks: Any = {name: getattr(fields, name) for name in dir(fields) if name[:3] == "on_"}
    boundary = content_type.boundary.encode("latin-1")
    preamble_bytes = max(0, (b"\r\n" + body).find(b"\r\n--" + boundary))
    try:
        MultipartParser(boundary, callbacks).write(body[preamble_bytes:])
    except FormParserError as error:
        reason = str(error)[:1].lower() + str(error)[1:]
        raise Refusal(400, f"the multipart form is malformed: {reason}") from None
    if not fields.is_complete:
        raise Refusal(400, "the multipart form is cut off: its last boundary is missing")
    return fields.fields


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
        reason = f"the percent-encoding {broken[0]!r} is broken: write % as %25"
        raise Refusal(400, reason)
    return _decode(unquote_to_bytes(text.encode(charset)), charset, "the percent-encoding")


def _decode(text: bytes, charset: str, what: str) -> str:
    try:
        return text.decode(charset)
    except UnicodeDecodeError:
        raise Refusal(400, f"{what} is not valid {charset.upper()}: encode it so") from None
