"""A bridge on a disk that is really full."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

import jsonbus
from spark_bridge import recorder as recorder_module
from spark_bridge.bridge import Bridge
from spark_bridge.errors import BridgeError
from spark_bridge.state import state_topic
from tests.helpers import find_free_port, wait_until
from tests.spark_bridge.raw_client import open_client
from tests.spark_bridge.test_requests import STAGE, make_stream


@pytest.fixture
def port() -> int:
    return find_free_port()


@pytest.fixture
def publisher(port: int) -> Iterator[jsonbus.Bus]:
    with jsonbus.Bus(port=port, reliable=True) as opened:
        yield opened


def open_bridge(disk: Path, port: int) -> Bridge:
    return Bridge(data_dir=disk / "data", listen=("127.0.0.1", 0), partitions=2, port=port)


def make_value() -> str:
    """A value that does not get smaller."""
    return os.urandom(2_000).hex()


def fill(disk: Path) -> Path:
    """Take all room that is left."""
    ballast = disk / "ballast"
    with open(ballast, "wb", buffering=0) as file:
        try:
            while file.write(bytes(4096)) == 4096:
                pass
        except OSError:
            pass
    return ballast


def test_a_full_disk_stops_recording_and_nothing_else(
    disk: Path,
    port: int,
    publisher: jsonbus.Bus,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(recorder_module, "REFUSED_PAUSE_S", 0.05)
    with open_bridge(disk, port) as bridge, open_client(bridge.address) as client:
        assert publisher.wait_for_subscribers("t", timeout=30)

        def count(name: str) -> int:
            figure: int = bridge.stats()["recorder"][name]
            return figure

        published = 10
        for _ in range(published):
            assert publisher.publish("t", make_value())
        assert wait_until(lambda: count("rows_recorded") == published)
        ballast = fill(disk)
        while count("rows_unrecorded") < 100:
            assert publisher.publish("t", make_value())
            published += 1
            assert publisher.flush(30)
            assert published < 20_000
        assert wait_until(lambda: count("rows_recorded") + count("rows_unrecorded") == published)
        state = publisher.request(state_topic(bridge.bus.id), timeout=30)
        assert state["is_failing"] and "no room" in state["last_error"]
        assert state["rows_unrecorded"] >= 100 and state["last_error_s_ago"] >= 0
        # Reading, and all else, goes on.
        stats = client.ask({"op": "stats"})
        assert stats["recorder"]["rows_unrecorded"] >= 100
        ends = client.ask({"op": "poll"})["end"]
        kept = [client.read(partition, 0, end) for partition, end in enumerate(ends)]
        stream = make_stream(1_000, "t" * 200)
        refused = client.ask({**STAGE, "bytes": len(stream)}, stream)
        assert refused["ok"] or refused["error"] == "disk_full"
        errors = [each for each in caplog.records if each.levelno >= logging.ERROR]
        assert len(errors) == 1
        assert "no room" in errors[0].getMessage() and str(disk) in errors[0].getMessage()

        ballast.unlink()
        # The gap is told before, or with, what comes next, and it is the whole of it.
        assert publisher.publish("t", "room again")
        published += 1
        assert wait_until(lambda: count("rows_recorded") + count("rows_unrecorded") == published)
        (place,) = (number for number, end in enumerate(ends) if end)
        assert wait_until(lambda: not bridge.stats()["recorder"]["rows_waiting"])
        end = client.ask({"op": "poll"})["end"][place]
        rows = client.read(place, 0, end, gaps=True)
        missing = sum(row["gap"] or 0 for row in rows)
        assert missing == count("rows_unrecorded")
        assert {row["topic"] for row in rows if row["gap"]} == {"t"}
        messages = [row for row in rows if row["gap"] is None]
        assert len(messages) == count("rows_recorded")
        assert messages[-1]["value"] == '"room again"'
        assert messages[: len(kept[place])] == kept[place]
        assert "recording goes on" in caplog.text
        state = publisher.request(state_topic(bridge.bus.id), timeout=30)
        assert not state["is_failing"] and "no room" in state["last_error"]


@pytest.mark.slow
def test_a_bridge_starts_on_a_disk_that_has_become_full_and_serves_what_it_has(
    disk: Path,
    port: int,
    publisher: jsonbus.Bus,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(recorder_module, "REFUSED_PAUSE_S", 0.05)
    stream = make_stream(5)
    asked = {"op": "publish", "query": "q", "batch": 0, "partitions": [[0, 7]]}
    with open_bridge(disk, port) as bridge:
        assert publisher.wait_for_subscribers("t", timeout=30)
        for _ in range(10):
            publisher.publish("t", make_value())
        assert wait_until(lambda: sum(bridge.log.end()) == 10)
        ends = bridge.log.end()
        with open_client(bridge.address) as client:
            client.ask({**STAGE, "bytes": len(stream)}, stream)
        # A batch is on its way out when the bridge ends.
        assert bridge._sink._store.mark("q", 0, [(0, 7)]) is not None
    ballast = fill(disk)
    with open_bridge(disk, port) as bridge, open_client(bridge.address) as client:
        assert client.ask({"op": "poll"})["end"] == ends
        assert sum(len(client.read(n, 0, end)) for n, end in enumerate(ends)) == 10
        assert client.ask(asked)["error"] == "disk_full"
        assert "have to wait" in caplog.text
        assert publisher.wait_for_subscribers("t", timeout=30)
        ballast.unlink()
        assert wait_until(lambda: publisher.publish("t", "room again"))
        assert wait_until(lambda: sum(bridge.log.end()) > 10)
        assert client.ask(asked)["ok"]


def test_a_new_log_on_a_full_disk_is_refused_in_one_sentence(disk: Path, port: int) -> None:
    fill(disk)
    with pytest.raises(BridgeError, match="No space left on device"):
        open_bridge(disk, port).close()
