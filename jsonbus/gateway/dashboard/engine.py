"""NiceGUI, which has one application, one socket.io server and one set of clients in a process.

NiceGUI is configured once (`ui.run_with`) and expects to live as long as the process. Gateways
begin and end inside a process, each with its own event loop; tests run several one after the other.
So `run_with` is called once, for an application of ours that is never served: only its lifespan is
used, in which NiceGUI starts and ends its tasks, once per gateway. State that NiceGUI, socket.io
and engine.io leave behind is reset here.
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

#: A browser that was disconnected for longer reloads its page.
RECONNECT_S = 5.0

#: Messages kept for a browser that was disconnected; it acknowledges every 3 s.
HISTORY_MAX = 100

#: Builds a page of NiceGUI elements for the client that asks.
Build = Callable[[Request], None]

logger = logging.getLogger("jsonbus.gateway.dashboard")

_builds: list[Build] = []


class Malformed:
    """Counts what came over websockets and was not a message of NiceGUI, in this process."""

    def __init__(self) -> None:
        self.count = 0

    def note(self, error: Exception) -> None:
        self.count += 1
        logger.debug("! a message of a browser: %r", error)


malformed = Malformed()


@asynccontextmanager
async def run_nicegui(build: Build) -> AsyncIterator[ASGIApp]:
    """Run NiceGUI until this ends; yield its application, whose page at `/` is made by `build`.

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
    # We log what pages do; "socket.io is shutting down" interests nobody.
    logging.getLogger("nicegui").setLevel(logging.ERROR)
    for name in ("engineio.server", "socketio.server"):  # a traceback for each malformed message
        logging.getLogger(name).setLevel(logging.CRITICAL)
    front = FastAPI(openapi_url=None, docs_url=None, redoc_url=None)
    ui.run_with(
        front,
        title="jsonbus",
        favicon=_ICON,
        dark=None,  # follow the system
        language="en-US",
        binding_refresh_interval=None,
        reconnect_timeout=RECONNECT_S,
        message_history_length=HISTORY_MAX,
        # Compressing a megabyte of script would block the event loop for 50 ms.
        gzip_middleware_factory=None,
        # It would search every change of the page for its classes.
        tailwind=False,
        storage_secret=None,
        show_welcome_message=False,
    )
    # Long polling would send messages by POST, one more path to guard. Browsers have websockets.
    app.config.socket_io_js_transports = ["websocket"]
    handlers = core.sio.handlers["/"]
    handlers.pop("log", None)  # a browser may not write into our log
    for name in ("handshake", "event", "javascript_response", "ack"):
        handlers[name] = _guard(handlers[name])
    ui.page("/")(_build)
    return front


def _guard(handler: Callable[..., Any]) -> Callable[..., Any]:
    """Count messages that a handler cannot read; asyncio would log a traceback for each."""

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
    # engine.io starts the task that watches its sockets only once, in the first event loop.
    engine.start_service_task = True
    engine.service_task_event = None
    engine.sockets.clear()


_ICON = """<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 32 32">
<rect width="32" height="32" rx="7" fill="#0b7285"/>
<path d="M6 16h20" stroke="#fff" stroke-width="2.6" stroke-linecap="round"/>
<g fill="#fff"><circle cx="9" cy="9" r="2.8"/><circle cx="23" cy="9" r="2.8"/>
<circle cx="16" cy="23" r="2.8"/></g>
<path d="M9 10v6M23 10v6M16 16v6" stroke="#fff" stroke-width="2"/></svg>"""
