"""Where parameters may stand, how they may be written, and what of it is refused."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jsonbus.errors import PayloadError
from jsonbus.gateway.http.answers import Refusal
from jsonbus.gateway.http.models import Publish, validate
from jsonbus.gateway.http.parameters import find_nearest, read_parameters
from jsonbus.gateway.http.request import BodyRoom, HttpRequest

FORM = "application/x-www-form-urlencoded"
JSON = "application/json"
MULTIPART = "multipart/form-data; boundary=XX"
NAMES = ("topic", "message")


def request(query: bytes = b"", body: bytes | None = None, kind: str | None = None) -> HttpRequest:
    headers = [] if kind is None else [(b"content-type", kind.encode("latin-1"))]
    if body is not None:
        headers.append((b"content-length", b"%d" % len(body)))

    async def receive() -> Any:
        return {"type": "http.request", "body": body or b"", "more_body": False}

    return HttpRequest({"headers": headers, "query_string": query}, receive, BodyRoom())


def read(query: bytes = b"", body: bytes | None = None, kind: str | None = None) -> dict[str, Any]:
    return asyncio.run(read_parameters(request(query, body, kind), NAMES))


def part(name: str, content: bytes, more: str = "") -> bytes:
    head = f'--XX\r\nContent-Disposition: form-data; name="{name}"{more}\r\n\r\n'
    return head.encode() + content + b"\r\n"


@pytest.mark.parametrize(
    ("query", "body", "kind"),
    [
        (b"topic=a%2Fb&message=gr%C3%BC%C3%9Fe+x", None, None),
        ("topic=a/b&message=grüße+x".encode(), None, None),
        (b"&&message=gr%c3%bc%c3%9fe%20x&topic=a/b&", b"", None),
        (b"", b"topic=a/b&message=gr%C3%BC%C3%9Fe+x", FORM),
        (b"", b"topic=a/b&message=gr%FC%DFe+x", FORM + "; charset=iso-8859-1"),
        (b"", b"topic=a/b&message=gr\xfc\xdfe+x", FORM + ';Charset="Windows-1252"'),
        (b"", '{"topic":"a/b","message":"grüße x"}'.encode(), JSON),
        (
            b"",
            b' {"topic":"a/b","message":"gr\\u00fc\\u00dfe x"} ',
            "Application/JSON;charset=utf8",
        ),
        (b"", b'{"topic":"a/b","message":"gr\xfc\xdfe x"}', JSON + "; charset=latin-1"),
        (b"topic=a/b", '{"message":"grüße x"}'.encode(), JSON),
        (b"message=gr%C3%BC%C3%9Fe+x", b"topic=a/b", FORM),
        (b"message=gr%C3%BC%C3%9Fe+x", b"&topic=a/b", FORM),
        (b"", part("topic", b"a/b") + part("message", "grüße x".encode()) + b"--XX--", MULTIPART),
        (
            b"",
            b"preamble\r\n"
            + part("topic", b"a/b", '; filename="f.txt"')
            + part("message", b"gr\xfc\xdfe x", "\r\nContent-Type: text/plain; charset=latin-1")
            + b"--XX--\r\nepilogue",
            'Multipart/Form-Data; boundary="XX"',
        ),
        (
            b"topic=a/b",
            b"--XX\r\ncontent-disposition: FORM-DATA; name=message\r\n\r\n"
            + "grüße x".encode()
            + b"\r\n--XX--\r\n",
            MULTIPART,
        ),
    ],
)
def test_parameters_may_stand_anywhere(query: bytes, body: bytes | None, kind: str | None) -> None:
    assert read(query, body, kind) == {"topic": "a/b", "message": "grüße x"}


def test_a_body_without_parameters_is_none_whatever_its_type() -> None:
    assert read(b"topic=a", b"", "image/png") == {"topic": "a"}
    assert read(b"", b"{}", JSON) == {}
    assert read(b"", b"--XX--", MULTIPART) == {}


@pytest.mark.parametrize("line_break", [b"\n", b"\r", b"\r\n", b"\r\n\r\n", b"\r\n--X", b"-XX"])
def test_a_part_keeps_its_line_breaks(line_break: bytes) -> None:
    content = line_break + b"1" + line_break
    assert read(b"", part("message", content) + b"--XX--", MULTIPART) == {
        "message": content.decode()
    }


def test_a_json_body_keeps_the_types_of_values() -> None:
    body = b'{"topic":"a","message":{"topic":1e30,"message":[1,null]}}'
    assert read(b"", body, JSON) == {"topic": "a", "message": {"topic": 1e30, "message": [1, None]}}


@pytest.mark.parametrize(
    ("query", "body", "kind"),
    [
        (b"topic=a&Mesage=1", None, None),
        (b"topic=a", b"Mesage=1", FORM),
        (b"topic=a", b'{"Mesage":{"topic":1}}', JSON),
        (b"topic=a", part("Mesage", b"1") + b"--XX--", MULTIPART),
    ],
)
def test_an_unknown_parameter_is_refused_and_the_nearest_known_one_suggested(
    query: bytes, body: bytes | None, kind: str | None
) -> None:
    with pytest.raises(Refusal) as caught:
        read(query, body, kind)
    assert caught.value.status == 400
    assert caught.value.reason == (
        "the parameter 'Mesage' is unknown: did you mean message? known here: topic, message"
    )


def test_an_unknown_parameter_that_resembles_none_is_refused_with_the_known_ones() -> None:
    with pytest.raises(Refusal) as caught:
        read(b"topic=a&message=1&foo=2")
    assert caught.value.reason == "the parameter 'foo' is unknown: known here: topic, message"


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("name", "subscriberName"),
        ("SUBSCRIBERNAME", "subscriberName"),
        ("subscriber_name", "subscriberName"),
        ("topics", "topic"),
        ("uri", "url"),
        ("retained", None),
        ("x", None),
        ("", None),
    ],
)
def test_the_name_that_was_meant_is_found(name: str, meant: str | None) -> None:
    assert find_nearest(name, ("topic", "message", "subscriberName", "url")) == meant


def test_a_long_unknown_name_is_quoted_in_part() -> None:
    with pytest.raises(Refusal) as caught:
        read(b"x" * 100_000)
    assert len(caught.value.reason) < 200


@pytest.mark.parametrize(
    ("query", "body", "kind"),
    [
        (b"topic=a&topic=a", None, None),
        (b"topic=a&to%70ic=b", None, None),
        (b"topic=a", b"topic=a", FORM),
        (b"topic=a", b'{"topic":"a"}', JSON),
        (b"", b"topic=a&topic=b", FORM),
        (b"", b'{"topic":"a","message":{"topic":1},"topic":"b"}', JSON),
        (b"", part("topic", b"a") + part("topic", b"b") + b"--XX--", MULTIPART),
    ],
)
def test_a_parameter_that_comes_twice_is_refused(
    query: bytes, body: bytes | None, kind: str | None
) -> None:
    with pytest.raises(Refusal) as caught:
        read(query, body, kind)
    assert caught.value.status == 400
    assert caught.value.reason == "the parameter topic comes twice: send it once"


@pytest.mark.parametrize(
    ("query", "body", "kind", "status", "reason"),
    [
        (b"topic=%", None, None, 400, "percent-encoding '%' is broken"),
        (b"topic=%4", None, None, 400, "percent-encoding '%4' is broken"),
        (b"topic=%4g", None, None, 400, "percent-encoding '%4g' is broken"),
        (b"topic=%ff", None, None, 400, "percent-encoding is not valid UTF-8"),
        (b"topic=%ed%a0%80", None, None, 400, "percent-encoding is not valid UTF-8"),
        (b"topic=\xff", None, None, 400, "query is not valid UTF-8"),
        (b"", b"topic=%zz", FORM, 400, "percent-encoding '%zz' is broken"),
        (b"", b"topic=\xff", FORM, 400, "form is not valid UTF-8"),
        (b"", b"topic=\xff", FORM + "; charset=us-ascii", 400, "form is not valid ASCII"),
        (b"", b"topic=a", FORM + "; charset=utf-7", 415, "charset 'utf-7' is not understood"),
        (b"", b"topic=a", FORM + "; charset=punycode", 415, "charset 'punycode'"),
        (b"", b"{", JSON, 400, "is of type application/json, but this is not JSON"),
        (b"", b'{"topic":NaN}', JSON, 400, "this is not JSON"),
        (b"", b'{"topic":"\xff"}', JSON, 400, "this is not JSON"),
        (b"", b'{"topic":"\\ud800"}', JSON, 400, "this is not JSON"),
        (b"", b"[" * 100_000, JSON, 400, "this is not JSON"),
        (b"", b' {"topic":"a","message":1}', FORM, 400, "curl --json"),
        (b"topic=a", b'{"message":1}', FORM, 400, "curl --json"),
        (b"", b"[]", JSON, 400, "must be a JSON object"),
        (b"", b"null", JSON, 400, "must be a JSON object"),
        (b"", b"topic=a", "text/plain", 415, "content type 'text/plain' is not understood"),
        (b"", b"topic=a", None, 415, "no content type is given"),
        (b"", b"topic=a", "", 415, "no content type is given"),
        (b"", b"topic=a", "x" * 1_025, 400, "content type takes more than 1,024 bytes"),
        (b"", b"--XX--", "multipart/form-data", 400, "has no boundary"),
        (b"", b"topic", MULTIPART, 400, "is malformed: expected boundary"),
        (b"", part("topic", b"a"), MULTIPART, 400, "is cut off"),
        (b"", part("topic", b"a") + b"--XX", MULTIPART, 400, "is cut off"),
        (b"", b"--XX\r\n\r\n\r\n--XX--", MULTIPART, 400, "a part that is no form-data"),
        (b"", b"--XX\r\nabc\r\n--XX--", MULTIPART, 400, "is malformed: found invalid character"),
        (b"", b"--XXY\r\n\r\n--XX--", MULTIPART, 400, "is malformed: did not find CR"),
        (
            b"",
            b"--XX\r\ncontent-disposition: form-data\r\n\r\na\r\n--XX--",
            MULTIPART,
            400,
            "no form-data with a name",
        ),
        (
            b"",
            part("topic", b"YQ==", "\r\nContent-Transfer-Encoding: base64") + b"--XX--",
            MULTIPART,
            400,
            "an encoded part",
        ),
        (
            b"",
            part("topic", b"\xff") + b"--XX--",
            MULTIPART,
            400,
            "multipart form is not valid UTF-8",
        ),
        (
            b"",
            part("topic", b"a", "\r\nContent-Type: text/plain; charset=utf-16") + b"--XX--",
            MULTIPART,
            415,
            "charset 'utf-16' is not understood",
        ),
        (b"", part("x", b"") * 101 + b"--XX--", MULTIPART, 400, "has more than 100 parts"),
        (b"", part("x" * 1_025, b"") + b"--XX--", MULTIPART, 400, "a header of more than 1,024"),
    ],
)
def test_what_is_malformed_is_refused_with_the_reason(
    query: bytes, body: bytes | None, kind: str | None, status: int, reason: str
) -> None:
    with pytest.raises(Refusal) as caught:
        read(query, body, kind)
    assert caught.value.status == status
    assert reason in caught.value.reason
    assert "\n" not in caught.value.reason


def test_what_is_nested_too_deeply_is_refused_by_whichever_parser_gives_up_first() -> None:
    body = b'{"topic":"a","message":{"topic":' + b"[" * 1_015 + b"]" * 1_015 + b"}}"
    # Python's own, which looks for keys that come twice, follows it since 3.12.
    with pytest.raises((Refusal, PayloadError), match="deeply|(?i:recursion limit)"):
        validate(Publish, read(b"", body, JSON))


def test_parts_within_parts_are_not_followed() -> None:
    inner = (
        b"--XX\r\nContent-Disposition: form-data; name=x\r\n"
        b"Content-Type: multipart/mixed; boundary=YY\r\n\r\n--YY\r\n\r\n"
    )
    body = b"\r\n".join([inner] * 90) + b"\r\n--XX--"
    with pytest.raises(Refusal, match="'x' is unknown"):
        read(b"", body, MULTIPART)


KINDS = st.sampled_from(
    [FORM, JSON, MULTIPART, FORM + "; charset=latin-1", MULTIPART + "; charset=iso-8859-15", ""]
)
PIECES = st.sampled_from(
    [
        b"--XX",
        b"--",
        b"\r\n",
        b"\r\n\r\n",
        b"content-disposition: form-data; name=topic",
        b"content-disposition: form-data; name*=utf-9'x'%ff",
        b'content-disposition: form-data; name="\\"',
        b"content-type: text/plain; charset*0=u; charset*1=tf",
        b"topic",
        b"=",
        b"&",
        b"%",
        b'{"topic":',
        b'"',
        b"}",
        b"\xff",
        b"\x00",
    ]
)
BODIES = st.one_of(st.binary(max_size=60), st.lists(PIECES, max_size=12).map(b"".join))


@settings(max_examples=400, deadline=None)
@given(query=BODIES, body=BODIES, kind=st.one_of(KINDS, st.binary(max_size=40)))
def test_any_bytes_are_parameters_or_a_refusal(
    query: bytes, body: bytes, kind: str | bytes
) -> None:
    text = kind if isinstance(kind, str) else kind.decode("latin-1")
    asyncio.run(_try(query, body, text))


async def _try(query: bytes, body: bytes, kind: str) -> None:
    try:
        assert set(await read_parameters(request(query, body, kind), NAMES)) <= set(NAMES)
    except Refusal as refusal:
        assert refusal.status in (400, 415)
