"""The gateway as a process: what goes in one way comes out every other way."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import urllib.request
from pathlib import Path

import httpx
import pytest

pytest.importorskip("fastapi")

from tests.certificates import Authority
from tests.end_to_end.gateways import Gateway
from tests.end_to_end.processes import Desk
from tests.gateway.receiver import Answer, Receiver
from tests.helpers import need_program


def test_what_is_published_anywhere_reaches_everybody(desk: Desk, tmp_path: Path) -> None:
    gateway = Gateway(desk, tmp_path)
    with Receiver() as receiver, gateway.text_client() as client:
        gateway.subscribe("room/*", "wall", receiver.url)
        assert client.receive().startswith("connection_ack ")
        client.send("subscribe room/**")
        assert client.receive() == "subscribe_ack room/**"
        node = desk.subscribe("room/**", "--count", "3")
        assert gateway.publish("room/a", "21.5").body == {"webhooks": 1, "sent": True}
        assert client.receive() == "room/a 21.5"
        client.send("publish room/b from text")
        assert client.receive() == "room/b from text"
        desk.run("pub", "--wait", "60", "room/c", '{"x": [1]}')
        assert client.receive() == 'room/c {"x":[1]}'
        node.expect_exit(0)
        assert [each["value"] for each in node.results] == [21.5, "from text", {"x": [1]}]
        desk.wait_until(lambda: len(receiver.messages) == 3)
        assert receiver.messages == [21.5, "from text", {"x": [1]}]
        topics = [topic for request in receiver.requests for topic in request.topics]
        assert topics == ["room/a", "room/b", "room/c"]
    gateway.stop()


def test_a_restart_goes_on_where_it_ended(desk: Desk, tmp_path: Path) -> None:
    gateway = Gateway(desk, tmp_path, "--retry-max", "0.5")
    with Receiver() as receiver:
        receiver.default = Answer(503)
        gateway.subscribe("a", "wall", receiver.url)
        for number in range(5):
            assert gateway.publish("a", str(number)).status == 200
        desk.wait_until(lambda: receiver.requests)
        assert gateway.subscriber("wall")["backlog"] == 5
        gateway.stop()
        gateway.start()
        assert gateway.subscriber("wall")["backlog"] == 5
        receiver.default = Answer(200)
        desk.wait_until(lambda: gateway.subscriber("wall")["backlog"] == 0)
        delivered = {
            request.headers["jsonbus-delivery"]: request.messages for request in receiver.requests
        }
        assert [each for messages in delivered.values() for each in messages] == [0, 1, 2, 3, 4]


def test_a_full_backlog_refuses_until_there_is_room(desk: Desk, tmp_path: Path) -> None:
    gateway = Gateway(desk, tmp_path, "--backlog", "3", "--retry-max", "0.2")
    with Receiver() as dead, Receiver() as receiver:
        dead.default = Answer(500)
        gateway.subscribe("a", "dead", dead.url)
        gateway.subscribe("**", "alive", receiver.url)
        for number in range(3):
            assert gateway.publish("a", str(number)).status == 200
        desk.wait_until(lambda: gateway.subscriber("alive")["backlog"] == 0)
        refused = gateway.publish("a", "3")
        assert refused.status == 500
        assert "try again later" in refused.body["error"] and "'dead'" in refused.body["error"]
        assert gateway.publish("b", "4").status == 200  # a topic that the dead one does not want
        desk.wait_until(lambda: receiver.messages == [0, 1, 2, 4])
        dead.default = Answer(200)
        desk.wait_until(lambda: gateway.publish("a", "5").status == 200)
        desk.wait_until(lambda: receiver.messages == [0, 1, 2, 4, 5])
        desk.wait_until(lambda: gateway.subscriber("dead")["backlog"] == 0)
        delivered = dict(zip(dead.delivery_ids, dead.requests, strict=True))
        assert [each for got in delivered.values() for each in got.messages] == [0, 1, 2, 5]


def test_a_second_gateway_on_the_same_folder_is_told_so(desk: Desk, tmp_path: Path) -> None:
    Gateway(desk, tmp_path)
    second = desk.start("gateway", "0", "--tcp-port", "0", "--data-dir", str(tmp_path))
    second.expect_exit(1)
    assert "another gateway" in second.complaints[-1]


def test_a_port_in_use_is_told_in_one_line(desk: Desk, tmp_path: Path) -> None:
    first = Gateway(desk, tmp_path)
    second = desk.start("gateway", str(first.port), "--tcp-port", "0", "--in-memory")
    second.expect_exit(1)
    assert str(first.port) in second.complaints[-1]
    assert "Traceback" not in "".join(second.complaints)


def test_tokens_keep_out_and_are_in_no_log(desk: Desk, tmp_path: Path) -> None:
    tokens, log = tmp_path / "tokens", tmp_path / "log"
    tokens.write_text("# who may what\npublish=pub-secret\nadmin=all-secret\n")
    options = ("--token-file", str(tokens), "--log-file", str(log), "-vv")
    gateway = Gateway(desk, tmp_path, *options)

    def ask(path: str, token: str | None) -> int:
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        request = urllib.request.Request(gateway.url + path, headers=headers)
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return int(answer.status)
        except urllib.error.HTTPError as error:
            error.close()
            return error.code

    path = "/publish?topic=a&message=1"
    answers = [ask(path, token) for token in (None, "wrong-secret", "pub-secret", "all-secret")]
    assert answers == [401, 401, 200, 200]
    assert [ask("/subscribers", token) for token in ("pub-secret", "all-secret")] == [403, 200]
    assert ask("/health", None) == 200
    with gateway.text_client() as client:
        client.receive()
        client.send("publish a 1")
        assert client.receive().startswith("error ")
        client.send("auth pub-secret")
        assert client.receive() == "auth_ack"
        client.send("subscribe a")
        assert client.receive().startswith("error ")
    gateway.stop()
    told = log.read_text() + "\n".join(gateway.process.complaints)
    assert "secret" not in told
    lines = log.read_text().splitlines()
    assert any(f"serves {gateway.url}, text on " in line for line in lines)
    assert lines[-1].endswith(" INFO jsonbus: the gateway has ended")
    assert any("jsonbus.gateway" in line for line in lines)


def test_an_open_gateway_without_tokens_says_so(desk: Desk) -> None:
    # An address of loopback, which is all that a test may listen on: no words about tokens.
    gateway = Gateway(desk, Path("."), "--in-memory", "--listen", "127.0.0.2")
    assert gateway.host == "127.0.0.2"
    assert "--token" not in "".join(gateway.process.complaints)


def test_it_works_by_hand_with_netcat(desk: Desk, tmp_path: Path) -> None:
    need_program("nc")
    gateway = Gateway(desk, tmp_path)
    lines = "subscribe door\npublish door open\nwhat\nquit\n"
    ran = subprocess.run(
        ["nc", "127.0.0.1", str(gateway.text_port)],
        input=lines,
        capture_output=True,
        text=True,
        timeout=120,
    )
    greeting, *others = ran.stdout.splitlines()
    assert greeting.startswith("connection_ack ")
    assert others[0] == "subscribe_ack door"
    assert any(line.startswith("error unknown command") for line in others)


def test_ending_it_leaves_nothing_behind(desk: Desk, tmp_path: Path) -> None:
    gateway = Gateway(desk, tmp_path)
    with Receiver() as receiver, gateway.text_client() as client:
        receiver.default = Answer(hangs=True)
        gateway.subscribe("**", "wall", receiver.url)
        gateway.publish("a", "1")
        desk.wait_until(lambda: receiver.requests)
        client.send("subscribe **")
        gateway.stop()  # bounded, though a webhook hangs and a client stays
    assert {"jsonbus-gateway.db", "jsonbus-gateway.lock"} <= set(os.listdir(tmp_path))
    assert "jsonbus-gateway.db-wal" not in os.listdir(tmp_path)
    assert "Traceback" not in "".join(gateway.process.complaints)


def test_figures_are_there_for_prometheus(desk: Desk, tmp_path: Path) -> None:
    gateway = Gateway(desk, tmp_path)
    gateway.publish("a", "1")
    text = gateway.ask("/metrics").body
    assert "jsonbus_gateway_" in text and "jsonbus_bus_" in text
    assert json.loads(json.dumps(gateway.ask("/openapi.json").body))["paths"]["/publish"]


def test_everything_goes_over_tls_and_nothing_past_it(desk: Desk, tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    cert, key = authority.issue()
    gateway = Gateway(desk, tmp_path, "--tls-cert", str(cert), "--tls-key", str(key))
    url, trusted = f"https://localhost:{gateway.port}", authority.client()
    plain = socket.create_connection(("127.0.0.1", gateway.text_port), timeout=60)
    with (
        trusted.wrap_socket(plain, server_hostname="localhost") as text,
        text.makefile("r", encoding="utf-8") as lines,
        httpx.Client(base_url=url, verify=trusted, timeout=60, trust_env=False) as http,
    ):
        assert lines.readline().startswith("connection_ack ")
        text.sendall(b"subscribe door\n")
        assert lines.readline() == "subscribe_ack door\n"
        answer = http.get("/publish", params={"topic": "door", "message": "open"})
        assert answer.json() == {"webhooks": 0, "sent": True}
        assert lines.readline() == "door open\n"
        text.sendall(b"publish door closed\n")
        assert lines.readline() == "door closed\n"
        figures = http.get("/metrics").text
        for port in ("http", "text"):
            assert f"jsonbus_gateway_{port}_tls_handshakes_total 1.0" in figures
            assert f"# TYPE jsonbus_gateway_{port}_tls_handshakes_waiting gauge" in figures
    with httpx.Client(trust_env=False) as stranger, pytest.raises(httpx.ConnectError):
        stranger.get(f"{url}/health")
    told = gateway.ask("/health")  # without TLS
    assert (told.status, told.body) == (400, {"error": "this port speaks TLS: use https://"})
    gateway.stop()
    said = "\n".join(gateway.process.complaints)
    assert f"serves https://127.0.0.1:{gateway.port}, text over TLS on 127.0.0.1:" in said
    assert "Traceback" not in said


def test_curl_reaches_it_over_tls(desk: Desk, tmp_path: Path) -> None:
    need_program("curl")
    authority = Authority(tmp_path)
    cert, key = authority.issue()
    gateway = Gateway(desk, tmp_path, "--tls-cert", str(cert), "--tls-key", str(key))
    url = f"https://localhost:{gateway.port}/publish?topic=a&message=1"
    curl = ["curl", "-sS", "--max-time", "60", "--noproxy", "*", "--cacert", str(authority.path)]
    ran = subprocess.run([*curl, url], capture_output=True, text=True)
    assert (ran.stdout, ran.stderr) == ('{"webhooks":0,"sent":false}\n', "")
