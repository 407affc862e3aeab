"""Which web pages may reach the gateway."""

from __future__ import annotations

import pytest

from jsonbus.gateway.http.origins import Origins
from tests.aio.running import asynctest, until
from tests.gateway.site import Raw, Site, site

PUBLISH = "/publish?topic=a&message=1"


async def get(here: Site, path: str = PUBLISH, **headers: str) -> Raw:
    lines = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in headers.items())
    return await here.raw(f"GET {path} HTTP/1.1\r\n{lines}\r\n".encode("latin-1"))


@pytest.mark.parametrize(
    "host",
    [
        "localhost",
        "LOCALHOST:8080",
        "localhost.",
        "127.0.0.1",
        "127.0.0.1:8080",
        "127.1.2.3",
        "[::1]",
        "[::1]:8080",
        "bus.example.org:80",
    ],
)
@asynctest
async def test_on_loopback_the_host_is_a_name_of_this_machine_or_an_allowed_one(host: str) -> None:
    origins = Origins(is_loopback=True, allow_hosts=["Bus.example.org"])
    async with site(origins=origins) as here:
        for _ in range(2):  # what passed once is remembered
            assert (await get(here, host=host)).status == 200


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "evil.example:8080",
        "localhost.evil.example",
        "127.0.0.1.evil.example",
        "192.168.1.5",
        "[fe80::1]",
        "[",
        "",
        "\xff",
    ],
)
@asynctest
async def test_on_loopback_another_host_is_refused(host: str) -> None:
    async with site() as here:
        for path in (PUBLISH, "/docs", "/nothing"):
            answer = await get(here, path, host=host)
            assert answer.status == 403
            assert "--allow-host" in answer.json["error"]
        assert here.hub.published == []


@asynctest
async def test_a_missing_or_second_host_is_refused() -> None:
    async with site() as here:
        answer = await here.raw(b"GET /publish?topic=a&message=1 HTTP/1.1\r\n\r\n")
        assert answer.status in (400, 403)
        answer = await here.raw(
            b"GET /publish?topic=a&message=1 HTTP/1.1\r\nHost: localhost\r\nHost: b\r\n\r\n"
        )
        assert answer.status == 400
        assert here.hub.published == []


@asynctest
async def test_beyond_loopback_any_host_will_do_unless_hosts_are_named() -> None:
    async with site(origins=Origins(is_loopback=False)) as here:
        assert (await get(here, host="whatever.example")).status == 200
    origins = Origins(is_loopback=False, allow_hosts=["bus.example"])
    async with site(origins=origins) as here:
        assert (await get(here, host="bus.example")).status == 200
        assert (await get(here, host="192.168.1.5:8080")).status == 200  # cannot be rebound
        assert (await get(here, host="whatever.example")).status == 403


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "http://evil.example"},
        {"origin": "http://localhost:81"},
        {"origin": "https://localhost:80"},
        {"origin": "null"},
        {"origin": ""},
        {"origin": "http://evil.example", "sec-fetch-site": "same-origin"},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
        {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate"},
    ],
)
@asynctest
async def test_a_page_of_others_is_refused(headers: dict[str, str]) -> None:
    async with site() as here:
        answer = await get(here, host="localhost:80", **headers)
        assert answer.status == 403
        assert "--allow-origin" in answer.json["error"]
        assert "access-control-allow-origin" not in answer.headers
        assert here.hub.published == []


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "http://localhost:80"},
        {"origin": "HTTP://LOCALHOST:80", "sec-fetch-site": "same-origin"},
        {"sec-fetch-site": "same-origin"},
        {"sec-fetch-site": "none"},  # somebody typed it
        {},
    ],
)
@asynctest
async def test_the_gateways_own_pages_and_people_are_welcome(headers: dict[str, str]) -> None:
    async with site() as here:
        answer = await get(here, host="localhost:80", **headers)
        assert answer.status == 200
        assert "access-control-allow-origin" not in answer.headers


@asynctest
async def test_a_link_elsewhere_may_lead_to_a_page_that_only_shows_something() -> None:
    async with site() as here:
        headers = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate"}
        assert (await get(here, "/docs", host="localhost", **headers)).status == 200
        assert (await get(here, "/subscribers", host="localhost", **headers)).status == 403
        headers["sec-fetch-mode"] = "no-cors"
        assert (await get(here, "/docs", host="localhost", **headers)).status == 403


@pytest.mark.parametrize("allowed", ["https://app.example", "HTTPS://App.Example/", "*"])
@asynctest
async def test_an_allowed_page_may_ask_and_read_the_answer(allowed: str) -> None:
    origins = Origins(is_loopback=True, allow_origins=[allowed])
    async with site(origins=origins) as here:
        headers = {"origin": "https://app.example", "sec-fetch-site": "cross-site"}
        for path, status in ((PUBLISH, 200), ("/publish", 400), ("/nothing", 404)):
            answer = await get(here, path, host="localhost", **headers)
            assert answer.status == status
            assert answer.headers["access-control-allow-origin"] == "https://app.example"
            assert answer.headers["vary"] == "origin"
        evil = await get(here, host="localhost", origin="https://app.example.evil")
        assert evil.status == (200 if allowed == "*" else 403)
        # Without an Origin nobody knows whose page it is.
        assert (await get(here, host="localhost", sec_fetch_site="cross-site")).status == 403


@asynctest
async def test_an_allowed_page_may_ask_first_what_it_may_send() -> None:
    origins = Origins(is_loopback=True, allow_origins=["https://app.example"])
    async with site(origins=origins, tokens=["secret"]) as here:
        ask = {
            "origin": "https://app.example",
            "access-control-request-method": "POST",
            "access-control-request-headers": "authorization,content-type",
            "access-control-request-private-network": "true",
        }
        answer = await here.http.options("/publish", headers=ask)
        assert (answer.status_code, answer.content) == (204, b"")
        assert answer.headers["access-control-allow-origin"] == "https://app.example"
        assert "POST" in answer.headers["access-control-allow-methods"]
        assert "authorization" in answer.headers["access-control-allow-headers"]
        assert "content-type" in answer.headers["access-control-allow-headers"]
        assert answer.headers["access-control-allow-private-network"] == "true"
        assert int(answer.headers["access-control-max-age"]) > 0
        ask["origin"] = "https://evil.example"
        answer = await here.http.options("/publish", headers=ask)
        assert answer.status_code == 403
        assert "access-control-allow-origin" not in answer.headers


@pytest.mark.parametrize("origin", ["app.example", "https://", "https://a/b", "https://*.a", ""])
def test_an_allowed_origin_must_be_one(origin: str) -> None:
    with pytest.raises(ValueError, match="is no origin: write it like"):
        Origins(is_loopback=True, allow_origins=[origin])


@asynctest
async def test_websockets_are_checked_the_same() -> None:
    """What is mounted later, a dashboard, may have some; the application itself has none."""
    async with site() as here:
        sent = []

        async def send(message: object) -> None:
            sent.append(message)

        async def receive() -> dict[str, str]:
            return {"type": "websocket.connect"}

        headers = [(b"host", b"localhost"), (b"origin", b"http://evil.example")]
        scope = {"type": "websocket", "path": "/", "scheme": "ws", "headers": headers}
        await here.app(scope, receive, send)
        assert [message["type"] for message in sent] == ["websocket.close"]
        assert "--allow-origin" in sent[0]["reason"]


@asynctest
async def test_a_webhook_that_posts_to_the_gateway_itself_goes_round_once() -> None:
    """Each would publish what it gets, which both would get: twice as much each time."""
    async with site() as here:
        host, port = here.server.address
        url = f"http://{host}:{port}/v1/topics/a"
        for name in ("one", "two"):
            query = {"topic": "a", "subscriberName": name, "url": url}
            assert (await here.http.get("/subscribe", params=query)).status_code == 200
        assert (await here.http.get(PUBLISH)).json()["webhooks"] == 2
        assert await until(lambda: all(view.attempts_failed for view in here.ledger.subscribers()))
        errors = {view.last_error for view in here.ledger.subscribers()}
        assert errors == {
            "the answer was 403, not 200: a gateway is there, and gateways take no webhooks"
        }
        assert here.hub.published == [("a", 1)]


@asynctest
async def test_a_host_header_that_is_none_breaks_nothing_where_hosts_are_not_checked() -> None:
    async with site(origins=Origins(is_loopback=False)) as here:
        for host in ("[", "[::", "a b", "http://x", ""):
            for path in ("/nothing", "/health", "/docs"):
                answer = await get(here, path, host=host)
                assert answer.status == (404 if path == "/nothing" else 200)
