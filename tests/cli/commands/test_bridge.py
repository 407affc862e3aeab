"""`jsonbus bridge`: its options, and what it says when it cannot begin."""

from __future__ import annotations

import importlib.util
import socket
from pathlib import Path
from typing import Any

import click
import pytest

pytest.importorskip("pyarrow")

from jsonbus.cli.commands import bridge as command
from jsonbus.cli.lib import parameters
from spark_bridge.bridge import Bridge
from tests.cli.running import Run


def expect_sentence(result: Any, *words: str) -> None:
    """One sentence for people, and the exit code of a failure."""
    assert result.exit_code == 1
    lines = result.stderr.splitlines()
    assert len(lines) == 1 and lines[0].startswith("Error: "), result.stderr
    for word in words:
        assert word in lines[0]


def expect_usage_error(result: Any, option: str) -> None:
    assert result.exit_code == 2
    assert "Usage: " in result.stderr and option in result.stderr
    assert "Traceback" not in result.stderr


@pytest.fixture
def folder(tmp_path: Path) -> str:
    return str(tmp_path / "data")


@pytest.mark.parametrize(
    "arguments",
    [
        ("--listen", "7710"),
        ("--listen", "localhost"),
        ("--listen", ":7710"),
        ("--listen", "127.0.0.1:http"),
        ("--listen", "127.0.0.1:65536"),
        ("--listen", "127.0.0.1:-1"),
        ("--partitions", "0"),
        ("--partitions", "1025"),
        ("--partitions", "four"),
        ("--retention-bytes", "0"),
        ("--retention-bytes", "-5G"),
        ("--retention-bytes", "much"),
        ("--retention-bytes", "nan"),
        ("--retention-hours", "-1"),
        ("--retention-hours", "nan"),
        ("--sync-ms", "-1"),
        ("--sync-ms", "nan"),
        ("--sync-ms", "100000"),
        ("--token", ""),
        ("--metrics-port", "70000"),
    ],
    ids="=".join,
)
def test_a_wrong_option_is_a_usage_error(run: Run, folder: str, arguments: tuple[str, ...]) -> None:
    expect_usage_error(run("bridge", "--data-dir", folder, *arguments), arguments[0])
    assert not Path(folder).exists()


def test_a_data_directory_that_is_a_file_is_a_usage_error(run: Run, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    expect_usage_error(run("bridge", "--data-dir", str(tmp_path / "file")), "--data-dir")


def test_a_bad_pattern_is_a_usage_error(run: Run, folder: str) -> None:
    result = run("bridge", "a//b", "--data-dir", folder, "--listen", "127.0.0.1:0")
    assert result.exit_code == 2
    assert "a//b" in result.stderr and "Traceback" not in result.stderr


def test_a_data_directory_that_cannot_be_made_is_told_in_one_sentence(
    run: Run, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    result = run("bridge", "--data-dir", str(tmp_path / "file" / "data"))
    expect_sentence(result, str(tmp_path / "file" / "data"))


def test_a_data_directory_of_a_running_bridge_is_told_in_one_sentence(
    run: Run, folder: str
) -> None:
    with Bridge(data_dir=Path(folder), listen=("127.0.0.1", 0)):
        expect_sentence(run("bridge", "--data-dir", folder, "--listen", "127.0.0.1:0"), folder)


def test_another_number_of_partitions_is_told_in_one_sentence(run: Run, folder: str) -> None:
    with Bridge(data_dir=Path(folder), listen=("127.0.0.1", 0), partitions=3):
        pass
    expect_sentence(run("bridge", "--data-dir", folder, "--partitions", "4"), folder, "3", "4")


def test_a_port_in_use_is_told_in_one_sentence(run: Run, folder: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        address = f"127.0.0.1:{other.getsockname()[1]}"
        result = run("bridge", "--data-dir", folder, "--listen", address)
        expect_sentence(result, f"cannot listen on {address}", "in use")


def test_a_metrics_port_in_use_is_told_in_one_sentence_and_ends_the_bridge(
    run: Run, folder: str
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = str(other.getsockname()[1])
        arguments = ("--data-dir", folder, "--listen", "127.0.0.1:0", "--metrics-port", port, "-q")
        expect_sentence(run("bridge", *arguments), f"cannot serve metrics on 127.0.0.1:{port}")
    with Bridge(data_dir=Path(folder), listen=("127.0.0.1", 0)):
        pass  # nothing holds the directory


def test_without_pyarrow_the_command_says_what_to_install(
    run: Run, folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    expect_sentence(run("bridge", "--data-dir", folder), "pyarrow", "pip install 'jsonbus[bridge]'")


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("127.0.0.1:7710", ("127.0.0.1", 7710)),
        ("0.0.0.0:0", ("0.0.0.0", 0)),
        ("bridge.example:1", ("bridge.example", 1)),
        ("[::1]:7710", ("::1", 7710)),
    ],
)
def test_addresses_are_read_and_shown(text: str, address: tuple[str, int]) -> None:
    assert command._read_address(text) == address
    assert parameters.show_address(*address) == text


@pytest.mark.parametrize(
    ("text", "size"), [("1", 1), ("500M", 500_000_000), ("20G", 20_000_000_000)]
)
def test_sizes_are_read(text: str, size: int) -> None:
    assert parameters.read_size(text) == size


def test_a_size_that_is_none_is_refused() -> None:
    with pytest.raises(click.BadParameter, match="500M"):
        parameters.read_size("a lot")


@pytest.mark.parametrize(
    ("host", "is_loopback"),
    [
        ("127.0.0.1", True),
        ("127.9.9.9", True),
        ("::1", True),
        ("localhost", True),
        ("0.0.0.0", False),
        ("::", False),
        ("192.168.1.5", False),
        ("bridge.example", False),
    ],
)
def test_only_loopback_needs_no_token(host: str, is_loopback: bool) -> None:
    assert parameters.is_loopback(host) is is_loopback


class Introduced:
    """What `_introduce` shows of a bridge; it listens nowhere."""

    def __init__(self, host: str, *, has_tls: bool = False) -> None:
        self.address = host, 7710
        self.certificate = object() if has_tls else None
        self.bus = self.log = self
        self.name, self.partitions = "kitchen", 4


@pytest.mark.parametrize(
    ("host", "token", "warns"),
    [
        ("0.0.0.0", None, True),
        ("::", None, True),
        ("0.0.0.0", "a secret", False),
        ("127.0.0.1", None, False),
    ],
)
def test_a_bridge_that_others_reach_without_a_token_warns(
    host: str, token: str | None, warns: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    command._introduce(Introduced(host), ("**",), Path("data"), token)  # type: ignore[arg-type]
    shown = capsys.readouterr().err
    assert ("use --token" in shown) is warns
    assert "secret" not in shown
    assert parameters.show_address(host, 7710) in shown


@pytest.mark.parametrize(
    ("host", "has_tls", "warns"),
    [("0.0.0.0", False, True), ("0.0.0.0", True, False), ("127.0.0.1", False, False)],
)
def test_a_bridge_that_others_reach_without_tls_warns_once(
    host: str, has_tls: bool, warns: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    introduced: Any = Introduced(host, has_tls=has_tls)
    command._introduce(introduced, ("**",), Path("data"), "secret")
    shown = capsys.readouterr().err
    assert shown.count("not encrypted") == warns
    assert ("over TLS" in shown) is has_tls


def test_a_certificate_without_its_key_is_a_usage_error(run: Run, folder: str) -> None:
    for option in ("--tls-cert", "--tls-key"):
        result = run("bridge", "--listen", "127.0.0.1:0", "--data-dir", folder, option, "x.pem")
        assert result.exit_code == 2
        assert "give both --tls-cert and --tls-key" in result.stderr
        assert not Path(folder).exists()


def test_the_status_tells_rate_disk_use_losses_and_who_is_behind() -> None:
    groups = {f"query {lag}": {"misfits": 0, "lag": lag} for lag in (5, 4000, 300, 20)}
    stats: dict[str, Any] = {
        "recorder": {"rows_recorded": 1_234_567, "rows_unrecorded": 0},
        "log": {"bytes": 7_650_000},
        "groups": {"only misfits": {"misfits": 1}},
    }
    assert command._status(stats, 999.6) == ("1,234,567 rows recorded, 1,000/s, 7.7 MB on disk")
    stats["recorder"]["rows_unrecorded"] = 1000
    stats["groups"] |= groups | {"bad\x1b[31m": {"misfits": 0, "lag": 1}}
    assert command._status(stats, 0.0).endswith(
        ", 1,000 not recorded, query 4000 is 4,000 behind, query 300 is 300 behind, "
        "query 20 is 20 behind"
    )
    stats["groups"] = {"bad\x1b[31m": {"misfits": 0, "lag": 1}}
    assert "\x1b" not in command._status(stats, 0.0)


def test_the_status_is_told_when_something_has_changed(
    run: Run, folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three looks: nothing has come, rows have come, rows were lost; then Ctrl-C."""
    looks = iter([(0, 0), (5, 0), (5, 0), (5, 7)])

    def stats(bridge: Bridge) -> dict[str, Any]:
        recorded, unrecorded = next(looks, (None, None))
        if recorded is None:
            raise KeyboardInterrupt
        recorder = {"rows_recorded": recorded, "rows_unrecorded": unrecorded}
        return {"recorder": recorder, "log": {"bytes": 0}, "groups": {}}

    monkeypatch.setattr(Bridge, "stats", stats)
    monkeypatch.setattr(command, "STATUS_FILE_S", 0.0)
    monkeypatch.setattr(command.signals, "CHECK_S", 0.001)
    result = run("bridge", "--data-dir", folder, "--listen", "127.0.0.1:0", "--name", "kitchen")
    assert result.exit_code == 0
    introduced, first, second, last = result.stderr.splitlines()
    assert introduced.startswith(f"kitchen records ** in {folder} and serves 4 partitions on 127.")
    assert first.startswith("5 rows recorded, ") and "not recorded" not in first
    assert second.startswith("5 rows recorded, 0/s, ") and second.endswith(", 7 not recorded")
    assert last == "0 rows are in the log, 0 bytes on disk"
