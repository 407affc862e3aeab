"""Very many channels, and too few descriptors for them."""

from __future__ import annotations

import contextlib
import resource
import time

import pytest

from jsonbus.core.channel.wire import JSON
from tests.end_to_end.channel.raw_channels import TIMEOUT_S, Server, echo
from tests.end_to_end.processes import Desk
from tests.helpers import wait_until

CHANNELS = 2_000

#: Opens them all at once, and has something echoed by each.
CLIENT = f"""
import resource, threading, jsonbus
_, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
with jsonbus.Bus(name="client") as bus:
    first = bus.connect("server", "echo", 60, retry=True)
    threads = threading.active_count()
    channels = [bus.connect("server", "echo", 60, wait=False) for _ in range({CHANNELS})]
    for number, channel in enumerate(channels):
        channel.send([number])
    assert all(channel.receive(60) == [number] for number, channel in enumerate(channels))
    assert threading.active_count() == threads
    assert all(channel.state == "open" for channel in channels)
    print(bus.stats()["channels_open"], flush=True)
    for channel in channels:
        channel.close(0)
"""


@pytest.fixture
def server(desk: Desk) -> Server:
    return Server(desk)


def test_thousands_of_channels_need_no_thread_each(desk: Desk, server: Server) -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < CHANNELS + 100:
        pytest.skip(f"only {hard} open files are allowed (ulimit -Hn)")
    before = server.ask("standing")
    client = desk.start_python(CLIENT)
    client.expect_exit(0)
    assert client.lines == [str(CHANNELS + 1)]
    desk.wait_until(lambda: server.ask("standing")["channels_open"] == before["channels_open"])
    after = server.ask("standing")
    assert after["channels_opened"] == before["channels_opened"] + CHANNELS + 1
    assert after["threads"] == before["threads"]
    assert after["channels_lost"] == 0


def test_without_descriptors_channels_go_on_and_new_ones_have_to_wait(
    desk: Desk, server: Server
) -> None:
    with contextlib.ExitStack() as calls:
        channel = calls.enter_context(server.connect(1, "echo"))
        server.ask("leave_descriptors", 10)
        callers = [calls.enter_context(server.call()) for _ in range(30)]
        desk.wait_until(lambda: server.process.complaints)
        used_s, began_at = server.ask("cpu_s"), time.monotonic()
        while time.monotonic() - began_at < 1.2:  # twice as long as accepting rests
            assert echo(channel, JSON, b'"still here"')
            time.sleep(0.1)
        busy_s = server.ask("cpu_s") - used_s
        assert busy_s < 0.5 * (time.monotonic() - began_at)
        for caller in callers:
            caller.close()
        assert echo(calls.enter_context(server.connect(2, "echo")), JSON, b'"new"')
        assert desk.observer.connect("server", "echo", TIMEOUT_S, retry=True).close(TIMEOUT_S)
    (complaint,) = server.process.complaints
    assert "raise the limit of open files" in complaint
    assert wait_until(lambda: server.ask("standing")["channels_open"] == 1)
