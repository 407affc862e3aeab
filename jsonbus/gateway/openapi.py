"""The OpenAPI document of the gateway: every route, parameter, status and answer.

Written by hand, since the routes are plain ASGI applications (see endpoint.py); a test calls every
route against it with generated requests, so what is not true here fails there.
"""

from __future__ import annotations

from typing import Any

from .event_streams import PATTERNS_MAX
from .parameters import (
    FORM,
    FORM_BYTES_MAX,
    JSON,
    MESSAGE_CHARACTERS_MAX,
    MULTIPART,
    NAME_CHARACTERS_MAX,
    URL_CHARACTERS_MAX,
)

Json = dict[str, Any]

_TOPIC = "Levels separated by /, none empty, without * and control characters."
_PATTERN = "A topic in which whole levels may be * (one level) or ** (any number of levels)."

_NAMES: dict[str, Json] = {
    "topic": {"type": "string", "minLength": 1, "maxLength": NAME_CHARACTERS_MAX},
    "subscriberName": {"type": "string", "minLength": 1, "maxLength": NAME_CHARACTERS_MAX},
    "url": {"type": "string", "minLength": 1, "maxLength": URL_CHARACTERS_MAX, "format": "uri"},
    "message": {"type": "string", "maxLength": MESSAGE_CHARACTERS_MAX},
}
_TEXTS = {
    "topic": _TOPIC,
    "message": "Text that parses as JSON is that value (21.5 is a number), else a string.",
    "subscriberName": "The webhook's name; one name has one address.",
    "url": "Where the webhook gets its messages by POST, http or https.",
}


def make_document(version: str, *, is_open: bool, body_bytes_max: int) -> Json:
    """The document, as it is answered by /openapi.json."""
    document: Json = {
        "openapi": "3.1.0",
        "info": {
            "title": "jsonbus gateway",
            "version": version,
            "summary": "Publish to the bus and get its messages over HTTP.",
            "description": 'Errors are answered as {"error": "one sentence"}.',
        },
        "paths": _paths(body_bytes_max),
        "components": {"schemas": _schemas(), "responses": _errors()},
    }
    if is_open:
        for operations in document["paths"].values():
            for operation in operations.values():
                operation.pop("security", None)
                operation["responses"].pop("401", None)
    else:
        document["components"]["securitySchemes"] = {
            "token": {"type": "http", "scheme": "bearer"},
            "token_in_query": {"type": "apiKey", "in": "query", "name": "access_token"},
        }
    return document


def _paths(body_bytes_max: int) -> Json:
    return {
        "/publish": _form_operations(
            "publish",
            "Publish a message",
            "Answered when the message is on disk for every webhook that wants it, and with the "
            "bus. A 500 that says «try again later» means that nobody got it.",
            required=("topic", "message"),
            answer="Published",
            errors=("500", "503"),
        ),
        "/subscribe": _form_operations(
            "subscribe",
            "Have messages sent to a webhook",
            'Its POST requests carry {"message": […], "topic": […]} in order, and come again '
            "until they are answered by 200. A known name with another url moves there.",
            required=("topic", "subscriberName", "url"),
            answer="Subscribed",
            errors=("500", "503"),
        ),
        "/unsubscribe": _form_operations(
            "subscribe",
            "End subscriptions of a webhook",
            "Without a topic all of them. With the last one, messages that wait for it go, too.",
            required=("subscriberName",),
            optional=("topic",),
            answer="Unsubscribed",
            errors=("404", "500", "503"),
        ),
        "/v1/topics/{topic}": {"post": _put_value(body_bytes_max)},
        "/events": {"get": _events()},
        "/subscribers": {
            "get": _operation(
                "admin", "List webhooks", "Their backlog, and what went wrong last.", "Subscribers"
            )
        },
        "/metrics": {"get": _operation("admin", "Figures for Prometheus", "", media="text/plain")},
        "/health": {
            "get": _operation(None, "Whether the gateway works", "", "Health", errors=("503",))
        },
        "/docs": {"get": _operation(None, "This page", "", media="text/html")},
        "/openapi.json": {
            "get": _operation(None, "This document", "An OpenAPI document.", "Document")
        },
    }


def _form_operations(
    right: str,
    summary: str,
    description: str,
    *,
    required: tuple[str, ...],
    answer: str,
    errors: tuple[str, ...],
    optional: tuple[str, ...] = (),
) -> Json:
    names = (*required, *optional)
    in_query = [
        {
            "name": name,
            "in": "query",
            "required": name in required,
            "description": _describe(name, summary),
            "schema": _NAMES[name],
            "example": _EXAMPLES[name],
        }
        for name in names
    ]
    text_form: Json = {
        "type": "object",
        "required": list(required),
        "properties": {name: _NAMES[name] for name in names},
    }
    json_form = dict(text_form)
    if "message" in names:
        json_form["properties"] = {
            **text_form["properties"],
            "message": {
                "description": "Any value; a string is text as everywhere. As compact JSON it "
                f"has at most {MESSAGE_CHARACTERS_MAX:,} characters.",
                "anyOf": [_NAMES["message"], {"not": {"type": "string"}}],
            },
        }
    get = _operation(right, summary, description, answer, errors=("400", "413", *errors))
    get["parameters"] = in_query
    post = _operation(
        right, summary, description, answer, errors=("400", "408", "413", "415", *errors)
    )
    post["requestBody"] = {
        "required": True,
        "description": f"At most {FORM_BYTES_MAX:,} bytes. Parameters may as well stand in the "
        "query, but each only once.",
        "x-example": {name: _EXAMPLES[name] for name in names},
        "content": {
            JSON: {"schema": json_form},
            FORM: {"schema": text_form},
            MULTIPART: {"schema": text_form},
        },
    }
    return {"get": get, "post": post}


def _describe(name: str, summary: str) -> str:
    return _PATTERN if name == "topic" and "Publish" not in summary else _TEXTS[name]


def _put_value(body_bytes_max: int) -> Json:
    operation = _operation(
        "publish",
        "Publish a JSON value",
        "The body is the value exactly: a string stays a string.",
        "Published",
        errors=("400", "408", "413", "415", "500", "503"),
    )
    flag = {"type": "string", "enum": ["true", "false"]}
    operation["parameters"] = [
        {
            "name": "topic",
            "in": "path",
            "required": True,
            "description": _TOPIC + " A / may stand as it is.",
            "schema": {"type": "string", "minLength": 1},
            "example": _EXAMPLES["topic"],
        },
        {
            "name": "retain",
            "in": "query",
            "description": "Whether who subscribes later gets it, too.",
            "schema": flag,
        },
        {
            "name": "reliable",
            "in": "query",
            "description": "Whether receivers ask for it again when it is lost.",
            "schema": flag,
        },
    ]
    operation["requestBody"] = {
        "required": True,
        "description": f"At most {body_bytes_max:,} bytes.",
        "content": {JSON: {"schema": {}}},
    }
    return operation


def _events() -> Json:
    operation = _operation(
        "subscribe",
        "Follow messages",
        'Server-sent events, each with {"topic", "message", "node", "retained"} as its '
        "data. Retained values come first. A client that does not read is cut off.",
        media="text/event-stream",
        errors=("400", "503"),
    )
    operation["parameters"] = [
        {
            "name": "pattern",
            "in": "query",
            "required": True,
            "description": _PATTERN + " May be repeated.",
            "schema": {
                "type": "array",
                "items": {"type": "string", "minLength": 1},
                "minItems": 1,
                "maxItems": PATTERNS_MAX,
            },
            "style": "form",
            "explode": True,
            "example": ["sensors/**"],
        }
    ]
    operation["security"] = [{"token": []}, {"token_in_query": []}]
    return operation


def _operation(
    right: str | None,
    summary: str,
    description: str,
    answer: str | None = None,
    *,
    media: str = JSON,
    errors: tuple[str, ...] = (),
) -> Json:
    schema: Json = {"$ref": f"#/components/schemas/{answer}"} if answer else {"type": "string"}
    statuses = sorted({*errors, "400", "403", "500", *(("401",) if right else ())})
    operation: Json = {
        "summary": summary,
        "responses": {
            "200": {"description": "Done.", "content": {media: {"schema": schema}}},
            **{status: {"$ref": f"#/components/responses/{status}"} for status in statuses},
        },
    }
    if description:
        operation["description"] = description
    if right:
        operation["security"] = [{"token": []}]
        operation["x-right"] = right
    return operation


_EXAMPLES = {
    "topic": "sensors/kitchen",
    "message": "21.5",
    "subscriberName": "kitchen-display",
    "url": "http://localhost:9000/hook",
}

_REASONS = {
    "400": "A parameter is missing, too long or wrong, or the request is malformed.",
    "401": "A token is needed, or the token is wrong.",
    "403": "The token does not carry the right, or a page of another site asks.",
    "404": "There is no such subscription.",
    "408": "The body did not come in time.",
    "413": "The body or the value is too large.",
    "415": "The content type, its charset or its encoding is not understood.",
    "500": "Try again later: the backlog or the disk is full, and nothing was accepted.",
    "503": "Try again later: the gateway is closing, in trouble, or at a limit of its own.",
}


def _errors() -> Json:
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


def _schemas() -> Json:
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
