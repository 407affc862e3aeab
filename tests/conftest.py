"""What holds for every test: loopback only, no settings from outside, nothing left running."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from tests.helpers import wait_until

# Before any test module is imported, and inherited by the processes that tests start: a setting of
# the desk must not change a test, and no test may reach a real network.
for _variable in [each for each in os.environ if each.startswith("JSONBUS_")]:
    del os.environ[_variable]
os.environ["JSONBUS_INTERFACE"] = "lo"

# A shell ignores Ctrl-C for what it starts in the background, and so would every command that the
# tests interrupt: commands leave ignored what their caller ignores.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# An example that takes long shows a busy machine, not a fault.
settings.register_profile("any machine", deadline=None)
settings.load_profile("any machine")

FOLDERS_WITH_MARKER = ("simulation", "netns", "end_to_end", "spark", "browser")
#: Markers of what plain `pytest` leaves out: it needs more than Python, or takes long.
LEFT_OUT = (*FOLDERS_WITH_MARKER, "slow")
TESTS = Path(__file__).parent


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--all", action="store_true", help="run every test, the slow ones as well")
    parser.addoption("--quick", action="store_true", help="leave out slow tests of any path")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    # Importing Spark and a browser to leave their tests out would take seconds.
    is_folder = collection_path.parent == TESTS and collection_path.name in FOLDERS_WITH_MARKER
    return True if is_folder and _is_quick(config) else None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(TESTS):
            folder = item.path.relative_to(TESTS).parts[0]
            if folder in FOLDERS_WITH_MARKER:
                item.add_marker(folder)
    if _is_quick(config):
        quick = [item for item in items if not any(map(item.get_closest_marker, LEFT_OUT))]
        config.hook.pytest_deselected(items=[item for item in items if item not in set(quick)])
        items[:] = quick


def _is_quick(config: pytest.Config) -> bool:
    """Whether only quick tests were asked for: by `--quick`, or by `pytest` without any path.

    A test that is named, by its path or by a marker, is run, however long it takes.
    """
    if config.option.quick:
        return True
    is_plain = config.args_source is not pytest.Config.ArgsSource.ARGS
    return is_plain and not config.option.all and not config.option.markexpr


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
