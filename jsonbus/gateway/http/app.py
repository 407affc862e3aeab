"""The FastAPI application: what the gateway offers over HTTP.

origins.py ........ which web pages may ask
endpoint.py ........ methods, rights, errors to answers: around every route
parameters.py ...... what the client sent
this file .......... what each route does
openapi.py ......... what each route promises; docs_page.py shows it
dashboard .......... a package of its own, behind its auth.py
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from fastapi import FastAPI, Request, Response
from starlette.exceptions import HTTPException
from starlette.routing import Route, WebSocketRoute
from starlette.types import Send

import jsonbus
from jsonbus.errors import LocalError

from ..dashboard.auth import Auth
from ..hub import Published
from ..metrics.metrics import CONTENT_TYPE, Metrics
from ..services import Services
from ..values import parse_json, to_json_line
from .answers import Answer
from .docs_page import HEADERS, DocsPage, render_home
from .endpoint import RETRY_AFTER_S, Endpoint, Handler, Stream, Tally
from .openapi import make_document
from .origins import OriginsMiddleware
from .parameters import (
    FORM,
    URL_CHARACTERS_MAX,
    content_type_of,
    decode_path,
    flag_of,
    message_of,
    read_parameters,
    text_of,
    texts_of_query,
)
from .request import HttpRequest, Refusal, connection_of

_TOPICS = "/v1/topics/"
_find_control = re.compile(r"[\x00-\x1f\x7f-\x9f]").search


def make_app(services: Services) -> FastAPI:
    """The application, ready to be served; it starts and ends nothing."""
    app = FastAPI(
        title="jsonbus gateway",
        version=jsonbus.__version__,
        # All three are routes of our own, below.
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        # Spans would hold queries, and so tokens; to ask whether there are any takes 6 µs.
        telemetry={"tracing": False, "metrics": False, "logs": False, "auto_configure": False},
        exception_handlers={HTTPException: _answer_http_exception},
    )
    document = make_document(
        jsonbus.__version__,
        is_open=services.access.is_open,
        body_bytes_max=services.body_bytes_max,
    )
    app.openapi = lambda: document  # type: ignore[method-assign]  # FastAPI's way to replace it
    app.add_middleware(OriginsMiddleware, origins=services.origins)
    routes = _Routes(services)
    tallies: dict[str, Tally] = {}

    def add(
        path: str, handler: Handler, methods: str, right: str | None = None, **more: bool
    ) -> None:
        endpoint = Endpoint(
            handler,
            methods=tuple(methods.split()),
            access=services.access,
            room=services.room,
            right=right,
            **more,
        )
        tallies[path] = endpoint.tally
        app.router.routes.append(Route(path, endpoint, include_in_schema=False))

    metrics = Metrics(services.stats, tallies, services.observe)
    # The busiest first: they are tried in this order.
    add("/publish", routes.publish, "GET POST", "publish")
    add("/v1/topics/{topic:path}", routes.publish_value, "POST", "publish")
    add("/subscribe", routes.subscribe, "GET POST", "subscribe")
    add("/unsubscribe", routes.unsubscribe, "GET POST", "subscribe")
    add("/events", routes.events, "GET", "subscribe", takes_token_in_query=True)
    add("/subscribers", routes.subscribers, "GET HEAD", "admin")
    add("/metrics", _make_metrics(metrics), "GET HEAD", "admin")
    add("/health", routes.health, "GET HEAD")
    add("/docs", _make_docs(DocsPage(document)), "GET HEAD")
    add("/openapi.json", _make_constant(to_json_line(document)), "GET HEAD")
    if isinstance(services.dashboard, str):
        add("/", _make_home(render_home(services.dashboard)), "GET HEAD")
    else:
        _add_dashboard(app, services.dashboard)
    return app


def _add_dashboard(app: FastAPI, auth: Auth) -> None:
    """Routes, not a mount: what a mounted application finds is its path without ours."""
    for path in ("/", "/_nicegui/{rest:path}"):
        app.router.routes.append(Route(path, auth, include_in_schema=False))
    app.router.routes.append(WebSocketRoute("/_nicegui_ws/{rest:path}", auth))
    app.router.routes.append(Route("/login", auth.login, include_in_schema=False))
    app.router.routes.append(Route("/logout", auth.logout, include_in_schema=False))


class _Routes:
    """What each route does; what is wrong with a request is raised, see endpoint.py."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._hub = services.hub

    async def publish(self, request: HttpRequest) -> Answer:
        parameters = await read_parameters(request, ("topic", "message"))
        topic = text_of(parameters, "topic")
        return _published(await self._hub.publish(topic, message_of(parameters)))

    async def publish_value(self, request: HttpRequest) -> Answer:
        # Not the path as the server decoded it: that has replacement characters for bad UTF-8.
        # And decoded as a whole: the letters of the route may be encoded, too.
        topic = decode_path(request.scope["raw_path"]).removeprefix(_TOPICS)
        flags = _read_flags(request, ("retain", "reliable"))
        body = await request.read_body(self._services.body_bytes_max)
        _check_json_type(request)
        value = parse_json(body)
        retain = flag_of(flags, "retain") or False
        reliable = flag_of(flags, "reliable")
        return _published(await self._hub.publish(topic, value, retain=retain, reliable=reliable))

    async def subscribe(self, request: HttpRequest) -> Answer:
        parameters = await read_parameters(request, ("topic", "subscriberName", "url"))
        pattern = jsonbus.check_pattern(text_of(parameters, "topic"))
        name = _name_of(parameters)
        url = text_of(parameters, "url", URL_CHARACTERS_MAX)
        try:
            done = await self._services.webhooks.subscribe(name, pattern, url)
        except ValueError as error:  # the address is malformed or not allowed
            raise Refusal(400, str(error)) from error
        except LocalError as error:
            if type(error) is not LocalError:
                raise
            raise Refusal(
                500, f"try again later: {error}", {"retry-after": str(RETRY_AFTER_S)}
            ) from error
        return Answer(to_json_line({"new": done.is_new, "moved": done.has_moved}))

    async def unsubscribe(self, request: HttpRequest) -> Answer:
        parameters = await read_parameters(request, ("topic", "subscriberName"))
        name = _name_of(parameters)
        pattern = None
        if "topic" in parameters:
            pattern = jsonbus.check_pattern(text_of(parameters, "topic"))
        patterns = await self._services.webhooks.unsubscribe(name, pattern)
        if not patterns:
            what = (
                "has no subscription" if pattern is None else f"does not subscribe to {pattern!r}"
            )
            raise Refusal(404, f"the webhook {name!r} {what}")
        return Answer(to_json_line({"topics": patterns}))

    async def events(self, request: HttpRequest) -> Stream:
        streams = self._services.event_streams
        patterns = texts_of_query(request, "pattern")
        stream = await streams.open(patterns, connection_of(request.scope))

        async def run(send: Send) -> None:
            await streams.run(stream, request.receive, send)

        return run

    async def subscribers(self, request: HttpRequest) -> Answer:
        views = [
            {
                "name": view.name,
                "url": view.url,
                "topics": list(view.patterns),
                "backlog": view.backlog,
                "delivered": view.delivered,
                "dropped": view.dropped,
                "attempts_failed": view.attempts_failed,
                "last_error": view.last_error,
                "last_error_at": view.last_error_at,
                "retry_at": view.retry_at,
                "created_at": view.created_at,
            }
            for view in self._services.subscribers()
        ]
        return Answer(to_json_line({"subscribers": views}))

    async def health(self, request: HttpRequest) -> Answer:
        trouble = self._services.trouble()
        if trouble is not None:
            raise Refusal(503, trouble)
        return Answer(to_json_line({"status": "ok", "version": jsonbus.__version__}))


def _make_metrics(metrics: Metrics) -> Handler:
    async def answer(request: HttpRequest) -> Answer:
        return Answer(await metrics.expose(), content_type=CONTENT_TYPE)

    return answer


def _make_docs(page: DocsPage) -> Handler:
    async def answer(request: HttpRequest) -> Answer:
        host = request.headers.get(b"host", b"").decode("latin-1")
        return Answer(page.render(host), content_type=b"text/html; charset=utf-8", headers=HEADERS)

    return answer


def _make_home(page: bytes) -> Handler:
    async def answer(request: HttpRequest) -> Answer:
        return Answer(page, content_type=b"text/html; charset=utf-8", headers=HEADERS)

    return answer


def _make_constant(body: bytes) -> Handler:
    async def answer(request: HttpRequest) -> Answer:
        return Answer(body)

    return answer


# Most publishes are answered by one of these.
_PUBLISHED = {
    Published(webhooks, is_sent): Answer(to_json_line({"webhooks": webhooks, "sent": is_sent}))
    for webhooks in range(16)
    for is_sent in (False, True)
}


def _published(published: Published) -> Answer:
    known = _PUBLISHED.get(published)
    if known is not None:
        return known
    return Answer(to_json_line({"webhooks": published.webhooks, "sent": published.is_sent}))


def _name_of(parameters: dict[str, Any]) -> str:
    name = text_of(parameters, "subscriberName")
    if not name or _find_control(name):
        # It stands in a header, a log line and a table.
        raise Refusal(400, "subscriberName must not be empty or have control characters")
    return name


def _read_flags(request: HttpRequest, names: Sequence[str]) -> dict[str, str]:
    flags = {}
    for name in names:
        found = texts_of_query(request, name)
        if len(found) > 1:
            raise Refusal(400, f"the parameter {name} comes twice: send it once")
        if found:
            flags[name] = found[0]
    return flags


def _check_json_type(request: HttpRequest) -> None:
    content_type = content_type_of(request)
    kind = content_type.kind
    # The body is JSON or refused, whatever it is called: FORM is what `curl -d` calls it.
    if kind not in ("", "application/json", "text/plain", FORM) and not kind.endswith("+json"):
        raise Refusal(
            415, f"the content type {kind[:80]!r} is not JSON: send application/json (curl --json)"
        )
    if content_type.charset not in ("utf-8", "ascii"):
        raise Refusal(415, "JSON must be UTF-8 here: encode it so")


async def _answer_http_exception(request: Request, error: Exception) -> Response:
    """What the router says, a path that is none of ours above all, in our form."""
    assert isinstance(error, HTTPException)
    reason = error.detail
    if error.status_code == 404:
        reason = f"there is nothing at {request.scope['path'][:200]!r}: see /docs"
    return Response(
        to_json_line({"error": reason}),
        error.status_code,
        headers=error.headers,
        media_type="application/json",
    )
