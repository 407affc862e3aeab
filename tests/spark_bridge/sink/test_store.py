"""The sink's file: what is staged, what is decided, and what makes room."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from spark_bridge.errors import BusyError, RequestError, StoreError, TooLargeError
from spark_bridge.sink import store as sink_store
from spark_bridge.sink.store import PART_OVERHEAD_BYTES, Part, SinkStore

BODY = b"x" * 1000
SIZE = len(BODY) + PART_OVERHEAD_BYTES


class Clock:
    def __init__(self) -> None:
        self.now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def store(tmp_path: Path, clock: Clock) -> Iterator[SinkStore]:
    store = SinkStore(tmp_path / "sink.sqlite", staged_bytes_max=4 * SIZE, now=clock)
    yield store
    store.close()


def bodies(store: SinkStore, query: str, batch: int) -> list[bytes]:
    return [store.body(part_id) for part_id, _ in store.parts(query, batch)]


def publish(store: SinkStore, query: str, batch: int, *partitions: tuple[int, int]) -> None:
    assert store.mark(query, batch, list(partitions)) is not None
    store.finish(query, batch)


def test_parts_go_out_by_partition_and_part_whatever_order_they_came_in(store: SinkStore) -> None:
    for partition, attempt, part in [(1, 9, 0), (0, 8, 0), (1, 9, 1)]:
        store.stage(Part("q", 0, partition, attempt, part), 1, f"{partition}.{part}".encode())
    publication = store.mark("q", 0, [(1, 9), (0, 8)])
    assert publication is not None and publication.rows == 3
    assert bodies(store, "q", 0) == [b"0.0", b"1.0", b"1.1"]


def test_attempts_that_did_not_win_do_not_go_out(store: SinkStore) -> None:
    store.stage(Part("q", 0, 0, 1), 1, b"lost")
    store.stage(Part("q", 0, 0, 2), 1, b"won")
    store.stage(Part("q", 0, 7, 1), 1, b"of another plan")
    store.mark("q", 0, [(0, 2)])
    assert bodies(store, "q", 0) == [b"won"]


def test_a_part_that_comes_again_replaces_itself(store: SinkStore) -> None:
    store.stage(Part("q", 0, 0, 1, 0), 1, b"0")
    store.stage(Part("q", 0, 0, 1, 1), 1, b"1")
    store.stage(Part("q", 0, 0, 1, 1), 1, b"1 again")
    store.stage(Part("q", 0, 0, 1, 0), 1, b"0 again")  # a request that was under way for long
    assert store.figures()["staged_rows"] == 2
    store.mark("q", 0, [(0, 1)])
    assert bodies(store, "q", 0) == [b"0 again", b"1 again"]


def test_a_part_whose_predecessor_is_missing_is_refused(store: SinkStore) -> None:
    with pytest.raises(RequestError, match="the parts before it are not here"):
        store.stage(Part("q", 0, 0, 1, 1), 1, BODY)
    assert store.figures()["staged_rows"] == 0


def test_a_batch_with_an_attempt_that_is_not_staged_is_not_decided(store: SinkStore) -> None:
    store.stage(Part("q", 3, 0, 1), 1, BODY)
    with pytest.raises(RequestError, match=r"partition 1 \(attempt 1\) of batch 3 of q is not"):
        store.mark("q", 3, [(0, 1), (1, 1)])
    assert store.unfinished() == []
    assert store.mark("q", 3, [(0, 1)]) is not None


def test_a_partition_that_is_named_twice_is_refused(store: SinkStore) -> None:
    store.stage(Part("q", 0, 0, 1), 1, BODY)
    store.stage(Part("q", 0, 0, 2), 1, BODY)
    with pytest.raises(RequestError, match="twice"):
        store.mark("q", 0, [(0, 1), (0, 2)])


def test_the_fence_moves_to_the_batch_and_what_was_staged_up_to_it_is_gone(
    store: SinkStore,
) -> None:
    store.stage(Part("q", 1, 0, 1), 1, BODY)
    store.stage(Part("q", 2, 0, 1), 1, BODY)
    store.stage(Part("other", 1, 0, 1), 1, BODY)
    publish(store, "q", 2, (0, 1))
    assert store.fence("q") == 2
    assert store.fence("other") == -1
    assert store.figures()["staged_rows"] == 1
    assert store.mark("q", 2, [(0, 1)]) is None
    assert store.mark("q", 1, [(0, 1)]) is None


def test_nothing_is_kept_of_a_batch_that_is_decided(store: SinkStore) -> None:
    store.stage(Part("q", 5, 0, 1), 1, BODY)
    store.mark("q", 5, [(0, 1)])
    assert not store.stage(Part("q", 5, 1, 1), 1, BODY)
    store.finish("q", 5)
    assert not store.stage(Part("q", 4, 0, 1), 1, BODY)
    assert store.stage(Part("q", 6, 0, 1), 1, BODY)


def test_what_is_decided_is_not_discarded(store: SinkStore) -> None:
    store.stage(Part("q", 5, 0, 1), 1, BODY)
    store.mark("q", 5, [(0, 1)])
    store.discard("q", 5)
    assert bodies(store, "q", 5) == [BODY]


def test_discarding_forgets_one_batch(store: SinkStore) -> None:
    store.stage(Part("q", 5, 0, 1), 1, BODY)
    store.stage(Part("q", 6, 0, 1), 1, BODY)
    store.discard("q", 5)
    assert store.figures()["staged_rows"] == 1


def test_a_batch_without_partitions_moves_the_fence(store: SinkStore) -> None:
    publish(store, "q", 7)
    assert store.fence("q") == 7


def test_the_place_of_a_batch_is_found_again_and_is_exact_only_if_it_was_left_so(
    tmp_path: Path,
) -> None:
    store = SinkStore(tmp_path / "sink.sqlite")
    store.stage(Part("q", 0, 0, 1), 50, BODY)
    store.mark("q", 0, [(0, 1)])
    store.advance("q", 20)
    store.close()
    store = SinkStore(tmp_path / "sink.sqlite")
    assert store.unfinished() == ["q"]
    assert store.resume("q") == ("q", 0, 50, 20, False)
    store.advance("q", 33, is_exact=True)
    assert store.resume("q") == ("q", 0, 50, 33, True)
    assert store.resume("q") == ("q", 0, 50, 33, False), "it is under way again"
    store.close()


def test_fences_and_staged_rows_are_remembered_across_openings(tmp_path: Path) -> None:
    store = SinkStore(tmp_path / "sink.sqlite")
    store.stage(Part("q", 0, 0, 1), 1, BODY)
    publish(store, "q", 0, (0, 1))
    store.stage(Part("q", 1, 0, 1), 3, BODY)
    store.close()
    store = SinkStore(tmp_path / "sink.sqlite")
    assert store.fence("q") == 0
    assert store.figures() == {"staged_rows": 3, "staged_bytes": SIZE, "queries": 1}
    store.close()


def test_too_much_staged_by_several_queries_is_busy_until_one_has_published(
    store: SinkStore,
) -> None:
    for number in range(4):
        store.stage(Part(f"q{number}", 0, 0, 1), 1, BODY)
    with pytest.raises(BusyError, match=r"6,048 bytes are staged, at most 6,048 may be"):
        store.stage(Part("q9", 0, 0, 1), 1, BODY)
    publish(store, "q2", 0, (0, 1))
    store.stage(Part("q9", 0, 0, 1), 1, BODY)


def test_a_batch_that_can_never_fit_is_too_large_rather_than_busy(store: SinkStore) -> None:
    for partition in range(4):
        store.stage(Part("q", 0, partition, 1), 1, BODY)
    with pytest.raises(TooLargeError, match="maxRowsPerTrigger"):
        store.stage(Part("q", 0, 4, 1), 1, BODY)


def test_a_refused_part_leaves_the_attempt_as_it_was(store: SinkStore) -> None:
    for number in range(4):
        store.stage(Part(f"q{number}", 0, 0, 1), 1, BODY)
    with pytest.raises(BusyError):
        store.stage(Part("q0", 0, 0, 1), 1, BODY * 3)
    assert store.figures()["staged_bytes"] == 4 * SIZE
    store.mark("q0", 0, [(0, 1)])
    assert bodies(store, "q0", 0) == [BODY]


def test_a_query_that_is_started_again_and_again_does_not_fill_the_store(
    store: SinkStore, clock: Clock
) -> None:
    for number in range(20):
        clock.now += 1
        store.stage(Part("q", 0, 0, number, run=f"run {number}"), 1, BODY)
        store.stage(Part("q", 0, 1, number, run=f"run {number}"), 1, BODY)
    store.mark("q", 0, [(0, 19), (1, 19)])
    assert len(bodies(store, "q", 0)) == 2


def test_what_was_decided_is_never_dropped_to_make_room(store: SinkStore, clock: Clock) -> None:
    store.stage(Part("q", 0, 0, 1, run="first"), 1, BODY)
    store.mark("q", 0, [(0, 1)])
    clock.now += 100 * sink_store.STAGED_AGE_S
    for partition in range(3):
        store.stage(Part("q", 1, partition, 1, run="second"), 1, BODY)
    with pytest.raises(BusyError):
        store.stage(Part("q", 1, 3, 1, run="second"), 1, BODY)
    assert store.expire() == 0
    assert bodies(store, "q", 0) == [BODY]


def test_batches_that_nobody_publishes_are_dropped_hours_after_their_last_part(
    store: SinkStore, clock: Clock
) -> None:
    store.stage(Part("q", 0, 0, 1), 10, BODY)
    clock.now += sink_store.STAGED_AGE_S - 1
    store.stage(Part("q", 0, 1, 1), 10, BODY)
    clock.now += sink_store.STAGED_AGE_S - 1
    assert store.expire() == 0
    clock.now += 2
    assert store.expire() == 20
    assert store.figures()["staged_bytes"] == 0


def test_the_least_recently_used_queries_are_forgotten(
    store: SinkStore, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sink_store, "QUERIES_MAX", 3)
    for query in ("a", "b", "c", "a", "d"):
        clock.now += 1
        publish(store, query, store.fence(query) + 1)
    assert [store.fence(each) for each in "abcd"] == [1, -1, 0, 0]


def test_single_writes_do_not_push_out_streaming_queries(
    store: SinkStore, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sink_store, "QUERIES_MAX", 1)
    monkeypatch.setattr(sink_store, "WRITES_MAX", 2)
    publish(store, "stream", 5)
    for number in range(5):
        clock.now += 1
        publish(store, f"{sink_store.WRITE_PREFIX}{number}", 0)
    assert store.fence("stream") == 5
    assert store.figures()["queries"] == 3


def test_disk_space_is_given_back_after_a_large_batch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sink_store, "PAGES_FREE_MAX", 100)
    path = tmp_path / "sink.sqlite"
    store = SinkStore(path)
    store.stage(Part("q", 0, 0, 1), 1, b"x" * (10 << 20))
    publish(store, "q", 0, (0, 1))
    store.close()
    assert path.stat().st_size < 1 << 20


def test_a_second_bridge_on_the_same_directory_is_refused(store: SinkStore, tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="another bridge has this data directory"):
        SinkStore(tmp_path / "sink.sqlite")


def test_a_file_of_a_newer_version_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "sink.sqlite"
    database = sqlite3.connect(path)
    database.execute("PRAGMA user_version = 99")
    database.close()
    before = path.read_bytes()
    with pytest.raises(StoreError, match="made by a newer jsonbus"):
        SinkStore(path)
    assert path.read_bytes() == before


def test_a_file_that_is_no_database_is_an_error_with_its_name(tmp_path: Path) -> None:
    path = tmp_path / "sink.sqlite"
    path.write_bytes(b"this is no database" * 100)
    with pytest.raises(StoreError, match=r"sink\.sqlite cannot be used"):
        SinkStore(path)


def test_a_closed_store_raises_its_own_error(tmp_path: Path) -> None:
    store = SinkStore(tmp_path / "sink.sqlite")
    store.close()
    store.close()
    with pytest.raises(StoreError):
        store.fence("q")
