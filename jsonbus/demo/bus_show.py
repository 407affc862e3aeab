"""`jsonbus demo --bus`: how nodes learn who wants what, in each of the three modes, without Spark.

    sensors (and a master) start ── alone ── the subscriber joins ── together ── it leaves ── alone

Then a table compares the modes: what was sent, what was suppressed, what arrived.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from rich.console import Group
from rich.table import Table
from rich.text import Text

from .sensor import Report, TopicReport
from .stage import Stage
from .view import Scene, View, draw_events, draw_progress, figure, make_table

SENSORS = ("kitchen", "bath", "garage", "attic")
#: Each sensor publishes both, near these values: kitchen/temp, kitchen/light.
QUANTITIES = {"temp": 21.0, "light": 55.0}
SUBSCRIBER = "display"
PATTERN = "*/temp"

#: Fractions of a mode's seconds.
ALONE_BEFORE = 0.35
TOGETHER = 0.45
ALONE_AFTER = 0.20

EVENTS_SHOWN = 5

WHAT_MODES_DO = {
    "basic": "every value is sent, whether anybody wants it or not; receivers filter",
    "master": "the master tells newcomers who wants what; unwanted values are not sent",
    "delayed": "the same without a master: the node with the shortest random delay answers",
}

INTRODUCTION = (
    f"{len(SENSORS)} sensors, each in its own process, publish on the loopback interface. "
    f"{SUBSCRIBER} joins late, subscribes to {PATTERN}, and leaves again. There is no broker."
)

MEANINGS = {
    "sent": "went out to every node on the network",
    "suppressed": "not sent, since nobody wanted it",
    "delivered": f"reached the handler of {SUBSCRIBER}",
    "shares": "subscription lists sent to nodes that lacked something",
    "unwanted": "arrived at a node that had no use for it, summed over all nodes",
    "first": f"from opening the bus to the first value, in {SUBSCRIBER}",
}


#: Of a node, and of all of them together: values passed to publish() and what became of them,
#: values that the subscriber's handler got and that it knows it missed, subscription lists sent in
#: answer to a node that lacked something, messages that arrived without a subscription for them.
COUNTS = ("published", "sent", "suppressed", "delivered", "lost", "shares", "unwanted")


@dataclass(frozen=True, slots=True)
class Tally:
    """The counts of all processes of one mode together, by name."""

    mode: str
    counts: dict[str, int]
    #: From opening the bus to the first value, of the latest subscriber.
    first_value_ms: float | None

    @property
    def cells(self) -> dict[str, str]:
        """A row of the summary, by heading."""
        counts = {name: f"{count:,}" for name, count in self.counts.items()}
        return {"mode": self.mode, **counts, "first": _milliseconds(self.first_value_ms)}


def add_up(mode: str, reports: Sequence[Report]) -> Tally:
    """Return the sum of the reports; the last subscriber's first value counts."""
    counts = {name: sum(getattr(report, name) for report in reports) for name in COUNTS}
    first_values = [each.first_value_ms for each in reports if each.first_value_ms is not None]
    return Tally(mode, counts, first_values[-1] if first_values else None)


@dataclass(slots=True)
class BusScene(Scene):
    """One mode while it runs."""

    mode: str = "delayed"
    address: str = ""
    has_subscriber: bool = False
    #: The last reports of subscribers that have left.
    past: list[Report] = field(default_factory=list)

    def tally(self) -> Tally:
        return add_up(self.mode, [*self.past, *self.reports.values()])

    def status(self) -> str:
        cells = self.tally().cells
        return "  ".join(f"{name} {cells[name]}" for name in COUNTS[:5])

    def draw(self, height: int) -> Group:
        return Group(
            Text.assemble(
                ("mode ", "bold"), (self.mode, "bold cyan"), (f"  {self.address}, loopback", "dim")
            ),
            Text(WHAT_MODES_DO[self.mode], "italic"),
            draw_progress(self),
            self._draw_topics(),
            self._draw_subscriber(),
            *draw_events(self, EVENTS_SHOWN, is_cut=False),
        )

    def _draw_topics(self) -> Table:
        headings = ("pid", "value", SUBSCRIBER, "published", "sent", "suppressed")
        table = make_table("topic", headings)
        table.add_column("now", no_wrap=True, min_width=11)
        seen = self.reports.get(SUBSCRIBER, Report()).seen if self.has_subscriber else {}
        for name in SENSORS:
            for quantity, value in QUANTITIES.items():
                topic = f"{name}/{quantity}"
                report = self.reports.get(name, Report()).topics.get(topic, TopicReport(value))
                table.add_row(
                    topic,
                    Text(str(self.pids.get(name, "")), "dim"),
                    f"{report.value:.1f}" if report.published else "·",
                    Text(f"{seen[topic]:.1f}", "bold green") if topic in seen else Text("·", "dim"),
                    f"{report.published:,}",
                    figure(report.sent, "yellow"),
                    figure(report.suppressed, "green"),
                    self._draw_verdict(report),
                )
        cells = self.tally().cells
        figures = (cells[name] for name in COUNTS[:3])
        table.add_row("all", "", "", "", *figures, "", style="bold")
        return table

    def _draw_verdict(self, report: TopicReport) -> Text:
        if report.verdict == "sent" and self.mode == "basic":
            return Text("→ everybody", "yellow")  # no node knows who wants it
        if report.verdict == "sent":
            return Text(f"→ {', '.join(report.wanted_by) or 'everybody'}", "bold green")
        return Text({"suppressed": "not sent"}.get(report.verdict, report.verdict), "dim")

    def _draw_subscriber(self) -> Text:
        if SUBSCRIBER not in self.pids:
            return Text(f"{SUBSCRIBER} is not there yet", "dim")
        report = self.reports.get(SUBSCRIBER, Report())
        return Text.assemble(
            (SUBSCRIBER, "bold cyan" if self.has_subscriber else "dim"),
            (f" (pid {self.pids[SUBSCRIBER]})", "dim"),
            f" subscribes to {PATTERN}: " if self.has_subscriber else " has left: ",
            (f"{report.delivered:,} delivered", "green"),
            f", {report.lost:,} lost, first value after {_milliseconds(report.first_value_ms)}",
        )


class BusStage(Stage[BusScene]):
    """Runs one mode."""

    def run(self) -> None:
        """Run the whole show. With `is_forever` the subscriber comes and goes until Ctrl-C."""
        scene = self.scene
        scene.address = f"{self.group}:{self.port}"
        self.view.print("")
        self.view.log(scene, f"mode {scene.mode}, {scene.address}: {WHAT_MODES_DO[scene.mode]}")
        if scene.mode == "master":
            self.start_node("master", mode=scene.mode, is_master=True)
        for name in SENSORS:
            topics = {f"{name}/{quantity}": value for quantity, value in QUANTITIES.items()}
            self.start_node(name, mode=scene.mode, publishes=topics)
        names = set(self.children)
        self.tell(f"{self.describe(list(self.children))} start")
        self.wait_for(lambda: scene.reports.keys() >= names, "the sensors are not ready")
        self.begin_show()
        topic_count = len(SENSORS) * len(QUANTITIES)
        self.tell(f"{len(SENSORS)} sensors publish to {topic_count} topics; nobody subscribes")
        self.play(ALONE_BEFORE * scene.seconds)
        while True:
            self._bring_subscriber()
            self.play(TOGETHER * scene.seconds)
            scene.has_subscriber = False
            self.end(SUBSCRIBER)
            self.tell(f"{SUBSCRIBER} has said goodbye")
            self.play(ALONE_AFTER * scene.seconds)
            if not scene.is_forever:
                return

    def _bring_subscriber(self) -> None:
        scene = self.scene
        if SUBSCRIBER in scene.reports:
            scene.past.append(scene.reports.pop(SUBSCRIBER))
        self.start_node(SUBSCRIBER, mode=scene.mode, subscribes=PATTERN)
        scene.has_subscriber = True
        self.tell(f"{self.describe([SUBSCRIBER])} starts and subscribes to {PATTERN}")
        self.wait_for(
            lambda: scene.reports.get(SUBSCRIBER, Report()).first_value_ms is not None,
            f"{SUBSCRIBER} got no value",
        )
        first_value_ms = scene.reports[SUBSCRIBER].first_value_ms
        self.tell(f"{SUBSCRIBER} has its first value, {first_value_ms:.0f} ms after joining")


def show_bus(
    modes: Sequence[str], seconds: float, view: View, check: Callable[[], None], *, is_forever: bool
) -> None:
    """Show the modes one after the other, then compare them; Ctrl-C leads to the comparison.

    Raises DemoError if a process fails, and KeyboardInterrupt after that comparison.
    """
    view.print(INTRODUCTION)
    tallies: list[Tally] = []
    try:
        for mode in modes:
            scene = BusScene(seconds, is_forever, mode=mode)
            try:
                with BusStage(scene, view, check) as stage:
                    stage.run()
            finally:
                view.end(scene)
                tallies.append(scene.tally())
    except KeyboardInterrupt:
        view.print("interrupted: these are the figures so far")
        summarize(tallies, view)
        raise
    summarize(tallies, view)


def summarize(tallies: Sequence[Tally], view: View) -> None:
    """Print the comparison of the modes."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    styles = {"mode": "bold", "sent": "yellow", "suppressed": "green"}
    for heading in tallies[0].cells:
        justify = "left" if heading == "mode" else "right"
        table.add_column(heading, justify=justify, no_wrap=True, style=styles.get(heading))  # type: ignore[arg-type]
    for tally in tallies:
        table.add_row(*tally.cells.values())
    view.print("", table, "")
    view.print(*(f"[bold]{word}[/]: {meaning}" for word, meaning in MEANINGS.items()), style="dim")
    view.print("", *conclusions(tallies))


def conclusions(tallies: Sequence[Tally]) -> list[str]:
    """Return what the figures mean, in a few sentences."""
    lines = []
    by_mode = {tally.mode: tally for tally in tallies if tally.counts["sent"]}
    basic, other = by_mode.get("basic"), by_mode.get("delayed") or by_mode.get("master")
    for tally in filter(None, (basic, other)):
        lines.append(
            f"In mode {tally.mode} the sensors sent "
            f"{100 * tally.counts['sent'] / tally.counts['published']:.0f} % of what they "
            f"published, and {tally.counts['unwanted']:,} messages woke a node for nothing."
        )
    if other is not None and other.first_value_ms is not None:
        lines.append(
            "A suppressed value costs nothing, and nobody misses it: a newcomer had its first "
            f"value after {_milliseconds(other.first_value_ms)}."
        )
    return lines


def _milliseconds(value: float | None) -> str:
    return "-" if value is None else f"{value:,.0f} ms"
