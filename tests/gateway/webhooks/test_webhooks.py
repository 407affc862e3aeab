"""Webhooks against real receivers: what they get, and what others feel of the bad ones."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path
from random import Random

import pytest

import jsonbus
from jsonbus.gateway.webhooks import webhooks
from jsonbus.gateway.webhooks.commands import Subscribe
from jsonbus.gateway.webhooks.store import WebhookStore
from jsonbus.gateway.webhooks.targets import Targets
from tests.gateway.receiver import Answer, Receiver, run, until
from tests.gateway.webhooks.parts import delivery_tasks, gateway


def test_a_message_comes_as_a_post_with_arrays_and_headers() -> None:
    async def main() -> None:
        with Receiver() as receiver:
            async with gateway() as parts:
                await parts.webhooks.subscribe("bob", "a/**", receiver.url + "?key=1")
                await parts.publish({"x": [1, None, "ü"]}, topic="a/b")
                await parts.until_delivered()
            [request] = receiver.requests
        assert (request.method, request.target) == ("POST", "/hook?key=1")
        assert request.json == {"message": [{"x": [1, None, "ü"]}], "topic": ["a/b"]}
        headers = dict(request.headers)
        assert headers.pop("jsonbus-delivery")
        assert headers == {
            "host": f"127.0.0.1:{receiver.port}",
            "user-agent": f"jsonbus/{jsonbus.__version__}",
            "accept": "*/*",
            "content-type": "application/json",
            "content-length": str(len(request.body)),
            "jsonbus-subscriber": "bob",
            "jsonbus-attempt": "1",
        }

    run(main())


def test_messages_published_under_load_come_in_order_and_many_at_a_time() -> None:
    async def main() -> None:
        with Receiver() as receiver:
            receiver.script(Answer(waits=True))
            async with gateway() as parts:
                await parts.webhooks.subscribe("bob", "**", receiver.url)
                await parts.publish(0)
                await until(lambda: receiver.requests)
                await asyncio.gather(
                    *(parts.hub.publish(f"t/{number % 7}", number) for number in range(1, 500))
                )
                receiver.release()
                await parts.until_delivered()
                await until(lambda: parts.webhooks.stats()["messages_delivered"] == 500)
                assert parts.webhooks.stats()["batches_delivered"] == len(receiver.requests)
            assert receiver.messages == list(range(500))
            assert [len(each.messages) for each in receiver.requests] == [1, 100, 100, 100, 100, 99]
            topics = [topic for each in receiver.requests for topic in each.topics]
            assert topics == ["a"] + [f"t/{number % 7}" for number in range(1, 500)]
            assert len(set(receiver.delivery_ids)) == 6

    run(main())


def test_a_hundred_deliveries_take_one_connection() -> None:
    async def main() -> None:
        with Receiver() as receiver:
            async with gateway() as parts:
                await parts.webhooks.subscribe("bob", "a", receiver.url)
                for number in range(100):
                    await parts.publish(number)
                    await parts.until_delivered()
                await until(lambda: parts.webhooks.stats()["batches_delivered"] == 100)
                assert parts.webhooks.stats()["connections_opened"] == 1
                assert parts.webhooks.stats()["connections_kept"] == 1
            assert len(receiver.requests) == 100
            assert receiver.connections == 1
            await until(lambda: receiver.open_connections == 0)

    run(main())


@pytest.mark.slow
def test_dead_slow_and_failing_receivers_delay_nobody_else() -> None:
    async def main() -> None:
        with Receiver() as good, Receiver() as hanging, Receiver() as failing:
            hanging.default = Answer(hangs=True)
            failing.default = Answer(500)
            with socket.create_server(("127.0.0.1", 0)) as probe:
                dead = f"http://127.0.0.1:{probe.getsockname()[1]}/"
            async with gateway() as parts:
                for number in range(5):
                    await parts.webhooks.subscribe(f"hanging {number}", "a", hanging.url)
                    await parts.webhooks.subscribe(f"failing {number}", "a", failing.url)
                    await parts.webhooks.subscribe(f"dead {number}", "a", dead)
                    await parts.webhooks.subscribe(f"good {number}", "a", good.url)
                await parts.publish("first")
                await until(lambda: len(hanging.requests) == 5)
                await parts.publish(*range(20))
                await until(lambda: len(good.messages) == 21 * 5)
                # All is delivered to the good ones while those that hang still have the first.
                assert hanging.messages == ["first"] * 5
                assert set(failing.messages) == {"first"}
                assert parts.view("hanging 0").backlog == 21
                assert parts.view("good 0").last_error is None
            for number in range(5):
                name = f"good {number}"
                got = [
                    message
                    for each in good.requests
                    if each.headers["jsonbus-subscriber"] == name
                    for message in each.messages
                ]
                assert got == ["first", *range(20)]

    run(main())


@pytest.mark.slow
def test_a_batch_in_flight_is_delivered_again_under_the_same_id_after_a_restart(
    tmp_path: Path,
) -> None:
    async def main() -> None:
        with Receiver() as receiver:
            receiver.default = Answer(hangs=True)
            async with gateway(tmp_path) as parts:
                await parts.webhooks.subscribe("bob", "a", receiver.url)
                await parts.publish("first")
                await until(lambda: receiver.requests)
                await parts.publish("second")
            assert len(receiver.requests) == 1
            receiver.default = Answer()
            async with gateway(tmp_path) as parts:
                await parts.until_delivered()
                await parts.publish("third")  # the subscription is known, too
                await parts.until_delivered()
            before, again, *_ = receiver.requests
            assert again.body == before.body
            assert again.headers["jsonbus-delivery"] == before.headers["jsonbus-delivery"]
            assert receiver.messages == ["first", "first", "second", "third"]

    run(main())


@pytest.mark.slow
def test_closing_is_bounded_while_receivers_hang() -> None:
    async def main() -> None:
        with Receiver() as receiver:
            receiver.default = Answer(hangs=True)
            async with gateway(timeout_s=3600.0) as parts:
                for number in range(20):
                    await parts.webhooks.subscribe(f"bob {number}", "a", receiver.url)
                await parts.publish(1)
                await until(lambda: len(receiver.requests) == 20)
                async with asyncio.timeout(60):  # an hour, if it waited for them
                    await parts.webhooks.close()
                assert delivery_tasks() == []
            await until(lambda: receiver.open_connections == 0)

    run(main())


def test_a_request_that_is_answered_soon_after_the_end_began_is_not_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "jsonbus.gateway.webhooks.webhooks.GRACE_S", 60.0
    )  # for a machine that is busy
    monkeypatch.setattr("jsonbus.gateway.webhooks.webhooks.CLOSE_S", 60.0)

    async def main() -> None:
        with Receiver() as receiver:
            receiver.script(Answer(waits=True))
            async with gateway(tmp_path) as parts:
                await parts.webhooks.subscribe("bob", "a", receiver.url)
                await parts.publish(1)
                await until(lambda: receiver.requests)
                closing = asyncio.create_task(parts.webhooks.close())
                await asyncio.sleep(0)
                receiver.release()
                await closing
                assert parts.view("bob").backlog == 0
            assert receiver.messages == [1]

    run(main())


def test_connections_that_are_not_needed_are_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jsonbus.gateway.webhooks.webhooks.SWEEP_S", 0.01)
    monkeypatch.setattr("jsonbus.gateway.webhooks.webhooks.IDLE_CONNECTIONS_MAX", 2)

    async def main() -> None:
        with Receiver() as receiver:
            async with gateway() as parts:
                for number in range(5):
                    await parts.webhooks.subscribe(f"bob {number}", "a", receiver.url)
                await parts.publish(1)
                await parts.until_delivered()
                await until(lambda: receiver.open_connections == 2)
                assert parts.webhooks.stats()["connections_kept"] == 2
                monkeypatch.setattr("jsonbus.gateway.webhooks.webhooks.IDLE_S", 0.0)
                await until(lambda: receiver.open_connections == 0)
                assert receiver.connections == 5
                await parts.publish(2)
                await parts.until_delivered()
            assert receiver.messages == [1] * 5 + [2] * 5

    run(main())


def test_no_more_requests_run_than_there_are_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jsonbus.gateway.webhooks.webhooks.CONNECTIONS_MAX", 3)

    async def main() -> None:
        with Receiver() as receiver:
            receiver.default = Answer(waits=True)
            async with gateway() as parts:
                for number in range(10):
                    await parts.webhooks.subscribe(f"bob {number}", "a", receiver.url)
                await parts.publish(1)
                await until(lambda: len(receiver.requests) == 3)
                receiver.release(2)
                await until(lambda: len(receiver.requests) == 5)
                assert parts.ledger.stats()["backlog"] >= 7
                receiver.release(8)
                await parts.until_delivered()
            assert receiver.messages == [1] * 10

    run(main())


@pytest.mark.slow
def test_messages_of_other_nodes_arrive_and_own_ones_arrive_once() -> None:
    async def main() -> None:
        with Receiver() as receiver:
            async with gateway() as parts, jsonbus.AsyncBus(port=parts.bus_port) as other:
                await other.wait_until_sure(30)  # before, it would hold the value for a while
                await other.publish("a/b", "from before", retain=True)
                await parts.webhooks.subscribe("bob", "a/**", receiver.url)
                await parts.webhooks.subscribe("eve", "a/b", receiver.url)
                await until(lambda: other.explain("a/b").wanted_by)
                await parts.hub.publish("a/b", "own")
                await other.publish("a/b", {"other": 1}, reliable=True)
                await until(lambda: len(receiver.messages) == 4)
                await parts.until_delivered()
                assert await parts.webhooks.unsubscribe("eve") == ["a/b"]
                await other.publish("a/b", "last", reliable=True)
                await until(lambda: len(receiver.messages) == 5)
                assert parts.hub.stats()["patterns_wanted"] == 1
                await parts.webhooks.unsubscribe("bob")
                assert parts.hub.stats()["patterns_wanted"] == 0
            for name, expected in [
                ("bob", ["own", {"other": 1}, "last"]),
                ("eve", ["own", {"other": 1}]),
            ]:
                got = [
                    message
                    for each in receiver.requests
                    if each.headers["jsonbus-subscriber"] == name
                    for message in each.messages
                ]
                assert got == expected

    run(main())


def test_retained_values_are_not_delivered() -> None:
    def make(is_retained: bool) -> jsonbus.Message:
        message = jsonbus.Message()
        message.topic, message.value, message.sequence = "a", 1, None
        message.origin = jsonbus.Origin("node", "name", 0, 0.0, 0.0, is_retained)
        return message

    async def main() -> None:
        with Receiver() as receiver:
            async with gateway() as parts:
                await parts.webhooks.subscribe("bob", "a", receiver.url)
                parts.webhooks.take([make(True)])
                assert parts.webhooks.stats()["messages_storing"] == 0
                parts.webhooks.take([make(True), make(False), make(True)])
                assert parts.webhooks.stats()["messages_storing"] == 1
                await until(lambda: receiver.messages)
                await parts.until_delivered()
            assert receiver.messages == [1]

    run(main())


def test_subscribing_again_changes_nothing() -> None:
    async def main() -> None:
        with Receiver() as receiver:
            async with gateway() as parts:
                assert (await parts.webhooks.subscribe("bob", "a", receiver.url)).is_new
                again = await parts.webhooks.subscribe("bob", "a", receiver.url)
                assert not again.is_new and not again.has_moved
                await parts.publish(1)
                await parts.until_delivered()
                assert await parts.webhooks.unsubscribe("bob", "a") == ["a"]
                assert parts.hub.stats()["patterns_wanted"] == 0
            assert receiver.messages == [1]

    run(main())


def test_a_subscription_that_is_refused_leaves_nothing_behind() -> None:
    async def main() -> None:
        async with gateway(targets=Targets(is_loopback_gateway=False)) as parts:
            for pattern, url in [
                ("a", "http://127.0.0.1:9/"),
                ("a", "ftp://example.org/"),
                ("a//b", "http://93.184.216.34/"),
            ]:
                with pytest.raises(ValueError):
                    await parts.webhooks.subscribe("bob", pattern, url)
            assert parts.ledger.subscribers() == []
            assert parts.hub.stats()["patterns_wanted"] == 0

    run(main())


def test_more_stored_subscriptions_than_a_datagram_names_all_work(tmp_path: Path) -> None:
    async def main() -> None:
        with Receiver() as receiver:
            async with gateway(tmp_path) as parts:
                await parts.webhooks.subscribe("bob", "a", receiver.url)
            store = WebhookStore(tmp_path)
            store.open()
            patterns = [f"{number}/{'x' * 200}" for number in range(400)]
            store.commit([Subscribe("eve", each, receiver.url) for each in patterns])
            store.close()
            async with gateway(tmp_path) as parts:
                await parts.publish(1, topic=patterns[-1])
                await until(lambda: receiver.messages == [1])
                assert parts.hub.stats()["patterns_wanted"] == 401
                assert set(await parts.webhooks.unsubscribe("eve")) == set(patterns)
                assert parts.hub.stats()["patterns_wanted"] == 1
                await parts.webhooks.subscribe("bob", patterns[-1], receiver.url)
                assert parts.hub.stats()["patterns_wanted"] == 2

    run(main())


def test_a_subscription_goes_on_if_the_one_who_asked_is_cancelled() -> None:
    async def main() -> None:
        with Receiver() as receiver:
            async with gateway() as parts:
                asking = asyncio.create_task(parts.webhooks.subscribe("bob", "a", receiver.url))
                for _ in range(100):  # steps of the loop
                    if parts.hub.stats()["patterns_wanted"]:
                        break
                    await asyncio.sleep(0)
                asking.cancel()  # while the subscription is on its way to the disk
                await until(lambda: parts.ledger.subscribers())
                assert parts.hub.stats()["patterns_wanted"] == 1
                await parts.publish(1)
                await parts.until_delivered()
            assert receiver.messages == [1]

    run(main())


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_nothing_is_lost_or_out_of_order_over_failures_moves_and_restarts(
    tmp_path: Path, seed: int
) -> None:
    random = Random(seed)
    bad = [
        Answer(500),
        Answer(302),
        Answer(closes_before=True),
        Answer(closes_midway=True),
        Answer(closes_after=True),
        Answer(raw=b"?"),
    ]

    async def main() -> None:
        with Receiver() as one, Receiver() as two:
            for receiver in (one, two):
                receiver.script(*random.choices([Answer(), *bad], k=60))
            subscribers = [f"s{number}" for number in range(8)]
            for first in (0, 40, 80):
                async with gateway(tmp_path) as parts:
                    for name in subscribers:
                        await parts.webhooks.subscribe(name, "a", one.url)
                    for number in range(first, first + 40):
                        await parts.publish(number)
                        if random.random() < 0.2:
                            name, url = random.choice(subscribers), random.choice([one, two]).url
                            await parts.webhooks.subscribe(name, "a", url)
                    if first == 80:
                        await parts.until_delivered()
        bodies: dict[str, bytes] = {}
        got: dict[str, list[int]] = {name: [] for name in subscribers}
        for request in sorted([*one.requests, *two.requests], key=lambda each: each.at):
            delivery_id = request.headers["jsonbus-delivery"]
            if delivery_id not in bodies:
                got[request.headers["jsonbus-subscriber"]] += request.messages
            assert bodies.setdefault(delivery_id, request.body) == request.body
        assert got == {name: list(range(120)) for name in subscribers}

    run(main())


@pytest.mark.slow
def test_receivers_that_hang_leave_connections_to_those_that_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(webhooks, "CONNECTIONS_MAX", 4)

    async def main() -> None:
        with Receiver() as hanging, Receiver() as good:
            async with gateway() as parts:
                hanging.default = Answer(503)
                for number in range(8):
                    await parts.webhooks.subscribe(f"hangs {number}", "a", hanging.url)
                await parts.publish(1)
                await until(lambda: all(v.attempts_failed for v in parts.ledger.subscribers()))
                hanging.default = Answer(hangs=True)
                await until(lambda: parts.webhooks.stats()["delivering"] == 8)
                await asyncio.sleep(0.1)  # for all to be at it again
                await parts.webhooks.subscribe("good", "b", good.url)
                await parts.publish(1, 2, 3, topic="b")
                await until(lambda: good.messages == [1, 2, 3])

    run(main())
