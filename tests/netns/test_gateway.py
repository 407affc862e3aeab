"""A gateway among hosts: clients elsewhere, webhooks in private networks, a host cut off."""

from __future__ import annotations

import json
from typing import Any

import pytest

pytest.importorskip("fastapi")

from tests.helpers import wait_until
from tests.netns.commands import TIMEOUT_S, has_logged, values
from tests.netns.conftest import MakeLab
from tools.lab.host import Host
from tools.lab.process import Process

TOKEN = "aZ09"

#: A webhook: prints its address, then what it is sent.
RECEIVER = """
import sys
from http.server import BaseHTTPRequestHandler, HTTPServer

class Hook(BaseHTTPRequestHandler):
    def do_POST(self):
        print(self.rfile.read(int(self.headers["Content-Length"])).decode(), flush=True)
        self.send_response(200)
        self.end_headers()
    def log_message(self, *arguments):
        pass

server = HTTPServer((sys.argv[1], 8300), Hook)
print("ready", flush=True)
server.serve_forever()
"""

#: One request; prints the status, then the answer.
CLIENT = """
import sys, urllib.error, urllib.request
request = urllib.request.Request(sys.argv[1], headers={"Authorization": "Bearer " + sys.argv[2]})
try:
    answer = urllib.request.urlopen(request, timeout=30)
except urllib.error.HTTPError as error:
    answer = error
print(answer.status)
print(answer.read().decode().strip())
"""


def start_gateway(host: Host, *options: str) -> Process:
    gateway = host.start(
        "gateway", "--in-memory", "--listen", "0.0.0.0", "--retry-max", "0.5", *options
    )
    assert gateway.wait_until(lambda p: "serves http" in p.errors(), TIMEOUT_S), gateway.report()
    return gateway


def ask(host: Host, gateway: Host, path: str, token: str = TOKEN) -> tuple[int, Any]:
    process = host.start_script(CLIENT, f"http://{gateway.address}:7677{path}", token)
    assert process.wait(TIMEOUT_S) == 0, process.report()
    status, body = process.lines()
    return int(status), json.loads(body)


def subscribe(host: Host, gateway: Host, receiver: Host) -> tuple[int, Any]:
    url = f"http://{receiver.address}:8300/"
    return ask(host, gateway, f"/subscribe?topic=door&subscriberName=log&url={url}")


def test_clients_of_other_hosts_publish_to_the_bus_with_a_token(lab: MakeLab) -> None:
    one, two, three = lab(3).hosts
    listener = three.start("sub", "door")
    start_gateway(one, "--token", f"publish={TOKEN}")
    path = "/publish?topic=door&message=open"
    assert ask(two, one, path, "wrong")[0] == 401

    def is_sent() -> bool:
        status, answer = ask(two, one, path)
        assert status == 200
        return bool(answer["sent"])

    assert wait_until(is_sent, TIMEOUT_S)
    assert wait_until(lambda: "open" in values(listener), TIMEOUT_S)


def test_an_open_gateway_without_tokens_warns(lab: MakeLab) -> None:
    (one,) = lab(1).hosts
    assert has_logged(start_gateway(one), "anybody who reaches these ports", "--token")


def test_a_webhook_in_a_private_network_must_be_allowed(lab: MakeLab) -> None:
    one, two = lab(2).hosts
    start_gateway(one, "--token", TOKEN)
    status, answer = subscribe(two, one, two)
    assert status == 400
    assert "private" in answer["error"] and "--allow-webhook" in answer["error"]


def test_a_gateway_whose_interface_went_away_is_not_healthy_until_it_is_back(lab: MakeLab) -> None:
    (one,) = lab(1).hosts
    start_gateway(one, "--token", TOKEN)

    def health() -> tuple[int, Any]:
        return ask(one, one, "/health")

    assert health()[0] == 200
    one.set_link(False)
    assert wait_until(lambda: health()[0] == 503, TIMEOUT_S)
    assert "is cut off from the bus: its interface (" in health()[1]["error"]
    one.set_link(True)
    assert wait_until(lambda: health()[0] == 200, TIMEOUT_S)


def test_a_webhook_on_a_host_that_was_cut_off_gets_everything_in_order(lab: MakeLab) -> None:
    one, two = lab(2).hosts
    start_gateway(one, "--token", TOKEN, "--allow-webhook", two.address, "--webhook-timeout", "0.5")
    receiver = two.start_script(RECEIVER, two.address)
    assert receiver.wait_until(lambda p: p.lines(), TIMEOUT_S)
    assert subscribe(one, one, two) == (200, {"new": True, "moved": False})

    def got() -> list[int]:
        bodies = [json.loads(line) for line in receiver.lines()[1:]]
        return [message for body in bodies for message in body["message"]]

    assert ask(one, one, "/publish?topic=door&message=0")[0] == 200
    assert wait_until(lambda: got() == [0], TIMEOUT_S)
    two.set_link(False)
    for number in range(1, 6):
        assert ask(one, one, f"/publish?topic=door&message={number}")[0] == 200

    def failures() -> int:
        (view,) = ask(one, one, "/subscribers")[1]["subscribers"]
        return int(view["attempts_failed"])

    assert wait_until(lambda: failures() > 0, TIMEOUT_S)
    two.set_link(True)
    # What timed out may have arrived after all, and comes again.
    assert wait_until(lambda: list(dict.fromkeys(got())) == [0, 1, 2, 3, 4, 5], TIMEOUT_S)
