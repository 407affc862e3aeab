"""What the gateway answers over HTTP, as components of its OpenAPI document."""

from __future__ import annotations

from typing import Any

from .parameters import JSON

Json = dict[str, Any]

_REASONS = {
    "400": "A parameter is missing, too long or wrong, or the request is malformed.",
    "401": "A token is needed, or the token is wrong.",
    "403": "The token does not carry the right, or a page of another site or a webhook asks.",
    "404": "There is no such subscription.",
    "408": "The body did not come in time.",
    "413": "The body or the value is too large.",
    "415": "The content type, its charset or its encoding is not understood.",
    "431": "The request's line and headers are too large.",
    "500": "Try again later: the backlog or the disk is full, and nothing was accepted; or a fault "
    "of the gateway's own, without «try again later».",
    "503": "Try again later: the gateway is closing, in trouble, or at a limit of its own.",
}


def error_responses() -> Json:
    content = {JSON: {"schema": {"$ref": "#/components/schemas/Error"}}}
    responses: Json = {
        status: {"description": reason, "content": content} for status, reason in _REASONS.items()
    }
    responses["401"]["headers"] = {"WWW-Authenticate": {"schema": {"type": "string"}}}
    for status in ("500", "503"):
        responses[status]["headers"] = {
            "Retry-After": {"description": "Seconds.", "schema": {"type": "integer"}}
        }
    return responses


def answer_schemas() -> Json:
    count = {"type": "integer", "minimum": 0}
    flag = {"type": "boolean"}
    text = {"type": "string"}
    instant = {"type": ["number", "null"], "description": "Seconds since 1970."}
    return {
        "Error": _object(error={"type": "string", "minLength": 1}),
        "Published": _object(
            webhooks={**count, "description": "For how many webhooks it is stored."},
            sent={**flag, "description": "Whether anybody on the bus wanted it."},
        ),
        "Subscribed": _object(
            new={**flag, "description": "False: the webhook had this subscription already."},
            moved={**flag, "description": "The webhook had another url before."},
        ),
        "Unsubscribed": _object(topics={"type": "array", "items": text}),
        "Subscribers": _object(
            subscribers={
                "type": "array",
                "items": _object(
                    name=text,
                    url=text,
                    topics={"type": "array", "items": text},
                    backlog={**count, "description": "Messages that wait."},
                    delivered=count,
                    dropped={**count, "description": "Without room or disk for them."},
                    attempts_failed=count,
                    last_error={"type": ["string", "null"]},
                    last_error_at=instant,
                    retry_at=instant,
                    created_at=instant,
                ),
            }
        ),
        "Health": _object(status={"const": "ok"}, version=text),
        "Document": {"type": "object", "required": ["openapi", "info", "paths"]},
    }


def _object(**properties: Json) -> Json:
    return {
        "type": "object",
        "required": list(properties),
        "properties": properties,
        "additionalProperties": False,
    }
