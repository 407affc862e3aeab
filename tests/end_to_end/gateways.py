"""Gateways as real processes, and their clients."""

from __future__ import annotations

import http.client
import json
import re
import signal
import socket
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlencode

from tests.end_to_end.processes import Desk, Process

#: Far more than anything takes, also on a machine that is slow and busy.
ANSWER_S = 120.0


class Answer(NamedTuple):
    status: int
    body: Any
    headers: dict[str, str]


class Gateway:
    """`jsonbus gateway` on any free ports, on one folder; can be killed and started again."""

    def __init__(self, desk: Desk, folder: Path, *options: str) -> None:
        self._desk = desk
        self._lock = folder / "jsonbus-gateway.lock"
        self._arguments = ("--data-dir", str(folder), *options)
        self.process: Process
        self.start()

    def start(self) -> None:
        self._launch()
        self._desk.wait_until(lambda: self._introduction() or self.process.has_ended)
        match = self._introduction()
        assert match, self.process.complaints
        self.host, self.port, self.text_port = match[1], int(match[2]), int(match[3])

    def kill_while_it_starts(self, delay_s: float) -> None:
        """Start it, and kill it so long after it has begun to open its store."""
        self._launch()
        pid = str(self.process.pid)
        self._desk.wait_until(lambda: self._lock.read_text().strip() == pid)
        time.sleep(delay_s)  # not for luck: callers want to hit different moments
        self.kill()

    def _launch(self) -> None:
        # Without the dashboard, whose start takes as long as the rest: tests/browser has it.
        options = ("--tcp-port", "0", "--no-dashboard")
        self.process = self._desk.start("gateway", "0", *options, *self._arguments)

    def _introduction(self) -> re.Match[str] | None:
        text = "\n".join(self.process.complaints)
        return re.search(
            r"serves https?://([\d.]+):(\d+), text (?:over TLS )?on [\d.]+:(\d+)", text
        )

    @property
    def url(self) -> str:
        return f"http://{self.host}:{self.port}"

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def stop(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        self.process.expect_exit(0)

    def ask(self, path: str, **parameters: str) -> Answer:
        """GET with these parameters, over a connection of its own."""
        with HttpClient(self.port) as client:
            return client.ask(path, **parameters)

    def publish(self, topic: str, message: str) -> Answer:
        return self.ask("/publish", topic=topic, message=message)

    def subscribe(self, topic: str, name: str, url: str) -> None:
        answer = self.ask("/subscribe", topic=topic, subscriberName=name, url=url)
        assert answer.status == 200, answer

    def subscriber(self, name: str) -> dict[str, Any]:
        found: list[dict[str, Any]] = self.ask("/subscribers").body["subscribers"]
        return next(each for each in found if each["name"] == name)

    def text_client(self) -> TextClient:
        return TextClient(self.text_port)


class HttpClient:
    """One connection, kept alive."""

    def __init__(self, port: int) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=ANSWER_S)

    def __enter__(self) -> HttpClient:
        return self

    def __exit__(self, *exception: object) -> None:
        self._connection.close()

    def ask(self, path: str, **parameters: str) -> Answer:
        self._connection.request("GET", f"{path}?{urlencode(parameters)}" if parameters else path)
        answer = self._connection.getresponse()
        text = answer.read().decode()
        body: Any = text
        with suppress(ValueError):
            body = json.loads(text)
        return Answer(answer.status, body, {k.lower(): v for k, v in answer.getheaders()})


class TextClient:
    """A client of the text port."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=ANSWER_S)
        self._file = self._socket.makefile("r", encoding="utf-8", newline="\n")

    def __enter__(self) -> TextClient:
        return self

    def __exit__(self, *exception: object) -> None:
        self._file.close()
        self._socket.close()

    def send(self, line: str) -> None:
        self._socket.sendall(line.encode() + b"\n")

    def receive(self) -> str:
        return self._file.readline().rstrip("\n")
