"""What of the dashboard can be reached, by whom, and what its pages may do."""

from __future__ import annotations

import logging
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

pytest.importorskip("nicegui")

import nicegui
import websockets.asyncio.client

from jsonbus.gateway.dashboard import dashboard as dashboard_module
from jsonbus.gateway.dashboard import sessions as sessions_module
from jsonbus.gateway.gateway import Gateway, GatewayConfig
from jsonbus.gateway.http.access import read_token
from tests.aio.running import asynctest, until
from tests.certificates import Authority
from tests.helpers import find_free_port

FILE = f"/_nicegui/{nicegui.__version__}/static/nicegui.js"
SOCKET = (
    "/_nicegui_ws/socket.io/?EIO=4&transport=websocket"
    "&client_id=none&document_id=d&tab_id=t&next_message_id=0"
)


@asynccontextmanager
async def gateway(
    *tokens: str, authority: Authority | None = None, **options: Any
) -> AsyncIterator[httpx.AsyncClient]:
    if authority is not None:
        cert, key = authority.issue()
        options.update(tls_cert=cert, tls_key=key)
    config = GatewayConfig(
        text_port=None, tokens=map(read_token, tokens), dashboard=True, **options
    )
    async with Gateway(config, port=find_free_port(), interface="lo") as opened:
        host, port = opened.http_address
        url = f"{'http' if authority is None else 'https'}://{host}:{port}"
        trusted = True if authority is None else authority.client()
        async with httpx.AsyncClient(base_url=url, verify=trusted, trust_env=False) as http:
            http.gateway = opened  # type: ignore[attr-defined]
            yield http


async def upgrade(http: httpx.AsyncClient, path: str = SOCKET, **headers: str) -> int:
    """The status with which a websocket is answered."""
    ask = {
        "connection": "upgrade",
        "upgrade": "websocket",
        "sec-websocket-version": "13",
        "sec-websocket-key": "AAAAAAAAAAAAAAAAAAAAAA==",
        **headers,
    }
    async with http.stream("GET", path, headers=ask) as answer:
        return answer.status_code


async def log_in(http: httpx.AsyncClient, token: str, place: str = "") -> httpx.Response:
    return await http.post(f"/login?{place}", data={"token": token})


@pytest.mark.slow
@asynctest
async def test_without_tokens_everybody_sees_the_page() -> None:
    async with gateway() as http:
        answer = await http.get("/")
        assert answer.status_code == 200
        assert "no-store" in answer.headers["cache-control"]
        assert (await http.get(FILE)).status_code == 200
        assert await upgrade(http) == 101
        assert (await http.head("/")).status_code == 200


@pytest.mark.slow
@asynctest
async def test_without_tokens_a_gateway_may_run_for_months(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions_module, "AGE_S_MAX", -1.0)
    async with gateway() as http:
        found = re.search(r"'client_id': '([^']+)'", (await http.get("/")).text)
        assert found
        path = SOCKET.replace("client_id=none", f"client_id={found[1]}&implicit_handshake=true")
        url = str(http.base_url).replace("http", "ws") + path
        async with websockets.asyncio.client.connect(url, proxy=None) as socket:
            await socket.recv()
            await socket.send("40")
            frames = [str(await socket.recv())]
            while "tile" not in frames[-1]:  # the page has come to life
                frames.append(str(await socket.recv()))
            assert "reload" not in "".join(frames)


@pytest.mark.slow
@asynctest
async def test_the_page_may_only_use_what_comes_from_the_gateway() -> None:
    async with gateway() as http:
        answer = await http.get("/")
        policy = answer.headers["content-security-policy"]
        assert "default-src 'none'" in policy and "frame-ancestors 'none'" in policy
        rules = dict(rule.strip().split(" ", 1) for rule in policy.split(";"))
        assert "unsafe-inline" not in rules["script-src"]
        assert not re.search(r"\*|https?:|wss?:", policy)
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert not re.search(r'(src|href)="(https?:)?//', answer.text)
        assert (await http.get(FILE)).headers["x-content-type-options"] == "nosniff"


@pytest.mark.slow
@asynctest
async def test_a_prefix_that_a_client_claims_is_not_in_the_page() -> None:
    async with gateway() as http:
        answer = await http.get("/", headers={"x-forwarded-prefix": "/evil.example"})
        assert "evil.example" not in answer.text


@pytest.mark.slow
@asynctest
async def test_with_tokens_nothing_is_to_be_had_without_one() -> None:
    async with gateway("secret") as http:
        answer = await http.get("/")
        assert answer.status_code == 200 and "<form" in answer.text
        assert "script" not in answer.text
        assert answer.headers["jsonbus-login"] == "needed"
        assert (await http.get(FILE)).status_code == 401
        assert await upgrade(http) == 403
        for cookie in ("jsonbus=x", f"jsonbus-{http.base_url.port}=x", "=;;", "a" * 5000):
            assert (await http.get(FILE, headers={"cookie": cookie})).status_code == 401


@pytest.mark.slow
@asynctest
async def test_a_token_opens_the_page_and_nothing_else() -> None:
    async with gateway("secret") as http:
        for wrong in ("", "Secret", "secret2", "ä"):
            answer = await log_in(http, wrong)
            assert answer.status_code == 403 and "This token is wrong" in answer.text
            assert "set-cookie" not in answer.headers
        answer = await log_in(http, "secret")
        assert (answer.status_code, answer.headers["location"]) == (303, "/")
        cookie = answer.headers["set-cookie"]
        assert "HttpOnly" in cookie and "SameSite=Strict" in cookie and "secret" not in cookie
        assert "<form" not in (await http.get("/")).text.split("/logout")[0]
        assert (await http.get(FILE)).status_code == 200
        assert await upgrade(http) == 101
        # The cookie is for the page: what else there is needs the token itself.
        assert (await http.get("/subscribers")).status_code == 401
        assert (await http.get("/publish?topic=a&message=1")).status_code == 401


@pytest.mark.slow
@asynctest
async def test_who_has_to_log_in_first_comes_to_the_place_asked_for() -> None:
    async with gateway("secret") as http:
        place = "tab=topics&topic=a%2F%22%3E%3Cb%3E%C3%A4"
        page = (await http.get(f"/?{place}&x=evil&token=secret")).text
        assert f'action="/login?{place.replace("&", "&amp;")}"' in page and "evil" not in page
        answer = await http.post(f"/login?{place}", data={"token": "wrong"})
        assert f'action="/login?{place.replace("&", "&amp;")}"' in answer.text
        answer = await http.post(f"/login?{place}&x=evil", data={"token": "secret"})
        assert (answer.status_code, answer.headers["location"]) == (303, f"/?{place}")
        for odd in ("&".join(["tab=1"] * 50), "tab", "tab=%ff%0d%0a", "=&&&=="):
            assert (await http.get(f"/?{odd}")).status_code == 200
            assert (await log_in(http, "secret", odd)).status_code == 303
        assert (await http.post(f"/logout?{place}")).headers["location"] == "/"


@pytest.mark.slow
@asynctest
async def test_who_logs_out_has_nothing_more() -> None:
    async with gateway("secret") as http:
        cookie = (await log_in(http, "secret")).headers["set-cookie"].split(";")[0]
        answer = await http.post("/logout")
        assert "Max-Age=0" in answer.headers["set-cookie"]
        assert (await http.get(FILE, headers={"cookie": cookie})).status_code == 401


@pytest.mark.slow
@asynctest
async def test_rights_decide_what_is_in_the_page() -> None:
    tokens = ("admin=all", "subscribe=look", "publish=write")
    async with gateway(*tokens) as http:
        answer = await log_in(http, "write")
        assert answer.status_code == 403 and "right to subscribe" in answer.text
        await log_in(http, "look")
        assert "Webhooks" not in (await http.get("/")).text
        await log_in(http, "all")
        assert "Webhooks" in (await http.get("/")).text


@pytest.mark.slow
@asynctest
async def test_a_token_is_taken_from_the_body_alone() -> None:
    async with gateway("secret") as http:
        assert (await http.post("/login?token=secret")).status_code == 403
        assert (await http.get("/login?token=secret")).status_code == 405
        assert (await http.post("/login", content=b"token=" + b"x" * 5000)).status_code == 413
        assert "<form" in (await http.get("/?token=secret&access_token=secret")).text


@pytest.mark.slow
@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "http://evil.example"},
        {"origin": "null"},
        {"host": "evil.example"},
    ],
)
@asynctest
async def test_pages_of_others_reach_nothing_of_it(headers: dict[str, str]) -> None:
    async with gateway() as http:
        assert await upgrade(http, **headers) == 403
        assert (await http.get("/", headers=headers)).status_code == 403
        assert (await http.get(FILE, headers=headers)).status_code == 403
        answer = await http.post("/login", data={"token": "x"}, headers=headers)
        assert answer.status_code == 403


@pytest.mark.slow
@asynctest
async def test_of_nicegui_only_files_and_the_websocket_are_there() -> None:
    async with gateway() as http:
        for path in (
            "/favicon.ico",
            "/_nicegui_ws/socket.io/?EIO=4&transport=polling",
            "/_nicegui",
        ):
            assert (await http.get(path)).status_code == 404
        assert (await http.post("/")).status_code == 405
        assert (await http.post(FILE)).status_code == 405
        assert (await http.get("/_nicegui/../health")).status_code in (200, 404)
        assert (await http.get(f"/_nicegui/{nicegui.__version__}/static/..%2f..%2fapp.py")).is_error


@pytest.mark.slow
@asynctest
async def test_pages_that_never_connected_make_room_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(dashboard_module, "PAGES_MAX", 3)
    async with gateway() as http:
        for _ in range(7):
            assert (await http.get("/")).status_code == 200
        assert http.gateway.stats()["dashboard"]["pages"] == 3  # type: ignore[attr-defined]


@pytest.mark.slow
@pytest.mark.parametrize("missing", ["client_id", "document_id", "tab_id", "next_message_id"])
@asynctest
async def test_a_websocket_that_does_not_say_whose_it_is_is_refused(missing: str) -> None:
    async with gateway() as http:
        assert await upgrade(http, path=SOCKET.replace(f"&{missing}=", "&x=")) == 403
        assert await upgrade(http, path=f"{SOCKET}&{missing}=y") == 403


@pytest.mark.slow
@asynctest
async def test_a_websocket_is_for_pages_of_its_own_session() -> None:
    async with gateway("one", "two") as http:
        await log_in(http, "one")
        found = re.search(r"'client_id': '([^']+)'", (await http.get("/")).text)
        assert found
        path = SOCKET.replace("client_id=none", f"client_id={found[1]}")
        assert await upgrade(http, path=path) == 101
        await log_in(http, "two")
        assert await upgrade(http, path=path) == 403


@pytest.mark.slow
@asynctest
async def test_whatever_comes_over_a_websocket_is_counted_and_not_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    frames = """
        42["event",{}]  42["event",5]  42["event"]  42["handshake",{"client_id":5}]  42["ack",{}]
        42["javascript_response",{}]  42["nothing",{}]  garbage  45-1["x"]  42{  9  40/x,
        42["log",{"client_id":"x","level":"error","message":"logged"}]
    """.split()
    async with gateway() as http:
        stats = http.gateway.stats  # type: ignore[attr-defined]
        before = stats()["dashboard"]["messages_malformed"]
        url = str(http.base_url).replace("http", "ws") + SOCKET
        for frame in (*frames, "42" + "[" * 100_000, b"\xff\x00"):
            async with websockets.asyncio.client.connect(url, proxy=None) as socket:
                await socket.recv()
                await socket.send("40")
                await socket.send(frame)
                await socket.send("40")
        assert (await http.get("/health")).status_code == 200
        assert await until(lambda: stats()["dashboard"]["messages_malformed"] >= before + 6)
    assert [each for each in caplog.records if each.levelno >= logging.WARNING] == []


@pytest.mark.slow
@asynctest
async def test_over_tls_the_cookie_is_for_tls_alone(tmp_path: Path) -> None:
    async with gateway("secret", authority=Authority(tmp_path)) as http:
        assert await upgrade(http) == 403
        answer = await log_in(http, "secret")
        assert answer.headers["set-cookie"].endswith("; Secure")
        assert "_nicegui" in (await http.get("/")).text  # with the cookie
        assert await upgrade(http) == 101
        assert await upgrade(http, origin=str(http.base_url).rstrip("/")) == 101


@pytest.mark.slow
@asynctest
async def test_behind_tls_the_cookie_is_for_tls_alone() -> None:
    async with gateway("secret", allow_origin=["https://bus.example"]) as http:
        answer = await http.post(
            "/login", data={"token": "secret"}, headers={"origin": "https://bus.example"}
        )
        assert answer.headers["set-cookie"].endswith("; Secure")
