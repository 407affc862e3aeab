"""Look: what all pages show at one moment, and the tabs that show it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import jsonbus
from jsonbus.survey import Picture, TopicView

from ..metrics.bridges import BridgeState
from ..metrics.survey_observer import Gone
from ..webhooks.accounts import SubscriberView
from .history import RateHistory


@dataclass(frozen=True, slots=True)
class Look:
    """The bus at one moment, made once for all pages."""

    picture: Picture
    #: Seconds since 1970.
    at: float
    rates: RateHistory
    topics: dict[str, TopicView]
    events: Sequence[jsonbus.NodeEvent]
    gone: Sequence[Gone]
    #: Asked for by the tab that shows them alone.
    subscribers: Callable[[], Sequence[SubscriberView]]
    bridges: Callable[[], Sequence[BridgeState]]


def busiest_first(view: TopicView) -> tuple[float, str]:
    """To sort topics by; those that are about as busy keep their places from look to look."""
    return -(int(view.rate) if view.rate >= 10 else round(view.rate, 1)), view.topic


class Tab(Protocol):
    """One tab of a page; only the one in front is told."""

    def show(self, look: Look) -> None:
        """Bring everything up to date that has changed."""

    def close(self) -> None:
        """The page is gone."""
