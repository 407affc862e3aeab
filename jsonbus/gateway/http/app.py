"""The FastAPI application: the table of the gateway's routes, and how errors are answered."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fastapi import FastAPI, Request, Response, Security
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import HTMLResponse
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
from .endpoint import Endpoint, OperationRoute, PlainRoute
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
    _add_operations(app)
    if isinstance(services.dashboard, str):
        _Operations(app).add("/", operations.home, "GET HEAD", include_in_schema=False)
    else:
        _add_dashboard(app, services.dashboard)
    return app


def _add_publishing(app: FastAPI, services: Services) -> None:
    publishing = publish.Publishing(services)

    def add(method: str, path: str, signature: Callable[..., Any], endpoint: Endpoint) -> None:
        route = PlainRoute(
            path,
            signature,
            methods=[method],
            operation_id=f"{signature.__name__}_{method.lower()}",
            response_class=JsonLine,
            response_description="Done.",
            **_guarded(services, "publish", WITH_BODY),
            **more,
        )
        route.app = endpoint
        app.router.routes.append(route)
        app.state.tallies[path] = endpoint.tally

    more: dict[str, Any] = {"summary": "Publish a message", "openapi_extra": in_query(Publish)}
    add("GET", publish.PUBLISH_PATH, publish.publish, publishing.publish)
    more["openapi_extra"] = in_body(Publish)
    add("POST", publish.PUBLISH_PATH, publish.publish, publishing.publish)
    limit = f"At most {services.body_bytes_max:,} bytes."
    more = {
        "summary": "Publish a JSON value",
        "openapi_extra": {"requestBody": {"description": limit}},
    }
    add("POST", publish.TOPICS_PATH, publish.publish_value, publishing.publish_value)


def _add_operations(app: FastAPI) -> None:
    table = _Operations(app)
    table.add_form("/subscribe", operations.subscribe, Subscribe, "Have messages sent to a webhook")
    table.add_form(
        "/unsubscribe",
        operations.unsubscribe,
        Unsubscribe,
        "End subscriptions of a webhook",
        statuses=(*WITH_BODY, 404),
    )
    table.add(
        "/events",
        operations.follow,
        "GET",
        "subscribe",
        takes_token_in_query=True,
        summary="Follow messages",
        response_class=operations.EventStreamResponse,
    )
    table.add("/subscribers", operations.subscribers, "GET HEAD", "admin", summary="List webhooks")
    table.add(
        "/metrics",
        operations.metrics,
        "GET HEAD",
        "admin",
        summary="Figures for Prometheus",
        response_class=operations.TextResponse,
    )
    table.add("/health", operations.health, "GET HEAD", summary="Whether the gateway works")
    table.add(
        "/docs", operations.docs, "GET HEAD", summary="This page", response_class=HTMLResponse
    )
    table.add("/openapi.json", operations.openapi, "GET HEAD", summary="This document")
    table.add("/docs/{name}", operations.docs_file, "GET HEAD", include_in_schema=False)


class _Operations:
    """Adds operations to an application, one route for each method."""

    def __init__(self, app: FastAPI) -> None:
        self._app = app

    def add_form(
        self,
        path: str,
        operation: Callable[..., Any],
        model: Any,
        summary: str,
        *,
        statuses: tuple[int, ...] = WITH_BODY,
    ) -> None:
        """Add an operation that reads its parameters from the query or from a body."""
        for method, documented in (("GET", in_query(model)), ("POST", in_body(model))):
            self.add(
                path,
                operation,
                method,
                "subscribe",
                statuses,
                summary=summary,
                openapi_extra=documented,
            )

    def add(
        self,
        path: str,
        operation: Callable[..., Any],
        methods: str,
        right: str | None = None,
        statuses: tuple[int, ...] = ANYWHERE,
        *,
        takes_token_in_query: bool = False,
        include_in_schema: bool = True,
        **more: Any,
    ) -> None:
        """Add an operation; without a `right`, it needs no token."""
        state = self._app.state
        state.tallies.setdefault(path, Tally())
        state.methods[path] = (*state.methods.get(path, ()), *methods.split())
        guarded = _guarded(state.services, right, statuses, takes_token_in_query)
        for method in methods.split():
            self._app.add_api_route(
                path,
                operation,
                methods=[method],
                operation_id=f"{operation.__name__}_{method.lower()}",
                include_in_schema=include_in_schema and method != "HEAD",
                status_code=200,
                response_description="Done.",
                **guarded,
                **more,
            )


def _guarded(
    services: Services,
    right: str | None,
    statuses: tuple[int, ...],
    takes_token_in_query: bool = False,
) -> dict[str, Any]:
    """Return the dependency on a right, and the errors that an operation may answer."""
    if right is None or services.access.is_open:
        return {"responses": error_responses(*statuses)}
    need = need_token_anywhere if takes_token_in_query else need_token
    return {
        "dependencies": [Security(need, scopes=[right])],
        "responses": error_responses(*statuses, 401),
    }


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
