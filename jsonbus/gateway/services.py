"""What the HTTP application stands on: the other parts of the gateway, as far as it knows them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from starlette.types import ASGIApp, Receive, Scope, Send

from .http.access import Access
from .http.docs_page import SWITCHED_OFF
from .http.events import EventStreams
from .http.origins import Origins
from .http.request import BodyRoom
from .hub import Published
from .metrics.metrics import Observe, Stats

#: The longest body of POST /v1/topics/… unless told otherwise.
BODY_BYTES_MAX = 1 << 20


class Publisher(Protocol):
    """Where messages go; `Hub` is one."""

    async def publish(
        self, topic: str, value: Any, *, retain: bool = False, reliable: bool | None = None
    ) -> Published: ...


class SubscribedLike(Protocol):
    @property
    def is_new(self) -> bool: ...

    @property
    def has_moved(self) -> bool: ...


class WebhooksLike(Protocol):
    """Who changes webhooks' subscriptions; `Webhooks` is one."""

    async def subscribe(self, name: str, pattern: str, url: str) -> SubscribedLike: ...

    async def unsubscribe(self, name: str, pattern: str | None = None) -> list[str]: ...


class ViewLike(Protocol):
    """One webhook as people see it; `SubscriberView` is one."""

    @property
    def name(self) -> str: ...
    @property
    def url(self) -> str: ...
    @property
    def patterns(self) -> Sequence[str]: ...
    @property
    def backlog(self) -> int: ...
    @property
    def delivered(self) -> int: ...
    @property
    def dropped(self) -> int: ...
    @property
    def attempts_failed(self) -> int: ...
    @property
    def last_error(self) -> str | None: ...
    @property
    def last_error_at(self) -> float | None: ...
    @property
    def retry_at(self) -> float | None: ...
    @property
    def created_at(self) -> float: ...


class GateLike(Protocol):
    """The dashboard as a browser reaches it; `Gate` is one."""

    login: ASGIApp
    logout: ASGIApp

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None: ...


@dataclass(frozen=True, slots=True)
class Services:
    """What the application stands on."""

    hub: Publisher
    webhooks: WebhooksLike
    event_streams: EventStreams
    #: All webhooks as people see them.
    subscribers: Callable[[], Sequence[ViewLike]]
    origins: Origins
    #: Figures by part, for /metrics.
    stats: Stats
    #: What /metrics tells of the bus as a whole; None: nothing.
    observe: Observe | None = None
    access: Access = field(default_factory=Access)
    #: Why the gateway does not work at the moment, in one sentence; None: it does.
    trouble: Callable[[], str | None] = lambda: None
    body_bytes_max: int = BODY_BYTES_MAX
    #: For the bodies of all requests together.
    room: BodyRoom = field(default_factory=BodyRoom)
    #: What is at `/`: the dashboard, or the reason why there is none.
    dashboard: GateLike | str = SWITCHED_OFF
