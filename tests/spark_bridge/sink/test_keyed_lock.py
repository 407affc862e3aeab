"""One at a time for each name."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

from spark_bridge.sink.keyed_lock import KeyedLocks


def test_a_name_is_taken_by_one_and_others_are_free() -> None:
    locks = KeyedLocks()
    order: list[str] = []
    waiting = threading.Event()

    def take_again() -> None:
        waiting.set()
        with locks.hold("a"):
            order.append("second")

    with ThreadPoolExecutor(1) as pool:
        with locks.hold("a"):
            second = pool.submit(take_again)
            assert waiting.wait(30)
            with locks.hold("b"):
                order.append("other")
            assert not locks.wait_until_free(0)
            order.append("first")
        second.result(30)
    assert order == ["other", "first", "second"]
    assert locks.wait_until_free(30)


def test_nothing_is_kept_of_a_turn_that_ended_even_with_an_error() -> None:
    locks = KeyedLocks()
    for number in range(100):
        try:
            with locks.hold(str(number)):
                raise KeyError
        except KeyError:
            pass
    assert locks._held == set()
    assert locks.wait_until_free(0)


def test_many_threads_never_share_a_turn() -> None:
    locks = KeyedLocks()
    counts = {"a": 0, "b": 0}

    def count(name: str) -> None:
        for _ in range(200):
            with locks.hold(name):
                before = counts[name]
                counts[name] = before + 1

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(count, ["a", "b", "a", "b"]))
    assert counts == {"a": 400, "b": 400}
