"""The two routes that must be fast: `/publish` and `POST /v1/topics/{topic}`.

`publish` and `publish_value` are only signatures, by which FastAPI documents the routes;
`Publishing` answers them (see endpoint.py).
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import Body, Path, Query
from pydantic.json_schema import SkipJsonSchema

from jsonbus.errors import PayloadError

from ..hub import Published
from ..services import Services
from ..values import parse_json
from . import models
from .answers import JsonLine, Refusal
from .parameters import FORM, content_type_of, decode_path, read_parameters, read_query
from .request import HttpRequest

_TOPICS = "/v1/topics/"
_NAMES = models.names_of(models.Publish)
_FLAGS = {"true": True, "false": False}


def publish() -> models.Published:  # type: ignore[empty-body]
    """Publish a message

    Answered when the message is on disk for every webhook that wants it, and with the bus.
    A 500 that says «try again later» means that nobody got it.
    """


_Flag = Literal["true", "false"] | SkipJsonSchema[None]


def publish_value(  # type: ignore[empty-body]
    topic: Annotated[
        str,
        Path(
            description=models.TOPIC_TEXT + " A / may stand as it is.",
            examples=["sensors/kitchen"],
            json_schema_extra=models.TOPIC_SCHEMA,
        ),
    ],
    value: Annotated[Any, Body()],
    retain: Annotated[_Flag, Query(description="Whether later subscribers get it, too.")] = None,
    reliable: Annotated[
        _Flag, Query(description="Whether receivers ask for it again if it is lost.")
    ] = None,
) -> models.Published:
    """Publish a JSON value

    The body is the value exactly: a string stays a string.
    """


class Publishing:
    """Answers both routes. Raises a Refusal for a wrong request."""

    def __init__(self, services: Services) -> None:
        self._hub = services.hub
        self._body_bytes_max = services.body_bytes_max

    async def publish(self, request: HttpRequest) -> JsonLine:
        wish = models.validate(models.Publish, await read_parameters(request, _NAMES))
        return _answer(await self._hub.publish(wish.topic, wish.message))

    async def publish_value(self, request: HttpRequest) -> JsonLine:
        # Not the path as the server decoded it: that has replacement characters for bad UTF-8.
        # And decoded as a whole: the letters of the route may be percent-encoded, too.
        topic = decode_path(request.scope["raw_path"]).removeprefix(_TOPICS)
        flags = _read_flags(request)
        body = await request.read_body(self._body_bytes_max)
        _check_json_type(request)
        value = _parse_body(body)
        return _answer(await self._hub.publish(topic, value, **flags))


def _make_answer(published: Published) -> JsonLine:
    return JsonLine({"webhooks": published.webhooks, "sent": published.is_sent})


# Most publishes are answered by one of these.
_ANSWERS = {
    published: _make_answer(published)
    for published in (Published(number, sent) for number in range(16) for sent in (False, True))
}


def _answer(published: Published) -> JsonLine:
    return _ANSWERS.get(published) or _make_answer(published)


def _read_flags(request: HttpRequest) -> dict[str, bool]:
    if not request.scope["query_string"]:
        return {}
    flags = read_query(request, ("retain", "reliable"))
    for name, text in flags.items():
        if text not in _FLAGS:
            raise Refusal(400, f"the parameter {name} must be true or false")
    return {name: _FLAGS[text] for name, text in flags.items()}


def _parse_body(body: bytes) -> Any:
    try:
        return parse_json(body)
    except PayloadError as error:
        if not body.strip():
            raise Refusal(400, "the body is empty: send a JSON value") from None
        hint = 'send a JSON value, a string in quotes: "open"'
        raise Refusal(400, f"the body: {error}; {hint}") from None


def _check_json_type(request: HttpRequest) -> None:
    content_type = content_type_of(request)
    kind = content_type.kind
    # The body must be JSON, whatever its label: `curl -d` labels it a form.
    if kind not in ("", "application/json", "text/plain", FORM) and not kind.endswith("+json"):
        raise Refusal(
            415, f"the content type {kind[:80]!r} is not JSON: send application/json (curl --json)"
        )
    if content_type.charset not in ("utf-8", "ascii"):
        raise Refusal(415, "JSON must be encoded as UTF-8")
