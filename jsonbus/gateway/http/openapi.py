"""The OpenAPI document of the gateway: every route, parameter, status and answer.

Written by hand, since the routes are plain ASGI applications (see endpoint.py); a test calls every
route against it with generated requests, so what is not true here fails there.
"""

from __future__ import annotations

from .events import PATTERNS_MAX
from .openapi_answers import Json, answer_schemas, error_responses
from .parameters import (
    FORM,
    FORM_BYTES_MAX,
    JSON,
    MESSAGE_CHARACTERS_MAX,
    MULTIPART,
    NAME_CHARACTERS_MAX,
    URL_CHARACTERS_MAX,
)

_TOPIC = "Levels separated by /, none empty, without * and control characters."
_PATTERN = "A topic in which whole levels may be * (one level) or ** (any number of levels)."

_LEVEL = r"[^/*\u0000-\u001f\u007f-\u009f]+"
_TOPIC_REGEX = rf"^(?!jsonbus\.){_LEVEL}(/{_LEVEL})*$"
_PATTERN_REGEX = rf"^(?!jsonbus\.)({_LEVEL}|\*\*?)(/({_LEVEL}|\*\*?))*$"

_NAME: Json = {"type": "string", "minLength": 1, "maxLength": NAME_CHARACTERS_MAX}
_NAMES: dict[str, Json] = {
    "topic": {**_NAME, "pattern": _TOPIC_REGEX},
    "pattern": {**_NAME, "pattern": _PATTERN_REGEX},
    "subscriberName": {**_NAME, "pattern": r"^[^\u0000-\u001f\u007f-\u009f]+$"},
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
        "components": {"schemas": answer_schemas(), "responses": error_responses()},
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
        ),
        "/subscribe": _form_operations(
            "subscribe",
            "Have messages sent to a webhook",
            'Its POST requests carry {"message": […], "topic": […]} in order, and come again '
            "until they are answered by 200. A known name with another url moves there.",
            required=("topic", "subscriberName", "url"),
            answer="Subscribed",
        ),
        "/unsubscribe": _form_operations(
            "subscribe",
            "End subscriptions of a webhook",
            "Without a topic all of them. With the last one, messages that wait for it go, too.",
            required=("subscriberName",),
            optional=("topic",),
            answer="Unsubscribed",
            errors=("404",),
        ),
        "/v1/topics/{topic}": {"post": _put_value(body_bytes_max)},
        "/events": {"get": _events()},
        "/subscribers": {
            "get": _operation(
                "admin", "List webhooks", "Their backlog, and what went wrong last.", "Subscribers"
            )
        },
        "/metrics": {"get": _operation("admin", "Figures for Prometheus", "", media="text/plain")},
        "/health": {"get": _operation(None, "Whether the gateway works", "", "Health")},
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
    errors: tuple[str, ...] = (),
    optional: tuple[str, ...] = (),
) -> Json:
    names = (*required, *optional)
    schemas = {name: _NAMES[name] for name in names}
    if right == "subscribe":
        schemas["topic"] = _NAMES["pattern"]
    in_query = [
        {
            "name": name,
            "in": "query",
            "required": name in required,
            "description": _PATTERN if schemas[name] is _NAMES["pattern"] else _TEXTS[name],
            "schema": schemas[name],
            "example": _EXAMPLES[name],
        }
        for name in names
    ]
    text_form: Json = {
        "type": "object",
        "required": list(required),
        "properties": schemas,
    }
    json_form = dict(text_form)
    if "message" in names:
        json_form["properties"] = {
            **schemas,
            "message": {
                "description": "Any value; a string is text as everywhere. As compact JSON it "
                f"has at most {MESSAGE_CHARACTERS_MAX:,} characters.",
                "anyOf": [_NAMES["message"], {"not": {"type": "string"}}],
            },
        }
    errors = ("408", "413", "415", *errors)
    get = _operation(right, summary, description, answer, errors=errors)
    get["parameters"] = in_query
    post = _operation(right, summary, description, answer, errors=errors)
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


def _put_value(body_bytes_max: int) -> Json:
    operation = _operation(
        "publish",
        "Publish a JSON value",
        "The body is the value exactly: a string stays a string.",
        "Published",
        errors=("408", "413", "415"),
    )
    flag = {"type": "string", "enum": ["true", "false"]}
    operation["parameters"] = [
        {
            "name": "topic",
            "in": "path",
            "required": True,
            "description": _TOPIC + " A / may stand as it is.",
            "schema": {"type": "string", "minLength": 1, "pattern": _TOPIC_REGEX},
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
    )
    operation["parameters"] = [
        {
            "name": "pattern",
            "in": "query",
            "required": True,
            "description": _PATTERN + " May be repeated.",
            "schema": {
                "type": "array",
                "items": {"type": "string", "minLength": 1, "pattern": _PATTERN_REGEX},
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
    statuses = sorted({*errors, *_ANYWHERE, *(("401",) if right else ())})
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

#: What any route may answer.
_ANYWHERE = ("400", "403", "431", "500", "503")
