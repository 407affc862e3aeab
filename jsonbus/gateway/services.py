"""Services: the parts of the gateway that its HTTP application uses."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from .http.access import Access
from .http.docs_page import SWITCHED_OFF
from .http.events import EventStreams
from .http.origins import Origins
from .http.request import BodyRoom
from .hub import Hub
from .metrics.metrics import Observe, Stats
from .webhooks.accounts import SubscriberView
from .webhooks.webhooks import Webhooks

if TYPE_CHECKING:
    from .dashboard.auth import Auth

#: The default limit of a body of POST /v1/topics/….
BODY_BYTES_MAX = 1_000_000


async def _find_no_trouble() -> None: ...


@dataclass(frozen=True, slots=True)
class Services:
    """The parts that routes use. `Gateway` fills it in."""

    hub: Hub
    webhooks: Webhooks
    event_streams: EventStreams
    #: Return all webhooks with their present state.
    subscribers: Callable[[], list[SubscriberView]]
    origins: Origins
    #: Return the figures of each part, for /metrics.
    stats: Stats
    #: Return the figures of the whole bus, for /metrics; None: /metrics has none.
    observe: Observe | None = None
    access: Access = field(default_factory=Access)
    #: Return why the gateway does not work at the moment, in one sentence; None: it works.
    trouble: Callable[[], Awaitable[str | None]] = _find_no_trouble
    body_bytes_max: int = BODY_BYTES_MAX
    #: The memory for the bodies of all requests together.
    room: BodyRoom = field(default_factory=BodyRoom)
    #: What `/` serves: the dashboard, or the reason why there is none.
    dashboard: Auth | str = SWITCHED_OFF
