"""A sealed bus of processes: who has the key file hears, and nothing readable is on the wire."""

from __future__ import annotations

import contextlib
import os
import socket
import struct
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.end_to_end.processes import Desk
from tests.helpers import wait_until

GROUP = "239.255.24.16"


@contextlib.contextmanager
def capturing(port: int) -> Iterator[list[bytes]]:
    """What a plain socket hears that has joined the group."""
    captured: list[bytes] = []
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind((GROUP, port))
        joined = struct.pack("4s4s", socket.inet_aton(GROUP), socket.inet_aton("127.0.0.1"))
        sock.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, joined)
        sock.settimeout(0.05)
        is_over = threading.Event()

        def hear() -> None:
            while not is_over.is_set():
                with contextlib.suppress(TimeoutError):
                    captured.append(sock.recv(65_536))

        thread = threading.Thread(target=hear, name="test-capture")
        thread.start()
        try:
            yield captured
        finally:
            is_over.set()
            thread.join()


@pytest.fixture
def key_file(desk: Desk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A key file that all commands have, and the observer of the desk."""
    path = tmp_path / "plant.key"
    desk.run("keygen", str(path), "--bus", "plant")
    monkeypatch.setenv("JSONBUS_KEY_FILE", str(path))
    return path


def test_two_processes_with_the_key_talk_and_a_third_hears_nothing(
    desk: Desk, key_file: Path
) -> None:
    with capturing(desk.port) as captured:
        inside = desk.subscribe("--count", "2", "front/door")
        outside = desk.start_shell("unset JSONBUS_KEY_FILE; exec jsonbus sub -v '**'")
        forger = "unset JSONBUS_KEY_FILE; exec jsonbus pub --mode basic front/door '\"forged\"'"
        desk.wait_until(lambda: any("sealed" in line for line in outside.complaints))
        desk.run("pub", "--wait", "60", "front/door", '"ajar"')
        desk.start_shell(forger).expect_exit(0)
        desk.run("pub", "--wait", "60", "front/door", '"wide open"')
        inside.expect_exit(0)
    assert [each["value"] for each in inside.results] == ["ajar", "wide open"]
    assert outside.lines in ([], [line for line in outside.lines if "forged" in line])
    sealed = [data for data in captured if data.startswith(b"\xb5\x01")]
    assert len(sealed) > 5
    everything = b"".join(sealed)
    for word in (
        b"front",
        b"door",
        b"ajar",
        b"wide",
        b"subscriber",
        b"topic",
        b"jsonbus",
        b"plant",
    ):
        assert word not in everything
    # Only who has no key says anything open.
    assert not any(b"ajar" in data or b"wide" in data for data in captured)


def test_commands_say_that_the_bus_is_sealed(desk: Desk, key_file: Path) -> None:
    desk.start("node", "--name", "attic")
    desk.wait_until(lambda: "attic" in desk.names())
    nodes = desk.run("nodes")
    assert [each["name"] for each in nodes.results if each["name"] != "observer"] == ["attic"]
    assert "sealed: the bus plant" in nodes.complaints
    explained = desk.run("explain", "door")
    assert any("sealed: the bus plant" in line for line in explained.complaints)
    (report,) = desk.run("doctor", "--timeout", "1").results
    assert report["facts"]["seal"]["bus"] == "plant"
    assert "the bus plant is sealed, with the key bus" in [
        each["text"] for each in report["findings"]
    ]


def test_a_running_command_takes_a_new_key(desk: Desk, key_file: Path) -> None:
    subscriber = desk.subscribe("--value", "count")
    desk.run("keygen", "--add", str(key_file), "--id", "next")
    # A new process seals with the new key at once; one that runs reads its file within seconds.
    desk.wait_until(lambda: desk.run("pub", "--wait", "60", "count", "1") and subscriber.lines)
    desk.run("keygen", "--drop", "bus", str(key_file))
    before = len(subscriber.lines)
    desk.wait_until(
        lambda: desk.run("pub", "--wait", "60", "count", "2") and len(subscriber.lines) > before
    )


def test_a_key_file_that_others_may_read_is_one_line_and_a_remedy(
    desk: Desk, key_file: Path
) -> None:
    os.chmod(key_file, 0o644)
    for args in (["sub", "door"], ["doctor"], ["gateway"]):
        process = desk.start(*args)
        process.expect_exit(2)
        (told,) = process.complaints
        assert told == f"Error: others may read the key file {key_file}: run chmod 600 {key_file}"


def test_a_secret_is_not_in_the_list_of_processes(desk: Desk, key_file: Path) -> None:
    process = desk.start("node", "--name", "attic")
    assert wait_until(lambda: "attic" in desk.names())
    command = Path(f"/proc/{process.pid}/cmdline").read_bytes()
    environment = Path(f"/proc/{process.pid}/environ").read_bytes()
    (secret,) = (line for line in key_file.read_text().splitlines() if '"secret"' in line)
    text = secret.split('"')[3].encode()
    assert len(text) == 44
    assert text not in command + environment
