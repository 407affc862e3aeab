"""What is the same for all routes: methods, rights, errors, and what is logged of them."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from jsonbus.errors import ClosedError, StoreError
from tests.aio.running import asynctest
from tests.gateway.site import end, read_answer, site


@pytest.mark.parametrize(
    ("error", "status"), [(StoreError("the disk is full"), 500), (ClosedError("closed"), 503)]
)
@asynctest
async def test_what_fails_for_a_while_is_to_be_tried_again_later(
    error: Exception, status: int
) -> None:
    async with site() as here:

        async def fail(topic: str, value: Any) -> None:
            raise error

        here.hub.before_publish = fail
        for answer in (
            await here.http.get("/publish?topic=a&message=1"),
            await here.http.post("/v1/topics/a", json=1),
        ):
            assert answer.status_code == status
            assert answer.json()["error"].startswith("try again later: ")
            assert int(answer.headers["retry-after"]) > 0


@asynctest
async def test_what_nobody_expected_gives_500_and_a_traceback_in_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with site(tokens=["publish=hidden-secret"]) as here:

        async def fail(topic: str, value: Any) -> None:
            raise ZeroDivisionError("a bug")

        here.hub.before_publish = fail
        answer = await here.http.get(
            "/publish?topic=a&message=hidden-message",
            headers={"authorization": "Bearer hidden-secret"},
        )
        assert answer.status_code == 500
        assert answer.json() == {"error": "the gateway failed to do this: its log tells why"}
        [record] = [each for each in caplog.records if each.levelno >= logging.ERROR]
        assert "ZeroDivisionError: a bug" in caplog.text
        assert record.getMessage() == "a request to '/publish' failed"
        assert "hidden" not in caplog.text
        assert (await here.http.get("/health")).status_code == 200


@asynctest
async def test_a_path_cannot_begin_a_line_of_the_log(caplog: pytest.LogCaptureFixture) -> None:
    async with site() as here:

        async def fail(topic: str, value: Any) -> None:
            raise ZeroDivisionError("a bug")

        here.hub.before_publish = fail
        answer = await here.http.post("/v1/topics/a%0dforged%1b[2J", content=b"1")
        assert answer.status_code == 500
        [record] = [each for each in caplog.records if each.levelno >= logging.ERROR]
        assert record.getMessage().isprintable()


@asynctest
async def test_nothing_of_a_request_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    logging.getLogger("httpx").setLevel(logging.WARNING)  # it is the client
    logging.getLogger("httpcore").setLevel(logging.WARNING)
    async with site(tokens=["right-secret"]) as here:
        for path in ("/publish", "/events", "/v1/topics/hidden", "/nothing"):
            for secret in ("right-secret", "wrong-secret"):
                headers = {"authorization": f"Bearer {secret}"}
                query = {"access_token": secret, "topic": "hidden", "message": "hidden"}
                await here.http.get(path, params=query, headers=headers)
        await here.raw(b"GET /publish?secret HTTP/1.1\r\nbro ken\r\n\r\n")
    assert "secret" not in caplog.text
    assert "hidden" not in caplog.text


@asynctest
async def test_a_method_that_a_route_has_not_is_refused_with_those_it_has() -> None:
    async with site() as here:
        for method, path, allowed in (
            ("PUT", "/publish", "GET, POST"),
            ("HEAD", "/publish", "GET, POST"),
            ("OPTIONS", "/publish", "GET, POST"),
            ("GET", "/v1/topics/a", "POST"),
            ("POST", "/health", "GET, HEAD"),
            ("POST", "/events", "GET"),
        ):
            answer = await here.http.request(method, path)
            assert (answer.status_code, answer.headers["allow"]) == (405, allowed)
        assert here.hub.published == []


TOKENS = ["publish=p", "subscribe=s", "publish+subscribe=ps", "a"]
ROUTES = {
    "publish": ["/publish?topic=a&message=1"],
    "subscribe": [
        "/subscribe?topic=a&subscriberName=n&url=http://localhost:9/",
        "/unsubscribe?topic=a&subscriberName=n",
    ],
    "admin": ["/subscribers", "/metrics"],
    "": ["/health", "/docs", "/openapi.json"],
}


@asynctest
async def test_each_route_asks_for_its_right() -> None:
    async with site(tokens=TOKENS) as here:

        async def status_of(path: str, secret: str | None) -> int:
            headers = {} if secret is None else {"authorization": f"Bearer {secret}"}
            return (await here.http.get(path, headers=headers)).status_code

        granted = {"p": {"publish"}, "s": {"subscribe"}, "ps": {"publish", "subscribe"}}
        granted["a"] = {"publish", "subscribe", "admin"}
        for right, paths in ROUTES.items():
            for path in paths:
                for secret, rights in granted.items():
                    allowed = not right or right in rights
                    expected = {200, 404} if allowed else {403}  # 404: ended by the one before
                    assert await status_of(path, secret) in expected, path
                for secret in (None, "wrong"):
                    assert await status_of(path, secret) == (401 if right else 200), path
        headers = {"authorization": "Bearer s"}
        assert (await here.http.post("/v1/topics/a", json=1, headers=headers)).status_code == 403
        assert (await here.http.post("/v1/topics/a", json=1)).status_code == 401
        assert len(here.hub.published) == 3


@asynctest
async def test_who_shows_no_right_token_is_told_what_to_show() -> None:
    async with site(tokens=TOKENS) as here:
        answer = await here.http.get("/publish?topic=a&message=1")
        assert answer.headers["www-authenticate"] == 'Bearer realm="jsonbus"'
        assert "Authorization: Bearer TOKEN" in answer.json()["error"]
        for shown in ("Bearer wrong", "Basic cDpw", "p", "Bearer", "Bearer \xe4"):
            answer = await here.http.get(
                "/publish?topic=a&message=1", headers={"authorization": shown.encode("latin-1")}
            )
            assert answer.status_code == 401
            assert 'error="invalid_token"' in answer.headers["www-authenticate"]
        # Only event streams take a token from the query.
        answer = await here.http.get("/publish?topic=a&message=1&access_token=p")
        assert answer.status_code == 401


@asynctest
async def test_a_token_is_checked_before_the_body_is_read() -> None:
    async with site(tokens=TOKENS) as here:
        reader, writer = await here.connect()
        writer.write(
            b"POST /publish HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            b"Content-Length: 100000\r\n\r\n"
        )
        assert (await read_answer(reader)).status == 401
        await end(writer)
