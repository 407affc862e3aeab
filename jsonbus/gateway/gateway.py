"""Gateway: a node of the bus that serves HTTP and text clients."""

from __future__ import annotations

import ipaddress
import logging
from collections.abc import Iterable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Unpack

import jsonbus
from jsonbus.config import BusSettings
from jsonbus.errors import ConfigError
from jsonbus.tls.certificate import load_certificate

from .health import Health
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
from .services import BODY_BYTES_MAX, Services
from .text.server import TextLimits, TextServer
from .webhooks.ledger import WebhookLedger
from .webhooks.targets import Targets
from .webhooks.webhooks import Webhooks

logger = logging.getLogger("jsonbus.gateway")

#: How long a gateway waits at its start to learn who is on the bus; then it serves anyway.
SURE_S = 2.0


@dataclass(frozen=True, kw_only=True)
class GatewayConfig:
    """The settings of a gateway, which are the options of `jsonbus gateway`."""

    host: str = "127.0.0.1"
    #: Port 0 is any free port: see `Gateway.http_address` and `text_address`.
    http_port: int = 0
    #: None: text clients are not served.
    text_port: int | None = 0
    #: Where webhooks and their backlog are stored; None: in memory, until the gateway ends.
    data_dir: Path | None = None
    tokens: Iterable[tuple[str, frozenset[str]]] = ()
    #: The files of a certificate and of its key, in PEM: both ports speak TLS.
    tls_cert: Path | None = None
    tls_key: Path | None = None
    allow_webhook: Sequence[str] = ()
    allow_origin: Sequence[str] = ()
    allow_host: Sequence[str] = ()
    handlers: int = 5
    buffer: int = 1_000
    backlog_max: int = 10_000
    total_backlog_max: int = 100_000
    body_bytes_max: int = BODY_BYTES_MAX
    webhook_timeout_s: float = 10.0
    retry_s_max: float = 60.0
    #: Serve the dashboard at `/` if NiceGUI is installed. One gateway of a process can have it.
    dashboard: bool = False


class Gateway:
    """A node of the bus that serves HTTP and text clients. Open it with `async with`.

    The keywords are those of `jsonbus.AsyncBus`. Raises ConfigError for wrong values; opening it
    raises TransportError (also for a port in use) and StoreError.
    """

    def __init__(
        self, config: GatewayConfig | None = None, **settings: Unpack[BusSettings]
    ) -> None:
        self._config = config = config or GatewayConfig()
        self._access = Access(config.tokens)
        try:
            self._is_local = ipaddress.ip_address(config.host).is_loopback
            self._targets = Targets(config.allow_webhook, is_loopback_gateway=self._is_local)
            self._origins = Origins(
                is_loopback=self._is_local,
                allow_hosts=config.allow_host,
                allow_origins=config.allow_origin,
            )
        except ValueError as error:
            raise ConfigError(str(error)) from error
        self._certificate = load_certificate(config.tls_cert, config.tls_key)
        self._settings = settings
        self._dashboard_class: Any = None
        self._why_no_dashboard = SWITCHED_OFF
        if config.dashboard:
            self._import_dashboard()
        self._room = BodyRoom()
        self._accepts = AcceptErrors()
        self._opened = AsyncExitStack()
        #: Where it listens, while it is open.
        self.http_address: tuple[str, int] = config.host, config.http_port
        self.text_address: tuple[str, int] | None = None

    async def __aenter__(self) -> Gateway:
        async with AsyncExitStack() as stack:
            await self._open(stack)
            self._opened = stack.pop_all()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Accept nothing more, store what was accepted, and leave the bus. Bounded in time."""
        await self._opened.aclose()

    @property
    def is_open_to_all(self) -> bool:
        """True if everyone who reaches the ports may do everything."""
        return self._access.is_open and not self._is_local

    @property
    def has_tls(self) -> bool:
        return self._certificate is not None

    @property
    def is_readable_on_the_way(self) -> bool:
        """True if others on the network can read what clients send, tokens included."""
        return not self.has_tls and not self._is_local

    @property
    def has_dashboard(self) -> bool:
        return self._dashboard_class is not None

    def stats(self) -> dict[str, dict[str, int]]:
        """Return the figures of each part, by the name of the part."""
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
        """Open one part after the other; they end in the opposite order, the bus last.

        The call that ends a part is pushed before the part starts, since a start that fails or is
        cancelled may leave something behind.
        """
        config = self._config
        self._accepts.begin()
        stack.callback(self._accepts.end)
        self.bus = await stack.enter_async_context(jsonbus.AsyncBus(**self._settings))
        self.ledger = WebhookLedger(
            config.data_dir,
            backlog_max=config.backlog_max,
            total_backlog_max=config.total_backlog_max,
        )
        self.hub = Hub(self.bus, self.ledger)
        self.webhooks = Webhooks(
            self.ledger,
            self._targets,
            self.hub,
            own_node=self.bus.id,
            timeout_s=config.webhook_timeout_s,
            retry_s_max=config.retry_s_max,
        )
        stack.push_async_callback(self.ledger.close)
        await self.ledger.open(self.webhooks.begin)
        self._health = Health(self.bus, self.ledger)
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
        await self.bus.wait_until_sure(SURE_S)  # the bus holds messages until then
        self.text: TextServer | None = None
        if config.text_port is not None:
            self.text = self._make_text_server()
            self.hub.add_sink(self.text.take)
            stack.push_async_callback(self.text.close)
            await self.text.start(config.host, config.text_port)
            self.text_address = self.text.address
        self.dashboard = None
        if self._dashboard_class is not None:
            self.dashboard = await stack.enter_async_context(self._make_dashboard())
        self._http = HttpServer(
            make_app(self._services()),
            config.host,
            config.http_port,
            certificate=self._certificate,
            has_websockets=self.dashboard is not None,
        )
        stack.push_async_callback(self._http.close)
        stack.callback(self.events.close)  # first: the server waits for answers
        await self._http.start()
        self.http_address = self._http.address
        listeners = filter(None, (self.http_address, self.text_address))
        self._targets.refuse_own(port for _, port in listeners)

    def _make_text_server(self) -> TextServer:
        limits = TextLimits(handlers=self._config.handlers, commands=self._config.buffer)
        return TextServer(self.hub, self._access, limits, self._certificate)

    def _import_dashboard(self) -> None:
        """Import NiceGUI before there is a node: that blocks the event loop for half a second."""
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
            trouble=self._health.find_trouble,
            body_bytes_max=self._config.body_bytes_max,
            room=self._room,
            dashboard=self._why_no_dashboard if self.dashboard is None else self.dashboard.auth,
        )
