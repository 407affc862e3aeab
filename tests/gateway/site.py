"""The gateway's HTTP side over real parts: bus, hub, ledger, webhooks, and a TCP port on loopback.

async with site(tokens=["publish=s"]) as here:
    assert (await here.http.get("/publish?topic=a&message=1")).status_code == 401
    answer = await here.raw(b"GET /health HTTP/1.1\\r\\nHost: localhost\\r\\n\\r\\n")
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
from fastapi import FastAPI

import jsonbus
from jsonbus.gateway.http.access import Access, read_token
from jsonbus.gateway.http.app import make_app
from jsonbus.gateway.http.events import EventLimits, EventStreams
from jsonbus.gateway.http.origins import Origins
from jsonbus.gateway.http.request import BodyRoom
from jsonbus.gateway.http.server import HttpServer
from jsonbus.gateway.hub import Hub, Published
from jsonbus.gateway.metrics.bridges import Bridges
from jsonbus.gateway.metrics.observer import MetricsObserver
from jsonbus.gateway.metrics.survey_observer import SurveyObserver
from jsonbus.gateway.services import BODY_BYTES_MAX, Services
from jsonbus.gateway.webhooks.ledger import WebhookLedger
from jsonbus.gateway.webhooks.targets import Targets
from jsonbus.gateway.webhooks.webhooks import Webhooks
from tests.aio.running import buses

PublishHook = Callable[[str, Any], Awaitable[None]]


class WatchedHub(Hub):
    """The real hub, which notes what it was asked to publish, and may be held up or fail."""

    def __init__(self, bus: jsonbus.AsyncBus, ledger: WebhookLedger) -> None:
        super().__init__(bus, ledger)
        self.published: list[tuple[str, Any]] = []
        self.options: list[tuple[bool, bool | None]] = []
        self.before_publish: PublishHook | None = None

    async def publish(
        self, topic: str, value: Any, *, retain: bool = False, reliable: bool | None = None
    ) -> Published:
        if self.before_publish is not None:
            await self.before_publish(topic, value)
        published = await super().publish(topic, value, retain=retain, reliable=reliable)
        self.published.append((topic, value))
        self.options.append((retain, reliable))
        return published


@dataclass
class Site:
    bus: jsonbus.AsyncBus
    #: Another node on the same bus.
    other: jsonbus.AsyncBus
    hub: WatchedHub
    ledger: WebhookLedger
    streams: EventStreams
    observer: SurveyObserver
    bridges: Bridges
    app: FastAPI
    server: HttpServer
    http: httpx.AsyncClient
    trouble: list[str]

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection(*self.server.address)

    async def raw(self, request: bytes) -> Raw:
        """Send bytes and read one answer; the connection is closed then."""
        reader, writer = await self.connect()
        try:
            writer.write(request)
            return await read_answer(reader)
        finally:
            await end(writer)


@dataclass
class Raw:
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@asynccontextmanager
async def site(
    *,
    tokens: Sequence[str] = (),
    data: Path | None = None,
    origins: Origins | None = None,
    ledger_options: Mapping[str, int] | None = None,
    stream_options: Mapping[str, Any] | None = None,
    server_options: Mapping[str, Any] | None = None,
    body_bytes_max: int = BODY_BYTES_MAX,
    room: BodyRoom | None = None,
    allow_webhooks: Sequence[str] = (),
) -> AsyncIterator[Site]:
    async with buses() as open_bus:
        bus, other = open_bus(), open_bus()
        ledger = WebhookLedger(data, **(ledger_options or {}))
        hub = WatchedHub(bus, ledger)
        targets = Targets(allow_webhooks, is_loopback_gateway=True)
        webhooks = Webhooks(ledger, targets, hub, own_node=hub.node, timeout_s=5.0)
        streams = EventStreams(hub, EventLimits(**(stream_options or {})))
        hub.add_sink(webhooks.take)
        hub.add_sink(streams.take)
        observer = SurveyObserver(bus)
        bridges = Bridges(bus)
        metrics_observer = MetricsObserver(observer, bridges, ledger.subscribers)
        trouble: list[str] = []

        async def find_trouble() -> str | None:
            return trouble[0] if trouble else None

        app = make_app(
            Services(
                hub=hub,
                webhooks=webhooks,
                event_streams=streams,
                subscribers=ledger.subscribers,
                origins=origins or Origins(is_loopback=True),
                stats=lambda: {
                    "bus": bus.stats(),
                    "hub": hub.stats(),
                    "webhooks": webhooks.stats(),
                    "store": ledger.stats(),
                    "events": streams.stats(),
                    "http": server.stats(),
                },
                observe=metrics_observer.scrape,
                access=Access(map(read_token, tokens)),
                trouble=find_trouble,
                body_bytes_max=body_bytes_max,
                room=room or BodyRoom(),
            )
        )
        server = HttpServer(app, **(server_options or {}))
        await ledger.open(webhooks.begin)
        await webhooks.start()
        await server.start()
        try:
            host, port = server.address
            base = f"http://{host}:{port}"
            async with httpx.AsyncClient(base_url=base, timeout=30, trust_env=False) as http:
                yield Site(
                    bus, other, hub, ledger, streams, observer, bridges, app, server, http, trouble
                )
        finally:
            streams.close()
            await server.close()
            metrics_observer.close()
            observer.close()
            await bridges.close()
            await webhooks.close()
            await ledger.close()


async def read_answer(reader: asyncio.StreamReader) -> Raw:
    """One answer with a length; what comes after it is left."""
    async with asyncio.timeout(30):
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        first, *lines = head.strip().split("\r\n")
        pairs = (line.split(": ", 1) for line in lines)
        headers = {name.lower(): value for name, value in pairs}
        body = await reader.readexactly(int(headers.get("content-length", 0)))
    return Raw(int(first.split(" ")[1]), headers, body)


async def end(writer: asyncio.StreamWriter) -> None:
    writer.close()
    try:
        await writer.wait_closed()
    except ConnectionError:
        pass
