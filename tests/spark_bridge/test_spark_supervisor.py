"""When a query is started again, and when no more. With queries that end as they are told."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("pyspark")

from spark_bridge.spark import supervise
from tests.helpers import wait_until


class Query:
    """Runs until it is stopped or told to fail."""

    def __init__(self, failure: str | None = None) -> None:
        self._failure = failure
        self._over = threading.Event()
        if failure is not None:
            self._over.set()

    def fail(self, reason: str) -> None:
        self._failure = reason
        self._over.set()

    def stop(self) -> None:
        self._over.set()

    def awaitTermination(self) -> None:
        self._over.wait()
        if self._failure is not None:
            raise RuntimeError(self._failure)


def in_order(*queries: Query | Exception) -> Callable[[], Any]:
    """Start these, one after the other."""
    waiting = iter(queries)

    def start() -> Query:
        query = next(waiting)
        if isinstance(query, Exception):
            raise query
        return query

    return start


def test_a_query_that_failed_is_started_again() -> None:
    queries = [Query(), Query()]
    supervisor = supervise(in_order(*queries), backoff_s=0)
    assert supervisor.query is queries[0]
    queries[0].fail("killed")
    assert wait_until(lambda: supervisor.query is queries[1])
    assert supervisor.restarts == 1
    assert supervisor.is_active
    supervisor.stop()
    assert supervisor.wait()
    assert not supervisor.is_active


def test_a_query_that_somebody_stopped_is_over() -> None:
    query = Query()
    supervisor = supervise(in_order(query))
    query.stop()
    assert supervisor.wait()
    assert supervisor.restarts == 0


def test_waiting_for_a_query_that_runs_comes_back_in_time() -> None:
    supervisor = supervise(in_order(Query()))
    assert not supervisor.wait(timeout_s=0.01)
    supervisor.stop()


def test_when_the_restarts_are_used_up_the_last_exception_is_raised() -> None:
    queries = [Query(f"failure {number}") for number in range(3)]
    supervisor = supervise(in_order(*queries), restarts_max=2, backoff_s=0)
    with pytest.raises(RuntimeError, match="failure 2"):
        supervisor.wait()
    assert supervisor.restarts == 2


def test_a_query_that_ran_for_a_while_may_be_restarted_as_often_again() -> None:
    queries = [Query(f"failure {number}") for number in range(20)] + [Query()]
    supervisor = supervise(in_order(*queries), restarts_max=1, backoff_s=0, refill_after_s=0)
    assert wait_until(lambda: supervisor.restarts == 20)
    supervisor.stop()
    assert supervisor.wait()


def test_a_restart_that_cannot_even_start_counts_as_one() -> None:
    last = Query()
    supervisor = supervise(
        in_order(Query("killed"), OSError("no bridge"), last), restarts_max=2, backoff_s=0
    )
    assert wait_until(lambda: supervisor.query is last)
    last.fail("killed again")
    with pytest.raises(RuntimeError, match="killed again"):
        supervisor.wait()


def test_what_the_first_start_raises_is_raised_at_once() -> None:
    with pytest.raises(OSError, match="no such option"):
        supervise(in_order(OSError("no such option")))


def test_stop_ends_the_wait_before_a_restart() -> None:
    supervisor = supervise(in_order(Query("killed")), backoff_s=3600, backoff_max_s=3600)
    supervisor.stop()
    assert supervisor.wait()
    assert supervisor.restarts == 0


def test_stop_during_a_restart_stops_the_new_query() -> None:
    starting, go_on = threading.Event(), threading.Event()
    queries = [Query("killed"), Query()]
    waiting = iter(queries)

    def start() -> Any:
        query = next(waiting)
        if query is queries[1]:
            starting.set()
            go_on.wait()
        return query

    supervisor = supervise(start, backoff_s=0)
    assert starting.wait(30)
    stopper = threading.Thread(target=supervisor.stop)
    stopper.start()
    assert wait_until(lambda: supervisor._stopping.is_set())
    go_on.set()
    stopper.join(30)
    assert supervisor.wait(timeout_s=30)


def test_each_restart_is_logged_and_waits_twice_as_long_up_to_a_limit(
    caplog: pytest.LogCaptureFixture,
) -> None:
    queries = [Query(f"failure {number}\n\tat org.apache.spark") for number in range(5)]
    with caplog.at_level(logging.WARNING, "jsonbus.spark"):
        supervisor = supervise(
            in_order(*queries), restarts_max=4, backoff_s=0.001, backoff_max_s=0.004
        )
        with pytest.raises(RuntimeError):
            supervisor.wait()
    assert caplog.messages == [
        "the query failed and is restarted in 0.001 s (3 restarts left): failure 0",
        "the query failed and is restarted in 0.002 s (2 restarts left): failure 1",
        "the query failed and is restarted in 0.004 s (1 restarts left): failure 2",
        "the query failed and is restarted in 0.004 s (0 restarts left): failure 3",
        "the query failed and is not restarted any more: failure 4",
    ]


@pytest.mark.parametrize(
    "settings", [{"restarts_max": -1}, {"backoff_s": -1}, {"backoff_s": 2, "backoff_max_s": 1}]
)
def test_impossible_numbers_are_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(settings))):
        supervise(in_order(), **settings)
