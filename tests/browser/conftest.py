"""One browser and one gateway for all tests of this folder; a window of its own for each."""

from __future__ import annotations

import shutil
from collections.abc import Iterator

import pytest

pytest.importorskip("nicegui")
pytest.importorskip("playwright")

from playwright.sync_api import Browser, expect, sync_playwright

from tests.browser.windows import FLAGS, Dashboard, Window
from tests.end_to_end import processes

NAMES = ("chromium", "chromium-browser", "google-chrome")

# For machines that are slow or busy: a test that passes never waits for it.
expect.set_options(timeout=30_000)


# Not for the session: while playwright runs, asyncio.run cannot.
@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    path = next(filter(None, map(shutil.which, NAMES)), None)
    if path is None:
        pytest.skip("chromium is not installed (Debian: chromium); tools/test.py does that")
    with sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=path, args=FLAGS)
        yield launched
        launched.close()


@pytest.fixture(scope="package")
def desk(browser: Browser) -> Iterator[processes.Desk]:
    with processes.desk() as opened:
        yield opened


@pytest.fixture(scope="package")
def dashboard(desk: processes.Desk) -> Dashboard:
    return Dashboard(desk)


@pytest.fixture
def window(browser: Browser, dashboard: Dashboard) -> Iterator[Window]:
    """A window of the usual gateway; whatever is wrong in it fails the test at its end."""
    with Window(browser, dashboard) as opened:
        yield opened
