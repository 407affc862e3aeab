"""The observer: one survey for all who look, and nothing while nobody does."""

from __future__ import annotations

import asyncio

import pytest

import jsonbus
from jsonbus.gateway.metrics import survey_observer
from jsonbus.gateway.metrics.survey_observer import SurveyObserver
from tests.aio.running import asynctest, buses, until


@pytest.mark.slow
@asynctest
async def test_it_sees_what_travels_for_others_and_asks_for_nothing() -> None:
    async with buses() as open_bus:
        here, publisher, reader = open_bus(), open_bus(), open_bus()
        observer = SurveyObserver(here)
        observer.acquire()
        wanted = reader.subscribe("wanted")
        assert await publisher.wait_until_sure(30)
        assert await until(lambda: publisher.explain("wanted").verdict == "sent")
        assert await publisher.publish("wanted", 5)
        assert not await publisher.publish("unwanted", 6)
        assert (await wanted.get(timeout=30)).value == 5
        assert await until(lambda: observer.picture().topics)
        assert [view.topic for view in observer.picture().topics] == ["wanted"]
        assert all("**" not in info.patterns for info in publisher.nodes())
        observer.release()
        observer.close()


@asynctest
async def test_nodes_are_asked_for_their_totals_but_not_by_every_page() -> None:
    async with buses() as open_bus:
        here, other = open_bus(), open_bus()
        assert await until(lambda: len(here.nodes()) == 2) and await here.wait_until_sure(30)
        observer = SurveyObserver(here)
        observer.acquire()
        sent = here.stats()["datagrams_sent"]
        await observer.ask()
        asked = here.stats()["datagrams_sent"]
        assert asked > sent
        await observer.ask()
        assert here.stats()["datagrams_sent"] == asked
        assert await until(
            lambda: all(view.info.totals is not None for view in observer.picture().nodes)
        )
        assert len(other.nodes()) == 2
        observer.release()
        observer.close()


@asynctest
async def test_it_begins_with_the_first_and_ends_after_the_last() -> None:
    async with buses() as open_bus:
        observer = SurveyObserver(open_bus(), linger_s=0.05)
        assert not observer.is_observing
        observer.acquire()
        observer.acquire()
        observer.release()
        assert observer.is_observing and observer.stats()["lookers"] == 1
        observer.release()
        observer.acquire()  # who loads a page anew
        await asyncio.sleep(0.2)  # longer than it lingers
        assert observer.is_observing
        observer.release()
        assert await until(lambda: not observer.is_observing)
        observer.close()
        observer.acquire()
        assert observer.is_observing and observer.picture().overview.nodes == 1
        observer.release()
        observer.close()


@asynctest
async def test_whoever_follows_a_topic_gets_its_messages_alone() -> None:
    async with buses() as open_bus:
        here, publisher, reader = open_bus(), open_bus(), open_bus()
        observer = SurveyObserver(here)
        observer.acquire()
        subscription = reader.subscribe("*")
        taken: list[jsonbus.Message] = []
        end = observer.follow("a", taken.append)
        other = observer.follow("a", taken.append)
        other()
        assert await until(lambda: publisher.explain("a").verdict == "sent")
        for topic in "abab":
            await publisher.publish(topic, topic)
        assert await until(lambda: len(taken) == 2)
        end()
        end()
        await publisher.publish("a", "after")
        for _ in range(5):
            await subscription.get(timeout=30)
        assert await until(lambda: observer.picture().overview.messages == 5)
        assert [message.value for message in taken] == ["a", "a"]
        observer.release()
        observer.close()


@asynctest
async def test_whoever_follows_a_topic_goes_on_when_somebody_looks_again() -> None:
    async with buses() as open_bus:
        here, publisher, reader = open_bus(), open_bus(), open_bus()
        observer = SurveyObserver(here, linger_s=0.0)
        observer.acquire()
        reader.subscribe("a")
        taken: list[jsonbus.Message] = []
        end = observer.follow("a", taken.append)
        observer.release()  # a page that is hidden for long
        assert await until(lambda: not observer.is_observing)
        observer.acquire()
        assert await until(lambda: publisher.explain("a").verdict == "sent")
        await publisher.publish("a", 1)
        assert await until(lambda: taken)
        end()
        observer.release()
        observer.close()


@asynctest
async def test_nodes_that_went_are_remembered_as_they_were() -> None:
    async with buses() as open_bus:
        here, first = open_bus(), open_bus(name="first")
        assert await until(lambda: len(here.nodes()) == 2)
        observer = SurveyObserver(here)
        observer.acquire()
        second = open_bus(name="second")
        second.subscribe("a/*")
        assert await until(lambda: any(info.patterns for info in observed_nodes(observer)))
        await second.close()
        assert await until(lambda: observer.gone())
        (gone,) = observer.gone()
        assert (gone.info.name, gone.info.patterns, gone.event.kind) == ("second", ("a/*",), "left")
        # Who was there from the beginning did not come.
        assert [(e.name, e.kind) for e in observer.events] == [
            ("second", "joined"),
            ("second", "left"),
        ]
        assert first.name == "first"
        observer.release()
        observer.close()


@asynctest
async def test_of_nodes_that_went_only_the_last_are_remembered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(survey_observer, "GONE_MAX", 2)
    async with buses() as open_bus:
        here = open_bus()
        observer = SurveyObserver(here)
        observer.acquire()
        for name in ("first", "second", "third"):
            bus = open_bus(name=name)
            assert await until(lambda: len(observed_nodes(observer)) == 2)
            await bus.close()
            assert await until(lambda: len(observed_nodes(observer)) == 1)
        assert await until(lambda: len(observer.events) == 6)
        assert [gone.info.name for gone in observer.gone()] == ["third", "second"]
        observer.release()
        observer.close()


def observed_nodes(observer: SurveyObserver) -> list[jsonbus.NodeInfo]:
    return [view.info for view in observer.picture().nodes]
