"""Serves the bridge's counters to Prometheus, on a separate port."""

from __future__ import annotations

import logging
import socket
import ssl
from collections.abc import Callable, Iterator
from socketserver import ThreadingMixIn
from threading import Thread
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from prometheus_client import CollectorRegistry, make_wsgi_app
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from jsonbus.tls.certificate import ServerCertificate

from .errors import BridgeError, explain

logger = logging.getLogger("jsonbus.bridge")

PREFIX = "jsonbus_bridge"

#: A client has this long to send its request.
REQUEST_S = 10.0

#: Values that go up and down; all others only grow.
GAUGES = frozenset(
    """
    bytes segments blocks rows tail_rows rows_waiting connections attached_bytes staged_rows
    staged_bytes queries messages_lost messages_kept_for_repair messages_waiting_for_repair
    messages_waiting_to_be_sure nodes_known values_retained receive_buffer_asked_bytes
    receive_buffer_obtained_bytes interfaces_up is_failing tls_handshakes_waiting
    """.split()
)

#: Gauges that used to be reported as counters, with `_total`. Names stay, so they are reported
#: twice.
MISNAMED = frozenset({"channels_open"})


class Metrics(Collector):
    """Serves the values of `stats` under /metrics until `stop`, over TLS with a certificate.

    Raises BridgeError if it cannot.
    """

    def __init__(
        self,
        stats: Callable[[], dict[str, Any]],
        host: str,
        port: int,
        certificate: ServerCertificate | None = None,
    ) -> None:
        self._stats = stats
        registry = CollectorRegistry()
        registry.register(self)
        try:
            self._server = make_server(
                host,
                port,
                make_wsgi_app(registry),
                _Server6 if ":" in host else _Server,
                _Handler if certificate is None else _tls_handler(certificate.context),
            )
        except OSError as error:
            raise BridgeError(f"cannot serve metrics on {host}:{port}: {explain(error)}") from error
        self.port: int = self._server.server_port
        self._thread = Thread(
            target=self._server.serve_forever, name="jsonbus-bridge-metrics", daemon=True
        )
        self._thread.start()

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def collect(self) -> Iterator[Metric]:
        """Called by the library for each page."""
        stats = self._stats()
        groups = stats.pop("groups")
        for part, figures in stats.items():
            for name, value in figures.items():
                full = f"{PREFIX}_{part}_{name}"
                kind = GaugeMetricFamily if name in GAUGES else CounterMetricFamily
                text = f"{name.replace('_', ' ')} of the bridge's {part}"
                yield kind(full, text, value=value)
                if name in MISNAMED:
                    yield GaugeMetricFamily(full, text, value=value)
        lag = GaugeMetricFamily(
            f"{PREFIX}_lag_rows", "rows that a group has not committed yet", labels=["group"]
        )
        misfits = CounterMetricFamily(
            f"{PREFIX}_misfits", "values that did not fit a group's schema", labels=["group"]
        )
        for group, facts in groups.items():
            if "lag" in facts:
                lag.add_metric([group], facts["lag"])
            misfits.add_metric([group], facts["misfits"])
        yield lag
        yield misfits


class _Server(ThreadingMixIn, WSGIServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Called when a request failed: the client hung up, was silent, or spoke no TLS."""
        logger.debug("! no metrics for the client at %s", client_address, exc_info=True)


class _Server6(_Server):
    address_family = socket.AF_INET6


class _Handler(WSGIRequestHandler):
    """One connection, in its own thread. A silent client must not keep it."""

    timeout = REQUEST_S

    def log_message(self, format: str, *arguments: Any) -> None:
        """No line per request."""


def _tls_handler(context: ssl.SSLContext) -> type[_Handler]:
    class Handler(_Handler):
        def setup(self) -> None:
            # Here, not where connections are accepted: a slow handshake holds up nobody.
            self.request.settimeout(REQUEST_S)
            self.request = context.wrap_socket(self.request, server_side=True)
            super().setup()

        def finish(self) -> None:
            with self.request:  # the server closes only what it accepted
                super().finish()

    return Handler
