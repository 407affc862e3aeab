"""The FastAPI application: the table of the gateway's routes, and how errors are answered."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel
from starlette.responses import HTMLResponse, PlainTextResponse
from starlette.routing import Route, WebSocketRoute

import jsonbus

from ..metrics.metrics import Metrics, Tally
from ..services import Services
from ..values import to_json_line
from . import operations, publish
from .answers import JsonLine
from .docs_page import render_docs
from .endpoint import Answer, Guard, GuardedRoute, PlainRoute
from .models import Publish, Subscribe, Unsubscribe, describe_error
from .openapi import (
    ANYWHERE,
    SECURITY,
    WITH_BODY,
    GatewayApi,
    error_responses,
    in_body,
    in_query,
)
from .origins import OriginsMiddleware
from .parameters import JSON, find_nearest

if TYPE_CHECKING:  # NiceGUI need not be installed
    from ..dashboard.auth import Auth

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
        exception_handlers={404: _answer_unknown, RequestValidationError: _answer_invalid},
    )
    app.add_middleware(OriginsMiddleware, origins=services.origins)
    table = _Table(app, services)
    app.state.services = services
    app.state.metrics = Metrics(services.stats, table.tallies, services.observe)
    app.state.docs = render_docs(_TITLE)
    publishing = publish.Publishing(services)
    limit = {"requestBody": {"description": f"At most {services.body_bytes_max:,} bytes."}}
    add = table.add
    # The fast ones first: routes are tried in this order.
    add("/publish", publish.publish, "GET POST", "publish", Publish, plain=publishing.publish)
    add(
        "/v1/topics/{topic:path}",
        publish.publish_value,
        "POST",
        "publish",
        plain=publishing.publish_value,
        openapi_extra=limit,
    )
    add(
        "/subscribe",
        operations.subscribe,
        "GET POST",
        "subscribe",
        Subscribe,
        response_model_exclude_defaults=True,  # most have no hint
    )
    add("/unsubscribe", operations.unsubscribe, "GET POST", "subscribe", Unsubscribe, error=404)
    stream, text = operations.EventStreamResponse, PlainTextResponse
    add("/events", operations.follow, "GET", "subscribe", response_class=stream)
    add("/subscribers", operations.subscribers, "GET HEAD", "admin")
    add("/metrics", operations.metrics, "GET HEAD", "admin", response_class=text)
    add("/health", operations.health, "GET HEAD")
    add("/docs", operations.docs, "GET HEAD", response_class=HTMLResponse)
    add("/openapi.json", operations.openapi, "GET HEAD")
    add("/docs/{name}", operations.docs_file, "GET HEAD", include_in_schema=False)
    app.state.paths = [path for path in table.tallies if "{" not in path]
    if isinstance(services.dashboard, str):
        add("/", operations.home, "GET HEAD", include_in_schema=False)
    else:
        _add_dashboard(app, services.dashboard)
    return app


class _Table:
    """Adds operations to an application, one route for each method."""

    def __init__(self, app: FastAPI, services: Services) -> None:
        self._app = app
        self._services = services
        self.tallies: dict[str, Tally] = {}

    def add(
        self,
        path: str,
        operation: Callable[..., Any],
        methods: str,
        right: str | None = None,
        model: type[BaseModel] | None = None,
        *,
        plain: Answer | None = None,
        error: int | None = None,
        **more: Any,
    ) -> None:
        """Add an operation; without a `right`, it needs no token.

        `model` has the parameters that may be in a body. `plain` answers in place of the operation,
        which is only documented then. `error` is a status that is peculiar to the operation.
        """
        access = self._services.access
        guard = Guard(methods, self._services.room, plain, access=access, right=right)
        # EventSource cannot send headers.
        guard.reads_token_in_query = operation is operations.follow
        self.tallies[path] = guard.tally
        statuses = ANYWHERE if model is None and plain is None else WITH_BODY
        if error is not None:
            statuses = (*statuses, error)
        secured: dict[str, Any] = {}
        if right is not None and not access.is_open:
            statuses = (*statuses, 401)
            schemes = SECURITY if guard.reads_token_in_query else ("token",)
            secured["security"] = [{scheme: [right]} for scheme in schemes]
        summary, _, description = inspect.getdoc(operation).partition("\n\n")  # type: ignore[union-attr]
        for method in methods.split():
            options: dict[str, Any] = {
                "methods": [method],
                "operation_id": f"{operation.__name__}_{method.lower()}",
                "summary": summary,
                "description": description,
                "status_code": 200,
                "response_description": "Done.",
                "responses": error_responses(*statuses),
                "include_in_schema": method != "HEAD",
                "route_class_override": GuardedRoute if plain is None else PlainRoute,
                **more,
            }
            place = in_query if method == "GET" else in_body
            extra = more.get("openapi_extra", {}) if model is None else place(model)
            options["openapi_extra"] = {**extra, **secured}
            self._app.router.add_api_route(path, operation, **options)
            route: Any = self._app.routes[-1]
            route.guard = guard
        # A page at / is opened with the dashboard's bookmarks, too.
        if model is None and plain is None and path != "/":
            names = [each.alias for each in route.dependant.query_params]
            guard.query_names = [*names, *["access_token"] * guard.reads_token_in_query]


def _add_dashboard(app: FastAPI, auth: Auth) -> None:
    """Add routes, not a mount: a mounted application would find its path without ours."""
    for path in ("/", "/_nicegui/{rest:path}"):
        app.router.routes.append(Route(path, auth, include_in_schema=False))
    app.router.routes.append(WebSocketRoute("/_nicegui_ws/{rest:path}", auth))
    app.router.routes.append(Route("/login", auth.login, include_in_schema=False))
    app.router.routes.append(Route("/logout", auth.logout, include_in_schema=False))


async def _answer_invalid(request: Request, error: Exception) -> Response:
    """Name the first wrong parameter in one sentence."""
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    return JsonLine({"error": describe_error(str(first["loc"][1]), first)}, 400)


async def _answer_unknown(request: Request, error: Exception) -> Response:
    """Answer a request for an unknown path in the form of our errors."""
    path = request.scope["path"][:200]
    nearest = find_nearest(path.rstrip("/"), request.app.state.paths)
    hint = f"did you mean {nearest}? " if nearest else ""
    reason = f"there is nothing at {path!r}: {hint}see /docs"
    return Response(to_json_line({"error": reason}), 404, media_type=JSON)
