from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from jsonbus.errors import StoreError
from jsonbus.gateway.webhooks import database as webhook_database
from jsonbus.gateway.webhooks import schema as webhook_file
from jsonbus.gateway.webhooks import store as webhook_store
from jsonbus.gateway.webhooks.commands import (
    Accept,
    Batch,
    ReadBody,
    Settle,
    Subscribe,
    Unsubscribe,
)
from jsonbus.gateway.webhooks.schema import FILE_NAME
from jsonbus.gateway.webhooks.store import BATCH_BYTES_MAX, BATCH_COUNT_MAX, WebhookStore
from tests.gateway.webhooks.ledgers import URL, messages_of, rows_in, topics_of


@pytest.fixture
def store(tmp_path: Path) -> Iterator[WebhookStore]:
    store = WebhookStore(tmp_path)
    store.open()
    yield store
    store.close()


def subscribe(store: WebhookStore, name: str, *patterns: str) -> int:
    """The number of a subscriber to some patterns."""
    done = store.commit([Subscribe(name, pattern, URL) for pattern in patterns])
    return int(done.results[0].subscriber)


def accept(store: WebhookStore, *messages: object, to: tuple[int, ...]) -> list[Batch]:
    """The batches cut when these messages are stored, in one transaction."""
    work = Accept([("topic", json.dumps(each).encode(), to) for each in messages])
    return store.commit([work]).batches


def settle(store: WebhookStore, batch: Batch) -> list[Batch]:
    return store.commit([Settle(batch.subscriber, batch.last)]).batches


def test_a_batch_has_messages_and_topics_in_the_order_of_their_acceptance(
    store: WebhookStore,
) -> None:
    anna = subscribe(store, "anna", "**")
    works = [
        Accept([("b/1", b'{"t":21.5}', (anna,)), ("a", b'"text"', (anna,))]),
        Accept([('say "hello"/ä', b"null", (anna,))]),
    ]
    done = store.commit(works)
    (batch,) = done.batches
    assert done.results == [2, 1]
    assert batch.body == (
        '{"message":[{"t":21.5},"text",null],"topic":["b/1","a","say \\"hello\\"/ä"]}'.encode()
    )
    assert (batch.subscriber, batch.name, batch.count) == (anna, "anna", 3)


def test_a_subscriber_has_one_batch_at_a_time_and_the_next_when_it_is_settled(
    store: WebhookStore,
) -> None:
    anna = subscribe(store, "anna", "a")
    (first,) = accept(store, 1, to=(anna,))
    assert accept(store, 2, to=(anna,)) == []
    assert accept(store, 3, 4, to=(anna,)) == []
    (second,) = settle(store, first)
    assert messages_of(second) == [2, 3, 4]
    assert second.delivery_id != first.delivery_id
    assert settle(store, second) == []


def test_a_batch_has_at_most_so_many_messages(store: WebhookStore) -> None:
    anna = subscribe(store, "anna", "a")
    count = 2 * BATCH_COUNT_MAX + 1
    (batch,) = accept(store, *range(count), to=(anna,))
    sizes, numbers = [batch.count], messages_of(batch)
    while batches := settle(store, batch):
        (batch,) = batches
        sizes.append(batch.count)
        numbers += messages_of(batch)
    assert sizes == [BATCH_COUNT_MAX, BATCH_COUNT_MAX, 1]
    assert numbers == list(range(count))


def test_a_body_has_at_most_so_many_bytes_and_may_have_exactly_those(store: WebhookStore) -> None:
    anna = subscribe(store, "anna", "a")
    around = len(b'{"message":["",""],"topic":["topic","topic"]}')
    half = (BATCH_BYTES_MAX - around) // 2
    rest = BATCH_BYTES_MAX - around - half
    (batch,) = accept(store, "x" * half, "y" * rest, "z", to=(anna,))
    assert (batch.count, len(batch.body)) == (2, BATCH_BYTES_MAX)
    (batch,) = settle(store, batch)
    settle(store, batch)
    (batch,) = accept(store, "x" * half, "y" * (rest + 1), to=(anna,))
    assert batch.count == 1


def test_a_message_larger_than_a_batch_goes_alone(store: WebhookStore) -> None:
    anna = subscribe(store, "anna", "a")
    large = "x" * (BATCH_BYTES_MAX + 1)
    (batch,) = accept(store, large, "small", to=(anna,))
    assert messages_of(batch) == [large]
    (batch,) = settle(store, batch)
    assert messages_of(batch) == ["small"]


def test_a_message_is_stored_once_for_many_and_goes_with_its_last_delivery(
    store: WebhookStore, tmp_path: Path
) -> None:
    crowd = tuple(subscribe(store, f"subscriber {number}", "a") for number in range(5))
    batches = accept(store, "for all", to=crowd)
    assert rows_in(tmp_path)["messages"] == 1
    assert rows_in(tmp_path)["deliveries"] == len(batches) == 5
    for left in (4, 3, 2, 1):
        settle(store, batches.pop())
        assert (rows_in(tmp_path)["messages"], rows_in(tmp_path)["deliveries"]) == (1, left)
    store.commit([Unsubscribe("subscriber 0", None)])
    assert (rows_in(tmp_path)["messages"], rows_in(tmp_path)["deliveries"]) == (0, 0)
    assert store._left == {}  # nor does memory keep anything: it would grow for months


def test_deliveries_of_a_message_are_counted_again_after_a_restart(
    store: WebhookStore, tmp_path: Path
) -> None:
    both = (subscribe(store, "anna", "a"), subscribe(store, "ben", "a"))
    accept(store, 1, to=both)
    store.close()
    again = WebhookStore(tmp_path)
    first, second = again.open().batches
    settle(again, first)
    assert rows_in(tmp_path)["messages"] == 1
    settle(again, second)
    assert rows_in(tmp_path)["messages"] == 0
    again.close()


def test_a_batch_in_flight_keeps_id_and_body_over_restarts_while_messages_come(
    store: WebhookStore, tmp_path: Path
) -> None:
    anna = subscribe(store, "anna", "a")
    (batch,) = accept(store, "first", to=(anna,))
    accept(store, "second", to=(anna,))
    store.close()
    for number in range(3):
        again = WebhookStore(tmp_path)
        assert again.open().batches == [batch]
        assert accept(again, number, to=(anna,)) == []
        again.close()
    again = WebhookStore(tmp_path)
    again.open()
    (rest,) = settle(again, batch)
    assert messages_of(rest) == ["second", 0, 1, 2]
    again.close()


def test_a_batch_in_flight_stays_as_it_was_cut_when_limits_change(
    store: WebhookStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    anna = subscribe(store, "anna", "a")
    (batch,) = accept(store, 1, 2, 3, to=(anna,))
    store.close()
    monkeypatch.setattr(webhook_store, "BATCH_COUNT_MAX", 1)
    monkeypatch.setattr(webhook_store, "BATCH_BYTES_MAX", 1)
    again = WebhookStore(tmp_path)
    assert again.open().batches == [batch]
    again.close()


def test_numbers_never_come_back(store: WebhookStore, tmp_path: Path) -> None:
    anna = subscribe(store, "anna", "a")
    (batch,) = accept(store, 1, to=(anna,))
    settle(store, batch)
    store.commit([Unsubscribe("anna", None)])
    store.close()
    again = WebhookStore(tmp_path)
    again.open()
    next_anna = subscribe(again, "anna", "a")
    (next_batch,) = accept(again, 1, to=(next_anna,))
    again.close()
    assert next_anna > anna
    assert next_batch.last > batch.last


def test_a_message_for_somebody_who_just_left_is_not_stored_for_them(
    store: WebhookStore, tmp_path: Path
) -> None:
    anna, ben = subscribe(store, "anna", "a"), subscribe(store, "ben", "a")
    before = Accept([("a", b"1", (anna, ben))])
    after = Accept([("a", b"2", (anna, ben)), ("a", b"3", (anna,))])
    done = store.commit([before, Unsubscribe("anna", None), after])
    assert done.results[0] == 2
    assert done.results[2] == 1
    (batch,) = done.batches
    assert (batch.name, messages_of(batch)) == ("ben", [1, 2])
    settle(store, batch)
    assert rows_in(tmp_path) == {
        "subscribers": 1,
        "subscriptions": 1,
        "messages": 0,
        "deliveries": 0,
    }


def test_only_the_batch_in_flight_can_be_settled(store: WebhookStore) -> None:
    anna = subscribe(store, "anna", "a")
    (first,) = accept(store, 1, to=(anna,))
    accept(store, 2, to=(anna,))
    (second,) = settle(store, first)
    assert store.commit([Settle(first.subscriber, first.last)]).results == [0]
    assert store.commit([Settle(999, first.last)]).results == [0]
    assert settle(store, second) == []


def test_a_subscriber_keeps_its_backlog_until_its_last_pattern_ends(
    store: WebhookStore, tmp_path: Path
) -> None:
    anna = subscribe(store, "anna", "a", "b", "c")
    accept(store, 1, to=(anna,))
    (ended,) = store.commit([Unsubscribe("anna", "b")]).results
    assert (ended.patterns, ended.is_gone) == (("b",), False)
    (ended,) = store.commit([Unsubscribe("anna", "stranger")]).results
    assert (ended.patterns, ended.is_gone) == ((), False)
    assert rows_in(tmp_path)["deliveries"] == 1
    (ended,) = store.commit([Unsubscribe("anna", None)]).results
    assert (ended.patterns, ended.is_gone) == (("a", "c"), True)
    assert set(rows_in(tmp_path).values()) == {0}
    (ended,) = store.commit([Unsubscribe("anna", None)]).results
    assert ended.subscriber == 0


def test_a_transaction_that_fails_changes_neither_file_nor_memory(
    store: WebhookStore, tmp_path: Path
) -> None:
    anna, ben = subscribe(store, "anna", "a"), subscribe(store, "ben", "a")
    (first, _) = accept(store, 1, to=(anna, ben))
    accept(store, 2, to=(anna, ben))
    before = rows_in(tmp_path)
    works = [
        Settle(first.subscriber, first.last),
        Subscribe("carl", "a", URL),
        Accept([("a", b"3", (anna, ben))]),
        Unsubscribe("ben", None),
        Accept([("a", {}, (anna,))]),  # type: ignore[list-item]  # SQLite cannot store that
    ]
    with pytest.raises(StoreError):
        store.commit(works)
    assert rows_in(tmp_path) == before
    never_was = ben + 1
    assert store.commit([Accept([("a", b"1", (never_was,))])]).results == [0]
    done = store.commit(works[:3])
    assert done.results[0] == 1
    assert done.results[1].is_new
    assert done.results[2] == 2
    (batch,) = done.batches
    assert messages_of(batch) == [2, 3]
    settle(store, batch)
    assert rows_in(tmp_path)["messages"] == 3  # ben still has all of them
    store.commit([Unsubscribe("ben", None)])
    assert rows_in(tmp_path)["messages"] == 0


def test_a_backlog_whose_cut_got_lost_is_cut_again(store: WebhookStore, tmp_path: Path) -> None:
    anna = subscribe(store, "anna", "a")
    accept(store, 1, to=(anna,))
    store.close()
    database = sqlite3.connect(tmp_path / FILE_NAME)
    with database:
        database.execute("UPDATE subscribers SET cut = NULL")
    database.close()
    again = WebhookStore(tmp_path)
    (batch,) = again.open().batches
    assert messages_of(batch) == [1]
    again.close()


def test_contents_tell_all_of_a_subscriber(store: WebhookStore, tmp_path: Path) -> None:
    anna = subscribe(store, "anna", "b", "a")
    (batch,) = accept(store, 1, 2, to=(anna,))
    settle(store, batch)
    accept(store, 3, to=(anna,))
    store.close()
    again = WebhookStore(tmp_path)
    (subscriber,) = again.open().subscribers
    again.close()
    assert subscriber.patterns == ("b", "a")
    assert (subscriber.name, subscriber.url) == ("anna", URL)
    assert (subscriber.delivered, subscriber.backlog) == (2, 1)
    assert subscriber.created_at > 1_600_000_000


def test_topics_of_any_characters_come_out_as_they_went_in(store: WebhookStore) -> None:
    anna = subscribe(store, "anna", "**")
    topics = ["ä/ö", "tab\there", 'quote"', "back\\slash", "\U0001f600", "a b"]
    (batch,) = store.commit([Accept([(topic, b"1", (anna,)) for topic in topics])]).batches
    assert topics_of(batch) == topics


@pytest.mark.slow
def test_the_wal_starts_over_under_constant_load(store: WebhookStore, tmp_path: Path) -> None:
    anna = subscribe(store, "anna", "a")
    wal = tmp_path / (FILE_NAME + "-wal")
    largest = written = 0
    while written < 6 * webhook_file.CHECKPOINT_PAGES * 4096:
        for batch in accept(store, "x" * 100_000, to=(anna,)):
            settle(store, batch)
        written += 100_000
        largest = max(largest, wal.stat().st_size)
    assert largest < 2 * webhook_file.CHECKPOINT_PAGES * 4096


def test_room_that_a_long_backlog_took_goes_back_to_the_disk(
    store: WebhookStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(webhook_database, "FREE_PAGES_MAX", 64)
    monkeypatch.setattr(webhook_database, "COMMITS_PER_LOOK", 2)
    anna = subscribe(store, "anna", "a")
    batches = accept(store, *("x" * 100_000 for _ in range(50)), to=(anna,))
    while batches:
        batches = settle(store, batches[0])
    for number in range(10):
        accept(store, number, to=(anna,))
    store.close()
    assert (tmp_path / FILE_NAME).stat().st_size < 1_000_000


def test_no_other_program_can_hold_up_an_open_store(store: WebhookStore, tmp_path: Path) -> None:
    other = sqlite3.connect(tmp_path / FILE_NAME, timeout=0)
    with pytest.raises(sqlite3.OperationalError, match="locked"):
        other.execute("SELECT count(*) FROM messages").fetchone()
    other.close()
    assert len(accept(store, 1, to=(subscribe(store, "anna", "a"),))) == 1


def test_a_file_in_use_when_it_is_opened_is_named_as_such(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(webhook_file, "BUSY_TIMEOUT_S", 0.01)
    store = WebhookStore(tmp_path)
    store.open()
    store.close()
    other = sqlite3.connect(tmp_path / FILE_NAME, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreError, match="another program has locked"):
        WebhookStore(tmp_path).open()
    other.close()
    store.open()
    store.close()


def test_bodies_that_are_too_many_for_one_commit_are_read_one_by_one(
    store: WebhookStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    crowd = tuple(subscribe(store, f"subscriber {number}", "a") for number in range(5))
    one_bytes = len(b'{"message":["x"],"topic":["topic"]}')
    monkeypatch.setattr(webhook_store, "BODIES_BYTES_MAX", 2 * one_bytes)
    batches = accept(store, "x", to=crowd)
    assert [batch.body is not None for batch in batches] == [True, True, False, False, False]
    assert {batch.body_bytes for batch in batches} == {one_bytes}
    works = [ReadBody(batch.subscriber, batch.last) for batch in batches]
    assert store.commit(works).results == [batches[0].body] * 5
    again = accept(store, "ä", [1], to=crowd)
    assert again == []
    assert store.commit(works).results == [batches[0].body] * 5  # and not what came later


def test_the_size_of_a_body_is_known_without_it(store: WebhookStore) -> None:
    anna = subscribe(store, "anna", "**")
    messages = [("ä", '"ö"'.encode()), ('"b"', b"[1,2]"), ("c", b"3")]
    work = Accept([(topic, payload, (anna,)) for topic, payload in messages])
    (batch,) = store.commit([work]).batches
    assert batch.body is not None
    assert batch.body_bytes == len(batch.body)


def test_the_body_of_a_batch_that_is_not_in_flight_is_none(store: WebhookStore) -> None:
    anna = subscribe(store, "anna", "a")
    (batch,) = accept(store, 1, to=(anna,))
    read = ReadBody(anna, batch.last)
    assert store.commit([Settle(anna, batch.last), read]).results == [1, None]
    assert store.commit([ReadBody(anna, 99), ReadBody(99, 1)]).results == [None, None]
    (batch,) = accept(store, 2, to=(anna,))
    assert store.commit([Unsubscribe("anna", None), read]).results[1] is None


def test_after_a_restart_no_more_bodies_are_read_than_a_commit_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = WebhookStore(tmp_path)
    first.open()
    crowd = tuple(subscribe(first, f"subscriber {number}", "a") for number in range(3))
    bodies = [batch.body for batch in accept(first, "x", to=crowd)]
    first.close()
    monkeypatch.setattr(webhook_store, "BODIES_BYTES_MAX", 40)
    second = WebhookStore(tmp_path)
    batches = second.open().batches
    assert [batch.body is not None for batch in batches] == [True, False, False]
    works = [ReadBody(batch.subscriber, batch.last) for batch in batches]
    assert second.commit(works).results == bodies
    second.close()
