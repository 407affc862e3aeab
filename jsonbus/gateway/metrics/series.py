"""Series: counters of many things, of which the busiest have a series each and the rest one.

Theory of operation
-------------------
A node, a topic or a subscriber is a label of Prometheus, and every label costs whoever stores it.
So at most `own_max` things have a series of their own; what all others count is added up in one
more, under the label REST. Things come and go, and so they change sides. A counter must never fall
nor count anything twice all the same: its users take differences. Therefore what is kept are not
the figures that things tell, but their *growth*: between two updates it goes to the thing's own
series if it had that before and still has it, else to the rest. While a thing has no series, its
own figures stand still; so all series together grow by what all things together have grown.

Who is busiest: `weight` is what the first figure has grown by, half of it forgotten every
HALF_LIFE_S. Instead of having all weights fade at each update, what is added weighs more and more;
so a thing that did nothing costs a comparison. A thing takes another's series only if it is TWICE
as busy, since a series that comes and goes is of no use.

A first figure that falls means that the thing began anew, with all its figures. One of the others
that falls (messages believed lost that came late) stays where it was until it is exceeded.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from heapq import nlargest
from typing import NamedTuple

#: The label of the rest. No topic can be called so; what else is gets no series.
REST = "*other*"

#: Minutes, as people look at graphs.
HALF_LIFE_S = 600.0
#: Clearly busier.
TWICE = 2.0
#: When what is added weighs so much more than at the beginning, all weights are brought down: once
#: in some days.
SCALE_MAX = 1e150


class Shown(NamedTuple):
    """A thing with a series of its own, and its counters."""

    key: str
    figures: list[int]


class _Thing:
    __slots__ = ("figures", "growth", "is_own", "last", "told", "weight")

    def __init__(self, told: tuple[int, ...]) -> None:
        self.told = told
        self.last = told  # the most that it told
        self.figures = list(told)  # those of its own series
        self.growth: list[int] | None = None  # at this update, in its own series
        self.weight = 0.0
        self.is_own = False


class Series:
    """See the head of this file.

    `width` is how many figures a thing has. `is_new_from_zero`: a thing that is new has counted
    all that it tells since the last update; otherwise that was before, and is nobody's growth.
    """

    def __init__(self, width: int, own_max: int, *, is_new_from_zero: bool) -> None:
        self._width = width
        self._own_max = own_max
        self._is_new_from_zero = is_new_from_zero
        self._things: dict[str, _Thing] = {}
        self._own: dict[str, _Thing] = {}
        self._began_at: float | None = None
        #: What those without a series have counted.
        self.rest = [0] * width

    def update(self, told: Mapping[str, tuple[int, ...]], now: float) -> None:
        """What all things tell now; who is not among them has gone. `now`: monotonic seconds."""
        scale = self._scale(now)
        things = self._things
        for key in things.keys() - told.keys():
            del things[key]
            self._own.pop(key, None)
        for thing in self._own.values():
            thing.growth = None
        for key, figures in told.items():
            known = things.get(key)
            if known is None:
                self._add(key, figures, scale)
            elif figures != known.told:
                known.told = figures
                self._grow(known, figures, scale)
        self._share_out()

    def own(self) -> list[Shown]:
        """Those that have a series."""
        return [Shown(key, thing.figures) for key, thing in self._own.items()]

    @property
    def rest_count(self) -> int:
        """How many things have none."""
        return len(self._things) - len(self._own)

    def is_own(self, key: str) -> bool:
        return key in self._own

    def _scale(self, now: float) -> float:
        """How much more weighs what is added now than what was added at the beginning."""
        if self._began_at is None:
            self._began_at = now
        scale: float = 2.0 ** min(500.0, max(0.0, now - self._began_at) / HALF_LIFE_S)
        if scale > SCALE_MAX:
            for thing in self._things.values():
                thing.weight /= scale
            self._began_at = now
            return 1.0
        return scale

    def _add(self, key: str, figures: tuple[int, ...], scale: float) -> None:
        thing = self._things[key] = _Thing(figures)
        thing.weight = figures[0] * scale if self._is_new_from_zero else 0.0
        if len(self._own) < self._own_max and key != REST:
            thing.is_own = True
            self._own[key] = thing
            thing.growth = list(figures) if self._is_new_from_zero else None
        elif self._is_new_from_zero:
            # Its own figures begin at nothing then: these are counted.
            thing.figures = [0] * self._width
            _add_to(self.rest, figures)

    def _grow(self, thing: _Thing, figures: tuple[int, ...], scale: float) -> None:
        last = thing.last
        if figures[0] < last[0]:
            last = (0,) * self._width
        growth = [now - before for now, before in zip(figures, last, strict=True)]
        if min(growth) < 0:
            growth = [max(0, each) for each in growth]
            figures = tuple(map(max, figures, last))
        thing.last = figures
        thing.weight += growth[0] * scale
        if thing.is_own:
            thing.growth = growth
            _add_to(thing.figures, growth)
        else:
            _add_to(self.rest, growth)

    def _share_out(self) -> None:
        """Give series to those that are due."""
        waiting = [
            (thing.weight, key)
            for key, thing in self._things.items()
            if not thing.is_own and key != REST
        ]
        if not waiting:
            return
        best = nlargest(self._own_max, waiting)
        best.reverse()  # the busiest is the last
        while best and len(self._own) < self._own_max:
            self._give(best.pop()[1])
        weakest = sorted(((thing.weight, key) for key, thing in self._own.items()), reverse=True)
        while best and weakest and best[-1][0] > TWICE * weakest[-1][0]:
            self._take_away(weakest.pop()[1])
            self._give(best.pop()[1])

    def _give(self, key: str) -> None:
        thing = self._own[key] = self._things[key]
        thing.is_own = True

    def _take_away(self, key: str) -> None:
        thing = self._own.pop(key)
        thing.is_own = False
        if thing.growth is not None:  # which its series would never show
            _add_to(thing.figures, [-each for each in thing.growth])
            _add_to(self.rest, thing.growth)


def _add_to(sums: list[int], growth: Iterable[int]) -> None:
    for place, each in enumerate(growth):
        sums[place] += each
