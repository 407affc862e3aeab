"""What charts show: figures of the last minutes, bounded however fast messages come."""

from __future__ import annotations

from collections import deque
from typing import Any

import jsonbus
from jsonbus.survey import Picture

from .fields import Path, field_at

#: How far back the charts go.
RATES_S = 300.0
FIELD_S = 120.0

#: Of the messages within this time the smallest and the largest number are drawn: no peak is lost.
BUCKET_S = 0.5

#: Messages of one topic that are drawn between two snapshots; further ones are skipped.
DRAWN_MAX = 5_000

#: After a longer pause without a visible page the drawing starts again.
PAUSE_S = 15.0

Point = tuple[float, float]


class RateHistory:
    """Rates of the whole bus, once a second."""

    def __init__(self) -> None:
        self._next_at = float("-inf")
        #: (seconds since 1970, messages per second, bytes per second, not sent per second)
        self.points: deque[tuple[float, float, float, float]] = deque(maxlen=int(RATES_S))

    def note(self, picture: Picture, at: float) -> bool:
        """Whether this picture was due."""
        if picture.at < self._next_at:
            return False
        self._next_at = picture.at + 1.0
        if self.points and at - self.points[-1][0] > PAUSE_S:
            self.points.clear()
        while self.points and self.points[0][0] < at - RATES_S:
            self.points.popleft()
        overview = picture.overview
        self.points.append((at, overview.rate, overview.bytes_per_s, overview.suppressed_per_s))
        return True

    def clear(self) -> None:
        self.points.clear()
        self._next_at = float("-inf")


class Trace:
    """The numbers of one topic, at the paths that were chosen."""

    def __init__(self, topic: str) -> None:
        self.topic = topic
        self._drawn = 0
        self._series: dict[Path, deque[Point]] = {}

    def take(self, message: jsonbus.Message) -> None:
        """The hot path: a message came. Of it only numbers are kept: a page that is hidden takes
        messages for minutes, whatever their size is."""
        if self._drawn >= DRAWN_MAX:
            return
        self._drawn += 1
        for path, points in self._series.items():
            number = field_at(message.value, path)
            if number is not None:
                _add(points, message.origin.received_at, number)

    def choose(self, paths: list[Path]) -> None:
        """Draw these from now on; what was drawn before and still is keeps its past."""
        self._series = {
            path: self._series.get(path) or deque(maxlen=int(2 * FIELD_S / BUCKET_S))
            for path in paths
        }

    def forget(self, now: float) -> None:
        """Forget points that are too old."""
        self._drawn = 0
        for points in self._series.values():
            while points and points[0][0] < now - FIELD_S:
                points.popleft()

    def points(self, path: Path) -> list[Point]:
        return list(self._series.get(path, ()))


def _add(points: deque[Point], at: float, number: float) -> None:
    """Two points for each bucket, in the order in which they came; one while they are equal."""
    bucket = at // BUCKET_S
    if len(points) < 2 or points[-2][0] // BUCKET_S != bucket:
        points.append((at, number))
        return
    one, other = points[-2], points[-1]
    low, high = (one, other) if one[1] <= other[1] else (other, one)
    if number < low[1]:
        low = (at, number)
    elif number > high[1]:
        high = (at, number)
    else:
        return
    points[-2], points[-1] = sorted((low, high))


def to_milliseconds(points: list[Point]) -> tuple[tuple[int, float], ...]:
    """As charts want it; numbers are as precise as can be seen."""
    return tuple((round(at * 1000), _round(number)) for at, number in points)


def _round(number: float) -> Any:
    return float(f"{number:.7g}")
