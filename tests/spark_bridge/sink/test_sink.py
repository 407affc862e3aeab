"""The sink: each batch onto the bus once, whatever is retried, stopped or refused."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import jsonbus
from jsonbus.errors import ClosedError, PayloadTooLargeError
from spark_bridge.errors import BusyError, RequestError, StoreFullError
from spark_bridge.sink.sink import Sink
from spark_bridge.sink.store import Part
from tests.helpers import find_free_port, wait_until
from tests.spark_bridge.sink.staging import text_rows, value_rows


class Outlet:
    """Takes the place of a bus: what was published, and what should go wrong."""

    def __init__(self) -> None:
        self.sent: list[tuple[str, Any, bool]] = []
        self.flushed = 0
        self.before: Callable[[int], None] = lambda number: None
        self.wanted = True
        self.refused: object = self

    def publish(self, topic: str, value: Any, *, retain: bool, reliable: bool) -> bool:
        assert reliable
        self.before(len(self.sent))
        if value == self.refused:
            raise PayloadTooLargeError(topic, 10, 5)
        self.sent.append((topic, value, retain))
        return self.wanted

    def flush(self) -> bool:
        self.flushed = len(self.sent)
        return True

    @property
    def values(self) -> list[Any]:
        return [value for _, value, _ in self.sent]


@pytest.fixture
def outlet() -> Outlet:
    return Outlet()


@pytest.fixture
def open_sink(tmp_path: Path, outlet: Outlet) -> Iterator[Callable[[], Sink]]:
    opened: list[Sink] = []

    def open_it() -> Sink:
        for sink in opened:
            sink.close()
        opened.append(Sink(tmp_path, outlet.publish, flush=outlet.flush, progress_rows=10))
        return opened[-1]

    yield open_it
    for sink in opened:
        sink.close()


@pytest.fixture
def sink(open_sink: Callable[[], Sink]) -> Sink:
    return open_sink()


def abandon(sink: Sink) -> None:
    """What a crash leaves: the file, without a word."""
    sink._store.close()


def fail_at(number: int, error: Exception) -> Callable[[int], None]:
    def check(count: int) -> None:
        if count == number:
            raise error

    return check


def test_a_batch_goes_out_when_it_is_published_and_not_before(sink: Sink, outlet: Outlet) -> None:
    assert sink.stage(Part("q", 0, 1, 5), value_rows([3, 4], "b")) == 2
    assert sink.stage(Part("q", 0, 0, 6), value_rows([1, 2], "a")) == 2
    assert outlet.sent == []
    assert sink.publish("q", 0, [(1, 5), (0, 6)]) == (4, False)
    assert outlet.sent == [("a", 1, False), ("a", 2, False), ("b", 3, False), ("b", 4, False)]


def test_parts_of_a_partition_go_out_in_their_order(sink: Sink, outlet: Outlet) -> None:
    for part in range(3):
        sink.stage(Part("q", 0, 0, 1, part), value_rows([part]))
    sink.publish("q", 0, [(0, 1)])
    assert outlet.values == [0, 1, 2]


def test_a_null_with_retain_is_passed_on(sink: Sink, outlet: Outlet) -> None:
    sink.stage(Part("q", 0, 0, 1), text_rows(["a", "a"], ["1", None], [True, True]))
    sink.publish("q", 0, [(0, 1)])
    assert outlet.sent == [("a", 1, True), ("a", None, True)]


def test_a_batch_that_is_retried_goes_out_once(sink: Sink, outlet: Outlet) -> None:
    for attempt in (1, 2):
        sink.stage(Part("q", 7, 0, attempt), value_rows([1]))
        sink.publish("q", 7, [(0, attempt)])
    assert sink.publish("q", 7, [(0, 3)]) == (0, True)
    assert outlet.values == [1]
    assert sink.stats()["batches_repeated"] == 2
    assert sink.stats()["staged_rows"] == 0


def test_the_fence_holds_across_a_restart(open_sink: Callable[[], Sink], outlet: Outlet) -> None:
    sink = open_sink()
    sink.stage(Part("q", 7, 0, 1), value_rows([1]))
    sink.publish("q", 7, [(0, 1)])
    sink = open_sink()
    sink.recover()
    sink.stage(Part("q", 7, 0, 1), value_rows([1]))
    assert sink.publish("q", 7, [(0, 1)]) == (0, True)
    sink.stage(Part("q", 8, 0, 1), value_rows([2]))
    assert sink.publish("q", 8, [(0, 1)]) == (1, False)
    assert outlet.values == [1, 2]


def test_queries_do_not_share_a_fence(sink: Sink, outlet: Outlet) -> None:
    for query in ("q", "r"):
        sink.stage(Part(query, 0, 0, 1), value_rows([query]))
        sink.publish(query, 0, [(0, 1)])
    assert outlet.values == ["q", "r"]


def test_a_batch_far_below_the_fence_is_warned_of(
    sink: Sink, caplog: pytest.LogCaptureFixture
) -> None:
    sink.publish("q", 9, [])
    with caplog.at_level(logging.WARNING, "jsonbus.bridge"):
        assert sink.publish("q", 9, []) == (0, True)
        assert not caplog.records
        assert sink.publish("q", 3, []) == (0, True)
    assert "old checkpoint" in caplog.text


def test_what_was_discarded_cannot_be_published(sink: Sink, outlet: Outlet) -> None:
    sink.stage(Part("q", 0, 0, 1), value_rows([1]))
    sink.discard("q", 0)
    with pytest.raises(RequestError, match="not staged"):
        sink.publish("q", 0, [(0, 1)])
    assert outlet.sent == []


def test_rows_that_nobody_wants_are_counted(sink: Sink, outlet: Outlet) -> None:
    outlet.wanted = False
    sink.stage(Part("q", 0, 0, 1), value_rows(range(5)))
    assert sink.publish("q", 0, [(0, 1)]) == (5, False)
    stats = sink.stats()
    assert (stats["rows_published"], stats["rows_suppressed"]) == (5, 5)


def test_a_bad_row_refuses_the_stage_or_is_left_out_and_counted(sink: Sink, outlet: Outlet) -> None:
    rows = text_rows(["a", "a"], ["1", "oops"])
    with pytest.raises(RequestError, match="row 2, topic 'a'"):
        sink.stage(Part("q", 0, 0, 1), rows)
    assert sink.stats()["staged_rows"] == 0
    assert sink.stage(Part("q", 0, 0, 1), rows, skip_bad=True) == 1
    sink.publish("q", 0, [(0, 1)])
    assert outlet.values == [1]
    assert sink.stats()["rows_skipped"] == 1


def test_a_row_that_the_bus_refuses_after_all_does_not_stop_the_query(
    sink: Sink, outlet: Outlet, caplog: pytest.LogCaptureFixture
) -> None:
    outlet.refused = 1
    sink.stage(Part("q", 0, 0, 1), value_rows([0, 1, 2]))
    assert sink.publish("q", 0, [(0, 1)]) == (3, False)
    assert outlet.values == [0, 2]
    assert sink.stats()["rows_refused"] == 1
    assert "refused by the bus" in caplog.text


def test_after_an_error_in_the_middle_the_next_try_goes_on_where_it_stopped(
    sink: Sink, outlet: Outlet
) -> None:
    outlet.before = fail_at(17, ClosedError("the bus is closed"))
    sink.stage(Part("q", 0, 0, 1), value_rows(range(25)))
    with pytest.raises(BusyError, match="has left the bus"):
        sink.publish("q", 0, [(0, 1)])
    outlet.before = lambda number: None
    sink.discard("q", 0)
    sink.stage(Part("q", 0, 0, 2), value_rows(range(25)))
    assert sink.publish("q", 0, [(0, 2)]) == (0, True)
    assert outlet.values == list(range(25))
    assert sink.stats()["rows_possibly_repeated"] == 0


def test_a_batch_that_stopped_is_finished_before_the_next_one(sink: Sink, outlet: Outlet) -> None:
    outlet.before = fail_at(3, ClosedError("the bus is closed"))
    sink.stage(Part("q", 0, 0, 1), value_rows(range(5)))
    with pytest.raises(BusyError, match="has left the bus"):
        sink.publish("q", 0, [(0, 1)])
    outlet.before = lambda number: None
    sink.stage(Part("q", 1, 0, 1), value_rows([100]))
    assert sink.publish("q", 1, [(0, 1)]) == (1, False)
    assert outlet.values == [0, 1, 2, 3, 4, 100]


def test_after_an_orderly_end_in_the_middle_nothing_is_repeated(
    open_sink: Callable[[], Sink], outlet: Outlet
) -> None:
    sink = open_sink()
    reached, closing = threading.Event(), threading.Event()

    def stop_there(count: int) -> None:
        if count == 16:
            reached.set()
            assert closing.wait(30)

    outlet.before = stop_there
    sink.stage(Part("q", 0, 0, 1), value_rows(range(25)))
    with ThreadPoolExecutor(2) as pool:
        publishing = pool.submit(sink.publish, "q", 0, [(0, 1)])
        assert reached.wait(30)
        ending = pool.submit(sink.close)
        assert wait_until(lambda: sink._is_closing)
        closing.set()
        with pytest.raises(BusyError, match="being closed"):
            publishing.result(30)
        ending.result(30)
    assert outlet.values == list(range(17))
    sink = open_sink()
    sink.recover()
    assert outlet.values == list(range(25))
    assert sink.stats()["rows_possibly_repeated"] == 0
    assert sink.publish("q", 0, [(0, 1)]) == (0, True)


def test_after_a_crash_in_the_middle_at_most_the_rows_since_the_last_note_are_repeated(
    open_sink: Callable[[], Sink], outlet: Outlet, caplog: pytest.LogCaptureFixture
) -> None:
    sink = open_sink()

    def crash(count: int) -> None:
        if count == 27:
            abandon(sink)
            raise KeyboardInterrupt

    outlet.before = crash
    for part in range(4):
        sink.stage(Part("q", 0, 0, 1, part), value_rows(range(part * 10, part * 10 + 10)))
    with pytest.raises(KeyboardInterrupt):
        sink.publish("q", 0, [(0, 1)])
    outlet.before = lambda number: None
    sink = open_sink()
    with caplog.at_level(logging.WARNING, "jsonbus.bridge"):
        sink.recover()
    assert outlet.values == [*range(27), *range(20, 40)]
    assert sink.stats()["rows_possibly_repeated"] == 10
    assert len(caplog.records) == 1 and "up to 10 rows may be sent twice" in caplog.text
    assert sink.publish("q", 0, [(0, 1)]) == (0, True)


def test_a_crash_before_the_first_message_loses_nothing(
    open_sink: Callable[[], Sink], outlet: Outlet
) -> None:
    sink = open_sink()
    sink.stage(Part("q", 0, 0, 1), value_rows([1]))
    sink._store.mark("q", 0, [(0, 1)])
    abandon(sink)
    open_sink().recover()
    assert outlet.values == [1]


def test_a_place_is_noted_only_when_the_rows_before_it_have_left(
    sink: Sink, outlet: Outlet, monkeypatch: pytest.MonkeyPatch
) -> None:
    noted = []
    advance = sink._store.advance

    def note(query: str, position: int, **more: bool) -> None:
        noted.append((position, outlet.flushed))
        advance(query, position, **more)

    monkeypatch.setattr(sink._store, "advance", note)
    sink.stage(Part("q", 0, 0, 1), value_rows(range(25)))
    sink.publish("q", 0, [(0, 1)])
    assert noted == [(10, 10), (20, 20)]
    assert outlet.flushed == 25


def test_a_network_that_is_down_is_warned_of_once_and_stops_nothing(
    tmp_path: Path, outlet: Outlet, caplog: pytest.LogCaptureFixture
) -> None:
    sink = Sink(tmp_path, outlet.publish, flush=lambda: False, progress_rows=1)
    sink.stage(Part("q", 0, 0, 1), value_rows(range(5)))
    assert sink.publish("q", 0, [(0, 1)]) == (5, False)
    sink.close()
    assert caplog.text.count("is the network down?") == 1


def test_a_full_disk_at_the_end_of_a_batch_repeats_nothing_in_this_process(
    sink: Sink, outlet: Outlet, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise StoreFullError("no room")

    sink.stage(Part("q", 0, 0, 1), value_rows(range(5)))
    with monkeypatch.context() as patch:
        patch.setattr(sink._store, "finish", refuse)
        patch.setattr(sink._store, "advance", refuse)
        with pytest.raises(StoreFullError):
            sink.publish("q", 0, [(0, 1)])
    assert sink.publish("q", 0, [(0, 1)]) == (0, True)
    assert outlet.values == list(range(5))
    assert sink.stats()["rows_possibly_repeated"] == 0


def test_who_asks_for_a_batch_that_is_on_its_way_out_waits_for_it(
    sink: Sink, outlet: Outlet
) -> None:
    reached, go_on = threading.Event(), threading.Event()

    def wait(count: int) -> None:
        if count == 1:
            reached.set()
            assert go_on.wait(30)

    outlet.before = wait
    sink.stage(Part("q", 0, 0, 1), value_rows([1, 2]))
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(sink.publish, "q", 0, [(0, 1)])
        assert reached.wait(30)
        second = pool.submit(sink.publish, "q", 0, [(0, 1)])
        sink.stage(Part("other", 0, 0, 1), value_rows([9]))  # nobody else waits
        go_on.set()
        assert first.result(30) == (2, False)
        assert second.result(30) == (0, True)
    assert outlet.values == [1, 2]


def test_many_threads_stage_and_publish_at_once(sink: Sink, outlet: Outlet) -> None:
    def run(query: str) -> None:
        for batch in range(5):
            for partition in range(3):
                sink.stage(
                    Part(query, batch, partition, batch), value_rows([[query, batch, partition]])
                )
            sink.publish(query, batch, [(partition, batch) for partition in range(3)])

    queries = [f"query {number}" for number in range(8)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(run, queries))
    for query in queries:
        assert [value[1:] for value in outlet.values if value[0] == query] == [
            [batch, partition] for batch in range(5) for partition in range(3)
        ]
    assert sink.stats()["queries"] == 8
    assert sink.stats()["staged_bytes"] == 0


@pytest.mark.slow
def test_rows_arrive_at_a_subscriber_of_a_real_bus(tmp_path: Path) -> None:
    port = find_free_port()
    with jsonbus.Bus(port=port) as listener, jsonbus.Bus(port=port) as bus:
        subscription = listener.subscribe("results/**")
        assert bus.wait_for_subscribers("results/a", timeout=30)
        assert bus.wait_until_sure(timeout=30)
        sink = Sink(tmp_path, bus.publish, flush=bus.flush, progress_rows=100)
        sink.stage(Part("q", 0, 0, 1), value_rows(range(500), "results/a"))
        sink.stage(Part("q", 0, 1, 1), text_rows(["nobody/cares"], ["1"]))
        sink.stage(Part("q", 0, 2, 1), text_rows(["results/b"], ['{"n": 1}'], [True]))
        partitions = [(0, 1), (1, 1), (2, 1)]
        assert sink.publish("q", 0, partitions) == (502, False)
        assert sink.publish("q", 0, partitions) == (0, True)
        assert sink.stats()["rows_suppressed"] == 1
        received = [subscription.get(timeout=30) for _ in range(501)]
        assert [each.value for each in received] == [*range(500), {"n": 1}]
        late = listener.subscribe("results/b")
        message = late.get(timeout=30)
        assert message.value == {"n": 1} and message.retained
        sink.close()
