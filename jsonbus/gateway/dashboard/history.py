"""The data of the charts: figures of the last minutes, bounded at any message rate."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

import jsonbus
from jsonbus.survey import Picture, TopicView

from .fields import Path, field_at, find_fields

#: How far back the charts go.
RATES_S = 300.0
FIELD_S = 120.0

#: Charts draw the smallest and the largest number of each such interval, so no peak is lost.
BUCKET_S = 0.5

#: Messages of one topic that are drawn between two snapshots; the rest are skipped.
DRAWN_MAX = 5_000

#: How often topics are sampled, and how many. Samples of all take some 2 MB.
SAMPLE_S = 2.0
SAMPLED_MAX = 300

#: After a longer pause without a visible page, the chart starts again.
PAUSE_S = 15.0

Point = tuple[float, float]


class RateHistory:
    """Rates of the whole bus, once a second."""

    def __init__(self) -> None:
        self._next_at = float("-inf")
        #: (seconds since 1970, messages per second, bytes per second, not sent per second)
        self.points: deque[tuple[float, float, float, float]] = deque(maxlen=int(RATES_S))

    def note(self, picture: Picture, at: float) -> None:
        """Add this picture if one is due."""
        if picture.at < self._next_at:
            return
        self._next_at = picture.at + 1.0
        if self.points and at - self.points[-1][0] > PAUSE_S:
            self.points.clear()
        while self.points and self.points[0][0] < at - RATES_S:
            self.points.popleft()
        overview = picture.overview
        self.points.append((at, overview.rate, overview.bytes_per_s, overview.suppressed_per_s))

    def clear(self) -> None:
        self.points.clear()
        self._next_at = float("-inf")


class Samples:
    """The first number of each topic, every few seconds: with them a chart begins.

    Bounded: topics beyond SAMPLED_MAX have none, and their charts begin with the last message.
    """

    def __init__(self) -> None:
        self._next_at = float("-inf")
        #: By topic: the path of its number, None if it has none, and the points.
        self._sampled: dict[str, tuple[Path | None, deque[Point]]] = {}

    def note(self, topics: Iterable[TopicView], at: float) -> None:
        """Add the number of each topic that has a new message, if samples are due."""
        if at < self._next_at:
            return
        if at - self._next_at > PAUSE_S:
            self._sampled.clear()
        self._next_at = at + SAMPLE_S
        for view in topics:
            known = self._sampled.get(view.topic)
            if known is None:
                if len(self._sampled) >= SAMPLED_MAX or not view.is_value_kept:
                    continue
                path = next(iter(find_fields(view.value)), None)
                points: deque[Point] = deque(maxlen=int(FIELD_S / SAMPLE_S) + 1)
                known = self._sampled[view.topic] = path, points
            path, points = known
            if path is None or (points and points[-1][0] >= view.last_at):
                continue
            number = field_at(view.value, path)
            if number is not None:
                points.append((view.last_at, number))

    def points(self, topic: str, path: Path) -> list[Point]:
        """Return the samples of this number, oldest first."""
        sampled_path, points = self._sampled.get(topic, (None, ()))
        return list(points) if sampled_path == path else []

    def clear(self) -> None:
        self._sampled.clear()
        self._next_at = float("-inf")


class Trace:
    """The numbers of one topic, at the chosen paths."""

    def __init__(self) -> None:
        self._drawn = 0
        self._series: dict[Path, deque[Point]] = {}

    def take(self, message: jsonbus.Message) -> None:
        """Keep the chosen numbers of a message. This is a hot path.

        Only numbers are kept, because a hidden page takes messages of any size for minutes.
        """
        if self._drawn >= DRAWN_MAX:
            return
        self._drawn += 1
        for path, points in self._series.items():
            number = field_at(message.value, path)
            if number is not None:
                _add(points, message.origin.received_at, number)

    def choose(self, paths: list[Path]) -> None:
        """Draw these paths from now on; paths that were drawn before keep their points."""
        self._series = {
            path: self._series.get(path) or deque(maxlen=int(2 * FIELD_S / BUCKET_S))
            for path in paths
        }

    def begin(self, path: Path, samples: Iterable[Point]) -> None:
        """Draw this path, beginning with samples that were taken before."""
        self.choose([path])
        self._series[path].extend(samples)

    def forget(self, now: float) -> None:
        """Remove points that are too old, but for the last one: it is the value at that time."""
        self._drawn = 0
        for points in self._series.values():
            while len(points) > 1 and points[1][0] < now - FIELD_S:
                points.popleft()

    def points(self, path: Path) -> list[Point]:
        return list(self._series.get(path, ()))

    def line(self, path: Path, now: float) -> list[Point]:
        """Return the points of a line until now, from the chart's left edge at the earliest.

        The last number holds until there is another one, so a topic that is silent has a line, too.
        """
        points = [(max(at, now - FIELD_S), number) for at, number in self.points(path)]
        if points and points[-1][0] < now:
            points.append((now, points[-1][1]))
        return points


def _add(points: deque[Point], at: float, number: float) -> None:
    """Add a point. A bucket keeps two, in the order in which they came: its smallest and its
    largest.
    """
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


def to_milliseconds(points: Iterable[Point]) -> tuple[tuple[int, float], ...]:
    """Return the points as charts need them, with numbers rounded to the visible precision."""
    return tuple((round(at * 1000), float(f"{number:.7g}")) for at, number in points)
