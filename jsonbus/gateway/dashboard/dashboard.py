"""Dashboard: takes a snapshot of the bus a few times a second while any page is visible.

One snapshot serves all pages. A page costs the rows of its tab, whatever the traffic: the survey
counts messages in batches, and a browser gets at most one update per snapshot, with what changed
and is in sight.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass

from fastapi import Request
from nicegui import Client, ui

from ..http.access import Access
from ..http.request import BodyRoom
from ..hub import Hub
from ..metrics.bridges import Bridges
from ..metrics.survey_observer import SurveyObserver
from ..rate_limited_log import RateLimitedLog
from ..webhooks.accounts import SubscriberView
from .auth import SESSION, Auth
from .engine import malformed, run_nicegui
from .history import RateHistory, Samples
from .page import Page
from .sessions import Session, Sessions
from .snapshot import Snapshot

logger = logging.getLogger("jsonbus.gateway.dashboard")

#: How often pages are updated,
TICK_S = 0.35
#: and the fraction of the time that updates may take; beyond it they come less often.
BUSY_FRACTION = 0.1

#: An older snapshot is not shown to a new page.
SNAPSHOT_S_MAX = 15.0

#: Pages that are open at once. Each takes about half a megabyte here.
PAGES_MAX = 50
#: A page that was disconnected for this time makes room for another. One that never connected does
#: so at once: it is a program that only fetched it, or a browser about to connect, which then
#: loads it again.
CONNECT_S = 10.0


@dataclass(kw_only=True, eq=False)
class Dashboard:
    """The dashboard of one gateway. Open it with `async with`, in the event loop of the bus."""

    node: str
    observer: SurveyObserver
    bridges: Bridges
    hub: Hub
    subscribers: Callable[[], Sequence[SubscriberView]]
    access: Access
    room: BodyRoom

    def __post_init__(self) -> None:
        self._sessions = Sessions()
        self._pages: dict[str, Page] = {}
        self._rates = RateHistory()
        self._samples = Samples()
        self._snapshot: Snapshot | None = None
        self._errors = RateLimitedLog(logger)
        self._opened = AsyncExitStack()

    async def __aenter__(self) -> Dashboard:
        async with AsyncExitStack() as stack:
            inside = await stack.enter_async_context(run_nicegui(self._build))
            self.auth = Auth(
                inside,
                access=self.access,
                sessions=self._sessions,
                room=self.room,
                node=self.node,
                has_room=self._has_room,
                session_of=self._session_of,
            )
            showing = asyncio.create_task(self._run(), name="jsonbus-gateway-dashboard")
            stack.push_async_callback(_end, showing)
            self._opened = stack.pop_all()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._opened.aclose()

    def stats(self) -> dict[str, int]:
        return {
            "pages": len(self._pages),
            "pages_seen": sum(page.is_due for page in self._pages.values()),
            "sessions": len(self._sessions),
            "messages_malformed": malformed.count,
        }

    def _build(self, request: Request) -> None:
        client = ui.context.client
        session = request.scope[SESSION]
        assert isinstance(session, Session)
        self._pages[client.id] = Page(
            client,
            request,
            session=session,
            observer=self.observer,
            hub=self.hub,
            node=self.node,
            has_logout=not self.access.is_open,
            last_snapshot=self._last_snapshot,
        )
        client.on_delete(lambda: self._pages.pop(client.id, None))

    def _last_snapshot(self) -> Snapshot | None:
        """Return what a new page shows first, unless it is old: a scraper may keep observing."""
        if self._snapshot is not None and time.time() - self._snapshot.at > SNAPSHOT_S_MAX:
            self._snapshot = None
        return self._snapshot

    def _has_room(self) -> bool:
        if len(Client.instances) < PAGES_MAX:
            return True
        now = time.time()
        absent = [each for each in Client.instances.values() if not each.has_socket_connection]
        for client in sorted(absent, key=lambda each: each.created):
            page = self._pages.get(client.id)
            if page is None or not page.was_connected or now - client.created > CONNECT_S:
                client.delete()
                return True
        return False

    def _session_of(self, client_id: str) -> Session | None:
        page = self._pages.get(client_id)
        return None if page is None else page.session

    async def _run(self) -> None:
        while True:
            began_at = time.perf_counter()
            try:
                self._show()
                if any(page.is_observing for page in self._pages.values()):
                    await self.observer.ask()
                if any(page.shows_bridges for page in self._pages.values()):
                    await self.bridges.look()  # asks at most every two seconds, and does not wait
            except Exception:  # a bug must not end all pages
                self._errors.exception("the dashboard was not updated")
            took_s = time.perf_counter() - began_at
            await asyncio.sleep(max(TICK_S, took_s / BUSY_FRACTION))

    def _show(self) -> None:
        now = time.monotonic()
        for page in list(self._pages.values()):
            page.check(now)
        if not any(page.is_observing for page in self._pages.values()):
            if not self.observer.is_observing:
                self._rates.clear()
                self._samples.clear()
                self._snapshot = None
            return
        self._snapshot = self._take_snapshot()
        for page in list(self._pages.values()):
            if not page.is_due:
                continue
            try:
                page.show(self._snapshot)
            except Exception:  # affects this page alone
                self._errors.exception("a page was not updated")

    def _take_snapshot(self) -> Snapshot:
        picture = self.observer.picture()
        at = time.time()
        self._rates.note(picture, at)
        self._samples.note(picture.topics, at)
        return Snapshot(
            picture=picture,
            at=at,
            rates=self._rates,
            samples=self._samples,
            topics={view.topic: view for view in picture.topics},
            events=tuple(self.observer.events),
            gone=self.observer.gone(),
            subscribers=self.subscribers,
            bridges=self.bridges.states,
        )


async def _end(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.wait([task])
