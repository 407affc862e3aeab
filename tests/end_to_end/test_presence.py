"""Who comes and goes, seen by an application while processes do."""

from __future__ import annotations

import signal

import pytest

import jsonbus
from tests.end_to_end.processes import Desk


@pytest.mark.parametrize(
    ("number", "kind"), [(signal.SIGTERM, "left"), (signal.SIGKILL, "expired")]
)
def test_a_process_that_ends_is_told_from_one_that_is_killed(
    desk: Desk, number: int, kind: str
) -> None:
    events: list[jsonbus.NodeEvent] = []
    desk.observer.on_node(events.append)
    watcher = desk.start("node", "--name", "watcher", "-v")
    process = desk.start("node", "--name", "short", "--sub", "x")
    desk.wait_for_node("short")
    desk.wait_until(lambda: any("'short'" in line for line in watcher.complaints))

    process.send_signal(number)
    desk.wait_until(lambda: kinds_of("short", events) == ["joined", kind])
    desk.wait_until(
        lambda: any(f") {kind}" in line for line in watcher.complaints if "'short'" in line)
    )
    assert kinds_of("watcher", events) == ["joined"]
    last = events[-1]
    assert (last.host, last.version) == (desk.observer.nodes()[0].host, jsonbus.__version__)
    assert "short" not in desk.names()


def kinds_of(name: str, events: list[jsonbus.NodeEvent]) -> list[str]:
    return [event.kind for event in list(events) if event.name == name]
