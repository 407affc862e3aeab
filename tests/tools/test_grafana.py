"""tools/pictures/grafana.json shows what is really there, and Grafana can show it."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("fastapi")
pytest.importorskip("pyarrow")

import httpx

from jsonbus.gateway.gateway import Gateway, GatewayConfig
from spark_bridge.bridge import Bridge
from spark_bridge.metrics import Metrics
from tests.aio.running import asynctest, until
from tests.gateway.metrics.scraped import Scraped, read_metrics
from tests.helpers import find_free_port
from tests.spark_bridge.raw_client import open_client

FILE = Path(__file__).parents[2] / "tools" / "pictures" / "grafana.json"
DASHBOARD: dict[str, Any] = json.loads(FILE.read_text(encoding="utf-8"))
PANELS: list[dict[str, Any]] = DASHBOARD["panels"]
VARIABLES: list[dict[str, Any]] = DASHBOARD["templating"]["list"]

#: Labels that Prometheus adds to everything that it scrapes.
ADDED = {"instance", "job"}


def expressions() -> Iterator[tuple[str, str]]:
    """Every expression with the legend of its series."""
    for panel in PANELS:
        for target in panel.get("targets", []):
            yield target["expr"], target["legendFormat"]


def names_in(expression: str) -> set[str]:
    return set(re.findall(r"\bjsonbus_\w+", expression))


def labels_in(expression: str, legend: str) -> set[str]:
    labels = set(re.findall(r"[{,](\w+)=~?\"", expression))
    for listed in re.findall(r"\bby \(([^)]*)\)", expression):
        labels |= {each.strip() for each in listed.split(",")}
    return labels | set(re.findall(r"\{\{(\w+)\}\}", legend))


async def scrape_everything(folder: Path) -> tuple[Scraped, Scraped]:
    """A gateway and a bridge on a bus on which all happens that the dashboard shows."""
    port = find_free_port()
    async with Gateway(GatewayConfig(webhook_timeout_s=1.0), interface="lo", port=port) as gateway:
        with await asyncio.to_thread(
            Bridge, listen=("127.0.0.1", 0), data_dir=folder, interface="lo", port=port
        ) as bridge:
            assert await gateway.bus.wait_for_subscribers("a", 30)
            url = "http://{}:{}".format(*gateway.http_address)
            async with httpx.AsyncClient(base_url=url, trust_env=False, timeout=30) as http:
                nobody = find_free_port()
                hook = f"subscriberName=w&url=http://127.0.0.1:{nobody}/"
                assert (await http.get(f"/subscribe?topic=a&{hook}")).status_code == 200
                await read_metrics(http)  # from now on topics are counted
                assert (await http.get("/publish?topic=a&message=1")).json()["sent"]
                assert await until(lambda: sum(bridge.log.end()) == 1)

                def commit() -> None:
                    with open_client(bridge.address) as client:
                        offsets = [0] * bridge.log.partitions
                        client.ask({"op": "commit", "group": "g", "offsets": offsets})

                await asyncio.to_thread(commit)
                seen: Scraped = {}

                async def is_all_there() -> bool:
                    nonlocal seen
                    seen = await read_metrics(http)
                    names = {name for name, _ in seen}
                    return {
                        "jsonbus_spark_bridge_lag_rows",
                        "jsonbus_topic_last_seen_timestamp_seconds",
                        "jsonbus_webhook_last_error_timestamp_seconds",
                    } <= names

                assert await until(is_all_there)
            metrics = Metrics(bridge.stats, "127.0.0.1", 0)
            try:
                async with httpx.AsyncClient(
                    base_url=f"http://127.0.0.1:{metrics.port}", trust_env=False
                ) as http:
                    own = await read_metrics(http)
            finally:
                await asyncio.to_thread(metrics.stop)
    return seen, own


@pytest.mark.slow
@asynctest
async def test_every_name_and_label_in_its_expressions_is_exposed(tmp_path: Path) -> None:
    labels: dict[str, set[str]] = {}
    for scraped in await scrape_everything(tmp_path):
        for name, pairs in scraped:
            labels.setdefault(name, set()).update(label for label, _ in pairs)
    asked = [*expressions(), *((each, "") for each in queries())]
    assert len(asked) > 60
    for expression, legend in asked:
        names = names_in(expression)
        assert names, expression
        assert names <= labels.keys(), expression
        known = set().union(*(labels[name] for name in names))
        assert labels_in(expression, legend) <= known | ADDED, expression


def queries() -> list[str]:
    return [each["definition"] for each in VARIABLES if each["type"] == "query"]


def test_the_variables_it_uses_are_those_it_has() -> None:
    names = {each["name"] for each in VARIABLES}
    assert names >= {"datasource", "instance", "node"}
    text = json.dumps(PANELS) + json.dumps(queries())
    used = set(re.findall(r"\$\{?(?!__)(\w+)", text))
    assert used == names


def test_expressions_are_balanced() -> None:
    for expression, _ in expressions():
        for left, right in ("()", "{}", "[]"):
            assert expression.count(left) == expression.count(right), expression
        assert expression.count('"') % 2 == 0, expression


def test_counters_are_shown_by_what_they_grow() -> None:
    for expression, _ in expressions():
        for name in re.findall(r"\bjsonbus_\w+_total\b", expression):
            grown = re.findall(rf"(?:rate|increase)\({name}\{{", expression)
            plain = {"jsonbus_node_messages_lost_total", "jsonbus_topics_forgotten_total"}
            # The mean size of a value is of all that was seen.
            mean = {"jsonbus_topic_bytes_total", "jsonbus_topic_messages_total"}
            assert grown or name in plain | mean, expression


def test_panels_have_ids_of_their_own_and_do_not_overlap() -> None:
    assert len({panel["id"] for panel in PANELS}) == len(PANELS)
    for panel in PANELS:
        place = panel["gridPos"]
        assert 0 <= place["x"] and place["x"] + place["w"] <= 24 and place["h"] > 0
    for one, other in combinations([panel["gridPos"] for panel in PANELS], 2):
        assert (
            one["x"] + one["w"] <= other["x"]
            or other["x"] + other["w"] <= one["x"]
            or one["y"] + one["h"] <= other["y"]
            or other["y"] + other["h"] <= one["y"]
        ), (one, other)


def test_every_panel_says_what_it_shows_and_in_which_unit() -> None:
    shown = [panel for panel in PANELS if panel["type"] != "row"]
    assert [panel["type"] for panel in PANELS].count("row") >= 5
    for panel in shown:
        assert panel["title"] and panel["description"].endswith("."), panel["title"]
        assert panel["datasource"]["uid"] == "${datasource}"
        assert all(target["datasource"] == panel["datasource"] for target in panel["targets"])
        assert len({target["refId"] for target in panel["targets"]}) == len(panel["targets"])
        defaults = panel["fieldConfig"]["defaults"]
        assert defaults["thresholds"]["steps"][0]["value"] is None
        if panel["type"] != "table":
            assert defaults["unit"]


def test_it_belongs_to_no_grafana_in_particular() -> None:
    assert DASHBOARD["id"] is None and DASHBOARD["schemaVersion"] >= 39
    assert "__inputs" not in DASHBOARD  # the data source is chosen above, not when it is imported
    used = set(re.findall(r'"uid": "([^"]*)"', json.dumps(PANELS)))
    assert used == {"${datasource}"}
