"""A real bridge to Spark in a real browser."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from playwright.sync_api import expect

pytest.importorskip("pyarrow")

from spark_bridge.bridge import Bridge
from tests.browser.windows import Window
from tests.spark_bridge.raw_client import open_client

NAME = "bridge <b>1</b>"


def publish(window: Window) -> bool:
    """Whether somebody wanted it."""
    message = {"topic": "bridged/a", "message": "1"}
    answer = window.context.request.get(f"{window.dashboard.url}/publish", params=message)
    return bool(answer.json()["sent"])


def test_a_bridge_shows_what_it_recorded_who_is_behind_and_that_it_left(
    window: Window, tmp_path: Path
) -> None:
    page = window.open("/?tab=webhooks")
    expect(page.locator(".bridges")).to_contain_text("There is no Spark bridge")

    def open_bridge() -> Bridge:
        return Bridge(
            ["bridged/**"],
            listen=("127.0.0.1", 0),
            data_dir=tmp_path,
            partitions=1,
            name=NAME,
            port=window.dashboard.desk.port,
            interface="lo",
        )

    line = window.line(NAME)
    # In threads: playwright's event loop runs in this one.
    with ThreadPoolExecutor(1) as threads, threads.submit(open_bridge).result() as bridge:
        with open_client(bridge.address) as client:
            client.ask({"op": "commit", "group": "query", "offsets": [0]})
        for _ in range(7):
            window.wait(lambda: publish(window))
        for column in ("rows", "kept", "lag"):
            expect(line.locator(f".c-{column}")).to_have_text("7")
        host, port = bridge.address
        expect(line.locator(".c-url")).to_have_text(f"{host}:{port}")
        expect(line.locator(".c-error")).to_have_text("records")
        threads.submit(bridge.close).result()
    expect(line.locator(".c-error")).to_contain_text("left the bus")
    expect(page.locator(".bridges .line.gone")).to_have_count(1)
