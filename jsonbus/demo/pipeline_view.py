"""The pipeline for people: a table that changes in place, or plain lines where there is no
terminal; and the verdict in the end."""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Protocol

from ..cli.lib.output import Output
from .counts import Check
from .pipeline_scene import QUERIES, SENSORS, PipelineScene, Seen

if TYPE_CHECKING:
    from rich.console import Console
    from rich.live import Live
    from rich.table import Table
    from rich.text import Text

TITLE = "sensors → bus → bridge → Spark → bus and Parquet"
INTRODUCTION = (
    f"{len(SENSORS)} sensors publish on the bus; a bridge records it; Spark reads the bridge, "
    "writes Parquet, and publishes windows and alerts on the bus. All on loopback."
)

#: How often a status goes to a pipe.
LINE_INTERVAL_S = 5.0

#: Lines of the screen besides alerts and events, with the introduction above it; what is left is
#: theirs, half of it each.
FIXED_LINES = 18
ALERTS_SHOWN_MAX = 6
EVENTS_SHOWN_MAX = 8


class PipelineView(Protocol):
    """What the command needs; a stage needs less of it."""

    def introduce(self) -> None: ...
    def show(self, scene: PipelineScene) -> None: ...
    def tell(self, scene: PipelineScene, text: str) -> None: ...
    def end(self, scene: PipelineScene) -> None: ...
    def summarize(self, scene: PipelineScene, checks: Sequence[Check]) -> None: ...


class LineView:
    """Plain lines: events and alerts as they come, and a status every few seconds."""

    def __init__(self, output: Output) -> None:
        self._output = output
        self._next_at_s = LINE_INTERVAL_S
        self._phase = ""
        self._alerts_told = 0

    def introduce(self) -> None:
        self._write(INTRODUCTION)

    def show(self, scene: PipelineScene) -> None:
        if scene.phase != self._phase:
            self._phase = scene.phase
            self._write(_at(scene, scene.phase))
        new = scene.alerts_seen - self._alerts_told
        self._alerts_told = scene.alerts_seen
        for alert in list(scene.alerts)[-new:] if new else ():
            self._write(_at(scene, f"on the bus: {_describe_alert(alert)}"))
        if scene.elapsed_s >= self._next_at_s:
            self._next_at_s = scene.elapsed_s + LINE_INTERVAL_S
            self._write(_at(scene, _status(scene)))

    def tell(self, scene: PipelineScene, text: str) -> None:
        self._write(_at(scene, text))

    def end(self, scene: PipelineScene) -> None:
        self._write(_at(scene, _status(scene)))

    def summarize(self, scene: PipelineScene, checks: Sequence[Check]) -> None:
        self._write("")
        for check in checks:
            self._write("  ".join(_cells(check)).rstrip())
        self._write("", *conclusions(scene, checks))

    def _write(self, *lines: str) -> None:
        for line in lines:
            self._output.write_line(line)
        self._output.flush()


class LiveView:
    """A table that changes in place, on a terminal."""

    def __init__(self, console: Console | None = None) -> None:
        from rich.console import Console

        self.console = console or Console(highlight=False)
        self._live: Live | None = None

    def introduce(self) -> None:
        self.console.print(INTRODUCTION, style="dim")

    def show(self, scene: PipelineScene) -> None:
        from rich.live import Live

        if self._live is None:
            self._live = Live(console=self.console, auto_refresh=False)
            self._live.start()
        self._live.update(draw(scene, self.console.height), refresh=True)

    def tell(self, scene: PipelineScene, text: str) -> None:
        self.show(scene)

    def end(self, scene: PipelineScene) -> None:
        """The last state stays on the screen."""
        if self._live is not None:
            self.show(scene)
            self._live.stop()
            self._live = None

    def summarize(self, scene: PipelineScene, checks: Sequence[Check]) -> None:
        from rich.table import Table
        from rich.text import Text

        table = Table.grid(padding=(0, 2, 0, 0))
        for justify in ("left", "right", "left", "left", "right"):
            table.add_column(justify=justify, no_wrap=True)
        for check in checks:
            style = "green" if check.holds else "bold red"
            what, figure, sign, other, other_figure = _cells(check)
            table.add_row(
                what, Text(figure, "bold"), Text(sign, style), other, Text(other_figure, style)
            )
        self.console.print()
        self.console.print(table)
        self.console.print()
        for line in conclusions(scene, checks):
            self.console.print(line, style="" if all(each.holds for each in checks) else "bold red")


def draw(scene: PipelineScene, height: int) -> Table:
    """The screen; it fits a terminal of 80 columns and 24 lines."""
    from rich.table import Table
    from rich.text import Text

    screen = Table.grid()
    screen.add_row(Text.assemble((TITLE, "bold"), ("  on this machine", "dim")))
    screen.add_row(_draw_progress(scene))
    screen.add_row(_draw_sensors(scene))
    screen.add_row(Text())
    screen.add_row(_draw_bridge(scene))
    screen.add_row(_draw_queries(scene))
    left = max(2, height - FIXED_LINES)
    alerts = list(scene.alerts)[-min(left // 2, ALERTS_SHOWN_MAX) :]
    events = list(scene.events)[-min(left - left // 2, EVENTS_SHOWN_MAX) :]
    screen.add_row(Text("alerts, as seen on the bus", "bold dim"))
    for alert in alerts:
        line = Text.assemble(("! ", "bold red"), _describe_alert(alert), no_wrap=True)
        screen.add_row(line)
    if not alerts:
        screen.add_row(Text("none yet", "dim"))
    for at_s, text in events:
        screen.add_row(Text(f"{_clock(at_s)}  {text}", "dim", no_wrap=True, overflow="ellipsis"))
    return screen


def _draw_progress(scene: PipelineScene, width: int = 24) -> Text:
    from rich.text import Text

    text = Text(f"{_clock(scene.elapsed_s)} ", "bold")
    if not scene.is_forever:
        done = min(width, int(width * scene.shown_s / scene.seconds))
        text.append("━" * done, "cyan")
        text.append("━" * (width - done), "bright_black")
    return text.append(f" {scene.phase}", "italic cyan")


def _draw_sensors(scene: PipelineScene) -> Table:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold dim")
    table.add_column("sensor", style="cyan", no_wrap=True, min_width=8)
    headings = ("value", "per s", "published", "window", "readings", "mean", "min", "max", "alerts")
    for heading in headings:
        table.add_column(heading, justify="right", no_wrap=True, min_width=6)
    for name, report in scene.sensors.items():
        window = scene.last_window(name)
        alerts = scene.alert_counts[name]
        table.add_row(
            name,
            f"{report.value:.1f}" if report.published else "·",
            f"{scene.sensor_rates[name].per_s:,.0f}",
            f"{report.published:,}",
            *(_draw_window(window) if window else [Text("·", "dim")] * 5),
            Text(str(alerts), "bold red" if alerts else "dim"),
        )
    return table


def _draw_window(window: dict[str, float | str]) -> list[Text]:
    from rich.text import Text

    start = datetime.fromisoformat(str(window["start"])).astimezone()
    figures = [Text(f"{window[key]:.2f}", "green") for key in ("mean", "min", "max")]
    return [Text(f"{start:%H:%M:%S}", "dim"), Text(f"{window['count']:,}"), *figures]


def _draw_bridge(scene: PipelineScene) -> Text:
    from rich.text import Text

    text = Text.assemble(("bridge   ", "cyan"))
    if scene.bridge is None:
        return text.append("starting", "dim")
    return text.append_text(
        Text.assemble(
            (f"{scene.recorded:,} rows recorded", "bold"),
            f", {scene.bridge_rate.per_s:,.0f}/s",
            (f", {scene.bridge['log']['bytes'] / 1e6:,.1f} MB on disk", "dim"),
            (f", {scene.bridge_address}", "dim"),
        )
    )


def _draw_queries(scene: PipelineScene) -> Table:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold dim")
    table.add_column("Spark", style="cyan", no_wrap=True, min_width=8)
    for heading in ("to", "batches", "rows", "rows/s", "behind", "a batch takes"):
        table.add_column(heading, justify="right", no_wrap=True, min_width=7)
    table.add_column("", no_wrap=True)
    for name, goal in QUERIES.items():
        query = scene.queries.get(name)
        if query is None or not query["batches"]:
            table.add_row(name, goal, *["·"] * 5, Text(scene.job_state, "dim"))
            continue
        behind = scene.behind(name)
        table.add_row(
            name,
            goal,
            f"{query['batches']:,}",
            Text(f"{query['rows']:,}", "bold"),
            f"{scene.query_rates[name].per_s:,.0f}",
            f"{behind:,}",
            f"{query['batch_ms']:,} ms",
            Text(_remark(scene, name), "dim"),
        )
    return table


def _remark(scene: PipelineScene, name: str) -> str:
    query = scene.queries[name]
    if name == "windows":
        return f"{query['dropped_rows']} too late"
    return f"{query['output_rows']} alerts" if name == "alerts" else ""


def conclusions(scene: PipelineScene, checks: Sequence[Check]) -> list[str]:
    """What was seen, in a few sentences made of the figures."""
    wrong = [each for each in checks if not each.holds]
    if wrong:
        return [f"WRONG: {len(wrong)} of {len(checks)} counts are not equal."]
    delays_s = scene.alert_delays_s
    lines = [
        f"All {len(checks)} counts are equal: of {scene.published:,} readings none was lost, none "
        f"came twice, and {scene.late_in_time} that came late were counted in their windows."
    ]
    if delays_s:
        lines.append(
            f"Alerts were back on the bus {statistics.median(delays_s):.1f} s after the reading "
            f"(median of {len(delays_s)})."
        )
    return lines


def _cells(check: Check) -> tuple[str, str, str, str, str]:
    figure, other = (
        "unknown" if each is None else f"{each:,}" for each in (check.figure, check.other_figure)
    )
    sign = "=" if check.holds else "≠"
    return check.what.ljust(24), figure.rjust(9), sign, check.other.ljust(24), other.rjust(9)


def _status(scene: PipelineScene) -> str:
    parts = [f"published {scene.published:,}", f"recorded {scene.recorded or 0:,}"]
    for name in QUERIES:
        query = scene.queries.get(name)
        if query is not None:
            parts.append(f"{name} {query['rows']:,} rows in {query['batches']:,} batches")
    parts.append(f"alerts seen {scene.alerts_seen:,}")
    return "  ".join(parts)


def _describe_alert(alert: Seen) -> str:
    reason = "out of limits" if alert.mean is None else f"its mean is {alert.mean:.1f}"
    at = time.strftime("%H:%M:%S", time.localtime(alert.at))
    return (
        f"{at} {alert.topic}: {alert.value:.1f}, {reason} ({alert.after_s:.1f} s after the reading)"
    )


def _at(scene: PipelineScene, text: str) -> str:
    return f"{scene.elapsed_s:6.1f} s  {text}"


def _clock(seconds: float) -> str:
    return f"{int(seconds) // 60}:{int(seconds) % 60:02d}"
