"""Snapshot: what all pages show at one moment; Tab: a part of a page that shows it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import jsonbus
from jsonbus.survey import Picture, TopicView

from ..metrics.bridges import BridgeState
from ..metrics.survey_observer import Gone
from ..webhooks.accounts import SubscriberView
from .history import RateHistory, Samples


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The bus at one moment, taken once for all pages."""

    picture: Picture
    #: Seconds since 1970.
    at: float
    rates: RateHistory
    samples: Samples
    topics: dict[str, TopicView]
    events: Sequence[jsonbus.NodeEvent]
    gone: Sequence[Gone]
    #: Called only by the tab that shows them.
    subscribers: Callable[[], Sequence[SubscriberView]]
    bridges: Callable[[], Sequence[BridgeState]]


def busiest_first(view: TopicView) -> tuple[float, str]:
    """Return a sort key; topics that are about as busy keep their places between snapshots."""
    return -(int(view.rate) if view.rate >= 10 else round(view.rate, 1)), view.topic


class Tab(ABC):
    """One tab of a page; only the tab in front is updated."""

    @abstractmethod
    def show(self, snapshot: Snapshot) -> None:
        """Update everything that has changed."""

    def close(self) -> None:  # noqa: B027 - most have nothing to do
        """The page is gone."""
