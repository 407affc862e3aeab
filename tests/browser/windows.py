"""Gateways with a dashboard, and windows of a browser that note what goes wrong in them."""

from __future__ import annotations

import re
import signal
from contextlib import suppress
from typing import Any
from urllib.parse import urlsplit

from playwright.sync_api import Browser, ConsoleMessage, Error, Locator, Page, Request, expect

import jsonbus
from tests.end_to_end.processes import Desk, Process
from tests.helpers import wait_until

FLAGS = """
    --headless --no-sandbox --disable-gpu --disable-quic --no-first-run
    --disable-background-networking --disable-component-update --disable-sync
""".split()

DESKTOP = (1440, 900)
PHONE = (360, 740)


class Dashboard:
    """A gateway as a real process, with its dashboard; keeps nothing."""

    def __init__(self, desk: Desk, *options: str, port: int = 0) -> None:
        self.desk = desk
        self._options = options
        self.port = port
        self.process: Process
        self.start()

    def start(self) -> None:
        self.process = self.desk.start(
            "gateway", str(self.port), "--no-tcp", "--in-memory", *self._options
        )
        self.desk.wait_until(lambda: self._introduction() or self.process.has_ended)
        found = self._introduction()
        assert found, self.process.complaints
        self.name, self.port = found[1], int(found[2])

    def stop(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        self.process.expect_exit(0)
        assert "Traceback" not in "\n".join(self.process.complaints)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def bus(self, name: str, **settings: Any) -> jsonbus.Bus:
        """Another node of the same bus, in this process; to be closed by the test."""
        bus = jsonbus.Bus(name=name, port=self.desk.port, interface="lo", **settings)
        bus.wait_until_sure(30)
        return bus

    def _introduction(self) -> re.Match[str] | None:
        text = "\n".join(self.process.complaints)
        return re.search(r"(\S+) serves http://[\d.]+:(\d+);", text)


class Window:
    """A page in a fresh profile. What went wrong in it is an error at its end."""

    def __init__(
        self,
        browser: Browser,
        dashboard: Dashboard,
        size: tuple[int, int] = DESKTOP,
        scheme: Any = "light",
    ) -> None:
        self.dashboard = dashboard
        self.context = browser.new_context(
            viewport={"width": size[0], "height": size[1]}, color_scheme=scheme
        )
        self.troubles: list[str] = []
        self.frames = 0
        self.page = self._watch(self.context.new_page())

    def __enter__(self) -> Window:
        return self

    def __exit__(self, kind: type[BaseException] | None, *exception: object) -> None:
        self.context.close()
        if kind is None:
            assert self.troubles == []

    def open(self, path: str = "/") -> Page:
        self.page.goto(self.dashboard.url + path)
        return self.page

    def open_live(self, path: str) -> Page:
        """The same, and the page is connected: what is done in it before that may be lost."""
        self.open(path)
        self.page.wait_for_function("window.did_handshake")
        return self.page

    def line(self, text: str) -> Locator:
        """The row of a list with this text."""
        return self.page.locator(".line").filter(has_text=text).first

    def tab(self, name: str) -> None:
        self.page.get_by_role("tab", name=name).click()
        expect(self.page.locator(f".tab-{name.lower()}")).to_be_visible()

    def text(self, selector: str) -> str:
        """What is there now, without waiting for it."""
        return "\n".join(self.page.locator(selector).all_text_contents())

    def wait(self, condition: Any) -> None:
        """Until it is true, while the page goes on."""

        def holds() -> bool:
            self.page.wait_for_timeout(20)
            with suppress(Error):  # the page is being loaded anew
                return bool(condition())
            return False

        assert wait_until(holds)

    def forgive_lost_connections(self) -> None:
        """That the gateway was gone meanwhile is no fault of the page."""
        lost = ("WebSocket", "ERR_CONNECTION", "ERR_ABORTED")
        self.troubles = [each for each in self.troubles if not any(word in each for word in lost)]

    def chart_points(self, series: int = 0) -> list[list[float]]:
        """What the chart in sight draws."""
        found = self.page.evaluate(
            """series => {
              const box = document.querySelector(".chart");
              const chart = box && getElement(Number(box.id.slice(1)))?.chart;
              return chart?.getOption()?.series?.[series]?.data ?? [];
            }""",
            series,
        )
        return list(found)

    def _watch(self, page: Page) -> Page:
        page.on("console", self._note_console)
        page.on("pageerror", lambda error: self.troubles.append(f"error: {error}"))
        page.on("dialog", self._note_dialog)
        page.on("requestfailed", self._note_failure)
        page.on("request", self._note_request)
        page.on("websocket", lambda socket: socket.on("framereceived", self._count_frame))
        return page

    def _note_console(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            self.troubles.append(f"console: {message.text}")

    def _note_dialog(self, dialog: Any) -> None:
        self.troubles.append(f"dialog: {dialog.message}")
        dialog.dismiss()

    def _note_failure(self, request: Request) -> None:
        self.troubles.append(f"failed: {request.url} {request.failure}")

    def _note_request(self, request: Request) -> None:
        url = urlsplit(request.url)
        if url.scheme != "data" and url.netloc != urlsplit(self.dashboard.url).netloc:
            self.troubles.append(f"elsewhere: {request.url}")

    def _count_frame(self, payload: object) -> None:
        self.frames += 1
