"""Serves the bridge's counters to Prometheus, on a separate port."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, cast

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from .errors import BridgeError, explain

PREFIX = "jsonbus_bridge"

#: A client has this long to send its request.
REQUEST_S = 10.0

#: Values that go up and down; all others only grow.
GAUGES = frozenset(
    """
    bytes segments blocks rows tail_rows rows_waiting connections attached_bytes staged_rows
    staged_bytes queries messages_lost messages_kept_for_repair messages_waiting_for_repair
    messages_waiting_to_be_sure nodes_known values_retained receive_buffer_asked_bytes
    receive_buffer_obtained_bytes interfaces_up is_failing
    """.split()
)

#: Gauges that used to be reported as counters, with `_total`. Names stay, so they are reported
#: twice.
MISNAMED = frozenset({"channels_open"})


class Metrics(Collector):
    """Serves the values of `stats` under /metrics until `stop`; raises BridgeError if it
    cannot.
    """

    def __init__(self, stats: Callable[[], dict[str, Any]], host: str, port: int) -> None:
        self._stats = stats
        registry = CollectorRegistry()
        registry.register(self)
        try:
            self._server, self._thread = start_http_server(port, addr=host, registry=registry)
        except OSError as error:
            raise BridgeError(f"cannot serve metrics on {host}:{port}: {explain(error)}") from error
        self.port: int = self._server.server_port
        # A thread serves each connection: a silent client must not keep it.
        handler = cast(type, self._server.RequestHandlerClass)
        self._server.RequestHandlerClass = type("Handler", (handler,), {"timeout": REQUEST_S})

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
