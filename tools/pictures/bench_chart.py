"""Draw the figures as a picture, if matplotlib is installed; jsonbus does not depend on it."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Sequence
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import Any

from tools.bench.report import Row

#: A page shows it at some 1,000 pixels: more would make the file larger and nothing clearer.
PIXELS_PER_INCH = 110
COLOURS_MAX = 64
PANEL_INCHES = (5.6, 2.9)
COLOURS = {"raw": "#9aa5b1", "jsonbus": "#1f6feb", "other": "#d9822b"}
PALE = 0.45

PLAIN = "{x:,.0f}"

TITLES = {
    "lan-flood": "Between hosts: CPU per message, flood",
    "lan-fanout": "Between hosts: CPU per delivery, many subscribers",
    "lan-latency-p50": "Between hosts: one way at 1,000 messages/s",
    "lan-calm": "Between hosts: CPU per message at 1,000 messages/s",
    "flood": "Loopback: CPU per message, flood",
    "fanout": "Loopback: CPU per delivery, many subscribers",
    "latency-p50": "Loopback: one way at 1,000 messages/s",
}

CURVES = {
    "growth-topics": ("publish, by topics", "o", "#1f6feb"),
    "growth-nodes": ("publish, by known nodes", "s", "#0b2e6f"),
    "growth-receive": ("receive, by topics", "^", "#6ea8fe"),
}

LATENCIES = ("lan-latency-p50", "latency-p50")
IDLE = "growth-idle"

Rows = dict[str, list[Row]]


def find_obstacle() -> str | None:
    """Return the reason why no chart can be drawn, or None if it can."""
    if importlib.util.find_spec("matplotlib") is None:
        return "matplotlib is not installed in this Python"
    return None


def draw(rows: Rows, path: Path) -> bool:
    """A panel for each group of measures that was taken, as PNG; False if there is none to draw."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    panels = [drawing for names, drawing in PANELS if any(name in rows for name in names)]
    if not panels:
        return False
    columns = min(2, len(panels))
    lines = -(-len(panels) // columns)
    size = (PANEL_INCHES[0] * columns, PANEL_INCHES[1] * lines)
    figure, axes = pyplot.subplots(
        lines, columns, figsize=size, squeeze=False, layout="constrained"
    )
    for drawing, panel in zip(panels, axes.flat, strict=False):
        drawing(panel, rows)
        panel.spines[["top", "right"]].set_visible(False)
        panel.tick_params(labelsize=8)
    for panel in axes.flat[len(panels) :]:
        panel.set_visible(False)
    _save(figure, path)
    pyplot.close(figure)
    return True


def _save(figure: Any, path: Path) -> None:
    """With a palette: a third of the bytes, and nobody sees the difference."""
    from PIL import Image  # what matplotlib itself writes with

    picture = BytesIO()
    figure.savefig(picture, dpi=PIXELS_PER_INCH, format="png")
    Image.open(picture).convert("RGB").quantize(COLOURS_MAX).save(path, "PNG", optimize=True)


def _draw_bars(name: str, panel: Any, rows: Rows) -> None:
    panel.set_title(TITLES[name], fontsize=10)
    ordered = sorted(rows[name], key=lambda row: row.median, reverse=True)
    medians = [row.median for row in ordered]
    below = [row.median - min(row.values) for row in ordered]
    above = [max(row.values) - row.median for row in ordered]
    names = [row.name for row in ordered]
    panel.barh(
        names,
        medians,
        xerr=[below, above],
        color=[_colour(name) for name in names],
        error_kw={"elinewidth": 0.8, "capsize": 2, "ecolor": "#555555"},
    )
    # Beyond the error bars: a figure on top of one cannot be read.
    for place, row in enumerate(ordered):
        _label(panel, max(row.values), place, row.median)
    panel.set_xlabel("µs, publisher + subscriber + broker", fontsize=8)
    panel.margins(x=0.12)


def _draw_latency(panel: Any, rows: Rows) -> None:
    """Between hosts if it was measured there: on loopback it is hardly another."""
    name = next(each for each in LATENCIES if each in rows)
    panel.set_title(TITLES[name], fontsize=10)
    late = {row.name: row.median for row in rows[name.replace("p50", "p99")]}
    ordered = sorted(rows[name], key=lambda row: row.median, reverse=True)
    for place, row in enumerate(ordered):
        colour = _colour(row.name)
        panel.barh(place + 0.2, row.median, height=0.38, color=colour)
        panel.barh(place - 0.2, late[row.name], height=0.38, color=colour, alpha=PALE)
        _label(panel, row.median, place + 0.2, row.median)
        _label(panel, late[row.name], place - 0.2, late[row.name])
    panel.set_yticks(range(len(ordered)), [row.name for row in ordered])
    panel.set_xscale("log")  # a 99th percentile may be a hundred times a median
    panel.xaxis.set_major_formatter(PLAIN)
    panel.set_xlabel("µs: median, and pale the 99th percentile", fontsize=8)
    panel.set_xlim(5, 2 * max(20.0, *late.values()))


def _draw_growth(panel: Any, rows: Rows) -> None:
    panel.set_title("CPU per message as the bus grows, without network", fontsize=10)
    highest = 0.0
    for name, (label, marker, colour) in CURVES.items():
        if name not in rows:
            continue
        sizes = [int(row.name.replace(",", "")) for row in rows[name]]
        medians = [row.median for row in rows[name]]
        highest = max(highest, *medians)
        panel.plot(sizes, medians, marker, ls="-", color=colour, label=label, lw=1.2, ms=4)
    panel.set_xscale("log")
    panel.xaxis.set_major_formatter(PLAIN)
    panel.set_ylim(0, 1.4 * highest)
    panel.set_ylabel("µs", fontsize=8)
    panel.set_xlabel("topics, or nodes", fontsize=8)
    panel.legend(fontsize=8, frameon=False)


def _draw_idle(panel: Any, rows: Rows) -> None:
    panel.set_title("A bus that does nothing: CPU per second of each node", fontsize=10)
    sizes = [int(row.name.replace(",", "")) for row in rows[IDLE]]
    medians = [row.median for row in rows[IDLE]]
    bare = [row.extra["bare_ms"] for row in rows[IDLE]]
    panel.plot(sizes, medians, "o", ls="-", color=COLOURS["jsonbus"], label="node", lw=1.2, ms=4)
    panel.plot(sizes, bare, "s", ls="-", color=COLOURS["raw"], label="bare receiver", lw=1.2, ms=4)
    panel.set_ylim(0, 1.4 * max(medians))
    panel.set_xlim(0, None)
    panel.set_ylabel("ms", fontsize=8)
    panel.set_xlabel("nodes, each a process", fontsize=8)
    panel.legend(fontsize=8, frameon=False)


#: What a panel needs at least one of, and how it is drawn. What a LAN is like comes first.
PANELS: Sequence[tuple[tuple[str, ...], Callable[[Any, Rows], None]]] = (
    (("lan-flood",), partial(_draw_bars, "lan-flood")),
    (("lan-fanout",), partial(_draw_bars, "lan-fanout")),
    (LATENCIES, _draw_latency),
    (("lan-calm",), partial(_draw_bars, "lan-calm")),
    (("flood",), partial(_draw_bars, "flood")),
    (("fanout",), partial(_draw_bars, "fanout")),
    (tuple(CURVES), _draw_growth),
    ((IDLE,), _draw_idle),
)


def _label(panel: Any, x: float, y: float, figure: float) -> None:
    text = f"{figure:,.0f}" if figure >= 100 else f"{figure:.1f}"
    offset = {"xytext": (3, 0), "textcoords": "offset points"}
    panel.annotate(text, (x, y), va="center", fontsize=8, **offset)


def _colour(name: str) -> str:
    for start in ("raw", "jsonbus"):
        if name.startswith(start):
            return COLOURS[start]
    return COLOURS["other"]
