"""Completes FastAPI's OpenAPI document: errors, tokens, and parameters in any place."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI

from . import models
from .parameters import FORM, FORM_BYTES_MAX, JSON, MULTIPART

_REASONS = {
    400: "A parameter is missing, too long or wrong, or the request is malformed.",
    401: "A token is needed, or the token is wrong.",
    403: "The token does not carry the right, or a page of another site or a webhook asks.",
    404: "There is no such subscription.",
    408: "The body did not come in time.",
    413: "The body or the value is too large.",
    415: "The content type, its charset or its encoding is not understood.",
    431: "The request's line and headers are too large.",
    500: "Try again later: the backlog or the disk is full, and nothing was accepted; or a fault "
    "of the gateway itself, without «try again later».",
    503: "Try again later: the gateway is closing, in trouble, or at one of its limits.",
}
_RETRY_AFTER = {"Retry-After": {"description": "Seconds.", "schema": {"type": "integer"}}}
_HEADERS: dict[int, Any] = {
    401: {"WWW-Authenticate": {"schema": {"type": "string"}}},
    500: _RETRY_AFTER,
    503: _RETRY_AFTER,
}

#: The errors of any operation, and of one that reads a body.
ANYWHERE = (400, 403, 431, 500, 503)
WITH_BODY = (*ANYWHERE, 408, 413, 415)

#: The places of a token.
SECURITY = {
    "token": {"type": "http", "scheme": "bearer"},
    "token_in_query": {"type": "apiKey", "in": "query", "name": "access_token"},
}


class GatewayApi(FastAPI):
    """A FastAPI application whose validation errors are answered by 400, not by 422."""

    def openapi(self) -> dict[str, Any]:
        if self.openapi_schema is None:
            document = super().openapi()
            for operations in document["paths"].values():
                for operation in operations.values():
                    operation["responses"].pop("422", None)
            schemas = document["components"]["schemas"]
            for name in ("HTTPValidationError", "ValidationError"):
                schemas.pop(name, None)
            # Not by FastAPI's `model`: that takes the media type of the operation's own answer.
            schemas["Error"] = models.Error.model_json_schema()
            if not self.state.services.access.is_open:
                document["components"]["securitySchemes"] = SECURITY
        return super().openapi()


def error_responses(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Document answers with these statuses."""
    documented: dict[int | str, dict[str, Any]] = {}
    for status in sorted(statuses):
        documented[status] = {
            "description": _REASONS[status],
            "content": {JSON: {"schema": {"$ref": "#/components/schemas/Error"}}},
        }
        if status in _HEADERS:
            documented[status]["headers"] = _HEADERS[status]
    return documented


def in_query(model: type[models.Model]) -> dict[str, Any]:
    """Document a model's parameters in the query."""
    schema = models.parameter_schema(model, as_text=True)
    return {
        "parameters": [
            {
                "name": name,
                "in": "query",
                "required": name in schema["required"],
                "description": each["description"],
                "schema": each,
                "example": each["examples"][0],
            }
            for name, each in schema["properties"].items()
        ]
    }


def in_body(model: type[models.Model]) -> dict[str, Any]:
    """Document a model's parameters in a body of any kind."""
    as_text = {"schema": models.parameter_schema(model, as_text=True)}
    return {
        "requestBody": {
            "required": True,
            "description": f"At most {FORM_BYTES_MAX:,} bytes. Parameters may also be in the "
            "query, but each only once.",
            "content": {
                JSON: {"schema": models.parameter_schema(model, as_text=False)},
                FORM: as_text,
                MULTIPART: as_text,
            },
        }
    }
