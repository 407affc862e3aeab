"""The stream reader when a bridge is down, refuses, or has lost what a query should read."""

from __future__ import annotations

import json
import logging
import socket
import threading
from collections.abc import Callable

import pytest

from spark_bridge.source.errors import (
    DataLossError,
    OptionError,
    RefusedError,
    UnreachableError,
)
from tests.helpers import wait_until
from tests.spark_bridge.served_log import ServedLog
from tests.spark_bridge.source.spark_query import Query

Make = Callable[..., Query]


def test_a_bridge_that_cannot_be_told_does_not_end_the_query(
    served: ServedLog, query: Make
) -> None:
    served.publish(range(10))
    q = query(served)
    q.step()
    served.stop()
    q.reader.commit(q.ends[-1])
    served.start()


def test_a_wrong_token_is_told_at_once(open_log: Callable[..., ServedLog], query: Make) -> None:
    guarded = open_log(token="secret")
    with pytest.raises(RefusedError, match="bad_token"):
        query(guarded).step()
    assert query(guarded, token="secret").step() == []


def test_two_addresses_of_one_bridge_are_refused(served: ServedLog, query: Make) -> None:
    twice = f"{served.address},localhost:{served.address.rpartition(':')[2]}"
    with pytest.raises(OptionError, match="are the same bridge"):
        query(served, bridge=twice).step()


def test_a_bridge_that_is_down_at_the_start_is_waited_for(served: ServedLog, query: Make) -> None:
    served.publish(range(3))
    served.stop()
    timer = threading.Timer(0.3, served.start)
    timer.start()
    assert query(served).values() == [0, 1, 2]
    timer.join()


def test_a_bridge_that_stays_down_ends_the_query_with_one_sentence(query: Make) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        address = f"127.0.0.1:{closed.getsockname()[1]}"
    q = query(bridge=address, connectTimeoutMs="200")
    with pytest.raises(UnreachableError, match=f"no bridge at {address} for 0.2 s"):
        q.step()


@pytest.mark.slow
def test_a_bridge_that_goes_down_gives_nothing_new_until_it_is_back(
    served: ServedLog, query: Make
) -> None:
    served.publish(range(3))
    q = query(served)
    assert q.values() == [0, 1, 2]
    served.stop()
    for _ in range(3):
        assert q.plan() is None
    served.start()
    served.publish([3])
    assert wait_until(lambda: q.values() == [3])


def test_a_bridge_that_goes_down_for_long_ends_the_query(served: ServedLog, query: Make) -> None:
    served.publish(range(3))
    q = query(served, connectTimeoutMs="300", longPollMs="20")
    assert q.values() == [0, 1, 2]
    served.stop()
    with pytest.raises(UnreachableError):
        wait_until(lambda: q.plan())
    served.start()


def test_a_bridge_that_is_down_does_not_hold_up_the_others(
    open_log: Callable[..., ServedLog], query: Make
) -> None:
    up, down = open_log(partitions=1), open_log(partitions=1)
    for log in (up, down):
        log.publish([0])
    q = query(up, down)
    rows = q.step()
    while len(rows) < 2:
        rows += q.step()
    down.stop()
    up.publish([1])
    assert wait_until(lambda: q.values() == [1])
    down.start()
    down.publish([2])
    assert wait_until(lambda: q.values() == [2])


def test_a_range_is_read_on_behind_the_block_after_which_the_connection_broke(
    served: ServedLog, query: Make
) -> None:
    for start in range(0, 30_000, 10_000):
        served.publish(range(start, start + 10_000))
    q = query(served)
    q.plan()
    (partition,) = q.reader.partitions(q.reader.initialOffset(), q.ends[-1])
    batches = q.reader.read(partition)
    offsets = next(batches).column("offset").to_pylist()
    served.stop()
    timer = threading.Timer(0.2, served.start)
    timer.start()
    for batch in batches:
        offsets += batch.column("offset").to_pylist()
    timer.join()
    assert offsets == list(range(30_000))


def make_expired(open_log: Callable[..., ServedLog], query: Make, **options: str) -> Query:
    """A query that read 5 rows, of a log that meanwhile begins at 20,000 and ends at 30,000."""
    log = open_log(partitions=1, retention_bytes=1, segment_bytes=1)
    q = query(log, **options)
    log.publish(range(5))
    assert len(q.step()) == 5
    for start in (5, 10_000, 20_000):
        log.publish(range(start, 10_000 * (start // 10_000 + 1)))
    log.log.expire()
    assert (log.log.first(), log.log.end()) == ([20_000], [30_000])
    return q


def test_rows_that_expired_are_an_error_with_both_numbers(
    open_log: Callable[..., ServedLog], query: Make
) -> None:
    q = make_expired(open_log, query)
    with pytest.raises(DataLossError, match=r"offset 5 of partition 0 .* begins at 20000"):
        q.step()


def test_rows_that_expired_are_jumped_over_with_one_warning_if_that_is_wanted(
    open_log: Callable[..., ServedLog], query: Make, caplog: pytest.LogCaptureFixture
) -> None:
    q = make_expired(open_log, query, failOnDataLoss="false", maxRowsPerTrigger="10")
    with caplog.at_level(logging.WARNING):
        assert q.values() == list(range(20_000, 20_010))
        assert q.values() == list(range(20_010, 20_020))
    (warning,) = [record.getMessage() for record in caplog.records]
    assert "the query goes on (failOnDataLoss=false), but offset 5 of partition 0" in warning


@pytest.mark.parametrize("fails", [True, False])
def test_rows_that_expire_between_planning_and_reading_are_noticed(
    open_log: Callable[..., ServedLog], query: Make, fails: bool
) -> None:
    log = open_log(partitions=1, retention_bytes=1 << 40, segment_bytes=1)
    q = query(log, failOnDataLoss=str(fails).lower())
    for start in (0, 10_000):
        log.publish(range(start, start + 10_000))
    q.plan()
    log.stop()
    log._log_options["retention_bytes"] = 1
    log.start()
    log.log.expire()
    assert log.log.first() == [10_000]
    if fails:
        with pytest.raises(DataLossError, match=r"offset 0 of partition 0 .* begins at 10000"):
            q.run()
    else:
        assert [json.loads(row[1]) for row in q.run()] == list(range(10_000, 20_000))


def test_a_log_that_was_replaced_is_an_error_or_a_new_start(served: ServedLog, query: Make) -> None:
    served.publish(range(5))
    strict, lenient = query(served), query(served, failOnDataLoss="false")
    assert strict.values() == lenient.values() == [0, 1, 2, 3, 4]
    served.replace()
    served.publish([10, 11])
    for q in (strict, lenient):
        q.restart()
    with pytest.raises(DataLossError, match="has another log"):
        strict.step()
    assert lenient.values() == [10, 11]
    assert lenient.step() == []


def test_a_log_that_is_replaced_under_a_running_query_is_noticed(
    served: ServedLog, query: Make
) -> None:
    q = query(served)
    served.publish(range(5))
    q.step()
    served.replace()
    with pytest.raises(DataLossError, match="has another log"):
        wait_until(lambda: q.plan())


def test_a_bridge_that_moved_is_read_on(served: ServedLog, query: Make) -> None:
    q = query(served)
    served.publish(range(5))
    q.step()
    served.publish([5])
    q.plan()
    served.move()
    q.restart()
    assert [row[1] for row in q.run()] == ["5"]
    q.committed = q.ends[-1]
    served.publish([6])
    assert q.values() == [6]
    assert list(q.ends[-1]) == [served.address]


def test_a_bridge_may_be_added_and_removed(open_log: Callable[..., ServedLog], query: Make) -> None:
    one, other = open_log(partitions=1), open_log(partitions=3)
    one.publish([1])
    other.publish([2], partition=2)
    q = query(one, failOnDataLoss="false")
    assert q.values() == [1]
    q.logs = (one, other)
    q.restart()
    assert q.values() == [2]
    q.logs = (one,)
    q.restart()
    one.publish([3])
    assert q.values() == [3]
