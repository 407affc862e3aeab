"""The FastAPI application: the table of the gateway's routes, and how errors are answered."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from fastapi import FastAPI, Request, Response, Security
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import HTMLResponse, PlainTextResponse
from starlette.routing import Route, WebSocketRoute

import jsonbus
from jsonbus.errors import JsonBusError

from ..dashboard.auth import Auth
from ..metrics.metrics import Metrics, Tally
from ..services import Services
from . import operations, publish
from .answers import JsonLine, refusal_of
from .dependencies import need_token, need_token_anywhere
from .docs_page import render_docs
from .endpoint import OperationRoute, PlainRoute
from .models import Publish, Subscribe, Unsubscribe, describe_error
from .openapi import ANYWHERE, WITH_BODY, GatewayApi, error_responses, in_body, in_query
from .origins import OriginsMiddleware
from .request import Refusal

_TITLE = "jsonbus gateway"


def make_app(services: Services) -> FastAPI:
    """Return the application, ready to be served; it starts and ends nothing."""
    app = GatewayApi(
        title=_TITLE,
        version=jsonbus.__version__,
        summary="Publish to the bus and get its messages over HTTP.",
        description='Errors are answered as {"error": "one sentence"}.',
        default_response_class=JsonLine,
        # These are operations, see below.
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        # Spans would hold queries, and so tokens; asking whether there are any takes 6 µs.
        telemetry={"tracing": False, "metrics": False, "logs": False, "auto_configure": False},
        exception_handlers={
            HTTPException: _answer_http_exception,
            RequestValidationError: _answer_validation_error,
            Refusal: _answer_error,
            JsonBusError: _answer_error,
        },
    )
    app.router.route_class = OperationRoute
    app.add_middleware(OriginsMiddleware, origins=services.origins)
    tallies: dict[str, Tally] = {}
    app.state.services = services
    app.state.room = services.room
    app.state.tallies = tallies
    app.state.methods = {}
    app.state.metrics = Metrics(services.stats, tallies, services.observe)
    app.state.docs = render_docs(_TITLE)
    _add_publishing(app, services)  # first: routes are tried in this order
    _add_operations(app, _Table(app))
    return app


def _add_publishing(app: FastAPI, services: Services) -> None:
    publishing = publish.Publishing(services)
    limit = {"requestBody": {"description": f"At most {services.body_bytes_max:,} bytes."}}
    for method, path, signature, endpoint, extra in (
        ("GET", publish.PUBLISH_PATH, publish.publish, publishing.publish, in_query(Publish)),
        ("POST", publish.PUBLISH_PATH, publish.publish, publishing.publish, in_body(Publish)),
        ("POST", publish.TOPICS_PATH, publish.publish_value, publishing.publish_value, limit),
    ):
        documented = _document(services, signature, method, "publish", WITH_BODY)
        route = PlainRoute(
            path, signature, response_class=JsonLine, openapi_extra=extra, **documented
        )
        route.app = endpoint
        app.router.routes.append(route)
        app.state.tallies[path] = endpoint.tally


def _add_operations(app: FastAPI, table: _Table) -> None:
    for method, place in (("GET", in_query), ("POST", in_body)):
        right, extra = "subscribe", place(Subscribe)
        table.add("/subscribe", operations.subscribe, method, right, WITH_BODY, openapi_extra=extra)
        extra, statuses = place(Unsubscribe), (*WITH_BODY, 404)
        table.add(
            "/unsubscribe", operations.unsubscribe, method, right, statuses, openapi_extra=extra
        )
    stream, text = operations.EventStreamResponse, PlainTextResponse
    table.add("/events", operations.follow, "GET", "subscribe", response_class=stream)
    table.add("/subscribers", operations.subscribers, "GET HEAD", "admin")
    table.add("/metrics", operations.metrics, "GET HEAD", "admin", response_class=text)
    table.add("/health", operations.health, "GET HEAD")
    table.add("/docs", operations.docs, "GET HEAD", response_class=HTMLResponse)
    table.add("/openapi.json", operations.openapi, "GET HEAD")
    table.add("/docs/{name}", operations.docs_file, "GET HEAD", include_in_schema=False)
    dashboard = app.state.services.dashboard
    if isinstance(dashboard, str):
        table.add("/", operations.home, "GET HEAD", include_in_schema=False)
    else:
        _add_dashboard(app, dashboard)


class _Table:
    """Adds operations to an application, one route for each method."""

    def __init__(self, app: FastAPI) -> None:
        self._app = app

    def add(
        self,
        path: str,
        operation: Callable[..., Any],
        methods: str,
        right: str | None = None,
        statuses: tuple[int, ...] = ANYWHERE,
        **more: Any,
    ) -> None:
        """Add an operation; without a `right`, it needs no token."""
        state = self._app.state
        state.tallies.setdefault(path, Tally())
        state.methods[path] = (*state.methods.get(path, ()), *methods.split())
        for method in methods.split():
            documented = _document(state.services, operation, method, right, statuses)
            if method == "HEAD":
                documented["include_in_schema"] = False
            self._app.add_api_route(path, operation, **{**documented, **more})


def _document(
    services: Services,
    operation: Callable[..., Any],
    method: str,
    right: str | None,
    statuses: tuple[int, ...],
) -> dict[str, Any]:
    """Return FastAPI's options for an operation, with its dependency on a right."""
    summary, _, description = inspect.getdoc(operation).partition("\n\n")  # type: ignore[union-attr]
    options: dict[str, Any] = {
        "methods": [method],
        "operation_id": f"{operation.__name__}_{method.lower()}",
        "summary": summary,
        "description": description,
        "status_code": 200,
        "response_description": "Done.",
        "responses": error_responses(*statuses),
    }
    if right is not None and not services.access.is_open:
        # EventSource cannot send headers.
        need = need_token_anywhere if operation is operations.follow else need_token
        options["dependencies"] = [Security(need, scopes=[right])]
        options["responses"] = error_responses(*statuses, 401)
    return options


def _add_dashboard(app: FastAPI, auth: Auth) -> None:
    """Add routes, not a mount: a mounted application would find its path without ours."""
    for path in ("/", "/_nicegui/{rest:path}"):
        app.router.routes.append(Route(path, auth, include_in_schema=False))
    app.router.routes.append(WebSocketRoute("/_nicegui_ws/{rest:path}", auth))
    app.router.routes.append(Route("/login", auth.login, include_in_schema=False))
    app.router.routes.append(Route("/logout", auth.logout, include_in_schema=False))


async def _answer_error(request: Request, error: Exception) -> Response:
    refusal = refusal_of(error, request.scope["path"])
    return JsonLine({"error": refusal.reason}, refusal.status, dict(refusal.headers))


async def _answer_validation_error(request: Request, error: Exception) -> Response:
    """Name the first wrong parameter in one sentence."""
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    return JsonLine({"error": describe_error(str(first["loc"][1]), first)}, 400)


async def _answer_http_exception(request: Request, error: Exception) -> Response:
    """Answer what the router raises, above all for an unknown path, in the form of our errors."""
    assert isinstance(error, HTTPException)
    reason = error.detail
    if error.status_code == 404:
        reason = f"there is nothing at {request.scope['path'][:200]!r}: see /docs"
    return JsonLine({"error": reason}, error.status_code, error.headers)
