"""What /metrics tells of the bus, with real nodes, topics, webhooks and bridges."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import Any

import pytest

import jsonbus
from jsonbus.gateway.metrics import bridges as bridges_module
from jsonbus.gateway.metrics import families as families_module
from jsonbus.gateway.metrics.bridges import Bridges
from jsonbus.gateway.metrics.metrics import Metrics
from jsonbus.gateway.metrics.observer import MetricsObserver
from jsonbus.gateway.metrics.series import REST
from jsonbus.gateway.metrics.survey_observer import SurveyObserver
from jsonbus.gateway.webhooks.accounts import SubscriberView
from jsonbus.survey import Survey
from tests.aio.running import asynctest, buses, until
from tests.gateway.metrics.scraped import Scraped, read_metrics, read_text
from tests.gateway.metrics.test_bridges import ANSWER, serve
from tests.gateway.site import site
from tests.survey.making import make_message, make_node

EVIL = [
    'a"b',
    "a\\b",
    "a\\nb",
    "a}b",
    'x{topic="y"} 5',
    "ü/\u2028/\U0001f600",
    "# HELP x",
    "a b/\u00a0",
]


@pytest.fixture(autouse=True)
def _look_always(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bridges_module, "FRESH_S", 0.0)


def labelled(scraped: Scraped, name: str, label: str) -> dict[str, float]:
    return {
        dict(labels)[label]: value
        for (each, labels), value in scraped.items()
        if each == name and dict(labels).get(label) is not None
    }


@pytest.mark.slow
@asynctest
async def test_nodes_tell_what_they_count() -> None:
    async with site() as here:
        received: list[Any] = []
        here.other.subscribe("a", lambda message: received.append(message.value))
        assert await here.bus.wait_for_subscribers("a", 30)
        for number in range(5):
            await here.bus.publish("a", number)
            await here.bus.publish("unwanted", number)
        assert await until(lambda: len(received) == 5)

        async def told() -> bool:
            scraped = await read_metrics(here.http)
            counts = labelled(scraped, "jsonbus_node_messages_received_total", "node")
            return counts.get(here.other.id, 0) >= 5

        assert await until(told)
        scraped = await read_metrics(here.http)
        assert labelled(scraped, "jsonbus_nodes", "mode") == {
            "basic": 0,
            "master": 0,
            "delayed": 2,
            "plain": 0,
        }
        own = (("name", here.bus.name), ("node", here.bus.id))
        assert scraped["jsonbus_node_messages_sent_total", own] == 5
        assert scraped["jsonbus_node_messages_suppressed_total", own] == 5
        assert scraped["jsonbus_node_messages_lost_total", own] == 0
        assert scraped["jsonbus_nodes_aggregated", ()] == 0
        assert abs(scraped["jsonbus_node_heard_timestamp_seconds", own] - time.time()) < 60
        (info,) = [
            dict(labels)
            for (name, labels) in scraped
            if name == "jsonbus_node_info" and dict(labels)["node"] == here.other.id
        ]
        assert (info["mode"], info["version"]) == ("delayed", jsonbus.__version__)


@asynctest
async def test_topics_are_counted_from_the_first_scrape_and_nobody_is_asked_for_more() -> None:
    async with site() as here:
        await read_metrics(here.http)
        assert here.observer.is_observing
        third = here.other
        third.subscribe("a", lambda message: None)
        assert await here.bus.wait_for_subscribers("a", 30)
        for _ in range(3):
            await here.bus.publish("a", {"x": 1})

        async def seen() -> bool:
            scraped = await read_metrics(here.http)
            return labelled(scraped, "jsonbus_topic_messages_total", "topic").get("a") == 3

        assert await until(seen)
        scraped = await read_metrics(here.http)
        topic = (("topic", "a"),)
        assert scraped["jsonbus_topic_bytes_total", topic] == 3 * len('{"x":1}')
        assert abs(scraped["jsonbus_topic_last_seen_timestamp_seconds", topic] - time.time()) < 60
        assert scraped["jsonbus_topics", ()] == 1
        # To look is not to subscribe.
        assert here.bus.subscriptions() == {"a": [third.id]}


@asynctest
async def test_looking_begins_with_a_scrape_and_ends_some_time_after_the_last() -> None:
    async with buses() as open_bus:
        bus = open_bus()
        observer = SurveyObserver(bus, linger_s=0)
        metrics_observer = MetricsObserver(observer, Bridges(bus), lambda: [], linger_s=0.1)
        assert not observer.is_observing
        await metrics_observer.scrape()
        await metrics_observer.scrape()
        assert observer.is_observing and observer.stats()["lookers"] == 1
        assert await until(lambda: not observer.is_observing)
        await metrics_observer.scrape()
        assert observer.stats()["lookers"] == 1
        metrics_observer.close()
        metrics_observer.close()
        assert observer.stats()["lookers"] == 0
        observer.close()


@asynctest
async def test_whatever_a_topic_is_called_the_figures_can_be_read() -> None:
    async with site() as here:
        here.other.subscribe("**", lambda message: None)
        assert await here.bus.wait_for_subscribers("a", 30)
        await read_metrics(here.http)
        for topic in EVIL:
            await here.bus.publish(topic, 1)

        async def seen() -> bool:
            scraped = await read_metrics(here.http)
            counts = labelled(scraped, "jsonbus_topic_messages_total", "topic")
            return counts == {**dict.fromkeys(EVIL, 1), REST: 0}

        assert await until(seen)


class Pictured:
    """A observer at a bus that is made up."""

    is_observing = True

    def __init__(self, nodes: Sequence[jsonbus.NodeInfo], survey: Survey) -> None:
        self.nodes, self.survey = nodes, survey

    def acquire(self) -> None: ...

    def release(self) -> None: ...

    def picture(self) -> Any:
        return self.survey.picture(time.monotonic(), self.nodes, {})


class Nobody:
    def nodes(self) -> list[jsonbus.NodeInfo]:
        return []

    async def request(self, topic: str, value: Any = None, timeout: float = 1.0) -> Any: ...  # noqa: ASYNC109


def make_webhook(number: int) -> SubscriberView:
    error_at = 5.0 if number % 2 else None
    error = "no answer" if number % 2 else None
    return SubscriberView(f"w{number}", "u", ("a",), 2, number, 1, 3, error, error_at, None, 0.0)


async def expose(pictured: Pictured, webhooks: Sequence[SubscriberView]) -> tuple[str, Scraped]:
    metrics_observer = MetricsObserver(pictured, Bridges(Nobody()), lambda: webhooks)
    text = (await Metrics(dict, {}, metrics_observer.scrape).expose()).decode()
    metrics_observer.close()
    return text, read_text(text)


@pytest.mark.slow
@asynctest
async def test_a_large_bus_has_a_bounded_number_of_series_and_nothing_is_left_out() -> None:
    totals = jsonbus.Totals(*range(1, 7))
    nodes = [make_node(f"n{number}", totals=totals, received=2) for number in range(1_000)]
    survey = Survey()
    survey.take([make_message(f"t/{number}") for number in range(10_000)])
    webhooks = [make_webhook(number) for number in range(1_000)]
    text, scraped = await expose(Pictured(nodes, survey), webhooks)
    assert len(scraped) < 12 * (250 + 250 + 250)
    assert len(text) < 1 << 20
    messages = labelled(scraped, "jsonbus_topic_messages_total", "topic")
    assert len(messages) == families_module.TOPICS_MAX + 1
    assert sum(messages.values()) == 10_000
    assert scraped["jsonbus_topics", ()] == 10_000
    assert scraped["jsonbus_topics_aggregated", ()] == 10_000 - families_module.TOPICS_MAX
    sent = labelled(scraped, "jsonbus_node_messages_sent_total", "node")
    assert len(sent) == families_module.NODES_MAX + 1 and sent["n0"] == 1
    assert scraped["jsonbus_nodes_aggregated", ()] == 1_000 - families_module.NODES_MAX
    assert labelled(scraped, "jsonbus_nodes", "mode")["delayed"] == 1_000
    backlog = labelled(scraped, "jsonbus_webhook_backlog_messages", "subscriber")
    assert len(backlog) == families_module.WEBHOOKS_MAX + 1 and sum(backlog.values()) == 2_000
    delivered = labelled(scraped, "jsonbus_webhook_messages_delivered_total", "subscriber")
    assert sum(delivered.values()) == sum(range(1_000))


@asynctest
async def test_nodes_that_do_not_tell_are_counted_and_plain_ones_are_shown() -> None:
    nodes = [
        make_node("told", totals=jsonbus.Totals(sent=3)),
        make_node("young"),
        make_node("plain:1", is_plain=True, mode="plain", received=7, lost=0),
        make_node(REST, totals=jsonbus.Totals(sent=9)),
    ]
    _, scraped = await expose(Pictured(nodes, Survey()), [])
    heard = labelled(scraped, "jsonbus_node_messages_heard_total", "node")
    assert heard == {"told": 0, "plain:1": 7, REST: 0}
    assert labelled(scraped, "jsonbus_nodes", "mode") == {
        "basic": 0,
        "master": 0,
        "delayed": 3,
        "plain": 1,
    }


@asynctest
async def test_webhooks_are_told_one_by_one() -> None:
    _, scraped = await expose(Pictured([], Survey()), [make_webhook(0), make_webhook(1)])
    one = (("subscriber", "w1"),)
    assert scraped["jsonbus_webhook_backlog_messages", one] == 2
    assert scraped["jsonbus_webhook_messages_delivered_total", one] == 1
    assert scraped["jsonbus_webhook_messages_dropped_total", one] == 1
    assert scraped["jsonbus_webhook_attempts_failed_total", one] == 3
    at = labelled(scraped, "jsonbus_webhook_last_error_timestamp_seconds", "subscriber")
    assert at == {"w1": 5}


@asynctest
async def test_bridges_are_asked_at_each_scrape() -> None:
    async with site() as here:
        answer = {**ANSWER, "node": here.other.id, "groups_known": 7, "last_error_s_ago": 10.0}
        serve(here.other, lambda: answer)

        async def seen() -> bool:
            scraped = await read_metrics(here.http)
            return 1 in labelled(scraped, "jsonbus_spark_bridge_up", "node").values()

        assert await until(seen)
        answer = {**answer, "rows_recorded": 99, "is_failing": True}
        scraped = await read_metrics(here.http)
        bridge = (("name", here.other.name), ("node", here.other.id))
        assert scraped["jsonbus_spark_bridges", ()] == 1
        assert scraped["jsonbus_spark_bridge_rows_recorded_total", bridge] == 99
        assert scraped["jsonbus_spark_bridge_log_bytes", bridge] == 100
        assert scraped["jsonbus_spark_bridge_is_failing", bridge] == 1
        assert scraped["jsonbus_spark_bridge_groups", bridge] == 7
        assert scraped["jsonbus_spark_bridge_lag_rows", (("group", "g"), *bridge)] == 1
        told_at = scraped["jsonbus_spark_bridge_told_timestamp_seconds", bridge]
        assert abs(told_at - time.time()) < 60
        error_at = scraped["jsonbus_spark_bridge_last_error_timestamp_seconds", bridge]
        assert abs(told_at - 10 - error_at) < 0.01
        answer = {"nonsense": True}
        scraped = await read_metrics(here.http)
        assert scraped["jsonbus_spark_bridge_up", bridge] == 0
        assert scraped["jsonbus_spark_bridge_rows_recorded_total", bridge] == 99


@asynctest
async def test_a_bridge_that_hangs_does_not_hold_up_a_scrape() -> None:
    async with site() as here:
        forever = asyncio.Event()

        async def hang(_: jsonbus.Message) -> None:
            await forever.wait()

        here.other.serve(f"spark-bridge/{here.other.id}/state", hang)

        async def seen() -> bool:
            scraped = await read_metrics(here.http)
            return bool(labelled(scraped, "jsonbus_spark_bridge_up", "node"))

        assert await until(seen)
        await read_metrics(here.http)
        # No answer is waited for as long as a bridge may take to give it.
        assert here.bridges.states()[0].report is None
        forever.set()


@asynctest
async def test_scrapes_side_by_side_are_all_answered() -> None:
    async with site() as here:
        await asyncio.gather(*(read_metrics(here.http) for _ in range(10)))
        assert here.observer.stats()["lookers"] == 1
