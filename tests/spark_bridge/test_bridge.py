"""The bridge as a whole: a real bus, a real log, a real port."""

from __future__ import annotations

import json
import logging
import os
import shutil
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest

import jsonbus
from jsonbus.errors import InvalidTopicError
from spark_bridge import bridge as bridge_module
from spark_bridge.bridge import Bridge
from spark_bridge.errors import BridgeError, LogLockedError
from spark_bridge.fields import WAIT_MS_MAX
from spark_bridge.metrics import Metrics
from tests.helpers import find_free_port, wait_until
from tests.spark_bridge.raw_client import RawClient, encode, open_client
from tests.spark_bridge.test_requests import make_stream

OpenBridge = Callable[..., Bridge]


@pytest.fixture
def port(monkeypatch: pytest.MonkeyPatch) -> int:
    """A port of the test's own, for all buses."""
    number = find_free_port()
    monkeypatch.setenv("JSONBUS_PORT", str(number))
    return number


@pytest.fixture
def open_bridge(port: int, tmp_path: Path) -> Iterator[OpenBridge]:
    with ExitStack() as opened:

        def open_one(*patterns: str, **options: Any) -> Bridge:
            options = {"data_dir": tmp_path / "data", "listen": ("127.0.0.1", 0), **options}
            bridge = Bridge(patterns or ("**",), **options)
            opened.callback(bridge.close)
            return bridge

        yield open_one


@pytest.fixture
def publisher(port: int) -> Iterator[jsonbus.Bus]:
    with jsonbus.Bus(name="publisher", reliable=True) as opened:
        yield opened


def publish(publisher: jsonbus.Bus, topic: str, *values: Any) -> None:
    assert publisher.wait_for_subscribers(topic, timeout=30)
    for value in values:
        assert publisher.publish(topic, value)


def read_all(client: RawClient, **options: Any) -> list[dict[str, Any]]:
    ends = client.ask({"op": "poll"})["end"]
    return [
        row
        for partition, end in enumerate(ends)
        for row in client.read(partition, 0, end, **options)
    ]


def test_what_is_published_is_read_and_the_waiting_are_told(
    open_bridge: OpenBridge, publisher: jsonbus.Bus
) -> None:
    bridge = open_bridge(partitions=1)
    with open_client(bridge.address) as client:
        client.socket.sendall(encode({"op": "poll", "known": [0], "wait_ms": WAIT_MS_MAX}))
        publish(publisher, "a/b", {"n": 1})
        assert client.receive()["end"] == [1]
        (row,) = client.read(0, 0, 1)
        assert (row["topic"], json.loads(row["value"])) == ("a/b", {"n": 1})


@pytest.mark.slow
def test_patterns_limit_what_is_recorded_and_what_publishers_send(
    open_bridge: OpenBridge, publisher: jsonbus.Bus
) -> None:
    bridge = open_bridge("sensors/**", "alarm")
    publish(publisher, "sensors/1", 1)
    publish(publisher, "alarm", 2)
    assert publisher.wait_until_sure(30)
    assert not publisher.publish("other", 3)
    assert wait_until(lambda: sum(bridge.log.end()) == 2)
    with open_client(bridge.address) as client:
        assert {row["topic"] for row in read_all(client)} == {"sensors/1", "alarm"}


def test_stats_are_served_and_have_every_part(
    open_bridge: OpenBridge, publisher: jsonbus.Bus
) -> None:
    bridge = open_bridge()
    publish(publisher, "a", 1)
    assert wait_until(lambda: sum(bridge.log.end()) == 1)
    with open_client(bridge.address) as client:
        client.ask({"op": "commit", "group": "ü\n", "offsets": [0, 0, 0, 0]})
        stats = client.ask({"op": "stats"})
    assert stats.pop("ok") is True
    assert stats.keys() == {"log", "recorder", "sink", "server", "bus", "groups"}
    assert stats["log"]["rows"] == stats["recorder"]["rows_recorded"] == 1
    assert stats["server"]["connections"] == 1
    assert stats["groups"]["ü\n"]["lag"] == 1
    assert 0 <= stats["groups"]["ü\n"]["committed_s_ago"] < 60


@pytest.mark.slow
def test_what_the_sink_publishes_is_recorded_to_the_last_row(
    open_bridge: OpenBridge, port: int
) -> None:
    """Closing in the middle of a batch: what has gone out is in the log, the rest comes later."""
    rows = 20_000
    stream = make_stream(rows)
    stage = {"op": "stage", "query": "q", "batch": 0, "partition": 0, "attempt": 1}
    asked = {"op": "publish", "query": "q", "batch": 0, "partitions": [[0, 1]]}
    bridge = open_bridge(partitions=1)
    with open_client(bridge.address) as client:
        assert client.ask({**stage, "bytes": len(stream)}, stream)["rows"] == rows
        client.socket.sendall(encode(asked))
        assert wait_until(lambda: bridge.stats()["recorder"]["rows_waiting"] or bridge.log.end()[0])
        bridge.close()
    bridge = open_bridge(partitions=1)  # publishes the rest before it serves
    assert wait_until(lambda: bridge.log.end() == [rows])
    with open_client(bridge.address) as client:
        assert client.ask(asked)["repeated"] is True
        assert [int(row["value"]) for row in client.read(0, 0, rows)] == list(range(rows))


def test_close_flushes_and_a_new_bridge_goes_on(
    open_bridge: OpenBridge, publisher: jsonbus.Bus
) -> None:
    bridge = open_bridge(partitions=1, sync_ms=10_000)
    log_id = bridge.log.id
    publish(publisher, "a", *range(100))
    assert wait_until(lambda: bridge.bus.stats()["messages_delivered"] == 100)
    bridge.close()
    bridge.close()
    assert bridge.log.end() == [100]
    bridge = open_bridge()
    assert (bridge.log.id, bridge.log.end()) == (log_id, [100])
    with open_client(bridge.address) as client:
        assert [int(row["value"]) for row in client.read(0, 0, 100)] == list(range(100))


def test_close_ends_a_long_poll(open_bridge: OpenBridge) -> None:
    bridge = open_bridge(partitions=1)
    with open_client(bridge.address) as client:
        client.socket.sendall(encode({"op": "poll", "known": [0], "wait_ms": WAIT_MS_MAX}))
        assert wait_until(lambda: bridge.stats()["server"]["requests"] == 1)
        began_at = time.monotonic()
        bridge.close()
        assert time.monotonic() - began_at < WAIT_MS_MAX / 2000
        assert client.receive_end() == b""


def test_a_port_in_use_is_told_in_one_sentence_and_leaves_nothing_open(
    open_bridge: OpenBridge,
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        address = other.getsockname()
        with pytest.raises(BridgeError, match=rf"cannot listen on 127\.0\.0\.1:{address[1]}: .+"):
            open_bridge(listen=address)
    bridge = open_bridge(listen=address)  # also the directory is free again
    assert bridge.address == address


def test_a_name_that_is_no_host_is_told(open_bridge: OpenBridge) -> None:
    with pytest.raises(BridgeError, match="cannot listen on no such host:0"):
        open_bridge(listen=("no such host", 0))


def test_a_second_bridge_on_a_directory_is_refused(open_bridge: OpenBridge, tmp_path: Path) -> None:
    open_bridge()
    with pytest.raises(LogLockedError, match=str(tmp_path / "data")):
        open_bridge()


def test_a_bad_pattern_leaves_nothing_open(open_bridge: OpenBridge) -> None:
    with pytest.raises(InvalidTopicError):
        open_bridge("a//b")
    open_bridge()


def test_ipv6_is_served(open_bridge: OpenBridge) -> None:
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError as error:
        pytest.skip(f"no IPv6 here: {error}")
    bridge = open_bridge(listen=("::1", 0))
    with open_client(bridge.address) as client:
        assert client.ask({"op": "poll"})["ok"]


@pytest.mark.slow
def test_a_directory_that_is_deleted_while_the_bridge_runs_is_complained_of_once(
    open_bridge: OpenBridge,
    publisher: jsonbus.Bus,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(bridge_module, "EXPIRE_S", 0.01)
    bridge = open_bridge(partitions=1)
    looked = 0
    expire = bridge.log.expire

    def count() -> int:
        nonlocal looked
        looked += 1
        return expire()

    monkeypatch.setattr(bridge.log, "expire", count)
    shutil.rmtree(tmp_path / "data")
    assert wait_until(lambda: "was moved or deleted while the bridge runs" in caplog.text)
    looked = 0
    assert wait_until(lambda: looked > 5)
    assert caplog.text.count("was moved or deleted") == 1
    state = bridge.state()
    assert state["is_failing"] and "was moved or deleted" in state["last_error"]
    # What is open can still be written and read.
    publish(publisher, "a", 1)
    assert wait_until(lambda: bridge.log.end() == [1])
    with open_client(bridge.address) as client:
        assert len(client.read(0, 0, 1)) == 1


@pytest.mark.slow
def test_old_segments_are_removed_while_the_bridge_runs(
    open_bridge: OpenBridge, publisher: jsonbus.Bus, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bridge_module, "EXPIRE_S", 0.01)
    bridge = open_bridge(partitions=1, retention_bytes=100_000)
    # Not all at once: what a busy machine records in one flush is one segment, which stays.
    for end in (500, 1000, 1500, 2000):
        publish(publisher, "a", *(os.urandom(1_000).hex() for _ in range(500)))
        assert wait_until(lambda end=end: bridge.log.end() == [end])  # type: ignore[misc]
    assert wait_until(lambda: bridge.log.first()[0] > 0)
    with open_client(bridge.address) as client:
        reply = client.ask({"op": "read", "partition": 0, "start": 0, "end": 2000})
        assert reply["error"] == "out_of_range"


@pytest.mark.slow
def test_metrics_tell_the_counters_that_move(
    open_bridge: OpenBridge, publisher: jsonbus.Bus
) -> None:
    bridge = open_bridge(partitions=1)
    metrics = Metrics(bridge.stats, "127.0.0.1", 0)
    try:

        def scrape() -> dict[str, float]:
            with urlopen(f"http://127.0.0.1:{metrics.port}/metrics", timeout=30) as reply:
                text = reply.read().decode()
            lines = [line for line in text.splitlines() if not line.startswith("#")]
            return {name: float(value) for name, value in (line.rsplit(" ", 1) for line in lines)}

        before = scrape()
        assert before["jsonbus_bridge_recorder_rows_recorded_total"] == 0
        assert before["jsonbus_bridge_log_rows"] == 0
        publish(publisher, "a", *range(5))
        assert wait_until(lambda: bridge.log.end() == [5])
        with open_client(bridge.address) as client:
            client.ask({"op": "commit", "group": 'my "query"\n', "offsets": [2]})
            client.ask({"op": "note", "group": 'my "query"\n', "misfits": 3})
            after = scrape()
        assert after["jsonbus_bridge_recorder_rows_recorded_total"] == 5
        assert after["jsonbus_bridge_log_rows"] == 5
        assert after["jsonbus_bridge_server_connections"] == 1
        assert after["jsonbus_bridge_server_requests_total"] == 2
        assert after["jsonbus_bridge_bus_nodes_known"] >= 1
        assert after["jsonbus_bridge_recorder_is_failing"] == 0
        assert after["jsonbus_bridge_bus_channels_open"] == 0
        # Names stay; a new one is to be added to the list.
        names = Path(__file__).with_name("metric_names.txt").read_text(encoding="utf-8").split()
        assert {name.partition("{")[0] for name in after} == set(names)
        label = r'{group="my \"query\"\n"}'
        assert after[f"jsonbus_bridge_lag_rows{label}"] == 3
        assert after[f"jsonbus_bridge_misfits_total{label}"] == 3
    finally:
        metrics.stop()
    with pytest.raises(OSError):
        socket.create_connection(("127.0.0.1", metrics.port), 1)


def test_metrics_on_a_port_in_use_are_told_in_one_sentence() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(BridgeError, match=rf"cannot serve metrics on 127\.0\.0\.1:{port}: .+"):
            Metrics(lambda: {"groups": {}}, "127.0.0.1", port)


def test_who_connects_for_metrics_and_says_nothing_keeps_no_thread(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("spark_bridge.metrics.REQUEST_S", 0.1)
    metrics = Metrics(lambda: {"groups": {}}, "127.0.0.1", 0)
    try:
        before = threading.active_count()
        with socket.create_connection(("127.0.0.1", metrics.port), 60) as silent:
            assert silent.recv(1) == b""
        assert wait_until(lambda: threading.active_count() <= before)
    finally:
        metrics.stop()


def test_an_error_of_the_keeper_does_not_end_it(
    open_bridge: OpenBridge, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(bridge_module, "EXPIRE_S", 0.01)
    bridge = open_bridge()
    causes: list[Exception] = [RuntimeError("an invented bug"), OSError("a broken disk")]
    calls = 0

    def fail() -> int:
        nonlocal calls
        calls += 1
        raise causes[0] if calls < 3 else causes[1]

    with caplog.at_level(logging.ERROR):
        monkeypatch.setattr(bridge.log, "expire", fail)
        assert wait_until(lambda: calls > 8)
    assert "an invented bug" in caplog.text
    assert caplog.text.count("a broken disk") == 1
