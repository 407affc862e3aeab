"""The bridge's ports over TLS."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest

from jsonbus.tls import port as tls_port
from jsonbus.tls.certificate import ServerCertificate
from spark_bridge import metrics, wire
from spark_bridge.metrics import Metrics
from tests.certificates import Authority
from tests.helpers import wait_until
from tests.spark_bridge.raw_client import HELLO, RawClient, encode, open_client
from tests.spark_bridge.served_log import ServedLog

Serve = Callable[..., ServedLog]
ROWS = 20_000


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


@pytest.fixture
def served(serve: Serve, authority: Authority) -> ServedLog:
    opened = serve(partitions=1, certificate=ServerCertificate(*authority.issue()))
    opened.publish(["x" * 100] * ROWS)
    return opened


def encrypt(client: RawClient, authority: Authority) -> RawClient:
    client.socket = authority.client().wrap_socket(client.socket, server_hostname="localhost")
    return client


def test_rows_are_read_and_requests_answered_over_tls(
    served: ServedLog, authority: Authority
) -> None:
    with encrypt(RawClient(served.address), authority) as client:
        assert client.hello()["ok"]
        offsets = [row["offset"] for row in client.read(0, 0, ROWS)]
        assert offsets == list(range(ROWS))
        assert client.ask({"op": "poll"})["end"] == [ROWS]
        assert served.stats()["tls_handshakes"] == 1
    assert wait_until(lambda: served.stats()["connections"] == 0)


def test_the_reason_of_a_refusal_arrives_over_tls(served: ServedLog, authority: Authority) -> None:
    with encrypt(RawClient(served.address), authority) as client:
        assert client.hello(version=99)["error"] == "bad_request"
        assert client.receive_end() == b""
    assert served.stats()["connections_hostile"] == 1


def test_a_client_without_tls_is_told_so(served: ServedLog, authority: Authority) -> None:
    with RawClient(served.address) as client:
        client.socket.sendall(wire.MAGIC + encode(HELLO))
        reply = client.receive()
        assert (reply["ok"], reply["error"]) == (False, "bad_request")
        assert "set the option tls to true" in reply["message"]
        assert client.receive_end() == b""
    assert served.stats()["tls_plain_clients"] == 1
    assert served.stats()["connections_accepted"] == 0
    with encrypt(RawClient(served.address), authority) as client:
        assert client.hello()["ok"]


def test_a_client_with_tls_is_told_that_the_bridge_has_none(
    serve: Serve, authority: Authority
) -> None:
    plain = serve(partitions=1)
    with (
        RawClient(plain.address) as client,
        pytest.raises(ssl.SSLError, match="(?i)version|record"),
    ):
        encrypt(client, authority)
    assert wait_until(lambda: plain.stats()["connections_hostile"] == 1)
    with open_client(plain.address):
        pass


def test_a_handshake_that_never_ends_holds_up_nobody(
    served: ServedLog, authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tls_port, "HANDSHAKE_S", 0.2)
    with RawClient(served.address) as silent, RawClient(served.address) as half:
        half.socket.sendall(b"\x16\x03\x01\x02\x00\x01")
        with encrypt(RawClient(served.address), authority) as client:
            assert client.hello()["ok"]
        assert half.receive_end() == b""
        assert b"it speaks TLS" in silent.receive_end()
    assert served.stats()["tls_handshakes_late"] == 2


def some_stats() -> dict[str, Any]:
    return {"log": {"rows": 5}, "groups": {}}


def test_metrics_are_served_over_tls_and_a_silent_client_holds_up_nobody(
    authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metrics, "REQUEST_S", 0.2)
    served = Metrics(some_stats, "127.0.0.1", 0, ServerCertificate(*authority.issue()))
    try:
        address = "127.0.0.1", served.port
        with (
            socket.create_connection(address) as silent,
            socket.create_connection(address) as plain,
        ):
            plain.sendall(b"GET /metrics HTTP/1.1\r\n\r\n")
            plain.settimeout(30)
            with suppress(ConnectionResetError):
                assert b"jsonbus" not in plain.recv(4_096)
            url = f"https://localhost:{served.port}/metrics"
            with urlopen(url, timeout=30, context=authority.client()) as page:
                assert "jsonbus_bridge_log_rows 5.0" in page.read().decode()
            silent.settimeout(30)
            assert silent.recv(1) == b""
    finally:
        served.stop()
