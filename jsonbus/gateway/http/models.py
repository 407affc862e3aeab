"""The parameters and answers of the gateway's operations, as Pydantic models.

They are checked against, and the OpenAPI document is generated from them. A constraint that only
describes (`json_schema_extra`) is checked elsewhere: topics and patterns by jsonbus, whose errors
say more than a regular expression.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from typing import Annotated, Any, Literal, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    NonNegativeInt,
    ValidationError,
)

import jsonbus

from ..values import MESSAGE_CHARACTERS_MAX, check_message_length, parse_text, to_json
from .answers import Refusal

#: The longest parameters, in characters.
URL_CHARACTERS_MAX = 1_024
NAME_CHARACTERS_MAX = 128

_LEVEL = r"[^/*\u0000-\u001f\u007f-\u009f]+"
TOPIC_SCHEMA: dict[str, Any] = {
    "minLength": 1,
    "pattern": rf"^(?!jsonbus\.){_LEVEL}(/{_LEVEL})*$",
}
PATTERN_SCHEMA: dict[str, Any] = {
    "minLength": 1,
    "pattern": rf"^(?!jsonbus\.)({_LEVEL}|\*\*?)(/({_LEVEL}|\*\*?))*$",
}
TOPIC_TEXT = "Levels separated by /, none empty, without * and control characters."
PATTERN_TEXT = "A topic in which whole levels may be * (one level) or ** (any number of levels)."

_find_control = re.compile(r"[\x00-\x1f\x7f-\x9f]").search


def _check_name(name: str) -> str:
    if not name or _find_control(name):
        # The name is written into headers, log lines and tables.
        raise ValueError("subscriberName must not be empty or have control characters")
    return name


def _read_message(message: Any) -> Any:
    """Return the value to publish: a text that parses as JSON is that value."""
    characters = len(message) if isinstance(message, str) else len(to_json(message).decode())
    check_message_length(characters)
    return parse_text(message) if isinstance(message, str) else message


_MESSAGE_AS_TEXT: dict[str, Any] = {
    "type": "string",
    "maxLength": MESSAGE_CHARACTERS_MAX,
    "description": "Text that parses as JSON is that value (21.5 is a number), else a string.",
    "examples": ["21.5"],
}
_MESSAGE_AS_JSON: dict[str, Any] = {
    "anyOf": [
        {"type": "string", "maxLength": MESSAGE_CHARACTERS_MAX},
        {"not": {"type": "string"}},
    ],
    "description": "Any value; a string is read as text. As compact JSON it has at most "
    f"{MESSAGE_CHARACTERS_MAX:,} characters.",
    "examples": ["21.5"],
}

Topic = Annotated[
    str,
    Field(
        max_length=NAME_CHARACTERS_MAX,
        description=TOPIC_TEXT,
        examples=["sensors/kitchen"],
        json_schema_extra=TOPIC_SCHEMA,
    ),
]
Pattern = Annotated[
    str,
    Field(
        max_length=NAME_CHARACTERS_MAX,
        description=PATTERN_TEXT,
        examples=["sensors/**"],
        json_schema_extra=PATTERN_SCHEMA,
    ),
    AfterValidator(jsonbus.check_pattern),
]
Name = Annotated[
    str,
    Field(
        alias="subscriberName",
        max_length=NAME_CHARACTERS_MAX,
        description="The webhook's name; one name has one address.",
        examples=["kitchen-display"],
        json_schema_extra={"minLength": 1, "pattern": r"^[^\u0000-\u001f\u007f-\u009f]+$"},
    ),
    AfterValidator(_check_name),
]
Url = Annotated[
    str,
    Field(
        max_length=URL_CHARACTERS_MAX,
        description="The http or https address to which messages are posted.",
        examples=["http://localhost:9000/hook"],
        json_schema_extra={"minLength": 1, "format": "uri"},
    ),
]


class Publish(BaseModel):
    # The hub checks the topic.
    topic: Topic
    message: Annotated[Any, AfterValidator(_read_message)]  # `parameter_schema` describes it


class Subscribe(BaseModel):
    topic: Pattern
    name: Name
    url: Url


class Unsubscribe(BaseModel):
    name: Name
    topic: Pattern = None  # type: ignore[assignment]  # optional, but never null


class Answer(BaseModel):
    model_config = ConfigDict(extra="forbid")


class Error(Answer):
    error: str = Field(min_length=1)


class Published(Answer):
    webhooks: NonNegativeInt = Field(description="The number of webhooks it is stored for.")
    sent: bool = Field(description="Whether anybody on the bus wanted it.")


class Subscribed(Answer):
    new: bool = Field(description="False: the webhook had this subscription already.")
    moved: bool = Field(description="True: the webhook had another url before.")
    hint: str = Field(default="", description="What is probably wrong with the topic, if anything.")


class Unsubscribed(Answer):
    topics: list[str]


_Instant = Annotated[float | None, Field(description="Seconds since 1970.")]


class Subscriber(Answer):
    model_config = ConfigDict(from_attributes=True)

    name: str
    url: str
    topics: list[str] = Field(validation_alias="patterns")
    backlog: NonNegativeInt = Field(description="Messages that wait.")
    delivered: NonNegativeInt
    dropped: NonNegativeInt = Field(description="Messages lost for want of room or disk.")
    attempts_failed: NonNegativeInt
    last_error: str | None
    last_error_at: _Instant
    retry_at: _Instant
    created_at: _Instant


class Subscribers(Answer):
    subscribers: list[Subscriber]


class Health(Answer):
    status: Literal["ok"]
    version: str


Model = TypeVar("Model", bound=BaseModel)


def validate(model: type[Model], values: Mapping[str, Any]) -> Model:
    """Return the parameters as a model; raises Refusal 400, which names the first wrong one."""
    try:
        return model.model_validate(values)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        raise Refusal(400, describe_error(str(first["loc"][0]), first)) from None


def describe_error(name: str, error: Mapping[str, Any]) -> str:
    """Say in one sentence what Pydantic found wrong with a parameter."""
    kind = error["type"]
    if kind == "missing":
        return f"the parameter {name} is missing"
    if kind == "string_type":
        return f"the parameter {name} must be a string"
    if kind == "string_too_long":
        characters, characters_max = len(error["input"]), error["ctx"]["max_length"]
        return f"{name} has {characters:,} characters, at most {characters_max:,} are allowed"
    if kind == "value_error":
        return str(error["ctx"]["error"])
    return f"the parameter {name} is not valid: {error['msg']}"


@cache
def names_of(model: type[BaseModel]) -> tuple[str, ...]:
    """Return the names under which a client sends the model's parameters."""
    return tuple(field.alias or name for name, field in model.model_fields.items())


def parameter_schema(model: type[BaseModel], *, as_text: bool) -> dict[str, Any]:
    """Return the JSON schema of the parameters: in a JSON body, or where all of them are text."""
    schema = model.model_json_schema()
    schema["additionalProperties"] = False
    for each in schema["properties"].values():
        each.pop("default", None)
    if "message" in schema["properties"]:
        schema["properties"]["message"] = _MESSAGE_AS_TEXT if as_text else _MESSAGE_AS_JSON
    return schema
