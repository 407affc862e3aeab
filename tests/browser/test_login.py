"""Tokens in a real browser."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, expect

from tests.browser.windows import Dashboard, Window
from tests.end_to_end.processes import Desk

ALL, LOOK = "s3cret-of-all", "s3cret-of-look"


@pytest.fixture(scope="module")
def guarded(desk: Desk) -> Iterator[Dashboard]:
    dashboard = Dashboard(desk, "--token", ALL, "--token", f"subscribe={LOOK}")
    yield dashboard
    dashboard.stop()


def log_in(window: Window, token: str) -> None:
    window.page.get_by_label("Token").fill(token)
    window.page.get_by_role("button", name="Log in").click()


def test_a_token_is_asked_for_and_kept_nowhere(browser: Browser, guarded: Dashboard) -> None:
    with Window(browser, guarded) as window:
        page = window.open()
        urls: list[str] = []
        page.on("request", lambda request: urls.append(request.url))
        log_in(window, "wrong")
        expect(page.get_by_role("alert")).to_have_text("This token is wrong.")
        log_in(window, ALL)
        expect(page.locator("[data-tile=nodes] .tile-figure")).not_to_be_empty()
        (cookie,) = window.context.cookies()
        assert cookie["httpOnly"] and cookie["sameSite"] == "Strict" and cookie["expires"] == -1
        kept = page.evaluate(
            "[{...localStorage}, {...sessionStorage}, document.cookie, document.body.innerHTML]"
        )
        assert not [each for each in (json.dumps(kept), cookie["value"], *urls) if ALL in each]
        page.reload()
        window.tab("Webhooks")
        page.get_by_role("button", name="Log out").click()
        expect(page.get_by_label("Token")).to_be_visible()
        page.go_back()
        expect(page.get_by_label("Token")).to_be_visible()
        # That a wrong token is refused stands in the console, too.
        window.troubles = [each for each in window.troubles if "403" not in each]


def test_who_may_only_look_cannot_publish(browser: Browser, guarded: Dashboard) -> None:
    with Window(browser, guarded) as window:
        page = window.open("/?tab=publish")
        log_in(window, LOOK)
        expect(page.get_by_role("tab", name="Nodes")).to_be_visible()
        assert page.get_by_role("tab", name="Webhooks").count() == 0
        window.tab("Publish")
        expect(page.get_by_role("button", name="Publish")).to_be_disabled()
        expect(page.locator(".publish")).to_contain_text("does not carry the right to publish")


def test_a_page_whose_session_ended_elsewhere_asks_anew(
    browser: Browser, guarded: Dashboard
) -> None:
    with Window(browser, guarded) as window:
        page = window.open()
        log_in(window, ALL)
        expect(page.locator("[data-tile=nodes] .tile-figure")).not_to_be_empty()
        window.context.request.post(f"{guarded.url}/logout")
        expect(page.get_by_label("Token")).to_be_visible()


def test_a_page_of_before_a_restart_asks_anew_and_returns_to_its_place(
    browser: Browser, desk: Desk
) -> None:
    guarded = Dashboard(desk, "--token", ALL)
    with Window(browser, guarded) as window:
        page = window.open("/?tab=nodes")
        log_in(window, ALL)
        expect(window.line("this gateway")).to_be_visible()
        guarded.stop()
        again = Dashboard(desk, "--token", ALL, port=guarded.port)
        expect(page.get_by_label("Token")).to_be_visible()
        log_in(window, ALL)
        expect(window.line("this gateway")).to_be_visible()
        again.stop()
        window.forgive_lost_connections()
