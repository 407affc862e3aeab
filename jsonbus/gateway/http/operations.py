"""The gateway's ordinary operations, as FastAPI calls them.

The first line of a docstring is the summary in the OpenAPI document, the rest the description.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Annotated

from fastapi import Depends, Query, Request
from starlette.responses import FileResponse, HTMLResponse, PlainTextResponse, Response
from starlette.types import Receive, Scope, Send

import jsonbus
from jsonbus.errors import LocalError

from ..metrics.metrics import CONTENT_TYPE
from ..services import Services
from . import models
from .answers import NO_SNIFF, NO_STORE, JsonLine, Refusal, try_later
from .docs_page import PAGE_HEADERS, asset_path, render_home
from .events import PATTERNS_MAX, EventStream, EventStreams
from .parameters import read_parameters
from .request import REQUEST, connection_of


def _services_of(request: Request) -> Services:
    services: Services = request.app.state.services
    return services


#: The parts of the gateway.
Parts = Annotated[Services, Depends(_services_of)]


def parameters_of(model: type[models.Model]) -> Callable[[Request], Awaitable[models.Model]]:
    """Return a dependency that reads a model's parameters from the query or the body."""
    names = models.names_of(model)

    async def read(request: Request) -> models.Model:
        return models.validate(model, await read_parameters(request.scope[REQUEST], names))

    return read


async def subscribe(
    wish: Annotated[models.Subscribe, Depends(parameters_of(models.Subscribe))], parts: Parts
) -> models.Subscribed:
    """Have messages sent to a webhook

    Its POST requests carry {"message": […], "topic": […]} in order, and are repeated until they
    are answered by 200. A known name with another url moves there.
    """
    try:
        done = await parts.webhooks.subscribe(wish.name, wish.topic, wish.url)
    except ValueError as error:  # the address is malformed or not allowed
        raise Refusal(400, str(error)) from error
    except LocalError as error:
        if type(error) is not LocalError:
            raise
        raise try_later(str(error), 500) from error
    ours = jsonbus.translate_pattern(wish.topic)
    hint = {"hint": f"this has a wildcard of another system: did you mean {ours}?"} if ours else {}
    return models.Subscribed(new=done.is_new, moved=done.has_moved, **hint)


async def unsubscribe(
    wish: Annotated[models.Unsubscribe, Depends(parameters_of(models.Unsubscribe))], parts: Parts
) -> models.Unsubscribed:
    """End subscriptions of a webhook

    Without a topic, all of them. With the last one, messages that wait for it are dropped.
    """
    patterns = await parts.webhooks.unsubscribe(wish.name, wish.topic)
    if not patterns:
        what = (
            "has no subscription" if wish.topic is None else f"does not subscribe to {wish.topic!r}"
        )
        raise Refusal(404, f"the webhook {wish.name!r} {what}")
    return models.Unsubscribed(topics=patterns)


class EventStreamResponse(Response):
    """Sends events for as long as the client stays."""

    media_type = "text/event-stream"

    def __init__(self, streams: EventStreams, stream: EventStream) -> None:
        super().__init__()
        self._streams = streams
        self._stream = stream

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._streams.run(self._stream, send)


async def follow(
    request: Request,
    parts: Parts,
    pattern: Annotated[
        list[Annotated[str, Query(json_schema_extra=models.PATTERN_SCHEMA)]],
        Query(
            description=models.PATTERN_TEXT + " May be repeated.",
            examples=[["sensors/**"]],
            json_schema_extra={"minItems": 1, "maxItems": PATTERNS_MAX},
        ),
    ],
) -> EventStreamResponse:
    """Follow messages

    Server-sent events, each with {"topic", "message", "node", "retained"} as its data. Retained
    values come first. A client that does not read is cut off.
    """
    streams = parts.event_streams
    stream = await streams.open(pattern, connection_of(request.scope))
    return EventStreamResponse(streams, stream)


async def subscribers(parts: Parts) -> models.Subscribers:
    """List webhooks

    Their backlog, and what went wrong last.
    """
    views = [models.Subscriber.model_validate(view) for view in parts.subscribers()]
    return models.Subscribers(subscribers=views)


async def metrics(request: Request) -> PlainTextResponse:
    """Figures for Prometheus"""
    figures = await request.app.state.metrics.expose()
    return PlainTextResponse(figures, headers=NO_STORE, media_type=CONTENT_TYPE.decode())


async def health(parts: Parts) -> models.Health:
    """Whether the gateway works

    Answered within seconds by 503 and the reason while it is cut off from the bus, or cannot store
    messages for webhooks.
    """
    trouble = await parts.trouble()
    if trouble is not None:
        raise Refusal(503, trouble)
    return models.Health(status="ok", version=jsonbus.__version__)


async def openapi(request: Request) -> Response:
    """This document"""
    return JsonLine(request.app.openapi())


async def docs(request: Request) -> HTMLResponse:
    """This page"""
    page, headers = request.app.state.docs
    return HTMLResponse(page, headers=headers)


async def docs_file(name: str) -> FileResponse:
    """Return a file that the page /docs loads."""
    path = asset_path(name)
    if path is None:
        raise Refusal(404, "there is nothing here: see /docs")
    return FileResponse(path, headers={"cache-control": "max-age=3600", **NO_SNIFF})


async def home(parts: Parts) -> HTMLResponse:
    """Return the page at / where there is no dashboard."""
    assert isinstance(parts.dashboard, str)
    return HTMLResponse(render_home(parts.dashboard), headers=PAGE_HEADERS)
