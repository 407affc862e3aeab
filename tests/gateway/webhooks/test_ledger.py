from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from jsonbus.errors import (
    BacklogFullError,
    ClosedError,
    InvalidTopicError,
    LocalError,
    StoreError,
)
from jsonbus.gateway.webhooks.ledger import WebhookLedger
from tests.gateway.webhooks.ledgers import (
    URL,
    Opened,
    messages_of,
    opened,
    rows_in,
    topics_of,
    wait_for,
)

Story = Callable[[Opened], Coroutine[Any, Any, None]]


def play(story: Story, path: Path | None = None, **limits: int) -> None:
    """Run a story with an open ledger."""

    async def run() -> None:
        async with opened(path, **limits) as it:
            await story(it)

    asyncio.run(run())


async def subscribe(it: Opened, name: str, pattern: str, url: str) -> tuple[bool, bool]:
    """Subscribe; return whether the pattern is new, and whether the subscriber has moved."""
    done = await it.ledger.subscribe(name, pattern, url)
    return done.is_new, done.has_moved


def test_messages_of_many_tasks_are_stored_in_the_order_of_their_calls() -> None:
    async def story(it: Opened) -> None:
        await it.ledger.subscribe("anna", "a/*", URL)
        calls = [it.ledger.accept(f"a/{number}", b"%d" % number) for number in range(250)]
        assert await asyncio.gather(*calls) == [1] * 250
        got: list[int] = []
        topics: list[str] = []
        while len(got) < 250:
            batch = await it.next()
            got += messages_of(batch)
            topics += topics_of(batch)
            await it.ledger.settle(batch)
        assert got == list(range(250))
        assert topics == [f"a/{number}" for number in range(250)]
        assert it.batches == []
        assert it.ledger.stats()["commits"] < 50  # many accepts share one

    play(story)


def test_only_subscribers_that_want_a_topic_get_it_and_each_once() -> None:
    async def story(it: Opened) -> None:
        for pattern in ("a/b", "a/*", "**"):
            await it.ledger.subscribe("anna", pattern, URL)
        await it.ledger.subscribe("ben", "a/b", URL)
        await it.ledger.subscribe("carl", "c", URL)
        assert await it.ledger.accept("a/b", b"1") == 2
        assert sorted(batch.name for batch in it.batches) == ["anna", "ben"]
        assert [messages_of(batch) for batch in it.batches] == [[1], [1]]
        assert it.ledger.wants("a/b")
        assert it.ledger.patterns() == ["a/b", "a/*", "**", "c"]

    play(story)


def test_a_message_that_nobody_wants_never_touches_the_store() -> None:
    async def story(it: Opened) -> None:
        await it.ledger.subscribe("anna", "a", URL)
        commits = it.ledger.stats()["commits"]
        assert await it.ledger.accept("b", b"1") == 0
        await it.ledger.accept_from_bus([("b", b"1"), ("c", b"2")])
        assert not it.ledger.wants("b")
        assert it.ledger.stats()["commits"] == commits

    play(story)


def test_subscribing_tells_what_changed_and_another_url_moves_the_subscriber() -> None:
    async def story(it: Opened) -> None:
        assert await subscribe(it, "anna", "a", URL) == (True, False)
        await it.ledger.accept("a", b"1")
        (batch,) = it.batches
        assert await subscribe(it, "anna", "a", URL) == (False, False)
        assert it.ledger.url_of(batch.subscriber) == URL
        assert await subscribe(it, "anna", "a", URL + "/2") == (False, True)
        assert await subscribe(it, "anna", "b", URL + "/3") == (True, True)
        assert it.ledger.url_of(batch.subscriber) == URL + "/3"
        (view,) = it.ledger.subscribers()
        assert (view.url, view.patterns, view.backlog) == (URL + "/3", ("a", "b"), 1)
        assert len(it.batches) == 1  # the batch in flight is still the one to deliver

    play(story)


def test_everything_is_there_after_a_restart(tmp_path: Path) -> None:
    async def run() -> None:
        async with opened(tmp_path) as it:
            await it.ledger.subscribe("anna", "a/*", URL)
            await it.ledger.subscribe("anna", "b", URL + "/moved")
            await it.ledger.accept("a/1", b'"in flight"')
            await it.ledger.accept("b", b'"waiting"')
            (before,) = it.batches
            (view,) = it.ledger.subscribers()
        async with opened(tmp_path) as it:
            assert it.batches == [before]
            assert it.ledger.subscribers() == [view]
            assert it.ledger.url_of(before.subscriber) == URL + "/moved"
            assert it.ledger.stats()["backlog"] == 2
            assert it.ledger.stats()["subscriptions"] == 2
            await it.ledger.accept("a/1", b'"new"')
            assert it.batches == [before]
            await it.ledger.settle(before)
            assert messages_of(it.batches[1]) == ["waiting", "new"]
        async with opened(tmp_path) as it:
            (view,) = it.ledger.subscribers()
            assert (view.backlog, view.delivered) == (2, 1)

    asyncio.run(run())


def test_nothing_is_left_in_the_file_when_all_is_settled_or_unsubscribed(tmp_path: Path) -> None:
    async def story(it: Opened) -> None:
        for name in ("anna", "ben", "carl"):
            await it.ledger.subscribe(name, "a", URL)
        await asyncio.gather(*(it.ledger.accept("a", b"%d" % number) for number in range(300)))
        assert (await it.ledger.unsubscribe("ben")).patterns == ("a",)
        while it.ledger.stats()["backlog"] > 150:
            await it.ledger.settle(await it.next())
        assert rows_in(tmp_path)["messages"] > 0
        assert (await it.ledger.unsubscribe("carl")).patterns == ("a",)
        while it.ledger.stats()["backlog"]:
            await it.ledger.settle(await it.next())

    play(story, tmp_path)
    rows = rows_in(tmp_path)
    assert (rows["messages"], rows["deliveries"]) == (0, 0)
    assert (rows["subscribers"], rows["subscriptions"]) == (1, 1)


def test_unsubscribing_while_a_batch_is_in_flight_ends_it() -> None:
    async def story(it: Opened) -> None:
        await it.ledger.subscribe("anna", "a", URL)
        await it.ledger.accept("a", b"1")
        await it.ledger.accept("a", b"2")
        batch = await it.next()
        assert (await it.ledger.unsubscribe("anna")).patterns == ("a",)
        assert it.ledger.url_of(batch.subscriber) is None
        it.ledger.note_attempt(batch.subscriber, "too late", None)
        await it.ledger.settle(batch)
        assert it.ledger.stats()["backlog"] == it.ledger.stats()["delivered"] == 0
        assert it.batches == it.ledger.subscribers() == it.ledger.patterns() == []
        # Who comes back under the name is another subscriber, without the old backlog.
        await it.ledger.subscribe("anna", "a", URL)
        await it.ledger.settle(batch)
        await it.ledger.accept("a", b"3")
        assert messages_of(await it.next()) == [3]

    play(story)


def test_unsubscribing_one_pattern_of_several_keeps_the_backlog() -> None:
    async def story(it: Opened) -> None:
        await it.ledger.subscribe("anna", "a", URL)
        await it.ledger.subscribe("anna", "b", URL)
        await it.ledger.accept("a", b"1")
        await it.ledger.accept("a", b"2")
        assert (await it.ledger.unsubscribe("anna", "a")).patterns == ("a",)
        assert (await it.ledger.unsubscribe("anna", "a")).patterns == ()
        assert (await it.ledger.unsubscribe("stranger")).patterns == ()
        assert await it.ledger.accept("a", b"3") == 0
        assert await it.ledger.accept("b", b"4") == 1
        await it.ledger.settle(await it.next())
        assert messages_of(await it.next()) == [2, 4]
        assert it.ledger.stats()["subscriptions"] == 1

    play(story)


def test_messages_offered_while_an_unsubscription_is_on_its_way_leave_nothing_behind(
    tmp_path: Path,
) -> None:
    async def story(it: Opened) -> None:
        for round_ in range(20):
            await it.ledger.subscribe("anna", "a", URL)
            await it.ledger.subscribe("ben", "a", URL)
            before = [it.ledger.accept("a", b"%d" % number) for number in range(round_)]
            after = [it.ledger.accept("a", b"%d" % number) for number in range(5)]
            await asyncio.gather(*before, it.ledger.unsubscribe("anna"), *after)
            await it.ledger.unsubscribe("ben")
            assert it.ledger.stats()["backlog"] == 0

    play(story, tmp_path)
    assert set(rows_in(tmp_path).values()) == {0}


def test_a_full_backlog_of_one_refuses_a_message_for_all_who_want_it() -> None:
    async def story(it: Opened) -> None:
        await it.ledger.subscribe("anna", "**", URL)
        await it.ledger.subscribe("ben", "a", URL)
        for number in range(3):
            assert await it.ledger.accept("b", b"%d" % number) == 1
        with pytest.raises(BacklogFullError, match="3 messages wait for the webhook 'anna'"):
            await it.ledger.accept("a", b'"too much"')
        assert [view.backlog for view in it.ledger.subscribers()] == [3, 0]
        assert it.ledger.stats()["backlog"] == 3
        assert it.ledger.stats()["refused"] == 1
        batch = await it.next()
        await it.ledger.settle(batch)
        assert await it.ledger.accept("a", b'"now"') == 2

    play(story, backlog_max=3)


def test_a_full_backlog_of_all_together_refuses_messages_and_new_subscriptions() -> None:
    async def story(it: Opened) -> None:
        await it.ledger.subscribe("anna", "a", URL)
        await it.ledger.subscribe("ben", "a", URL)
        assert await it.ledger.accept("a", b"1") == 2
        with pytest.raises(BacklogFullError, match="at most 3 are kept in all"):
            await it.ledger.accept("a", b"2")  # one would fit
        assert [view.backlog for view in it.ledger.subscribers()] == [1, 1]
        await it.ledger.subscribe("carl", "c", URL)
        assert await it.ledger.accept("c", b"3") == 1
        with pytest.raises(BacklogFullError, match="3 messages wait for webhooks"):
            await it.ledger.subscribe("dora", "d", URL)
        # The way out must stay open: who has moved says so.
        assert await subscribe(it, "anna", "a", URL + "/2") == (False, True)
        assert (await it.ledger.unsubscribe("ben")).patterns == ("a",)
        assert await it.ledger.accept("a", b"4") == 1

    play(story, total_backlog_max=3)


def test_messages_on_their_way_count_against_the_limit() -> None:
    async def story(it: Opened) -> None:
        await it.ledger.subscribe("anna", "a", URL)
        calls = [it.ledger.accept("a", b"%d" % number) for number in range(20)]
        results = await asyncio.gather(*calls, return_exceptions=True)
        assert results[:7] == [1] * 7
        assert all(isinstance(each, BacklogFullError) for each in results[7:])
        assert it.ledger.stats()["backlog"] == 7

    play(story, backlog_max=7)


def test_limits_hold_after_a_restart(tmp_path: Path) -> None:
    async def run() -> None:
        async with opened(tmp_path, backlog_max=2, subscriptions_max=1) as it:
            await it.ledger.subscribe("anna", "a", URL)
            await it.ledger.accept("a", b"1")
            await it.ledger.accept("a", b"2")
        async with opened(tmp_path, backlog_max=2, subscriptions_max=1) as it:
            with pytest.raises(BacklogFullError):
                await it.ledger.accept("a", b"3")
            with pytest.raises(BacklogFullError):
                await it.ledger.subscribe("ben", "a", URL)

    asyncio.run(run())


def test_there_are_at_most_so_many_subscriptions_those_on_their_way_included() -> None:
    async def story(it: Opened) -> None:
        calls = [it.ledger.subscribe("anna", f"a/{number}", URL) for number in range(5)]
        results = await asyncio.gather(*calls, return_exceptions=True)
        assert [(each.is_new, each.has_moved) for each in results[:3]] == [(True, False)] * 3
        assert all("at most 3 are kept" in str(each) for each in results[3:])
        assert await subscribe(it, "anna", "a/0", URL) == (False, False)
        await it.ledger.unsubscribe("anna", "a/0")
        assert await subscribe(it, "ben", "b", URL) == (True, False)

    play(story, subscriptions_max=3)


def test_messages_from_the_bus_are_dropped_for_whom_they_do_not_fit_alone(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def story(it: Opened) -> None:
        await it.ledger.subscribe("anna", "**", URL)
        await it.ledger.subscribe("ben", "a", URL)
        await it.ledger.accept_from_bus([("b", b"1"), ("b", b"2"), ("a", b"3"), ("a", b"4")])
        anna, ben = it.ledger.subscribers()
        assert (anna.backlog, anna.dropped) == (2, 2)
        assert (ben.backlog, ben.dropped) == (2, 0)
        assert it.ledger.stats()["dropped"] == 2
        assert [messages_of(batch) for batch in it.batches] == [[1, 2], [3, 4]]
        # Warned of once, and again only after there was room.
        assert [each.levelname for each in caplog.records] == ["WARNING"]
        assert "'anna'" in caplog.text
        await it.ledger.settle(it.batches[0])
        await it.ledger.accept_from_bus([("b", b"1"), ("b", b"2"), ("b", b"3")])
        assert [each.levelname for each in caplog.records] == ["WARNING", "WARNING"]

    with caplog.at_level(logging.INFO, "jsonbus.gateway.store"):
        play(story, backlog_max=2)


def test_messages_from_the_bus_are_dropped_when_all_together_have_no_room(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def story(it: Opened) -> None:
        await it.ledger.subscribe("anna", "a", URL)
        await it.ledger.subscribe("ben", "a", URL)
        await it.ledger.accept_from_bus([("a", b"1"), ("a", b"2"), ("a", b"3")])
        anna, ben = it.ledger.subscribers()
        assert (anna.backlog, anna.dropped, ben.backlog, ben.dropped) == (2, 1, 1, 2)
        assert [each.levelname for each in caplog.records] == ["WARNING"]

    with caplog.at_level(logging.INFO, "jsonbus.gateway.store"):
        play(story, total_backlog_max=3)


def test_attempts_are_shown_in_the_view() -> None:
    async def story(it: Opened) -> None:
        await it.ledger.subscribe("anna", "a", URL)
        await it.ledger.accept("a", b"1")
        batch = await it.next()
        it.ledger.note_attempt(batch.subscriber, "500 Internal Server Error", 1234.5)
        (view,) = it.ledger.subscribers()
        assert (view.attempts_failed, view.last_error) == (1, "500 Internal Server Error")
        assert view.retry_at == 1234.5
        assert view.last_error_at is not None
        it.ledger.note_attempt(batch.subscriber, None, None)
        await it.ledger.settle(batch)
        (view,) = it.ledger.subscribers()
        assert (view.attempts_failed, view.retry_at, view.delivered) == (1, None, 1)
        assert view.last_error == "500 Internal Server Error"  # the last one there was

    play(story)


def test_who_stops_waiting_takes_nothing_back() -> None:
    async def story(it: Opened) -> None:
        await it.ledger.subscribe("anna", "a", URL)
        call = asyncio.create_task(it.ledger.accept("a", b"1"))
        await asyncio.sleep(0)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        assert messages_of(await it.next()) == [1]
        assert it.ledger.stats()["backlog"] == 1

    play(story)


def test_closing_commits_what_was_offered_and_refuses_what_comes_after(tmp_path: Path) -> None:
    async def run() -> None:
        async with opened(tmp_path) as it:
            await it.ledger.subscribe("anna", "a", URL)
            calls = [
                asyncio.create_task(it.ledger.accept("a", b"%d" % number)) for number in range(500)
            ]
            await asyncio.sleep(0)  # each of them has begun
            await it.ledger.close()
            await it.ledger.close()  # again is nothing
            assert await asyncio.gather(*calls) == [1] * 500
            batch = it.batches[0]
            for refused in (
                it.ledger.accept("a", b"1"),
                it.ledger.accept_from_bus([("a", b"1")]),
                it.ledger.subscribe("ben", "a", URL),
                it.ledger.unsubscribe("anna"),
                it.ledger.settle(batch),
            ):
                with pytest.raises(ClosedError):
                    await refused
        async with opened(tmp_path) as it:
            assert it.ledger.stats()["backlog"] == 500
            assert it.batches == [batch]

    asyncio.run(run())


def test_a_ledger_that_was_never_opened_refuses_and_closes() -> None:
    async def run() -> None:
        ledger = WebhookLedger(None)
        with pytest.raises(ClosedError):
            await ledger.accept("a", b"1")
        await ledger.close()

    asyncio.run(run())


def test_a_second_ledger_on_the_same_folder_is_refused(tmp_path: Path) -> None:
    async def story(it: Opened) -> None:
        second = WebhookLedger(tmp_path)
        with pytest.raises(StoreError, match="another gateway"):
            await second.open(it.batches.append)
        await second.close()
        await it.ledger.subscribe("anna", "a", URL)  # the first is none the worse for it

    play(story, tmp_path)


def test_names_that_cannot_be_stored_are_refused_before_they_can_hurt_others() -> None:
    async def story(it: Opened) -> None:
        await it.ledger.subscribe("ben", "**", URL)
        with pytest.raises(LocalError, match="not valid Unicode"):
            await it.ledger.subscribe("anna\ud800", "a", URL)
        with pytest.raises(LocalError, match="not valid Unicode"):
            await it.ledger.subscribe("anna", "a", URL + "\ud800")
        with pytest.raises(LocalError, match="not valid Unicode"):
            await it.ledger.unsubscribe("anna\ud800")
        with pytest.raises(InvalidTopicError):
            await it.ledger.subscribe("anna", "a\ud800", URL)
        assert await it.ledger.accept("a\ud800", b"1") == 0
        assert (await it.ledger.unsubscribe("ben", "a\ud800")).patterns == ()

    play(story)


def test_a_receiver_that_raises_hurts_nobody_else(caplog: pytest.LogCaptureFixture) -> None:
    async def run() -> None:
        def fail(batch: object) -> None:
            raise ValueError("a bug")

        ledger = WebhookLedger(None)
        await ledger.open(fail)
        await ledger.subscribe("anna", "a", URL)
        assert await ledger.accept("a", b"1") == 1
        await wait_for(lambda: "was not handed to its delivery" in caplog.text)
        assert await ledger.accept("a", b"2") == 1
        await ledger.close()

    asyncio.run(run())
