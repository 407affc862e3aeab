"""The other tabs in a real browser, on every screen, under load, and when the gateway is gone."""

from __future__ import annotations

import json
import re
import signal
import socket
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from tests.browser.windows import DESKTOP, PHONE, Dashboard, Window
from tests.end_to_end.processes import Desk
from tests.sealed.material import ring

TABS = ("Overview", "Topics", "Nodes", "Webhooks", "Publish")

COLOUR = "element => getComputedStyle(element).backgroundColor"

FLOOD = """
import sys, time, jsonbus
with jsonbus.Bus(name="flood") as bus:
    bus.wait_until_sure(30)
    began_at, sent = time.monotonic(), 0
    while True:
        while sent < (time.monotonic() - began_at) * 10_000:
            bus.publish(f"flood/{sent % 50}", {"n": sent})
            sent += 1
        time.sleep(0.002)
"""


def test_the_overview_counts_and_its_chart_moves(window: Window) -> None:
    with window.dashboard.bus("sensor") as sensor, window.dashboard.bus("reader") as reader:
        reader.subscribe("counted", lambda message: None)
        page = window.open()

        def publish() -> None:
            sensor.publish("counted", 1)
            reader.publish("unwanted", 1)

        window.wait(lambda: publish() or len(window.chart_points()) >= 3)
        window.wait(lambda: publish() or max(rate for _, rate in window.chart_points()) > 0)
        expect(page.locator("[data-tile=nodes] .tile-figure")).to_have_text("3")
        # Nodes tell of what they did not send every two seconds.
        not_sent = page.locator("[data-tile=suppressed] .tile-figure")
        window.wait(lambda: publish() or re.match(r"[1-9]", not_sent.text_content() or ""))
        expect(window.line("counted")).to_contain_text("1")
        expect(page.locator(".card-note")).to_have_text("the last minute, as this gateway hears it")


def test_a_publish_from_the_page_arrives_and_is_told_of(window: Window) -> None:
    with window.dashboard.bus("reader") as reader:
        subscription = reader.subscribe("page/**")
        page = window.open_live("/?tab=publish")
        page.get_by_label("Topic").fill("page/valve")
        value = page.get_by_label("Value, as JSON")
        value.fill('{"open": tru')
        expect(page.locator(".publish")).to_contain_text("this is not JSON")
        value.fill('{"open": true}')
        expect(page.locator(".publish")).not_to_contain_text("this is not JSON")
        page.get_by_role("switch", name="Retain").click()
        page.get_by_role("button", name="Publish").click()
        message = subscription.get(timeout=30)
        assert (message.topic, message.value) == ("page/valve", {"open": True})
        expect(window.line("page/valve")).to_contain_text("sent")
        with window.dashboard.bus("late") as late:
            assert late.subscribe("page/valve").get(timeout=30).value == {"open": True}
        page.get_by_label("Topic").fill("nobody/cares")
        page.get_by_role("switch", name="Retain").click()
        page.get_by_role("button", name="Publish").click()
        expect(window.line("nobody/cares")).to_contain_text("not sent: nobody wants it")
        page.get_by_label("Topic").fill("not//valid")
        page.get_by_role("button", name="Publish").click()
        expect(page.locator(".publish")).to_contain_text("not valid here")


def test_what_was_typed_into_the_publish_box_is_there_again(window: Window) -> None:
    page = window.open_live("/?tab=publish")
    page.get_by_label("Topic").fill("page/draft")
    page.get_by_label("Value, as JSON").fill('{"half": ')
    page.get_by_role("switch", name="Reliable").click()
    window.tab("Overview")
    window.tab("Publish")
    expect(page.get_by_label("Topic")).to_have_value("page/draft")
    expect(page.get_by_label("Value, as JSON")).to_have_value('{"half": ')
    expect(page.get_by_role("switch", name="Reliable")).to_be_checked()
    expect(page.get_by_role("switch", name="Retain")).not_to_be_checked()
    page.get_by_label("Value, as JSON").fill("1")
    page.get_by_role("button", name="Publish").click()
    expect(window.line("page/draft")).to_be_visible()
    window.tab("Nodes")
    window.tab("Publish")
    expect(window.line("page/draft")).to_be_visible()


@pytest.mark.parametrize(("size", "columns"), [(DESKTOP, 6), ((1024, 768), 3), (PHONE, 3)])
def test_tiles_fill_their_rows_and_leave_room_for_the_content(
    browser: Browser, dashboard: Dashboard, size: tuple[int, int], columns: int
) -> None:
    with Window(browser, dashboard, size) as window:
        page = window.open()
        expect(page.locator(".tile")).to_have_count(6)
        boxes = [tile.bounding_box() for tile in page.locator(".tile").all()]
        assert len({round(box["x"]) for box in boxes if box}) == columns
        chart = page.locator(".tab-overview .card").first.bounding_box()
        assert chart is not None and chart["y"] < size[1] * 0.4
        # The longest note; written and measured before the next second's figures replace it.
        fits = """note => { note.textContent = "reported by 10 of 12 nodes";
                           return note.scrollWidth <= note.clientWidth }"""
        assert page.locator("[data-tile=suppressed] .tile-note").evaluate(fits)


def test_nodes_are_shown_with_what_they_want_and_their_death(window: Window) -> None:
    desk = window.dashboard.desk
    victim = desk.start("sub", "victim/*", "--name", "victim")
    page = window.open("/?tab=nodes")
    window.line("victim").click()
    expect(page.locator(".detail .value").first).to_have_text("victim/*")
    expect(page.locator(".detail .facts")).to_contain_text("Mode")
    expect(window.line("this gateway")).to_be_visible()
    expect(page.locator(".answers")).to_contain_text("ate joiner")
    victim.send_signal(signal.SIGKILL)
    victim.wait()
    gone = page.locator(".line.gone.expired").filter(has_text="victim")
    expect(gone).to_contain_text("expired")
    expect(page.locator(".detail .facts")).to_contain_text("fell silent")
    window.tab("Overview")
    expect(page.locator(".events")).to_contain_text("expired")
    expect(page.locator("[data-tile=nodes] .tile-note")).to_contain_text("victim expired")


def test_a_webhook_that_cannot_be_reached_shows_its_backlog_and_error(window: Window) -> None:
    with socket.socket() as nobody:  # bound, and does not listen
        nobody.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{nobody.getsockname()[1]}/"
        ask = window.context.request
        query = {"topic": "hook", "subscriberName": "broken", "url": url}
        assert ask.get(f"{window.dashboard.url}/subscribe", params=query).ok
        page = window.open("/?tab=webhooks")
        for _ in range(3):
            message = {"topic": "hook", "message": "1"}
            assert ask.get(f"{window.dashboard.url}/publish", params=message).ok
        line = window.line("broken")
        expect(line.locator(".c-backlog")).to_have_text("3")
        expect(line.locator(".c-error")).to_contain_text("refused")
        line.click()
        facts = page.locator(".detail .facts").first
        expect(facts).to_contain_text("Last error")
        expect(facts).to_contain_text(re.compile(r"connection refused .*next try in \d+ s"))
        assert ask.get(
            f"{window.dashboard.url}/unsubscribe", params={"subscriberName": "broken"}
        ).ok
        expect(page.locator(".webhooks")).to_contain_text("There is no webhook")


@pytest.mark.parametrize("size", [DESKTOP, PHONE, (768, 1024)])
def test_no_screen_has_to_be_scrolled_sideways(
    browser: Browser, dashboard: Dashboard, size: tuple[int, int]
) -> None:
    with Window(browser, dashboard, size) as window, dashboard.bus("n" * 60) as node:
        node.subscribe("w/**", lambda message: None)
        page = window.open()
        node.publish("w/" + "W" * 120, {"v" * 200: "x" * 1000})
        for tab in TABS:
            window.tab(tab)
            for wide in ("document.documentElement", "document.querySelector('.body')"):
                assert page.evaluate(f"{wide}.scrollWidth <= {wide}.clientWidth"), tab


def test_colours_follow_the_system_until_somebody_chooses(
    browser: Browser, dashboard: Dashboard
) -> None:
    with Window(browser, dashboard, scheme="dark") as window:
        page = window.open()
        body = page.locator("body")
        dark, light = re.compile("body--dark"), re.compile("body--light")
        expect(body).to_have_class(dark)
        page.emulate_media(color_scheme="light")
        expect(body).to_have_class(light)
        switch = page.locator(".theme")
        switch.click()
        expect(switch).to_have_attribute("data-theme", "light")
        page.emulate_media(color_scheme="dark")
        expect(body).to_have_class(light)
        switch.click()
        expect(body).to_have_class(dark)
        page.emulate_media(color_scheme="light")
        page.reload()
        expect(switch).to_have_attribute("data-theme", "dark")
        expect(body).to_have_class(dark)


def test_ten_thousand_messages_a_second_leave_the_page_usable(window: Window) -> None:
    flood = window.dashboard.desk.start_python(FLOOD)
    try:
        with window.dashboard.bus("reader") as reader:
            reader.subscribe("flood/**", lambda messages: None, in_batches=True)
            page = window.open()
            frames = window.frames
            messages = page.locator("[data-tile=messages] .tile-note")

            def heard() -> float:
                number, _, unit = (
                    (messages.text_content() or "0").partition(" in")[0].partition(" ")
                )
                return float(number.replace(",", "")) * {"k": 1e3, "M": 1e6}.get(unit, 1)

            window.wait(lambda: heard() > 20_000)
            # Whatever comes, a page is told a few times a second, and answers to its user.
            assert window.frames - frames < heard() / 100
            window.tab("Topics")
            page.get_by_label("Search").fill("flood/7")
            expect(page.locator(".topics .line")).to_have_count(1)
            window.line("flood/7").click()
            window.wait(lambda: len(window.chart_points()) > 3)
            for tab in TABS:
                window.tab(tab)
            assert not flood.has_ended
    finally:
        flood.end()


def test_the_page_of_a_sealed_bus_says_so(browser: Browser, desk: Desk, tmp_path: Path) -> None:
    keys = tmp_path / "plant.key"
    keys.touch(0o600)
    keys.write_text(json.dumps(ring()))
    dashboard = Dashboard(desk, "--name", "guard", "--key-file", str(keys))
    with Window(browser, dashboard) as window:
        page = window.open("/")
        expect(page.locator(".brand-node")).to_have_text("guard · sealed (plant)")
    dashboard.stop()


def test_a_page_survives_a_restart_of_the_gateway(browser: Browser, desk: Desk) -> None:
    dashboard = Dashboard(desk, "--name", "before")
    with Window(browser, dashboard) as window:
        page = window.open("/?tab=nodes")
        expect(page.locator(".brand-node")).to_have_text("before")
        light = page.locator(".logo")
        alive = light.evaluate(COLOUR)
        dashboard.stop()
        expect(page.locator("#popup")).to_be_visible()
        assert light.evaluate(COLOUR) != alive  # as what is shown is of before
        again = Dashboard(desk, "--name", "after", port=dashboard.port)
        expect(page.locator(".brand-node")).to_have_text("after")
        expect(window.line("after (this gateway)")).to_be_visible()
        again.stop()
        window.forgive_lost_connections()


def test_a_page_that_is_hidden_or_closed_looks_no_more(
    browser: Browser, dashboard: Dashboard
) -> None:
    def pages_seen(window: Window) -> int:
        text = window.context.request.get(f"{dashboard.url}/metrics").text()
        found = re.search(r"^jsonbus_gateway_dashboard_pages_seen ([\d.]+)", text, re.MULTILINE)
        return int(float(found[1])) if found else -1

    with Window(browser, dashboard) as window:
        window.open()
        window.wait(lambda: pages_seen(window) == 1)
        hide = """state => {
          Object.defineProperty(document, "visibilityState", { value: state, configurable: true });
          document.dispatchEvent(new Event("visibilitychange"));
        }"""
        window.page.evaluate(hide, "hidden")
        window.wait(lambda: pages_seen(window) == 0)
        window.page.evaluate(hide, "visible")
        window.wait(lambda: pages_seen(window) == 1)
        # One that is opened behind others was never seen.
        is_hidden = "Object.defineProperty(document, 'visibilityState', { value: 'hidden' })"
        window.page.add_init_script(is_hidden)
        window.open("/?tab=nodes")
        window.wait(lambda: window.page.evaluate("window.did_handshake"))
        window.wait(lambda: pages_seen(window) == 0)
        window.page.close()
        window.page = window.context.new_page()
        window.wait(lambda: pages_seen(window) == 0)
