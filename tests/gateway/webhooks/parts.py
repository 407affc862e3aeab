"""A gateway without its ports, for tests of webhooks.

Pauses between attempts are capped to 10 ms, unless a test is about a long one.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jsonbus
from jsonbus.gateway.hub import Hub
from jsonbus.gateway.webhooks.ledger import SubscriberView, WebhookLedger
from jsonbus.gateway.webhooks.targets import Targets
from jsonbus.gateway.webhooks.webhooks import Webhooks
from tests.gateway.receiver import until
from tests.helpers import find_free_port

AT_HOME = Targets(is_loopback_gateway=True)


@dataclass
class Parts:
    """A gateway without its ports."""

    hub: Hub
    ledger: WebhookLedger
    webhooks: Webhooks
    bus_port: int

    async def publish(self, *values: Any, topic: str = "a") -> None:
        for value in values:
            await self.hub.publish(topic, value)

    def view(self, name: str) -> SubscriberView:
        return next(view for view in self.ledger.subscribers() if view.name == name)

    async def until_delivered(self) -> None:
        await until(lambda: self.ledger.stats()["backlog"] == 0)


@asynccontextmanager
async def gateway(
    path: Path | None = None, *, targets: Targets = AT_HOME, **settings: Any
) -> AsyncIterator[Parts]:
    settings = {"timeout_s": 60.0, "retry_s_max": 0.01} | settings
    port = find_free_port()
    async with jsonbus.AsyncBus(port=port) as bus:
        ledger = WebhookLedger(path)
        hub = Hub(bus, ledger)
        webhooks = Webhooks(ledger, targets, hub, own_node=bus.id, **settings)
        await ledger.open(webhooks.begin)
        hub.add_sink(webhooks.take)
        await webhooks.start()
        try:
            yield Parts(hub, ledger, webhooks, port)
        finally:
            await webhooks.close()
            await ledger.close()


def names(**addresses: Sequence[str] | list[list[str]]) -> Callable[[str, int], Any]:
    """A name server that knows NAME.example; a list of lists is one answer after the other."""

    async def look_up(host: str, port: int) -> list[str]:
        known: Any = addresses[host.removesuffix(".example")]
        if isinstance(known[0], list):
            known = known.pop(0) if len(known) > 1 else known[0]
        return list(known)

    return look_up


def delivery_tasks() -> list[str]:
    return sorted(
        task.get_name() for task in asyncio.all_tasks() if task.get_name().startswith("webhook ")
    )
