"""Charts by ECharts. Their colours suit dark and light pages; tooltips are drawn, not HTML."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from nicegui import ui

#: Colours of the first, second, … line of a chart.
COLOURS = ("#1098ad", "#f08c00", "#7950f2", "#2f9e44", "#e64980", "#4c6ef5")

_INK = "#8a95a8"
_LINE = "rgba(138, 149, 168, 0.22)"
_LABEL = {"color": _INK, "fontSize": 11}

#: The shortest time span of a chart, and the step by which it grows with its data: so its heading
#: can say how much it shows.
MINUTE_MS = 60_000

#: (seconds since 1970 in ms, number)
Points = tuple[tuple[int, float], ...]


@dataclass(frozen=True)
class Series:
    """One line of a chart."""

    name: str
    colour: str
    axis: int = 0
    is_filled: bool = False

    def options(self, points: Points) -> dict[str, Any]:
        options: dict[str, Any] = {
            "type": "line",
            "name": self.name,
            "yAxisIndex": self.axis,
            "data": points,
            "showSymbol": len(points) == 1,
            "symbolSize": 5,
            "lineStyle": {"width": 1.8, "color": self.colour},
            "itemStyle": {"color": self.colour},
            "emphasis": {"disabled": True},
        }
        if self.is_filled:
            options["areaStyle"] = {"color": self.colour, "opacity": 0.12}
        return options


class LiveChart:
    """A chart of the last minutes; an update sends only its data."""

    def __init__(self, span_s: float, axes: Sequence[str]) -> None:
        """`axes` are the names of the scales: the left one, and the right one if there are two."""
        self._span_ms = round(span_s * 1000)
        self._axes = axes
        self._shown: object = None
        self.minutes = 1
        self._element = ui.echart(self._options([], 0)).classes("chart")

    def show(self, series: Sequence[tuple[Series, Points]], now: float) -> None:
        """Draw these lines, up to this moment; `minutes` are then those that it shows."""
        if series == self._shown:
            return
        self._shown = series
        drawn = [each.options(points) for each, points in series]
        now_ms = round(now * 1000)
        oldest_ms = min((points[0][0] for _, points in series if points), default=now_ms)
        # While there is little data, the span grows with it, so that the first minute fills the
        # chart.
        self.minutes = max(1, math.ceil((now_ms - oldest_ms) / MINUTE_MS))
        span_ms = self.minutes * MINUTE_MS
        if span_ms > self._span_ms:
            span_ms, self.minutes = self._span_ms, self._span_ms // MINUTE_MS
        self._element._props["options"] = self._options(drawn, now_ms, span_ms)

    def _options(
        self, series: list[dict[str, Any]], now_ms: int, span_ms: int = MINUTE_MS
    ) -> dict[str, Any]:
        right = 20 if len(self._axes) == 1 else 8
        clock = "{HH}:{mm}" if span_ms > 200_000 else "{HH}:{mm}:{ss}"
        return {
            "animation": False,
            "grid": {"left": 8, "right": right, "top": 26, "bottom": 4, "containLabel": True},
            "tooltip": {
                "trigger": "axis",
                "renderMode": "richText",
                "confine": True,
                "backgroundColor": "#1f2937",
                "borderWidth": 0,
                "textStyle": {"color": "#f1f5f9", "fontSize": 12},
                "axisPointer": {"lineStyle": {"color": _INK, "type": "dashed"}},
            },
            "xAxis": {
                "type": "time",
                "min": now_ms - span_ms,
                "max": now_ms,
                "axisLine": {"lineStyle": {"color": _LINE}},
                "axisTick": {"show": False},
                "splitNumber": 4,
                "axisLabel": {**_LABEL, "hideOverlap": True, "formatter": clock},
                "splitLine": {"show": False},
            },
            "yAxis": [
                {
                    "type": "value",
                    "name": name,
                    "nameTextStyle": {**_LABEL, "align": position},
                    "position": position,
                    "scale": len(self._axes) == 1,
                    "splitNumber": 4,
                    "axisLabel": _LABEL,
                    "splitLine": {"show": position == "left", "lineStyle": {"color": _LINE}},
                }
                for name, position in zip(self._axes, ("left", "right"), strict=False)
            ],
            "series": series,
        }
