"""One at a time for each name."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

from spark_bridge.sink.keyed_lock import Turns


def test_a_name_is_taken_by_one_and_others_are_free() -> None:
    turns = Turns()
    order: list[str] = []
    waiting = threading.Event()

    def take_again() -> None:
        waiting.set()
        with turns.take("a"):
            order.append("second")

    with ThreadPoolExecutor(1) as pool:
        with turns.take("a"):
            second = pool.submit(take_again)
            assert waiting.wait(30)
            with turns.take("b"):
                order.append("other")
            assert not turns.wait_until_all_ended(0)
            order.append("first")
        second.result(30)
    assert order == ["other", "first", "second"]
    assert turns.wait_until_all_ended(30)


def test_nothing_is_kept_of_a_turn_that_ended_even_with_an_error() -> None:
    turns = Turns()
    for number in range(100):
        try:
            with turns.take(str(number)):
                raise KeyError
        except KeyError:
            pass
    assert turns._turns == {}


def test_many_threads_never_share_a_turn() -> None:
    turns = Turns()
    counts = {"a": 0, "b": 0}

    def count(name: str) -> None:
        for _ in range(200):
            with turns.take(name):
                before = counts[name]
                counts[name] = before + 1

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(count, ["a", "b", "a", "b"]))
    assert counts == {"a": 400, "b": 400}
