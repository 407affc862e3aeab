"""The demo for people: a live table on a terminal, plain lines in a pipe or a log.

Both say the same in the same words. rich is imported by the one that needs it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from ..cli.lib.output import Output
from .sharing_report import Report, Tally, TopicReport
from .sharing_stage import PATTERN, SENSORS, SUBSCRIBER, Scene

if TYPE_CHECKING:
    from rich.console import Console
    from rich.live import Live
    from rich.table import Table
    from rich.text import Text

WHAT_MODES_DO = {
    "basic": "every value goes out, whether anybody wants it or not; receivers filter",
    "master": "the master tells newcomers who wants what; what nobody wants is not sent",
    "delayed": "the same without a master: whoever's share delay ends first tells newcomers",
}

INTRODUCTION = (
    f"{len(SENSORS)} sensors, each a process of its own, publish on the loopback interface; "
    f"{SUBSCRIBER} comes late, subscribes to {PATTERN}, and leaves again. No broker."
)

SUMMARY_HEADINGS = (
    "mode", "published", "sent", "suppressed", "delivered", "lost", "shares", "unwanted", "first",
)  # fmt: skip

MEANINGS = (
    ("sent", "went out to every node on the network"),
    ("suppressed", "not sent, since nobody wanted it"),
    ("delivered", f"reached the handler of {SUBSCRIBER}"),
    ("shares", "subscription lists sent to tell somebody what was missing"),
    ("unwanted", "arrived at a node that had no use for it, all nodes together"),
    ("first", f"from {SUBSCRIBER} opening its bus to its first value"),
)

#: How often a count goes to a pipe.
LINE_INTERVAL_S = 1.0


class DemoView(Protocol):
    """What the command needs; a stage needs less of it."""

    def introduce(self) -> None: ...
    def begin(self, scene: Scene) -> None: ...
    def show(self, scene: Scene) -> None: ...
    def tell(self, scene: Scene, text: str) -> None: ...
    def end(self, scene: Scene) -> None: ...
    def summarize(self, tallies: Sequence[Tally]) -> None: ...


class LineView:
    """Plain lines: events as they come, and a count every second."""

    def __init__(self, output: Output) -> None:
        self._output = output
        self._next_count_at = 0.0

    def introduce(self) -> None:
        self._write(INTRODUCTION)

    def begin(self, scene: Scene) -> None:
        self._next_count_at = LINE_INTERVAL_S
        self._write("", f"mode {scene.mode}, {scene.address}: {WHAT_MODES_DO[scene.mode]}")

    def show(self, scene: Scene) -> None:
        if scene.elapsed_s >= self._next_count_at:
            self._next_count_at = scene.elapsed_s + LINE_INTERVAL_S
            self._write(_at(scene.elapsed_s, _count(scene.tally())))

    def tell(self, scene: Scene, text: str) -> None:
        self._write(_at(scene.elapsed_s, text))

    def end(self, scene: Scene) -> None:
        self._write(_at(scene.elapsed_s, _count(scene.tally())))

    def summarize(self, tallies: Sequence[Tally]) -> None:
        rows = [SUMMARY_HEADINGS, *map(_summary_row, tallies)]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        self._write("")
        for row in rows:
            cells = [cell.rjust(width) for cell, width in zip(row, widths, strict=True)]
            cells[0] = row[0].ljust(widths[0])
            self._write("  ".join(cells))
        self._write("", *(f"{word}: {meaning}" for word, meaning in MEANINGS))
        self._write("", *conclusions(tallies))

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
        self.console.print(INTRODUCTION)

    def begin(self, scene: Scene) -> None:
        from rich.live import Live

        self.console.print()
        self._live = Live(draw(scene), console=self.console, auto_refresh=False)
        self._live.start()

    def show(self, scene: Scene) -> None:
        if self._live is not None:
            self._live.update(draw(scene), refresh=True)

    def tell(self, scene: Scene, text: str) -> None:
        self.show(scene)

    def end(self, scene: Scene) -> None:
        """The last state stays on the screen."""
        if self._live is not None:
            self.show(scene)
            self._live.stop()
            self._live = None

    def summarize(self, tallies: Sequence[Tally]) -> None:
        from rich.table import Table

        table = Table(box=None, pad_edge=False, header_style="bold")
        for index, heading in enumerate(SUMMARY_HEADINGS):
            table.add_column(heading, justify="right" if index else "left", no_wrap=True)
        for tally in tallies:
            mode, published, sent, suppressed, *others = _summary_row(tally)
            styled = f"[yellow]{sent}[/]", f"[green]{suppressed}[/]"
            table.add_row(f"[bold]{mode}[/]", published, *styled, *others)
        self.console.print()
        self.console.print(table)
        self.console.print()
        for word, meaning in MEANINGS:
            self.console.print(f"[bold]{word}[/]: {meaning}", style="dim")
        self.console.print()
        for line in conclusions(tallies):
            self.console.print(line)


def draw(scene: Scene) -> Table:
    """The screen of a mode: title, topics, subscriber, events."""
    from rich.table import Table
    from rich.text import Text

    screen = Table.grid()
    title = Text.assemble(
        ("mode ", "bold"), (scene.mode, "bold cyan"), (f"  {scene.address} on loopback", "dim")
    )
    screen.add_row(title)
    screen.add_row(Text(WHAT_MODES_DO[scene.mode], "italic"))
    screen.add_row(_progress(scene))
    screen.add_row(_draw_topics(scene))
    screen.add_row(_draw_subscriber(scene))
    for at_s, text in scene.events:
        screen.add_row(Text(_at(at_s, text), "dim"))
    return screen


def _draw_topics(scene: Scene) -> Table:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold dim")
    table.add_column("pid", style="dim", no_wrap=True)
    table.add_column("topic", style="cyan", no_wrap=True)
    for heading in ("value", SUBSCRIBER, "published", "sent", "suppressed"):
        table.add_column(heading, justify="right", no_wrap=True, min_width=7)
    table.add_column("now", no_wrap=True, min_width=11)
    seen = scene.reports.get(SUBSCRIBER, Report()).seen if scene.has_subscriber else {}
    for name, process in scene.processes.items():
        if not process.part.publishes:
            continue
        pid = str(process.pid)
        for topic, value in process.part.publishes.items():
            report = scene.reports.get(name, Report()).topics.get(topic, TopicReport(value))
            shown = f"{seen[topic]:.1f}" if topic in seen else "·"
            table.add_row(
                pid,
                topic,
                f"{report.value:.1f}" if report.published else "·",
                Text(shown, "bold green" if topic in seen else "dim"),
                f"{report.published:,}",
                Text(f"{report.sent:,}", "yellow" if report.sent else "dim"),
                Text(f"{report.suppressed:,}", "green" if report.suppressed else "dim"),
                _draw_route(scene.mode, report),
            )
            pid = ""
    tally = scene.tally()
    table.add_row(
        "", "all", "", "", f"{tally.published:,}", f"{tally.sent:,}", f"{tally.suppressed:,}", "",
        style="bold",
    )  # fmt: skip
    return table


def _draw_route(mode: str, report: TopicReport) -> Text:
    """What happens to a topic's values now."""
    from rich.text import Text

    if report.verdict == "sent" and mode == "basic":
        return Text("→ everybody", "yellow")  # nobody knows who wants it
    if report.verdict == "sent":
        return Text(f"→ {', '.join(report.wanted_by) or 'everybody'}", "bold green")
    return Text({"suppressed": "not sent"}.get(report.verdict, report.verdict), "dim")


def _draw_subscriber(scene: Scene) -> Text:
    from rich.text import Text

    process = scene.processes.get(SUBSCRIBER)
    if process is None:
        return Text(f"{SUBSCRIBER} is not there yet", "dim")
    report = scene.reports.get(SUBSCRIBER, Report())
    first_value = _milliseconds(report.first_value_ms)
    return Text.assemble(
        (f"{process.pid} ", "dim"),
        (SUBSCRIBER, "bold cyan" if scene.has_subscriber else "dim"),
        f" subscribes to {PATTERN}: " if scene.has_subscriber else " has left: ",
        (f"{report.delivered:,} delivered", "green"),
        f", {report.lost:,} lost, first value after {first_value}",
    )


def _progress(scene: Scene, width: int = 40) -> Text:
    from rich.text import Text

    done = min(width, int(width * scene.elapsed_s / scene.seconds))
    bar = Text("━" * done, "cyan")
    bar.append("━" * (width - done), "bright_black")
    bar.append(f" {scene.elapsed_s:.0f} s", "dim")
    return bar


def conclusions(tallies: Sequence[Tally]) -> list[str]:
    """Why it matters, in a few sentences made of the figures."""
    lines = []
    by_mode = {tally.mode: tally for tally in tallies if tally.sent}
    basic, other = by_mode.get("basic"), by_mode.get("delayed") or by_mode.get("master")
    for tally in filter(None, (basic, other)):
        lines.append(
            f"In mode {tally.mode} the sensors sent {_percent(tally.sent, tally.published)} of "
            f"what they published, and {tally.unwanted:,} messages woke a node for nothing."
        )
    if other is not None and other.first_value_ms is not None:
        lines.append(
            f"What is suppressed costs nothing, and nobody misses it: a newcomer had its first "
            f"value after {_milliseconds(other.first_value_ms)}."
        )
    return lines


def _count(tally: Tally) -> str:
    return (
        f"published {tally.published:,}  sent {tally.sent:,}  suppressed {tally.suppressed:,}  "
        f"delivered {tally.delivered:,}  lost {tally.lost:,}"
    )


def _summary_row(tally: Tally) -> tuple[str, ...]:
    return (
        tally.mode,
        f"{tally.published:,}",
        f"{tally.sent:,}",
        f"{tally.suppressed:,}",
        f"{tally.delivered:,}",
        f"{tally.lost:,}",
        f"{tally.shares:,}",
        f"{tally.unwanted:,}",
        _milliseconds(tally.first_value_ms),
    )


def _at(seconds: float, text: str) -> str:
    return f"{seconds:5.1f} s  {text}"


def _milliseconds(value: float | None) -> str:
    return "-" if value is None else f"{value:,.0f} ms"


def _percent(part: int, whole: int) -> str:
    return f"{100 * part / whole:.0f} %" if whole else "nothing"
