"""`jsonbus gateway`: its options, and what it says when it cannot begin."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("fastapi")

from jsonbus.cli.commands import gateway as command
from jsonbus.gateway.gateway import Gateway, GatewayConfig
from tests.certificates import Authority
from tests.cli.running import Run

ANY_PORTS = ("0", "--tcp-port", "0", "--in-memory")


def expect_usage_error(result: Any, *words: str) -> None:
    assert result.exit_code == 2
    assert "Traceback" not in result.stderr
    for word in words:
        assert word in result.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ("65536",),
        ("http",),
        ("--listen", "example.org"),
        ("--listen", "127.0.0.1:7677"),
        ("--listen", ""),
        ("--tcp-port", "-1"),
        ("--handlers", "0"),
        ("--buffer", "0"),
        ("--backlog", "0"),
        ("--total-backlog", "none"),
        ("--max-body", "0"),
        ("--max-body", "much"),
        ("--webhook-timeout", "0"),
        ("--webhook-timeout", "nan"),
        ("--retry-max", "inf"),
        ("--token-file", "there-is-none"),
    ],
    ids="=".join,
)
def test_a_wrong_option_is_a_usage_error(run: Run, arguments: tuple[str, ...]) -> None:
    expect_usage_error(run("gateway", *arguments), "Usage: ")


@pytest.mark.parametrize(
    ("option", "value", "words"),
    [
        ("--allow-origin", "example.org", "origin"),
        ("--allow-webhook", "10.0.0.0/99", "10.0.0.0/99"),
        ("--token", "read=secret-1", "right"),
        ("--token", "publish=", "secret"),
        ("--token", "", "secret"),
        ("--tls-cert", "cert.pem", "give both --tls-cert and --tls-key"),
        ("--tls-key", "key.pem", "give both --tls-cert and --tls-key"),
    ],
)
def test_what_cannot_be_meant_is_told_before_anything_is_opened(
    run: Run, option: str, value: str, words: str
) -> None:
    result = run("gateway", *ANY_PORTS, option, value)
    expect_usage_error(result, words)
    assert "secret-1" not in result.stderr


def test_a_token_file_without_tokens_lets_nobody_in(run: Run, tmp_path: Path) -> None:
    tokens = tmp_path / "tokens"
    tokens.write_text("# none yet\n\n")
    expect_usage_error(run("gateway", *ANY_PORTS, "--token-file", str(tokens)), "contains no token")


def test_a_certificate_that_cannot_be_used_is_told_before_anything_is_opened(
    run: Run, tmp_path: Path
) -> None:
    files = ("--tls-cert", str(tmp_path / "cert.pem"), "--tls-key", str(tmp_path / "key.pem"))
    result = run("gateway", *ANY_PORTS, *files)
    expect_usage_error(result, f"{tmp_path / 'cert.pem'} cannot be read: no such file or directory")
    assert "serves" not in result.stderr


@pytest.mark.parametrize(
    ("host", "token", "has_tls", "told"),
    [
        ("127.0.0.1", False, False, []),
        ("127.0.0.1", False, True, []),
        ("0.0.0.0", True, True, []),
        ("0.0.0.0", False, True, ["use --token"]),
        ("0.0.0.0", True, False, ["use --tls-cert"]),
        ("0.0.0.0", False, False, ["use --token", "use --tls-cert"]),
    ],
)
def test_what_others_can_do_and_read_is_told_once(
    tmp_path: Path, host: str, token: bool, has_tls: bool, told: list[str]
) -> None:
    files = Authority(tmp_path).issue() if has_tls else (None, None)
    tokens = [("secret", frozenset({"admin"}))] if token else []
    config = GatewayConfig(host=host, tokens=tokens, tls_cert=files[0], tls_key=files[1])
    gateway = Gateway(config)
    gateway.bus = SimpleNamespace(name="desk")  # type: ignore[assignment]
    lines: list[str] = []
    command._introduce(gateway, lines.append)
    first, *others = lines
    assert first.startswith(f"desk serves {'https' if has_tls else 'http'}://{host}:0")
    assert len(others) == len(told)
    for line, words in zip(others, told, strict=True):
        assert words in line


def test_a_log_that_cannot_be_written_is_told(run: Run, tmp_path: Path) -> None:
    log = str(tmp_path / "there-is-none" / "log")
    expect_usage_error(run("gateway", *ANY_PORTS, "--log-file", log), log)


def test_a_folder_that_cannot_be_had_is_told(run: Run, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    result = run("gateway", "0", "--tcp-port", "0", "--data-dir", str(tmp_path / "file" / "data"))
    assert result.exit_code == 1
    assert str(tmp_path) in result.stderr and "Traceback" not in result.stderr


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["http", "text"])
def test_a_port_in_use_is_told(run: Run, kind: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = str(other.getsockname()[1])
        ports = (port, "--tcp-port", "0") if kind == "http" else ("0", "--tcp-port", port)
        result = run("gateway", *ports, "--in-memory")
    assert result.exit_code == 1
    assert f"127.0.0.1:{port}" in result.stderr and "Traceback" not in result.stderr


WITHOUT_EXTRA = """
import sys
from importlib.machinery import PathFinder

find = PathFinder.find_spec
missing = {"anyio", "fastapi", "httpcore", "httptools", "httpx", "prometheus_client", "starlette"}


def find_what_is_there(name, *more):
    return None if name in missing | {"uvicorn"} else find(name, *more)


PathFinder.find_spec = find_what_is_there
from jsonbus.cli.main import main

main()
"""


@pytest.mark.parametrize(
    ("arguments", "code", "told"),
    [
        (("--help",), 0, "  gateway "),
        (("gateway", "--help"), 0, "Usage: jsonbus gateway"),
        (("gateway", *ANY_PORTS), 1, "needs fastapi: python3 -m pip install 'jsonbus[gateway]'"),
    ],
    ids=["help", "its help", "itself"],
)
def test_without_its_packages_help_is_given_and_what_to_install(
    arguments: tuple[str, ...], code: int, told: str
) -> None:
    ran = subprocess.run(
        [sys.executable, "-c", WITHOUT_EXTRA, *arguments],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert (ran.returncode, "Traceback" in ran.stderr) == (code, False)
    assert told in ran.stdout + ran.stderr
