"""Series: counters of many things; the first that come have a series each, the others share one.

Theory of operation
-------------------
A node, a topic or a webhook is a label of Prometheus, and each label costs memory wherever metrics
are stored. So at most `own_max` things have a series of their own, in the order in which they come;
the others are added up in one more series, under the label REST. When a thing with a series goes,
the one that has waited longest takes its place.

A counter must never fall, and nothing may be counted twice: Prometheus takes differences. So Series
adds up *growth*. What a thing grows between two updates goes to its own series, or to the rest. A
thing that gets a series later starts there at zero, since the rest has counted the past.

If the first figure of a thing falls, the thing has started again, with all its figures. Another
figure that falls (messages believed lost that came late) stands still until it is exceeded.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

#: The label of the rest. It is not a valid topic; a node or webhook of that name gets no series.
REST = "*other*"


class Series:
    """The counters of all things of one kind; see the head of this file.

    `width` is the number of figures of a thing. `is_new_from_zero` says that a new thing counted
    everything since the last update; otherwise its figures are older, and are nobody's growth.
    """

    def __init__(self, width: int, own_max: int, *, is_new_from_zero: bool) -> None:
        self._own_max = own_max
        self._is_new_from_zero = is_new_from_zero
        self._last: dict[str, tuple[int, ...]] = {}  # the largest figures of each thing
        #: The things with a series, and their counters.
        self.own: dict[str, list[int]] = {}
        #: The counters of the things without a series.
        self.rest = [0] * width

    @property
    def rest_count(self) -> int:
        """The number of things without a series."""
        return len(self._last) - len(self.own)

    def update(self, told: Mapping[str, tuple[int, ...]]) -> None:
        """Take the present figures of all things; a thing that is missing has gone."""
        for key in self._last.keys() - told.keys():
            del self._last[key]
            self.own.pop(key, None)
        self._promote()
        for key, figures in told.items():
            last = self._last.get(key)
            if last is None:
                self._add(key, figures)
            elif figures != last:
                if figures[0] < last[0]:
                    last = (0,) * len(figures)
                figures = tuple(map(max, figures, last))
                growth = (now - before for now, before in zip(figures, last, strict=True))
                _add_to(self.own.get(key, self.rest), growth)
                self._last[key] = figures

    def _promote(self) -> None:
        """Give the series that are free to those that have waited longest."""
        if self.rest_count and len(self.own) < self._own_max:
            waiting = [key for key in self._last if key not in self.own and key != REST]
            for key in waiting[: self._own_max - len(self.own)]:
                self.own[key] = [0] * len(self.rest)

    def _add(self, key: str, figures: tuple[int, ...]) -> None:
        self._last[key] = figures
        if len(self.own) < self._own_max and key != REST:
            self.own[key] = list(figures)
        elif self._is_new_from_zero:
            _add_to(self.rest, figures)


def _add_to(sums: list[int], growth: Iterable[int]) -> None:
    for place, each in enumerate(growth):
        sums[place] += each
