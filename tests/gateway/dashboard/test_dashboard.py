"""The dashboard as a part of a gateway: it comes and goes with it, several times in a process."""

from __future__ import annotations

import asyncio
import logging
import subprocess
import sys
from typing import Any

import httpx
import pytest

pytest.importorskip("nicegui")

from jsonbus.gateway import gateway as gateway_module
from jsonbus.gateway.gateway import Gateway, GatewayConfig
from tests.helpers import find_free_port


def make_gateway(**options: Any) -> Gateway:
    return Gateway(GatewayConfig(text_port=None, **options), port=find_free_port(), interface="lo")


async def get(gateway: Gateway, path: str) -> httpx.Response:
    host, port = gateway.http_address
    async with httpx.AsyncClient(timeout=60, trust_env=False) as http:
        return await http.get(f"http://{host}:{port}{path}")


@pytest.mark.slow
def test_gateways_one_after_the_other_have_it_and_leave_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def run() -> None:
        async with make_gateway(dashboard=True) as gateway:
            assert "jsonbus" in (await get(gateway, "/")).text
            stats = gateway.stats()["dashboard"]
            assert (stats["pages"], stats["pages_seen"], stats["sessions"]) == (1, 0, 0)
        await asyncio.sleep(0)
        assert not [each for each in asyncio.all_tasks() if each is not asyncio.current_task()]

    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            asyncio.run(run())
    assert caplog.records == []


#: A gateway in a Python that has no NiceGUI; prints what `/` and `/health` answer.
WITHOUT_NICEGUI = """
import asyncio, sys
sys.modules["nicegui"] = None
import httpx
from jsonbus.gateway.gateway import Gateway, GatewayConfig

async def main():
    config = GatewayConfig(text_port=None, dashboard=True)
    async with Gateway(config, port=int(sys.argv[1]), interface="lo") as gateway:
        assert not gateway.has_dashboard
        base = "http://{}:{}".format(*gateway.http_address)
        async with httpx.AsyncClient(base_url=base, timeout=60, trust_env=False) as client:
            for path in ("/health", "/"):
                answer = await client.get(path)
                print(answer.status_code, answer.text)

asyncio.run(main())
"""


@pytest.mark.slow
def test_a_gateway_without_the_extra_web_serves_and_says_how_to_get_the_dashboard() -> None:
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_NICEGUI, str(find_free_port())],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    health, page = done.stdout.split("\n", 1)
    assert health.startswith('200 {"status":"ok"')
    assert page.lstrip().startswith("200 ") and "jsonbus[web]" in page


@pytest.mark.slow
def test_a_second_gateway_at_the_same_time_is_told_so() -> None:
    async def run() -> None:
        async with make_gateway(dashboard=True) as first:
            with pytest.raises(RuntimeError, match="another gateway of this process"):
                async with make_gateway(dashboard=True):
                    pass
            async with make_gateway() as third:
                assert "--no-dashboard" in (await get(third, "/")).text
            assert (await get(first, "/")).status_code == 200

    asyncio.run(run())


@pytest.mark.slow
def test_where_nicegui_is_missing_the_page_says_how_to_get_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(gateway_module, "find_spec", lambda name: None)

    async def run() -> None:
        async with make_gateway(dashboard=True) as gateway:
            answer = await get(gateway, "/")
            assert answer.status_code == 200
            assert "jsonbus[web]" in answer.text and "/docs" in answer.text
            assert (await get(gateway, "/health")).status_code == 200
            assert (await get(gateway, "/login")).status_code == 404

    asyncio.run(run())
