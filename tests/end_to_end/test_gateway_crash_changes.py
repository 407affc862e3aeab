"""Webhooks that come, go and move while the gateway is killed, also while it starts."""

from __future__ import annotations

import http.client
import random
import threading
import time
from contextlib import ExitStack
from itertools import count
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("fastapi")

from tests.end_to_end.gateways import Answer as HttpAnswer
from tests.end_to_end.gateways import Gateway, HttpClient
from tests.end_to_end.processes import Desk
from tests.gateway.receiver import Answer, Received, Receiver

SEED = 23
KILLS = 6


class Client:
    """Does the same things again and again, each until it got a 200, while the gateway dies."""

    def __init__(self, name: str, port: int) -> None:
        self.name = name
        self.port = port
        self.stopping = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def stop(self) -> None:
        self.stopping.set()
        self._thread.join()

    def work(self) -> None:
        """One round; always the same if it is broken off."""
        raise NotImplementedError

    def insist(self, path: str, **parameters: str) -> HttpAnswer:
        """Ask until the answer is a 200; raises ConnectionError when it is to stop."""
        while not self.stopping.is_set():
            try:
                with HttpClient(self.port) as client:
                    answer = client.ask(path, **parameters)
                if answer.status == 200:
                    return answer
            except (OSError, http.client.HTTPException):
                pass
            time.sleep(0.01)  # it was killed; it will be back
        raise ConnectionError

    def publish(self, number: int) -> None:
        self.insist("/publish", topic="numbers", message=f'["{self.name}", {number}]')

    def _run(self) -> None:
        try:
            while True:
                self.work()
        except ConnectionError:
            pass


class Mover(Client):
    """A subscriber that moves, and publishes at each place."""

    def __init__(self, port: int, urls: list[str]) -> None:
        self.urls = urls
        self.acknowledged: list[int] = []
        self._numbers = count()
        super().__init__("mover", port)

    def work(self) -> None:
        number = next(self._numbers)
        url = self.urls[number % len(self.urls)]
        self.insist("/subscribe", topic="numbers", subscriberName="mover", url=url)
        self.publish(number)
        self.acknowledged.append(number)


class Waverer(Client):
    """A subscriber of two topics, who gives up one and takes it back all the time."""

    def __init__(self, port: int, url: str) -> None:
        self.url = url
        self.wanted: list[int] = []
        self.unwanted: list[int] = []
        self._numbers = count()
        super().__init__("waverer", port)

    def work(self) -> None:
        # The other topic keeps the subscriber, whose backlog would go with its last one.
        for topic in ("other", "numbers"):
            self.insist("/subscribe", topic=topic, subscriberName="waverer", url=self.url)
        number = next(self._numbers)
        self.publish(number)
        self.wanted.append(number)
        # Not until it is a 200: if it was done and the answer got lost, the next one is a 404.
        try:
            with HttpClient(self.port) as client:
                answer = client.ask("/unsubscribe", topic="numbers", subscriberName="waverer")
        except (OSError, http.client.HTTPException):
            return
        if answer.status != 200:
            return
        number = next(self._numbers)
        self.publish(number)
        self.unwanted.append(number)


def first_times(requests: list[Received], name: str) -> list[Any]:
    """The numbers of one publisher, in the order in which they came first."""
    in_order = sorted(requests, key=lambda request: request.at)
    messages = [message for request in in_order for message in request.messages]
    return list(dict.fromkeys(number for publisher, number in messages if publisher == name))


def test_changes_that_got_a_200_outlive_kills_as_messages_do(desk: Desk, tmp_path: Path) -> None:
    dice = random.Random(SEED)
    gateway = Gateway(desk, tmp_path, "--retry-max", "0.2")
    with ExitStack() as stack:
        receivers = [stack.enter_context(Receiver()) for _ in range(4)]
        steady, here, there, wavering = receivers
        gateway.subscribe("numbers", "steady", steady.url)
        mover = Mover(gateway.port, [here.url, there.url])
        stack.callback(mover.stop)
        waverer = Waverer(gateway.port, wavering.url)
        stack.callback(waverer.stop)
        for _ in range(KILLS):
            moves, turns = len(mover.acknowledged), len(waverer.unwanted)
            desk.wait_until(
                lambda: len(mover.acknowledged) > moves + 10 and len(waverer.unwanted) > turns + 10  # noqa: B023
            )
            here.default = Answer(dice.choice((200, 503)))
            time.sleep(dice.uniform(0, 0.05))  # not for luck: to hit different moments
            gateway.kill()
            for _ in range(dice.randrange(3)):
                gateway.kill_while_it_starts(dice.uniform(0, 0.1))
            gateway.start()
            mover.port = waverer.port = gateway.port
        here.default = Answer(200)
        mover.stop()
        waverer.stop()
        for name in ("steady", "mover", "waverer"):
            desk.wait_until(lambda: gateway.subscriber(name)["backlog"] == 0)  # noqa: B023

        moved = first_times(here.requests + there.requests, "mover")
        assert moved[: len(mover.acknowledged)] == mover.acknowledged
        assert first_times(steady.requests, "mover") == moved
        assert here.requests and there.requests
        got = first_times(wavering.requests, "waverer")
        assert set(waverer.wanted) <= set(got)
        assert not set(waverer.unwanted) & set(got)
        assert got == sorted(got)
        for receiver in receivers:
            ids = [(each.headers["jsonbus-delivery"], each.body) for each in receiver.requests]
            assert len(dict(ids)) == len(set(ids)), "a delivery id with two contents"
