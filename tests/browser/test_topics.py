"""Topics in a real browser: values, charts, many of them, and names that look like scripts."""

from __future__ import annotations

import re
import time

from playwright.sync_api import expect

from jsonbus.gateway.dashboard.history import SAMPLE_S
from tests.browser.windows import PHONE, Window

SCRIPT = "<script>window.hacked = 1</script>"
IMAGE = "<img src=x onerror='window.hacked = 2'>"
TEMPLATE = "`${window.hacked = 3}` {{window.hacked = 4}}"


def test_values_appear_and_follow(window: Window) -> None:
    with window.dashboard.bus("sensor") as sensor, window.dashboard.bus("reader") as reader:
        reader.subscribe("kitchen/**", lambda message: None)
        window.open("/?tab=topics")
        for number in (1, 2, 3):

            def is_shown(number: int = number) -> bool:
                sensor.publish("kitchen/oven/state", {"temp": number})
                return f'{{"temp": {number}}}' in window.text(".topics .line")

            window.wait(is_shown)
        window.line("oven/state").click()
        detail = window.page.locator(".detail")
        expect(detail.locator(".facts")).to_contain_text("sensor")
        expect(detail.locator(".facts")).to_contain_text("reader")
        expect(detail.locator(".value")).to_have_text('{\n  "temp": 3\n}', use_inner_text=True)


def test_the_chart_of_nested_numbers_moves(window: Window) -> None:
    with window.dashboard.bus("arm") as arm, window.dashboard.bus("reader") as reader:
        reader.subscribe("arm/**", lambda message: None)
        sent = 0

        def publish() -> None:
            nonlocal sent
            sent += 1
            arm.publish("arm/state", {"load": sent, "axes": [{"angle": -sent}, 7], "on": True})

        window.wait(lambda: publish() or arm.explain("arm/state").verdict == "sent")
        window.open("/?tab=topics&topic=arm/state")
        window.wait(lambda: publish() or len(window.chart_points()) >= 2)
        chips = window.page.locator(".chip")
        expect(chips).to_have_count(3)
        expect(chips.nth(0)).to_have_attribute("aria-pressed", "true")
        before = window.chart_points()
        window.page.locator(".chip[data-key='axes[0].angle']").click()
        window.wait(lambda: publish() or len(window.chart_points(1)) >= 2)
        assert all(number < 0 for _, number in window.chart_points(1))
        window.wait(lambda: publish() or window.chart_points()[-1][0] > before[-1][0])
        assert all(number > 0 for _, number in window.chart_points())


def test_a_chart_begins_with_what_was_published_before(window: Window) -> None:
    with window.dashboard.bus("arm") as arm, window.dashboard.bus("reader") as reader:
        reader.subscribe("earlier", lambda message: None)
        window.wait(lambda: arm.explain("earlier").verdict == "sent")
        page = window.open("/?tab=nodes")  # from the first page on, topics are sampled
        began_at, sent = time.monotonic(), 0
        expect(window.line("this gateway")).to_be_visible()
        while time.monotonic() - began_at < 3.5 * SAMPLE_S:
            sent += 1
            arm.publish("earlier", sent)
            page.wait_for_timeout(100)
        window.open("/?tab=topics&topic=earlier")
        window.wait(lambda: len(window.chart_points()) >= 3)
        assert window.chart_points()[0][1] < sent / 2


def test_what_looks_like_a_script_stays_text(window: Window) -> None:
    topic = f"{SCRIPT}x/{IMAGE}".replace("</", "<\\")  # a topic has levels, and no empty one
    with (
        window.dashboard.bus(f"node {IMAGE}") as sender,
        window.dashboard.bus(f"reader {SCRIPT}") as reader,
    ):
        reader.subscribe("**", lambda message: None)
        page = window.open("/")

        def publish() -> None:
            sender.publish(topic, {SCRIPT: IMAGE, f"n{IMAGE}": 5, "__proto__": {"__proto__": 1}})
            sender.publish(f"t{TEMPLATE}", {"v": f"{TEMPLATE}{SCRIPT}", TEMPLATE: 1})

        window.wait(lambda: publish() or IMAGE in window.text(".busiest"))
        window.line(IMAGE).click()
        expect(page.locator(".detail .value")).to_contain_text(SCRIPT)
        expect(page.locator(".detail .facts")).to_contain_text(f"reader {SCRIPT}")
        expect(page.locator(".topic-title")).to_have_text(topic)
        window.wait(lambda: publish() or window.chart_points())
        page.locator(".chart").hover()
        for name in ("Nodes", "Overview", "Publish"):
            window.tab(name)
        window.tab("Nodes")
        window.line(IMAGE).click()
        expect(page.locator(".topic-title")).to_have_text(f"node {IMAGE}")
        assert page.evaluate("window.hacked") is None
        # What was seen last is in the page itself when it is loaded, whose scripts are trusted.
        for tab in ("nodes", "topics"):
            window.open(f"/?tab={tab}")
            expect(window.line(IMAGE)).to_be_visible()
            assert page.evaluate("window.hacked") is None
        expect(window.line(TEMPLATE)).to_be_visible()
        assert page.evaluate("({}).x") is None
        assert page.locator("main script, main img, main [onerror]").count() == 0


def test_of_thousands_of_topics_a_browser_has_those_in_sight(window: Window) -> None:
    with window.dashboard.bus("many") as many, window.dashboard.bus("reader") as reader:
        reader.subscribe("many/**", lambda message: None)
        page = window.open("/?tab=topics")
        page.get_by_label("Search").fill("many/")

        def publish() -> bool:
            for number in range(3_000):
                many.publish(f"many/{number % 30:02}/{number:04}/value", number)
            return "3,000 of" in window.text(".count")

        window.wait(publish)
        lines = page.locator(".topics .line")
        window.wait(lambda: 20 < lines.count() < 100)
        box = page.locator(".topics")
        box.evaluate("box => box.scrollTo(0, box.scrollHeight)")
        expect(window.line("2999/value")).to_be_visible()
        assert lines.count() < 100
        page.get_by_label("Search").fill("many/*/1234/*")
        expect(lines).to_have_count(1)
        expect(lines).to_contain_text("1234")
        page.get_by_label("Search").fill("no such topic")
        expect(page.locator(".rows-empty")).to_contain_text("matches")


def test_the_busiest_come_first(window: Window) -> None:
    with window.dashboard.bus("two") as two, window.dashboard.bus("reader") as reader:
        reader.subscribe("order/**", lambda message: None)
        page = window.open("/?tab=topics")
        page.get_by_label("Search").fill("order/")
        page.get_by_role("button", name="Busiest").click()

        def publish() -> list[str]:
            two.publish("order/a-slow", 1)
            for _ in range(5):
                two.publish("order/b-fast", 2)
            return page.locator(".topics .line .c-name").all_text_contents()

        window.wait(lambda: publish() == ["order/b-fast", "order/a-slow"])


def test_on_a_phone_the_topic_takes_the_place_of_the_list(window: Window) -> None:
    window.page.set_viewport_size({"width": PHONE[0], "height": PHONE[1]})
    with window.dashboard.bus("sensor") as sensor, window.dashboard.bus("reader") as reader:
        reader.subscribe("phone/**", lambda message: None)
        page = window.open("/?tab=topics")
        page.get_by_label("Search").fill("phone")
        line = window.line("phone/temp")
        window.wait(lambda: sensor.publish("phone/temp", 1.5) and line.is_visible())
        line.click()
        expect(page.locator(".detail")).to_be_visible()
        expect(page.locator(".list")).to_be_hidden()
        expect(page).to_have_url(re.compile("topic=phone/temp"))  # which a reload shows again
        page.reload()
        expect(page.locator(".topic-title")).to_have_text("phone/temp")
        page.get_by_role("button", name="Close").click()
        expect(page.locator(".list")).to_be_visible()
