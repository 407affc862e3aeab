"""NiceGUI, which has one application, one socket.io server and one set of clients in a process.

It wants to be told once where it runs (`ui.run_with`), and to live as long as the process. Gateways
begin and end inside a process, in tests several one after the other, each with an event loop of its
own. So `run_with` is done once, for an application of ours that is never served itself: of it
only the lifespan is used, from which NiceGUI starts and ends its tasks, once per gateway. What
NiceGUI, socket.io and engine.io do not put back at the end is put back here.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import cache
from typing import Any

from fastapi import FastAPI, Request
from nicegui import Client, app, core, ui
from starlette.types import ASGIApp

#: A browser that was cut off for longer loads its page anew.
RECONNECT_S = 5.0

#: Messages kept for a browser that was cut off: it has told every 3 s what it got.
HISTORY_MAX = 100

#: Builds a page for the client that asks, by NiceGUI's elements.
Build = Callable[[Request], None]

logger = logging.getLogger("jsonbus.gateway.dashboard")

_builds: list[Build] = []


class Malformed:
    """What came over websockets and was none of NiceGUI's messages, in this process."""

    def __init__(self) -> None:
        self.count = 0

    def note(self, error: Exception) -> None:
        self.count += 1
        logger.debug("! a message of a browser: %r", error)


malformed = Malformed()


@asynccontextmanager
async def run_nicegui(build: Build) -> AsyncIterator[ASGIApp]:
    """NiceGUI's application, whose page at `/` is what `build` makes of it; until this ends.

    Raises RuntimeError while another gateway of this process runs it.
    """
    if _builds:
        raise RuntimeError("another gateway of this process has the dashboard")
    _builds.append(build)
    try:
        front = _set_up()
        async with front.router.lifespan_context(front):
            try:
                yield app
            finally:
                await _end_clients()
    finally:
        _builds.clear()


@cache
def _set_up() -> FastAPI:
    # What pages do is logged by us; "socket.io is shutting down" concerns nobody.
    logging.getLogger("nicegui").setLevel(logging.ERROR)
    for name in ("engineio.server", "socketio.server"):  # a traceback for each malformed message
        logging.getLogger(name).setLevel(logging.CRITICAL)
    front = FastAPI(openapi_url=None, docs_url=None, redoc_url=None)
    ui.run_with(
        front,
        title="jsonbus",
        favicon=_ICON,
        dark=None,  # as the system has it
        language="en-US",
        binding_refresh_interval=None,
        reconnect_timeout=RECONNECT_S,
        message_history_length=HISTORY_MAX,
        # To compress a megabyte of script stops the event loop, and all clients, for 50 ms.
        gzip_middleware_factory=None,
        # It would search every change of the page for its classes.
        tailwind=False,
        storage_secret=None,
        show_welcome_message=False,
    )
    # Long polling sends messages by POST: one thing more to guard. All browsers have websockets.
    app.config.socket_io_js_transports = ["websocket"]
    handlers = core.sio.handlers["/"]
    handlers.pop("log", None)  # a browser may not write into our log
    for name in ("handshake", "event", "javascript_response", "ack"):
        handlers[name] = _guard(handlers[name])
    ui.page("/")(_build)
    return front


def _guard(handler: Callable[..., Any]) -> Callable[..., Any]:
    """Count what a handler of socket.io's cannot read; asyncio would log a traceback for each."""

    async def handle(*arguments: Any) -> Any:
        try:
            result = handler(*arguments)
            return await result if inspect.isawaitable(result) else result
        except Exception as error:
            malformed.note(error)
            return False

    return handle


def _build(request: Request) -> None:
    _builds[0](request)


async def _end_clients() -> None:
    for client in list(Client.instances.values()):
        client.delete()
    engine = core.sio.eio
    await core.sio.shutdown()
    # engine.io watches its sockets by a task of the loop of before, and begins it only once.
    engine.start_service_task = True
    engine.service_task_event = None
    engine.sockets.clear()


_ICON = """<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 32 32">
<rect width="32" height="32" rx="7" fill="#0b7285"/>
<path d="M6 16h20" stroke="#fff" stroke-width="2.6" stroke-linecap="round"/>
<g fill="#fff"><circle cx="9" cy="9" r="2.8"/><circle cx="23" cy="9" r="2.8"/>
<circle cx="16" cy="23" r="2.8"/></g>
<path d="M9 10v6M23 10v6M16 16v6" stroke="#fff" stroke-width="2"/></svg>"""
