"""A gateway that is killed again and again, and one whose disk is full: what got a 200 arrives."""

from __future__ import annotations

import http.client
import random
import threading
import time
from pathlib import Path

import pytest

pytest.importorskip("fastapi")

from tests.end_to_end.gateways import Gateway, HttpClient
from tests.end_to_end.processes import Desk
from tests.gateway.receiver import Answer, Receiver
from tests.small_disk import small_disk

SEED = 11
KILLS = 10
PUBLISHERS = 8


class Publisher:
    """Publishes numbers one after the other, each until it got a 200; remembers which did."""

    def __init__(self, name: str, port: int) -> None:
        self.name = name
        self.port = port
        self.acknowledged = 0  # numbers 0 to here - 1
        self.stopping = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def stop(self) -> None:
        self.stopping.set()
        self._thread.join()

    def _run(self) -> None:
        while not self.stopping.is_set():
            try:
                with HttpClient(self.port) as client:
                    while not self.stopping.is_set():
                        message = f'["{self.name}", {self.acknowledged}]'
                        answer = client.ask("/publish", topic="numbers", message=message)
                        if answer.status == 200:
                            self.acknowledged += 1
            except (OSError, http.client.HTTPException):
                time.sleep(0.01)  # it was killed; it will be back


def first_times(messages: list[list[object]], name: str) -> list[object]:
    """The numbers of one publisher, in the order in which they came first."""
    return list(dict.fromkeys(number for publisher, number in messages if publisher == name))


def test_killed_again_and_again_it_loses_nothing_that_got_a_200(desk: Desk, tmp_path: Path) -> None:
    dice = random.Random(SEED)
    gateway = Gateway(desk, tmp_path, "--retry-max", "0.2")
    with Receiver() as receiver, Receiver() as flaky:
        flaky.default = Answer(500)
        gateway.subscribe("numbers", "steady", receiver.url)
        gateway.subscribe("**", "flaky", flaky.url)
        publishers = [Publisher(f"p{number}", gateway.port) for number in range(PUBLISHERS)]
        try:
            for round_number in range(KILLS):
                before = sum(each.acknowledged for each in publishers)
                desk.wait_until(
                    lambda: sum(each.acknowledged for each in publishers) > before + 50  # noqa: B023
                )
                time.sleep(dice.uniform(0, 0.05))  # not for luck: to hit different moments
                gateway.kill()
                gateway.start()
                for each in publishers:
                    each.port = gateway.port
                if round_number == KILLS // 2:
                    flaky.default = Answer(200)
        finally:
            for each in publishers:
                each.stop()
        for name in ("steady", "flaky"):
            desk.wait_until(lambda: gateway.subscriber(name)["backlog"] == 0)  # noqa: B023
        assert sum(each.acknowledged for each in publishers) > 50 * KILLS
        for each in publishers:
            numbers = first_times(receiver.messages, each.name)
            # One more may have been stored without the answer having arrived.
            assert numbers in (
                list(range(each.acknowledged)),
                list(range(each.acknowledged + 1)),
            ), each.name
            answered = [message for request in flaky.requests for message in request.messages]
            assert first_times(answered, each.name) == numbers
        for got in (receiver, flaky):
            bodies = [
                (request.headers["jsonbus-delivery"], request.body) for request in got.requests
            ]
            assert len(dict(bodies)) == len(set(bodies)), "a delivery id with two contents"


def test_a_full_disk_refuses_and_goes_on_when_there_is_room(desk: Desk, tmp_path: Path) -> None:
    folder = tmp_path / "disk"
    folder.mkdir()
    with small_disk(folder, 24 << 20), Receiver() as receiver:
        receiver.default = Answer(503)
        gateway = Gateway(desk, folder, "--retry-max", "0.2")
        gateway.subscribe("a", "wall", receiver.url)
        accepted = [0]
        assert gateway.publish("a", "0").status == 200
        filler = folder / "filler"
        with filler.open("wb") as file:
            with pytest.raises(OSError):
                while True:
                    file.write(b"x" * 65_536)
                    file.flush()
        number, refusals = 1, 0
        while refusals < 3:
            assert number < 10_000
            answer = gateway.publish("a", f'[{number}, "{"x" * 4_000}"]')
            if answer.status == 200:
                accepted.append(number)
            else:
                assert answer.status == 500 and "try again later" in answer.body["error"]
                assert "retry-after" in answer.headers
                refusals += 1
            number += 1
        assert gateway.ask("/health").status in (200, 503)
        desk.wait_until(lambda: any("full" in line for line in gateway.process.complaints))
        assert gateway.subscriber("wall")["backlog"] == len(accepted)
        filler.unlink()
        desk.wait_until(lambda: gateway.publish("a", f"[{number}]").status == 200)
        accepted.append(number)
        receiver.default = Answer(200)
        desk.wait_until(lambda: gateway.subscriber("wall")["backlog"] == 0)
        numbers = [each if isinstance(each, int) else each[0] for each in receiver.messages]
        assert list(dict.fromkeys(numbers)) == accepted
        gateway.stop()
