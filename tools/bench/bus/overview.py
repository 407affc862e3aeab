"""The table of the READMEs: one line per measure, those between hosts first."""

from __future__ import annotations

from typing import NamedTuple

from tools.bench.measures import LAN
from tools.bench.report import Row, markdown

#: Where a figure is easier to read in milliseconds.
MILLISECONDS_US = 1_000.0

PEERS = ("pyzmq", "zenoh", "nats", "lcm")
HEADER = ("measure", "jsonbus", "floor", "ratio", "floor with offload", "ratio", "AsyncBus")


class Line(NamedTuple):
    """A line of the table: a measure, what it is called, and the rows to show."""

    measure: str
    label: str
    floor: str = ""
    with_offload: str = ""
    unit: str = "µs"
    system: str = "jsonbus"


_LAN_LINES = (
    Line("flood", "CPU per message, flood", "raw-1400", "raw-1400-offload"),
    Line("fanout", "CPU per delivery, many subscribers", "raw-1400", "raw-1400-offload"),
    Line("large-1k", "CPU per message of 1 KB; floor: one per datagram", "raw"),
    Line("large-1m", "CPU per message of 1 MB", "raw-slices", "raw-slices-offload"),
    Line(
        "reliable",
        "CPU per reliable message; floor: unreliable",
        "jsonbus",
        "",
        "µs",
        "jsonbus-reliable",
    ),
    Line("calm", "CPU per message at 1,000/s", "raw"),
    Line("calls", "a subscriber's system calls per message at 1,000/s", "raw", "", ""),
    Line("latency-p50", "one way at 1,000/s, median", "raw"),
    Line("latency-p99", "the same, 99th percentile", "raw"),
    Line("unwanted", "CPU per unwanted message of 1.6 KB; floor: receiving it", "bare-recv"),
    Line("rate", "highest rate without loss", "raw-1400", "raw-1400-offload", "/s"),
)
_LOOPBACK = {
    "flood": ("raw-8k", "raw-8k-offload"),
    "fanout": ("raw-8k", "raw-8k-offload"),
    "rate": ("raw-8k", "raw-8k-offload"),
}
LINES = (
    *(each._replace(measure=LAN + each.measure) for each in _LAN_LINES),
    *(
        each._replace(
            label=f"loopback: {each.label}",
            floor=_LOOPBACK.get(each.measure, each[2:4])[0],
            with_offload=_LOOPBACK.get(each.measure, each[2:4])[1],
        )
        for each in _LAN_LINES
    ),
)


def make_overview(rows: dict[str, list[Row]]) -> str:
    """Return the table, in Markdown, of what was measured."""
    lines: list[list[str]] = []
    for line in LINES:
        by_name = {row.name: row for row in rows.get(line.measure, [])}
        if line.system in by_name:
            lines.append(_make_line(line, by_name))
    if not lines:
        return ""
    return markdown([[*HEADER, *PEERS], *lines])


def _make_line(line: Line, by_name: dict[str, Row]) -> list[str]:
    def show(name: str) -> str:
        return _show(by_name[name].median, line.unit) if name in by_name else ""

    cells = [line.label, show(line.system)]
    for floor in (line.floor, line.with_offload):
        ratio = by_name[line.system].ratio(floor)
        cells += [show(floor), "" if ratio is None else f"{ratio:.2f}"]
    return [*cells, show("jsonbus-aio"), *map(show, PEERS)]


def _show(figure: float, unit: str) -> str:
    if unit == "µs" and figure >= MILLISECONDS_US:
        figure, unit = figure / MILLISECONDS_US, "ms"
    digits = 0 if figure >= 100 else 1 if figure >= 10 else 2
    return f"{figure:,.{digits}f} {unit}".strip().replace(" /s", "/s")
