"""What holds for every test: loopback only, no settings from outside, nothing left running."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.helpers import wait_until

# Before any test module is imported, and inherited by the processes that tests start: a setting of
# the desk must not change a test, and no test may reach a real network.
for _variable in [each for each in os.environ if each.startswith("JSONBUS_")]:
    del os.environ[_variable]
os.environ["JSONBUS_INTERFACE"] = "lo"

FOLDERS_WITH_MARKER = ("simulation", "netns", "end_to_end", "spark", "browser")
TESTS = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(TESTS):
            folder = item.path.relative_to(TESTS).parts[0]
            if folder in FOLDERS_WITH_MARKER:
                item.add_marker(folder)


@pytest.fixture(autouse=True)
def no_thread_stays_behind() -> Iterator[None]:
    """Fail the test that leaves a thread of the bus running."""
    before = set(threading.enumerate())
    yield

    def left() -> list[str]:
        return sorted(
            thread.name
            for thread in set(threading.enumerate()) - before
            if thread.name.startswith("jsonbus-")
        )

    # close() is bounded in time: a thread may still be on its way out when it returns.
    if not wait_until(lambda: not left()):
        pytest.fail(f"threads left running: {', '.join(left())}")
