"""/metrics, read as Prometheus reads it."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import httpx
import pytest

from jsonbus.gateway.gateway import Gateway, GatewayConfig
from jsonbus.gateway.metrics.help_texts import TEXTS
from tests.aio.running import asynctest, until
from tests.gateway.metrics.scraped import Scraped
from tests.gateway.metrics.scraped import read_metrics as read
from tests.gateway.site import Site, site
from tests.helpers import find_free_port

NAMES = Path(__file__).parents[1].joinpath("metric_names.txt").read_text(encoding="utf-8").split()


async def read_metrics(here: Site) -> Scraped:
    return await read(here.http)


@asynctest
async def test_figures_of_all_parts_are_there_under_stable_names() -> None:
    async with site() as here:
        for _ in range(3):
            await here.http.get("/publish?topic=a&message=1")
        await here.http.get("/publish")
        metrics = await read_metrics(here)
        assert metrics["jsonbus_gateway_hub_messages_published_total", ()] == 3
        assert metrics["jsonbus_gateway_hub_patterns_wanted", ()] == 0
        assert metrics["jsonbus_gateway_store_backlog", ()] == 0
        assert metrics["jsonbus_gateway_store_accepted_total", ()] == 0
        assert metrics["jsonbus_gateway_webhooks_attempts_failed_total", ()] == 0
        assert metrics["jsonbus_gateway_events_streams", ()] == 0
        assert metrics["jsonbus_gateway_events_streams_cut_total", ()] == 0
        assert metrics["jsonbus_gateway_http_connections_open", ()] == 1
        assert metrics["jsonbus_bus_nodes_known", ()] >= 0
        route = ("route", "/publish")
        assert metrics["jsonbus_gateway_http_answers_total", (route, ("status", "200"))] == 3
        assert metrics["jsonbus_gateway_http_answers_total", (route, ("status", "400"))] == 1
        assert metrics["jsonbus_gateway_http_seconds_count", (route,)] == 4
        assert metrics["jsonbus_gateway_http_seconds_bucket", (("le", "+Inf"), route)] == 4
        assert metrics["jsonbus_gateway_http_seconds_sum", (route,)] > 0
        assert all(name.startswith("jsonbus_") for name, _ in metrics)


@asynctest
async def test_figures_move_with_what_happens() -> None:
    async with site() as here:
        assert (await read_metrics(here))["jsonbus_gateway_events_streams", ()] == 0
        async with here.http.stream("GET", "/events?pattern=a") as answer:
            assert answer.status_code == 200
            metrics = await read_metrics(here)
            assert metrics["jsonbus_gateway_events_streams", ()] == 1
            assert metrics["jsonbus_gateway_hub_patterns_wanted", ()] == 1
        assert await until(lambda: here.streams.stats()["streams"] == 0)
        metrics = await read_metrics(here)
        assert metrics["jsonbus_gateway_events_streams", ()] == 0
        assert metrics["jsonbus_gateway_events_streams_opened_total", ()] == 1


@asynctest
async def test_two_gateways_in_one_process_do_not_share_figures() -> None:
    async with site() as first, site() as second:
        await first.http.get("/publish?topic=a&message=1")
        name = "jsonbus_gateway_hub_messages_published_total"
        assert (await read_metrics(first))[name, ()] == 1
        assert (await read_metrics(second))[name, ()] == 0


@pytest.mark.slow
@asynctest
async def test_no_name_that_was_ever_told_has_vanished() -> None:
    has_dashboard = importlib.util.find_spec("nicegui") is not None
    async with Gateway(
        GatewayConfig(dashboard=has_dashboard), interface="lo", port=find_free_port()
    ) as gateway:
        host, port = gateway.http_address
        async with httpx.AsyncClient(trust_env=False) as http:
            text = (await http.get(f"http://{host}:{port}/metrics")).text
    pinned = {name for name in NAMES if has_dashboard or "_dashboard_" not in name}
    names = re.findall(r"^# TYPE (\S+) (?:counter|gauge|histogram)$", text, re.MULTILINE)
    assert sorted(pinned - set(names)) == []
    # What is new shall not vanish either: add it to metric_names.txt.
    assert sorted(set(names) - pinned) == []
    assert len(names) == len(set(names))
    explained = dict(re.findall(r"^# HELP (\S+) (.+)$", text, re.MULTILINE))
    assert explained.keys() == set(names)
    # Figures of parts are explained, not spelled out; and nothing is explained that is not there.
    stats = gateway.stats()
    assert {(part, name) for part in stats for name in stats[part]} <= TEXTS.keys()
    if has_dashboard:
        assert TEXTS.keys() <= {(part, name) for part in stats for name in stats[part]}
