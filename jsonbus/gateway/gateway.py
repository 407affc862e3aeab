"""Gateway: a node of the bus that serves HTTP and text clients."""

from __future__ import annotations

import ipaddress
import logging
from collections.abc import Iterable, Sequence
from contextlib import AsyncExitStack
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Unpack

import jsonbus
from jsonbus.config import BusSettings
from jsonbus.errors import ConfigError

from .http.accept_errors import AcceptErrors
from .http.access import Access
from .http.app import make_app
from .http.docs_page import NOT_INSTALLED, SWITCHED_OFF
from .http.events import EventStreams
from .http.origins import Origins
from .http.request import BodyRoom
from .http.server import HttpServer
from .hub import Hub
from .metrics.bridges import Bridges
from .metrics.observer import MetricsObserver
from .metrics.survey_observer import SurveyObserver
from .services import Services
from .text.server import TextServer
from .webhooks.ledger import WebhookLedger
from .webhooks.targets import Targets
from .webhooks.webhooks import Webhooks

logger = logging.getLogger("jsonbus.gateway")

#: So long a gateway waits at its start to know who is on the bus; it serves anyway then.
SURE_S = 2.0


class Gateway:
    """See `jsonbus gateway`. Open it with `async with`; it serves until that ends.

    `data_dir` None keeps webhooks and their backlog in memory: they end with the gateway.
    `text_port` None serves no text clients. `dashboard`: serve one at `/`, if NiceGUI is installed;
    one gateway of a process can have it at a time. Port 0 is any free one: see `http_address` and
    `text_address`. Raises ConfigError, TransportError (also for a port in use), StoreError.
    """

    def __init__(
        self,
        host: str = "127.0.0.1",
        http_port: int = 0,
        text_port: int | None = 0,
        *,
        data_dir: Path | None = None,
        tokens: Iterable[tuple[str, frozenset[str]]] = (),
        allow_webhook: Sequence[str] = (),
        allow_origin: Sequence[str] = (),
        allow_host: Sequence[str] = (),
        handlers: int = 5,
        buffer: int = 1_000,
        backlog_max: int = 10_000,
        total_backlog_max: int = 100_000,
        body_bytes_max: int = 1 << 20,
        webhook_timeout_s: float = 10.0,
        retry_s_max: float = 60.0,
        dashboard: bool = False,
        **settings: Unpack[BusSettings],
    ) -> None:
        self._host = host
        self._ports = http_port, text_port
        self._data_dir = data_dir
        self._access = Access(tokens)
        try:
            self._is_local = ipaddress.ip_address(host).is_loopback
            self._targets = Targets(allow_webhook, is_loopback_gateway=self._is_local)
            self._origins = Origins(
                is_loopback=self._is_local, allow_hosts=allow_host, allow_origins=allow_origin
            )
        except ValueError as error:
            raise ConfigError(str(error)) from error
        self._text_limits = {"handlers": handlers, "buffer": buffer}
        self._backlog_limits = {"backlog_max": backlog_max, "total_backlog_max": total_backlog_max}
        self._body_bytes_max = body_bytes_max
        self._webhook_times_s = webhook_timeout_s, retry_s_max
        self._settings = settings
        self._dashboard_class: Any = None
        self._why_no_dashboard = SWITCHED_OFF
        if dashboard:
            self._import_dashboard()
        self._room = BodyRoom()
        self._accepts = AcceptErrors()
        self._opened = AsyncExitStack()
        #: Where it listens, while it is open.
        self.http_address: tuple[str, int] = host, http_port
        self.text_address: tuple[str, int] | None = None

    async def __aenter__(self) -> Gateway:
        async with AsyncExitStack() as stack:
            await self._open(stack)
            self._opened = stack.pop_all()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Take nothing more, write down what was accepted, leave the bus. Bounded in time."""
        await self._opened.aclose()

    @property
    def is_open_to_all(self) -> bool:
        """Whether whoever reaches its ports may do everything."""
        return self._access.is_open and not self._is_local

    @property
    def has_dashboard(self) -> bool:
        return self._dashboard_class is not None

    def stats(self) -> dict[str, dict[str, int]]:
        """The figures of all parts, by part."""
        parts: dict[str, Any] = {
            "hub": self.hub,
            "webhooks": self.webhooks,
            "store": self.ledger,
            "events": self.events,
            "text": self.text,
            "http": self._http,
            "sockets": self._accepts,
            "lookout": self.observer,
            "bridges": self.bridges,
            "dashboard": self.dashboard,
            "bus": self.bus,
        }
        return {name: part.stats() for name, part in parts.items() if part is not None}

    async def _open(self, stack: AsyncExitStack) -> None:
        """Ends in the opposite order: clients first, the bus last.

        What ends a part is noted before it starts: a start that fails or is cancelled may leave
        something behind.
        """
        http_port, text_port = self._ports
        self._accepts.begin()
        stack.callback(self._accepts.end)
        self.bus = await stack.enter_async_context(jsonbus.AsyncBus(**self._settings))
        self.ledger = WebhookLedger(self._data_dir, **self._backlog_limits)
        self.hub = Hub(self.bus, self.ledger)
        timeout_s, retry_s_max = self._webhook_times_s
        self.webhooks = Webhooks(
            self.ledger,
            self._targets,
            self.hub,
            own_node=self.bus.id,
            timeout_s=timeout_s,
            retry_s_max=retry_s_max,
        )
        stack.push_async_callback(self.ledger.close)
        await self.ledger.open(self.webhooks.begin)
        self.hub.add_sink(self.webhooks.take)
        stack.push_async_callback(self.webhooks.close)
        await self.webhooks.start()
        self.events = EventStreams(self.hub)
        self.hub.add_sink(self.events.take)
        self.observer = SurveyObserver(self.bus)
        stack.callback(self.observer.close)
        self.bridges = Bridges(self.bus)
        stack.push_async_callback(self.bridges.close)
        self._metrics_observer = MetricsObserver(
            self.observer, self.bridges, self.ledger.subscribers
        )
        stack.callback(self._metrics_observer.close)
        await self.bus.wait_until_sure(SURE_S)  # what is published now would be held meanwhile
        self.text: TextServer | None = None
        if text_port is not None:
            self.text = TextServer(self.hub, self._access, **self._text_limits)
            self.hub.add_sink(self.text.take)
            stack.push_async_callback(self.text.close)
            await self.text.start(self._host, text_port)
            self.text_address = self.text.address
        self.dashboard = None
        if self._dashboard_class is not None:
            self.dashboard = await stack.enter_async_context(self._make_dashboard())
        self._http = HttpServer(
            make_app(self._services()),
            self._host,
            http_port,
            on_close=self.events.close,
            has_websockets=self.dashboard is not None,
        )
        stack.push_async_callback(self._http.close)
        await self._http.start()
        self.http_address = self._http.address

    def _import_dashboard(self) -> None:
        """Before there is a node, whose event loop would stand still meanwhile: half a second."""
        if find_spec("nicegui") is None:
            self._why_no_dashboard = NOT_INSTALLED
            return
        from .dashboard.dashboard import Dashboard

        self._dashboard_class = Dashboard

    def _make_dashboard(self) -> Any:
        return self._dashboard_class(
            node=self.bus.name,
            observer=self.observer,
            bridges=self.bridges,
            hub=self.hub,
            subscribers=self.ledger.subscribers,
            access=self._access,
            room=self._room,
        )

    def _services(self) -> Services:
        return Services(
            hub=self.hub,
            webhooks=self.webhooks,
            event_streams=self.events,
            subscribers=self.ledger.subscribers,
            origins=self._origins,
            stats=self.stats,
            observe=self._metrics_observer.scrape,
            access=self._access,
            trouble=self._find_trouble,
            body_bytes_max=self._body_bytes_max,
            room=self._room,
            dashboard=self._why_no_dashboard if self.dashboard is None else self.dashboard.auth,
        )

    def _find_trouble(self) -> str | None:
        if self.ledger.stats()["is_failing"]:
            return "messages for webhooks cannot be stored: see the gateway's log"
        return None
