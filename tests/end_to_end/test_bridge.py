"""`jsonbus bridge` as a process: how it begins, what it says, how it ends."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path
from urllib.request import urlopen

import pytest

pytest.importorskip("pyarrow")

from tests.certificates import Authority
from tests.end_to_end.processes import Desk
from tests.helpers import wait_until
from tests.spark.bridges import Bridge
from tests.spark_bridge.raw_client import RawClient, open_client


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_flushes_and_ends_it_with_a_line_about_the_log(
    desk: Desk, tmp_path: Path, number: int
) -> None:
    # So long a pause between two flushes that the end has something to flush.
    bridge = Bridge(desk, tmp_path / "data", "--sync-ms", "10000", "--partitions", "2")
    try:
        bridge.publish("a", range(1))
        publisher = bridge._ready_publisher()
        for value in range(1, 500):
            assert publisher.publish("a", value)
        assert publisher.flush(30)
        desk.wait_until(
            lambda: (
                sum(
                    bridge.ask({"op": "stats"})["recorder"][each]
                    for each in ("rows_recorded", "rows_waiting")
                )
                == 500
            )
        )
        bridge.process.send_signal(number)
        bridge.process.expect_exit(0)
        assert bridge.process.lines == []
        assert bridge.process.complaints[-1].startswith("500 rows are in the log, ")
        assert bridge.process.complaints[-1].endswith(" bytes on disk")
        assert not any("Traceback" in line for line in bridge.process.complaints)
        bridge._process = None
        bridge.start()
        assert bridge.rows() == 500
    finally:
        bridge.close()


def test_its_first_line_tells_what_it_records_and_where_it_is(desk: Desk, tmp_path: Path) -> None:
    bridge = Bridge(desk, tmp_path / "data", "sensors/**", "alarm", "--partitions", "3")
    try:
        (line,) = (each for each in bridge.process.complaints if " records " in each)
        assert line == (
            f"bridge records sensors/** alarm in {tmp_path}/data and serves 3 partitions on "
            f"{bridge.address}; Ctrl-C ends"
        )
        assert bridge.ask({"op": "poll"})["end"] == [0, 0, 0]
        assert not any("--token" in each for each in bridge.process.complaints)
    finally:
        bridge.close()


def test_a_token_is_taken_from_option_or_environment_and_never_printed(
    desk: Desk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JSONBUS_BRIDGE_TOKEN", "hidden-1")
    by_environment = Bridge(desk, tmp_path / "1", name="one")
    by_option = Bridge(desk, tmp_path / "2", "--token", "hidden-2", "-vv", name="two")
    try:
        for bridge, token in ((by_environment, "hidden-1"), (by_option, "hidden-2")):
            with open_client(bridge.address, token) as client:
                stats = client.ask({"op": "stats"})
                assert stats["ok"] and "hidden" not in str(stats)
            with RawClient(bridge.address) as client:
                assert client.hello(token="wrong")["error"] == "bad_token"
            bridge.stop()
    finally:
        by_environment.close()
        by_option.close()
    for process in desk._processes:
        assert not any("hidden" in line for line in [*process.lines, *process.complaints])


def test_two_bridges_do_not_share_a_port_or_a_directory(desk: Desk, tmp_path: Path) -> None:
    bridge = Bridge(desk, tmp_path / "data")
    try:
        second = desk.start("bridge", "--data-dir", str(tmp_path / "data"), "--listen", "[::1]:0")
        second.expect_exit(1)
        (line,) = second.complaints
        assert line.startswith("Error: ") and str(tmp_path / "data") in line
        third = desk.start(
            "bridge", "--data-dir", str(tmp_path / "third"), "--listen", bridge.address
        )
        third.expect_exit(1)
        assert [line for line in third.complaints if line.startswith("Error: ")] == [
            f"Error: cannot listen on {bridge.address}: Address already in use"
        ]
        assert bridge.ask({"op": "poll"})["ok"]
    finally:
        bridge.close()


def test_a_directory_that_may_not_be_written_is_told_in_one_sentence(
    desk: Desk, tmp_path: Path
) -> None:
    if os.geteuid() == 0:
        folder = Path("/proc/jsonbus-bridge")  # where not even root makes directories
    else:
        tmp_path.chmod(0o500)
        folder = tmp_path / "data"
    process = desk.start("bridge", "--data-dir", str(folder))
    process.expect_exit(1)
    (line,) = process.complaints
    assert line.startswith("Error: ") and str(folder) in line


def test_metrics_are_served_beside_it(desk: Desk, tmp_path: Path) -> None:
    bridge = Bridge(desk, tmp_path / "data", "--metrics-port", "0")
    try:
        bridge.publish("a", range(7))

        def address() -> str | None:
            found = [each for each in bridge.process.complaints if "metrics are on " in each]
            return found[0].split()[-1] if found else None

        desk.wait_until(address)
        with urlopen(str(address()), timeout=60) as reply:
            assert reply.headers["Content-Type"].startswith("text/plain")
            text = reply.read().decode()
        assert "\njsonbus_bridge_recorder_rows_recorded_total 7.0\n" in text
        assert "\n# TYPE jsonbus_bridge_log_bytes gauge\n" in text
        bridge.stop()
    finally:
        bridge.close()


def test_suppression_goes_on_for_what_the_bridge_does_not_record(
    desk: Desk, tmp_path: Path
) -> None:
    bridge = Bridge(desk, tmp_path / "data", "sensors/**")
    try:
        bridge.publish("sensors/1", range(3))
        publisher = bridge._ready_publisher()
        assert publisher.wait_until_sure(30)
        assert not publisher.publish("other", 1)
        subscriber = desk.subscribe("other")
        assert publisher.wait_for_subscribers("other", timeout=60)
        assert publisher.publish("other", 2)
        desk.wait_until(lambda: subscriber.lines)
        assert bridge.rows() == 3
    finally:
        bridge.close()


def test_a_status_pipe_that_nobody_reads_does_not_end_it(desk: Desk, tmp_path: Path) -> None:
    read, write = os.pipe()
    os.close(read)
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = free.getsockname()
    arguments = ["--data-dir", str(tmp_path / "data"), "--listen", "{}:{}".format(*address)]
    process = subprocess.Popen(
        [sys.executable, "-m", "jsonbus", "bridge", "--name", "mute", *arguments],
        env={**os.environ, "JSONBUS_PORT": str(desk.port), "JSONBUS_INTERFACE": "lo"},
        stdout=write,
        stderr=write,
    )
    os.close(write)
    try:
        # It is on the bus before it serves, and interrupted, not ended, by a signal until then.
        assert wait_until(lambda: _is_served(address))
        desk.wait_for_node("mute")
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
    finally:
        process.kill()
        process.wait()


def _is_served(address: tuple[str, int]) -> bool:
    try:
        socket.create_connection(address, timeout=10).close()
    except OSError:
        return False
    return True


def test_it_is_read_and_measured_over_tls(desk: Desk, tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    cert, key = authority.issue()
    files = ("--tls-cert", str(cert), "--tls-key", str(key))
    bridge = Bridge(desk, tmp_path / "data", *files, "--metrics-port", "0")
    trusted = authority.client()
    try:
        with RawClient(bridge.address) as client:
            client.socket = trusted.wrap_socket(client.socket, server_hostname="localhost")
            assert client.hello()["partitions"] == 4
        pattern = re.compile(r"metrics are on (https://127\.0\.0\.1:\d+/metrics)")
        desk.wait_until(lambda: pattern.search("\n".join(bridge.process.complaints)))
        found = pattern.search("\n".join(bridge.process.complaints))
        assert found is not None
        with urlopen(found[1], timeout=60, context=trusted) as page:
            assert "jsonbus_bridge_server_tls_handshakes_total 1.0" in page.read().decode()
        bridge.stop()
    finally:
        bridge.close()
