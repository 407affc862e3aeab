"""The figures as a picture, if matplotlib is there; jsonbus does not depend on it."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

from bench_measures import MEASURES
from bench_report import Row

BARS = ("flood", "fanout", "latency-p50", "rate")
CURVES = ("growth-topics", "growth-nodes")
COLOURS = {"raw": "#9aa5b1", "jsonbus": "#1f6feb", "other": "#d9822b"}


def find_obstacle() -> str | None:
    """Why no chart can be drawn, or None if it can."""
    if importlib.util.find_spec("matplotlib") is None:
        return "matplotlib is not installed in this Python"
    return None


def draw(rows: dict[str, list[Row]], path: Path) -> None:
    """A panel for each measure that was taken, as PNG."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    names = [name for name in (*BARS, *CURVES) if name in rows]
    if not names:
        raise ValueError(f"a chart shows {', '.join((*BARS, *CURVES))}: none was measured")
    columns = min(2, len(names))
    lines = -(-len(names) // columns)
    figure, axes = pyplot.subplots(
        lines, columns, figsize=(6.2 * columns, 3.4 * lines), squeeze=False, layout="constrained"
    )
    for name, panel in zip(names, axes.flat, strict=False):
        if name in CURVES:
            _draw_curve(panel, rows[name])
        else:
            _draw_bars(panel, rows[name])
        panel.set_title(MEASURES[name].title, fontsize=10)
        panel.set_xlabel(MEASURES[name].unit if name in BARS else "")
        panel.spines[["top", "right"]].set_visible(False)
    for panel in axes.flat[len(names) :]:
        panel.set_visible(False)
    figure.savefig(path, dpi=130)
    pyplot.close(figure)


def _draw_bars(panel: Any, rows: list[Row]) -> None:
    ordered = sorted(rows, key=lambda row: row.median, reverse=True)
    medians = [row.median for row in ordered]
    below = [row.median - min(row.values) for row in ordered]
    above = [max(row.values) - row.median for row in ordered]
    names = [row.name for row in ordered]
    bars = panel.barh(
        names, medians, xerr=[below, above], color=[_colour(name) for name in names], capsize=2
    )
    labels = [f"{median:,.0f}" if median >= 100 else f"{median:.1f}" for median in medians]
    panel.bar_label(bars, labels=labels, padding=4, fontsize=8)
    panel.margins(x=0.12)


def _draw_curve(panel: Any, rows: list[Row]) -> None:
    sizes = [int(row.name.replace(",", "")) for row in rows]
    medians = [row.median for row in rows]
    panel.plot(sizes, medians, marker="o", color=COLOURS["jsonbus"])
    panel.set_xscale("log")
    panel.set_ylim(0, 1.5 * max(medians))
    panel.set_ylabel("µs")


def _colour(name: str) -> str:
    for start in ("raw", "jsonbus"):
        if name.startswith(start):
            return COLOURS[start]
    return COLOURS["other"]
