"""What each route does, over real sockets and real parts."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from jsonbus.gateway.http.models import Publish, Subscribe, Unsubscribe, names_of
from jsonbus.gateway.webhooks.database import RESERVE_BYTES
from tests.aio.running import asynctest, until
from tests.gateway.receiver import Receiver
from tests.gateway.site import end, read_answer, site
from tests.gateway.webhooks.test_ledger_full import fill
from tests.small_disk import small_disk


@pytest.mark.slow
@asynctest
async def test_publish_reaches_the_bus_and_says_whom_it_reached() -> None:
    async with site() as here:

        async def is_unwanted() -> bool:  # while the bus is joining, it keeps what it is given
            answer = await here.http.get("/publish", params={"topic": "a", "message": "1"})
            return answer.status_code == 200 and answer.json() == {"webhooks": 0, "sent": False}

        assert await until(is_unwanted)
        got: list[Any] = []
        here.other.subscribe("a", lambda message: got.append(message.value))
        assert await here.bus.wait_for_subscribers("a", timeout=30)
        answer = await here.http.get("/publish", params={"topic": "a", "message": "2"})
        assert (answer.status_code, answer.json()) == (200, {"webhooks": 0, "sent": True})
        assert await until(lambda: 2 in got)
        assert answer.headers["content-type"] == "application/json"
        assert answer.headers["cache-control"] == "no-store"


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("21.5", 21.5),
        ("hello", "hello"),
        ("", ""),
        ('"21.5"', "21.5"),
        ('{"a":[1,null]}', {"a": [1, None]}),
        ("NaN", "NaN"),
        ("[1", "[1"),
        ("grüße 🎈", "grüße 🎈"),
        ("1 + 1 = 2 & more; %", "1 + 1 = 2 & more; %"),
        ("null", None),
    ],
)
@asynctest
async def test_a_text_that_parses_as_json_is_that_value_wherever_it_stands(
    text: str, value: Any
) -> None:
    async with site() as here:
        parameters = {"topic": "a/b", "message": text}
        for answer in (
            await here.http.get("/publish", params=parameters),
            await here.http.post("/publish", params=parameters),
            await here.http.post("/publish", data=parameters),
            await here.http.post(
                "/publish", files={name: (None, each) for name, each in parameters.items()}
            ),
            await here.http.post("/publish", json=parameters),
            await here.http.post("/publish", params={"topic": "a/b"}, json={"message": text}),
        ):
            assert answer.status_code == 200, answer.text
        assert here.hub.published == [("a/b", value)] * 6


@pytest.mark.parametrize("value", [21.5, None, [], {"b": {"c": "21.5"}}, True, 0])
@asynctest
async def test_in_a_json_body_the_message_may_be_any_value(value: Any) -> None:
    async with site() as here:
        answer = await here.http.post("/publish", json={"topic": "a", "message": value})
        assert answer.status_code == 200
        assert here.hub.published == [("a", value)]


TOO_LONG = (
    "message has 5,001 characters, at most 5,000 are allowed: larger ones go by POST "
    "/v1/topics/TOPIC"
)


@pytest.mark.parametrize("character", ["x", "ü", "€", "🎈"])
@asynctest
async def test_messages_are_limited_in_characters_not_in_bytes(character: str) -> None:
    async with site() as here:
        longest = {"topic": "a", "message": character * 5_000}
        assert (await here.http.post("/publish", data=longest)).status_code == 200
        assert (await here.http.post("/publish", json=longest)).status_code == 200
        files: Any = {name: (None, each) for name, each in longest.items()}
        assert (await here.http.post("/publish", files=files)).status_code == 200
        escaped = json.dumps(longest)  # as \uXXXX, pairs of them for the balloon
        headers = {"content-type": "application/json"}
        answer = await here.http.post("/publish", content=escaped, headers=headers)
        assert answer.status_code == 200
        assert [value for _, value in here.hub.published] == [character * 5_000] * 4

        reason = {"error": TOO_LONG}
        too_long = {"topic": "a", "message": character * 5_001}
        for answer in (
            await here.http.post("/publish", data=too_long),
            await here.http.post("/publish", json=too_long),
        ):
            assert (answer.status_code, answer.json()) == (400, reason)
        assert len(here.hub.published) == 4


@asynctest
async def test_a_json_value_is_limited_by_the_characters_of_its_compact_json() -> None:
    async with site() as here:
        fits = {"topic": "a", "message": ["ü" * 4_996]}
        assert (await here.http.post("/publish", json=fits)).status_code == 200
        too_long = {"topic": "a", "message": ["ü" * 4_997]}
        answer = await here.http.post("/publish", json=too_long)
        assert answer.status_code == 400
        assert answer.json() == {"error": TOO_LONG}


MODELS = {"/publish": Publish, "/subscribe": Subscribe, "/unsubscribe": Unsubscribe}

#: The parameters of each route, as they are right.
WISHES = {
    "/publish": {"topic": "a", "message": "1"},
    "/subscribe": {"topic": "a", "subscriberName": "n", "url": "http://localhost:9/"},
    "/unsubscribe": {"topic": "a", "subscriberName": "n"},
}


@pytest.mark.parametrize(
    ("path", "name", "limit"),
    [
        ("/publish", "topic", 128),
        ("/subscribe", "topic", 128),
        ("/subscribe", "subscriberName", 128),
        ("/subscribe", "url", 1_024),
        ("/unsubscribe", "topic", 128),
        ("/unsubscribe", "subscriberName", 128),
    ],
)
@asynctest
async def test_every_parameter_has_its_limit(path: str, name: str, limit: int) -> None:
    async with site() as here:
        parameters = dict(WISHES[path])
        start = parameters[name] if name == "url" else ""
        parameters[name] = start + "x" * (limit - len(start))
        answer = await here.http.post(path, data=parameters)
        assert answer.status_code == (404 if path == "/unsubscribe" else 200), answer.text
        parameters[name] += "x"
        answer = await here.http.post(path, data=parameters)
        assert answer.status_code == 400
        assert answer.json() == {
            "error": f"{name} has {limit + 1:,} characters, at most {limit:,} are allowed"
        }


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("/publish", "topic"),
        ("/publish", "message"),
        ("/subscribe", "topic"),
        ("/subscribe", "subscriberName"),
        ("/subscribe", "url"),
        ("/unsubscribe", "subscriberName"),
    ],
)
@asynctest
async def test_a_missing_parameter_is_named(path: str, name: str) -> None:
    async with site() as here:
        parameters = dict(WISHES[path])
        del parameters[name]
        for answer in (
            await here.http.get(path, params=parameters),
            await here.http.post(path, json=parameters),
        ):
            assert answer.status_code == 400
            assert answer.json() == {"error": f"the parameter {name} is missing"}


@pytest.mark.parametrize("path", WISHES)
@asynctest
async def test_an_unknown_parameter_is_refused_wherever_it_stands(path: str) -> None:
    async with site() as here:
        more = {**WISHES[path], "topics": "b"}
        for answer in (
            await here.http.get(path, params=more),
            await here.http.post(path, params={"topics": "b"}, data=WISHES[path]),
            await here.http.post(path, data=more),
            await here.http.post(path, json=more),
        ):
            assert answer.status_code == 400
            known = ", ".join(names_of(MODELS[path]))
            hint = f"did you mean topic? known here: {known}"
            assert answer.json() == {"error": f"the parameter 'topics' is unknown: {hint}"}
        assert here.hub.published == [] and here.ledger.subscribers() == []


@pytest.mark.parametrize(
    ("method", "path", "known"),
    [
        ("POST", "/v1/topics/a?foo=2", "known here: retain, reliable"),
        ("GET", "/events?pattern=a&foo=2", "known here: pattern, access_token"),
        ("GET", "/subscribers?foo=2", "this takes no parameters"),
        ("GET", "/metrics?foo=2", "this takes no parameters"),
        ("GET", "/health?foo=2", "this takes no parameters"),
        ("GET", "/docs?foo=2", "this takes no parameters"),
        ("GET", "/openapi.json?foo=2", "this takes no parameters"),
    ],
)
@asynctest
async def test_no_route_ignores_an_unknown_parameter(method: str, path: str, known: str) -> None:
    async with site() as here:
        answer = await here.http.request(method, path, content=b"1" if method == "POST" else None)
        assert answer.status_code == 400
        assert answer.json() == {"error": f"the parameter 'foo' is unknown: {known}"}
        assert here.hub.published == []


@asynctest
async def test_a_wrong_token_is_told_before_an_unknown_parameter() -> None:
    async with site(tokens=["s"]) as here:
        assert (await here.http.get("/metrics?foo=2")).status_code == 401


@pytest.mark.parametrize("topic", ["", "a//b", "a/*", "jsonbus.x", "a\nb", "/a"])
@asynctest
async def test_a_topic_that_is_none_is_refused_with_the_reason(topic: str) -> None:
    async with site() as here:
        answer = await here.http.get("/publish", params={"topic": topic, "message": "1"})
        assert answer.status_code == 400
        assert "is not valid here" in answer.json()["error"]
        assert here.hub.published == []


@asynctest
async def test_publish_is_answered_only_when_the_hub_has_done_it() -> None:
    async with site() as here:
        may_go_on = asyncio.Event()
        is_waiting = asyncio.Event()

        async def hold_up(topic: str, value: Any) -> None:
            is_waiting.set()
            await may_go_on.wait()

        here.hub.before_publish = hold_up
        asked = asyncio.create_task(here.http.get("/publish?topic=a&message=1"))
        await is_waiting.wait()
        assert (await here.http.get("/health")).status_code == 200  # the server is not held up
        assert not asked.done()
        assert here.hub.published == []
        may_go_on.set()
        assert (await asked).status_code == 200
        assert here.hub.published == [("a", 1)]


@asynctest
async def test_a_webhook_gets_what_is_published_and_is_listed(tmp_path: Path) -> None:
    with Receiver() as receiver:
        async with site(data=tmp_path) as here:
            wish = {"topic": "a/**", "subscriberName": "näme", "url": receiver.url}
            answer = await here.http.post("/subscribe", data=wish)
            assert (answer.status_code, answer.json()) == (200, {"new": True, "moved": False})
            answer = await here.http.get("/subscribe", params=wish)
            assert answer.json() == {"new": False, "moved": False}
            answer = await here.http.post("/subscribe", json={**wish, "url": receiver.url + "?x"})
            assert answer.json() == {"new": False, "moved": True}
            answer = await here.http.post("/subscribe", data={**wish, "topic": "b/#"})
            assert (
                answer.json()["hint"] == "this has a wildcard of another system: did you mean b/**?"
            )
            await here.http.post("/unsubscribe", data={"topic": "b/#", "subscriberName": "näme"})
            answer = await here.http.get("/publish?topic=a/b&message=21.5")
            assert answer.json()["webhooks"] == 1
            assert await until(lambda: receiver.requests)
            assert receiver.requests[0].json == {"message": [21.5], "topic": ["a/b"]}
            assert await until(lambda: here.ledger.stats()["backlog"] == 0)
            [listed] = (await here.http.get("/subscribers")).json()["subscribers"]
            assert (listed["name"], listed["topics"]) == ("näme", ["a/**"])
            assert (listed["backlog"], listed["delivered"]) == (0, 1)
            answer = await here.http.get("/unsubscribe", params={"subscriberName": "näme"})
            assert (answer.status_code, answer.json()) == (200, {"topics": ["a/**"]})
            assert (await here.http.get("/subscribers")).json() == {"subscribers": []}


@asynctest
async def test_to_end_what_nobody_began_is_not_found() -> None:
    async with site() as here:
        answer = await here.http.post("/unsubscribe", data={"subscriberName": "n"})
        assert answer.status_code == 404
        assert answer.json() == {"error": "the webhook 'n' has no subscription"}
        wish = {"topic": "a", "subscriberName": "n", "url": "http://localhost:9/"}
        assert (await here.http.post("/subscribe", data=wish)).status_code == 200
        answer = await here.http.post("/unsubscribe", data={"subscriberName": "n", "topic": "b"})
        assert answer.status_code == 404
        assert answer.json() == {"error": "the webhook 'n' does not subscribe to 'b'"}
        answer = await here.http.post("/unsubscribe", data={"subscriberName": "n", "topic": "a"})
        assert answer.json() == {"topics": ["a"]}


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"url": "ftp://localhost/"}, "must begin with http"),
        ({"url": "http://169.254.169.254/"}, "169.254.169.254"),
        ({"topic": "a//b"}, "is not valid here"),
        ({"subscriberName": ""}, "must not be empty or have control"),
        ({"subscriberName": "a\r\nb"}, "must not be empty or have control"),
    ],
)
@asynctest
async def test_a_webhook_that_cannot_be_is_refused_with_the_reason(
    changed: dict[str, str], reason: str
) -> None:
    async with site() as here:
        wish = {"topic": "a", "subscriberName": "n", "url": "http://localhost:9/", **changed}
        answer = await here.http.post("/subscribe", data=wish)
        assert answer.status_code == 400
        assert reason in answer.json()["error"]
        assert here.ledger.subscribers() == []


@asynctest
async def test_a_full_backlog_is_answered_by_500_try_again_later_and_nothing_is_accepted() -> None:
    async with site(ledger_options={"backlog_max": 2, "subscriptions_max": 1}) as here:
        wish = {"topic": "a", "subscriberName": "n", "url": "http://localhost:9/"}
        assert (await here.http.post("/subscribe", data=wish)).status_code == 200
        for _ in range(2):
            assert (await here.http.get("/publish?topic=a&message=1")).status_code == 200
        heard: list[Any] = []
        here.other.subscribe("a", lambda message: heard.append(message.value))
        assert await here.bus.wait_for_subscribers("a", timeout=30)
        for answer in (
            await here.http.get("/publish?topic=a&message=refused"),
            await here.http.post("/v1/topics/a", json="refused"),
            await here.http.post("/subscribe", data={**wish, "topic": "b"}),
        ):
            assert answer.status_code == 500
            assert answer.json()["error"].startswith("try again later: ")
            assert int(answer.headers["retry-after"]) > 0
        assert (await here.http.get("/publish?topic=a/other&message=1")).status_code == 200
        [listed] = (await here.http.get("/subscribers")).json()["subscribers"]
        assert (listed["backlog"], listed["topics"]) == (2, ["a"])
        assert here.hub.published == [("a", 1), ("a", 1), ("a/other", 1)]
        await here.bus.publish("a", "last")
        assert await until(lambda: "last" in heard)
        assert "refused" not in heard


@asynctest
async def test_a_value_is_published_exactly_under_the_topic_in_the_path() -> None:
    async with site() as here:
        for topic, path in (
            ("a", "a"),
            ("a/b", "a/b"),
            ("a/b", "a%2Fb"),
            ("grüße/+ x", "gr%C3%BC%C3%9Fe/+%20x"),
        ):
            for value in ("21.5", 21.5, None, {"a": ["x" * 10_000]}):
                here.hub.published.clear()
                answer = await here.http.post(f"/v1/topics/{path}", content=json.dumps(value))
                assert answer.status_code == 200, answer.text
                assert answer.json()["webhooks"] == 0
                assert here.hub.published == [(topic, value)]


@pytest.mark.parametrize(
    ("query", "options"),
    [
        ("", (False, None)),
        ("?retain=true", (True, None)),
        ("?retain=false&reliable=false", (False, False)),
        ("?reliable=true", (False, True)),
    ],
)
@asynctest
async def test_a_value_may_be_retained_and_reliable(
    query: str, options: tuple[bool, bool | None]
) -> None:
    async with site() as here:
        assert (await here.http.post(f"/v1/topics/a{query}", json=1)).status_code == 200
        assert here.hub.options == [options]


@pytest.mark.parametrize(
    ("path", "body", "content_type", "status", "reason"),
    [
        ("a?retain=yes", b"1", "application/json", 400, "retain must be true or false"),
        ("a?retain=true&retain=true", b"1", "application/json", 400, "retain comes twice"),
        ("a?reliable=%zz", b"1", "application/json", 400, "percent-encoding '%zz' is broken"),
        ("a", b"", "application/json", 400, "the body is empty: send a JSON value"),
        ("a", b"open", "text/plain", 400, 'a string in quotes: "open"'),
        ("a", b"{", "application/json", 400, "this is not JSON"),
        ("a", b'"\xff"', "application/json", 400, "this is not JSON"),
        ("a", b"[" * 900 + b"]" * 900, "application/json", 400, "nested more than"),
        ("a", b"a=1", "application/x-www-form-urlencoded", 400, "this is not JSON"),
        ("a", b"<a/>", "application/xml", 415, "is not JSON: send"),
        ("a", b'"\xfc"', "application/json; charset=latin-1", 415, "must be encoded as UTF-8"),
        ("a%ff", b"1", "application/json", 400, "is not valid UTF-8"),
        ("a%zz", b"1", "application/json", 400, "percent-encoding '%zz' is broken"),
        ("a%00", b"1", "application/json", 400, "is not valid here"),
        ("", b"1", "application/json", 400, "is not valid here"),
        ("a/*", b"1", "application/json", 400, "is not valid here"),
    ],
)
@asynctest
async def test_what_is_no_value_or_no_topic_is_refused(
    path: str, body: bytes, content_type: str, status: int, reason: str
) -> None:
    async with site() as here:
        head = (
            f"POST /v1/topics/{path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: {content_type}"
            f"\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        answer = await here.raw(head.encode() + body)
        assert answer.status == status
        assert reason in answer.json["error"]
        assert here.hub.published == []


@asynctest
async def test_a_body_up_to_the_limit_is_taken_and_one_byte_more_is_not() -> None:
    async with site(body_bytes_max=1_000) as here:
        assert (await here.http.post("/v1/topics/a", json="x" * 998)).status_code == 200
        answer = await here.http.post("/v1/topics/a", json="x" * 999)
        assert answer.status_code == 413
        assert "at most 1,000 are allowed" in answer.json()["error"]
        assert len(here.hub.published) == 1


@asynctest
async def test_a_path_that_is_none_is_not_found() -> None:
    async with site() as here:
        for path in ("/publish/", "/nothing", "/v1", "/%ff", "/_nicegui/x", "/login"):
            answer = await here.http.get(path)
            assert answer.status_code == 404
            assert "see /docs" in answer.json()["error"]
        for path in ("/publish/", "/Publish", "/pubish"):
            assert "did you mean /publish?" in (await here.http.get(path)).json()["error"]


@asynctest
async def test_health_tells_of_trouble() -> None:
    async with site() as here:
        answer = await here.http.get("/health")
        assert (answer.status_code, answer.json()["status"]) == (200, "ok")
        here.trouble.append("the disk is full")
        answer = await here.http.get("/health")
        assert (answer.status_code, answer.json()) == (503, {"error": "the disk is full"})


@asynctest
async def test_requests_on_one_connection_are_answered_in_order() -> None:
    async with site() as here:
        reader, writer = await here.connect()
        for number in range(20):
            writer.write(
                b"GET /publish?topic=a&message=%d HTTP/1.1\r\nHost: localhost\r\n\r\n" % number
            )
        for _ in range(20):
            assert (await read_answer(reader)).status == 200
        assert here.hub.published == [("a", number) for number in range(20)]
        await end(writer)


@asynctest
async def test_a_full_disk_is_answered_by_500_try_again_later_until_there_is_room(
    tmp_path: Path,
) -> None:
    with small_disk(tmp_path, 3 * RESERVE_BYTES) as disk:
        async with site(data=disk) as here:
            wish = {"topic": "a", "subscriberName": "n", "url": "http://localhost:9/"}
            assert (await here.http.post("/subscribe", data=wish)).status_code == 200
            ballast = fill(disk)
            large = {"topic": "a", "message": "x" * 5_000}
            kept = 0
            while True:  # what the store has set aside takes some
                answer = await here.http.post("/publish", data=large)
                if answer.status_code != 200:
                    break
                kept += 1
                assert kept < 5_000
            refused = await here.http.post("/subscribe", data={**wish, "topic": "b"})
            for each in (answer, refused):
                assert each.status_code == 500
                reason = "try again later: the gateway cannot write to its store"
                assert each.json() == {"error": reason}
                assert int(each.headers["retry-after"]) > 0
            assert len(here.hub.published) == kept
            assert (await here.http.get("/publish?topic=other&message=1")).status_code == 200
            ballast.unlink()
            answer = await here.http.get("/publish?topic=a&message=1")
            assert (answer.status_code, answer.json()["webhooks"]) == (200, 1)
            [listed] = (await here.http.get("/subscribers")).json()["subscribers"]
            assert (listed["backlog"], listed["topics"]) == (kept + 1, ["a"])


@asynctest
async def test_the_letters_of_a_route_may_be_encoded() -> None:
    async with site() as here:
        for path in ("/v1/%74opics/a%2Fb", "/%761/topics%2Fa/b"):
            head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\n\r\n1"
            assert (await here.raw(head.encode())).status == 200
        assert here.hub.published == [("a/b", 1)] * 2
