from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from time import monotonic, sleep
from typing import TYPE_CHECKING, Any

import click

from jsonbus.config import BusSettings

from .. import signals
from ..command import NodeCommand, need_modules, note
from ..lib.names import PATTERN
from ..lib.output import Output
from ..lib.parameters import (
    READABLE_ON_THE_WAY,
    is_loopback,
    option,
    show_address,
    tls_options,
)
from ..lib.values import printable

if TYPE_CHECKING:
    from spark_bridge.bridge import Bridge

#: How often the status is printed: to a terminal, and to a file.
STATUS_TERMINAL_S = 5.0
STATUS_FILE_S = 60.0

#: A week, which is the default of similar logs.
RETENTION_HOURS = 168.0

#: Queries that the status names.
GROUPS_SHOWN_MAX = 3


def _read_address(text: str) -> tuple[str, int]:
    """`HOST:PORT`; `[HOST]:PORT` for IPv6."""
    host, _, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not host or not port.isdecimal() or int(port) > 65_535:
        raise click.BadParameter(f"{text!r} is not HOST:PORT")
    return host, int(port)


def _read_token(text: str) -> str:
    if not text:
        raise click.BadParameter("an empty token keeps nobody out: give a secret, or no --token")
    return text


@click.command(
    "bridge",
    cls=NodeCommand,
    epilog="""\b
Examples:
  jsonbus bridge                               record everything, serve it on 127.0.0.1:7710
  jsonbus bridge 'sensors/**' --data-dir /var/lib/jsonbus-bridge
  jsonbus bridge --listen 0.0.0.0:7710 --token "$SECRET" --retention-bytes 50G

\b
In PySpark:
  spark_bridge.register(spark)
  spark.readStream.format("jsonbus").option("topics", "sensors/**").load()
""",
)
@click.argument("patterns", metavar="[PATTERN]...", nargs=-1, type=PATTERN)
@option(
    "--listen HOST:PORT",
    "Where Spark connects; port 0: any free port.",
    "127.0.0.1:7710",
    type=_read_address,
)
@option(
    "--data-dir FOLDER", "Folder of the log; created if it does not exist.", Path("jsonbus-bridge")
)
@option(
    "--partitions N",
    "Number of tasks that can read in parallel; fixed when the log is created [4].",
    bounds=(1, 1024),
)
@option("--retention-hours HOURS", "Delete older rows; 0: never.", RETENTION_HOURS)
@option("--retention-bytes SIZE", "Delete the oldest rows beyond this size (k, M, G) [unlimited].")
@option(
    "--sync-ms MS",
    "Least time between two syncs; a row is served once it is on disk.",
    20.0,
    (0, 10_000),
)
@option(
    "--token TEXT",
    "Secret that clients must send, in their option token.",
    type=_read_token,
    envvar="JSONBUS_BRIDGE_TOKEN",
    show_envvar=True,
)
@tls_options
@option(
    "--metrics-port PORT", "Serve counters for Prometheus on this port, on the host of --listen."
)
def command(
    settings: BusSettings,
    patterns: tuple[str, ...],
    listen: tuple[str, int],
    data_dir: Path,
    retention_hours: float,
    token: str | None,
    metrics_port: int | None,
    **options: Any,
) -> None:
    """Record the bus, and serve it to Spark.

    Messages of the PATTERNs [**] are appended to a log on disk, each with an offset. Spark's source
    "jsonbus" reads the log, in streams and batches; its sink publishes results on the bus. Runs
    until Ctrl-C, and then writes what it has received to the log.
    """
    need_modules(
        "bridge", ("pyarrow", *(("prometheus_client",) if metrics_port is not None else ()))
    )
    from spark_bridge.bridge import Bridge
    from spark_bridge.errors import BridgeError

    patterns = patterns or ("**",)
    try:
        with ExitStack() as opened:
            bridge = opened.enter_context(
                Bridge(
                    patterns,
                    listen=listen,
                    data_dir=data_dir,
                    retention_s=retention_hours * 3600 or None,
                    token=token,
                    **options,
                    **settings,
                )
            )
            with signals.until_interrupted():
                _introduce(bridge, patterns, data_dir, token)
                if metrics_port is not None:
                    from spark_bridge.metrics import Metrics

                    metrics = Metrics(bridge.stats, listen[0], metrics_port, bridge.certificate)
                    opened.callback(metrics.stop)
                    where = show_address(listen[0], metrics.port)
                    scheme = "http" if bridge.certificate is None else "https"
                    note(f"metrics are on {scheme}://{where}/metrics")
                _stay(bridge)
        stats = bridge.log.stats()
        note(f"{stats['rows']:,} rows are in the log, {stats['bytes']:,} bytes on disk")
    except BridgeError as error:
        raise click.ClickException(str(error)) from error


def _introduce(
    bridge: Bridge, patterns: tuple[str, ...], data_dir: Path, token: str | None
) -> None:
    host, port = bridge.address
    over = "" if bridge.certificate is None else " over TLS"
    note(
        f"{bridge.bus.name} records {' '.join(map(printable, patterns))} in {data_dir} and serves "
        f"{bridge.log.partitions} partitions{over} on {show_address(host, port)}; Ctrl-C ends"
    )
    if is_loopback(host):
        return
    if token is None:
        note("anybody who reaches this port can read and publish everything: use --token")
    if bridge.certificate is None:
        note(READABLE_ON_THE_WAY)


def _stay(bridge: Bridge) -> None:
    """Print the status now and then. Raises KeyboardInterrupt."""
    every_s = STATUS_TERMINAL_S if Output().is_terminal else STATUS_FILE_S
    told_at, told_rows, told_changes = monotonic(), 0, (0, 0)
    while True:
        sleep(signals.CHECK_S)
        signals.check()
        now = monotonic()
        if now - told_at < every_s:
            continue
        stats = bridge.stats()
        rows = stats["recorder"]["rows_recorded"]
        changes = rows, stats["recorder"]["rows_unrecorded"]
        if changes != told_changes:
            note(_status(stats, (rows - told_rows) / (now - told_at)))
        told_at, told_rows, told_changes = now, rows, changes


def _status(stats: dict[str, Any], rate: float) -> str:
    parts = [
        f"{stats['recorder']['rows_recorded']:,} rows recorded",
        f"{rate:,.0f}/s",
        f"{stats['log']['bytes'] / 1_000_000:,.1f} MB on disk",
    ]
    if stats["recorder"]["rows_unrecorded"]:
        parts.append(f"{stats['recorder']['rows_unrecorded']:,} not recorded")
    behind = sorted(
        ((facts["lag"], name) for name, facts in stats["groups"].items() if "lag" in facts),
        reverse=True,
    )
    parts += [f"{printable(name)} is {lag:,} behind" for lag, name in behind[:GROUPS_SHOWN_MAX]]
    return ", ".join(parts)
