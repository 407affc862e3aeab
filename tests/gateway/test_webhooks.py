"""Webhooks against real receivers: what they get, how often, and what others feel of the bad ones.

Pauses between attempts are capped to 10 ms here, unless a test is about a long one.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest

import jsonbus
from jsonbus.gateway.hub import Hub
from jsonbus.gateway.targets import Targets
from jsonbus.gateway.webhook_ledger import SubscriberView, WebhookLedger
from jsonbus.gateway.webhooks import Webhooks
from tests.gateway.receiver import Answer, Receiver, run, until
from tests.helpers import find_free_port

AT_HOME = Targets(is_loopback_gateway=True)


@dataclass
class Parts:
    """A gateway without its ports."""

    hub: Hub
    ledger: WebhookLedger
    webhooks: Webhooks
    bus_port: int

    async def publish(self, *values: Any, topic: str = "a") -> None:
        for value in values:
            await self.hub.publish(topic, value)

    def view(self, name: str) -> SubscriberView:
        return next(view for view in self.ledger.subscribers() if view.name == name)

    async def until_delivered(self) -> None:
        await until(lambda: self.ledger.stats()["backlog"] == 0)


@asynccontextmanager
async def gateway(
    path: Path | None = None, *, targets: Targets = AT_HOME, **settings: Any
) -> AsyncIterator[Parts]:
    settings = {"timeout_s": 60.0, "retry_s_max": 0.01} | settings
    port = find_free_port()
    async with jsonbus.AsyncBus(port=port) as bus:
        ledger = WebhookLedger(path)
        hub = Hub(bus, ledger)
        webhooks = Webhooks(ledger, targets, hub, own_node=bus.id, **settings)
        await ledger.open(webhooks.begin)
        hub.add_sink(webhooks.take)
        await webhooks.start()
        try:
            yield Parts(hub, ledger, webhooks, port)
        finally:
            await webhooks.close()
            await ledger.close()


def names(**addresses: Sequence[str] | list[list[str]]) -> Callable[[str, int], Any]:
    """A name server that knows NAME.example; a list of lists is one answer after the other."""

    async def look_up(host: str, port: int) -> list[str]:
        known: Any = addresses[host.removesuffix(".example")]
        if isinstance(known[0], list):
            known = known.pop(0) if len(known) > 1 else known[0]
        return list(known)

    return look_up


def courier_tasks() -> list[str]:
    return sorted(
        task.get_name() for task in asyncio.all_tasks() if task.get_name().startswith("webhook ")
    )


# ---- What a receiver gets


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


@pytest.mark.parametrize(
    ("name", "header"),
    [
        ("bob", "bob"),
        ("Bob Builder/7", "Bob Builder/7"),
        ("zoë", "zo%C3%AB"),
        ("50%", "50%25"),
        (" spaced ", "%20spaced%20"),
        ("a\r\nX-Evil: 1", "a%0D%0AX-Evil: 1"),
    ],
)
def test_the_subscribers_name_is_a_header_that_unquotes_to_it(name: str, header: str) -> None:
    async def main() -> None:
        with Receiver() as receiver:
            async with gateway() as parts:
                await parts.webhooks.subscribe(name, "a", receiver.url)
                await parts.publish(1)
                await parts.until_delivered()
            [request] = receiver.requests
        assert request.headers["jsonbus-subscriber"] == header
        assert unquote(header) == name
        assert "x-evil" not in request.headers

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


# ---- Only 200 counts


def test_whatever_is_not_200_is_tried_again_with_the_same_body_and_id() -> None:
    failures = [
        *(Answer(status) for status in (201, 202, 204, 304, 400, 401, 404, 410, 429, 500, 503)),
        Answer(closes_before=True),
        Answer(closes_midway=True, body=b"half of this"),
        Answer(500, closes_after=True),
        Answer(raw=b"hello\r\n\r\n"),
        Answer(raw=b"SSH-2.0-OpenSSH_9.2\r\n"),
        Answer(raw=b"HTTP/1.1 abc OK\r\n\r\n"),
        Answer(raw=b"HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n"),
        Answer(raw=b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n"),
        Answer(raw=b"HTTP/1.1 200 OK\r\nX: " + b"a" * 300_000 + b"\r\n\r\n"),
        Answer(raw=b"HTTP/1.1 200 OK\r\nContent-Le"),
        Answer(404, endless=True),
    ]

    async def main() -> None:
        with Receiver() as receiver:
            receiver.script(*failures)
            async with gateway() as parts:
                await parts.webhooks.subscribe("bob", "a", receiver.url)
                await parts.publish("first")
                await until(lambda: receiver.requests)
                await parts.publish("second")
                await parts.until_delivered()
                await until(lambda: parts.webhooks.stats()["batches_delivered"] == 2)
                stats = parts.webhooks.stats()
                view = parts.view("bob")
            *tries, last = receiver.requests
            assert len(tries) == len(failures) + 1
            assert [each.headers["jsonbus-attempt"] for each in tries] == [
                str(number) for number in range(1, len(tries) + 1)
            ]
            assert {each.body for each in tries} == {b'{"message":["first"],"topic":["a"]}'}
            assert len({each.headers["jsonbus-delivery"] for each in tries}) == 1
            assert last.messages == ["second"]
            assert last.headers["jsonbus-attempt"] == "1"
            assert last.headers["jsonbus-delivery"] != tries[0].headers["jsonbus-delivery"]
            assert stats["attempts"] == len(tries) + 1
            assert stats["attempts_failed"] == view.attempts_failed == len(failures)
            assert view.delivered == 2

    run(main())


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_redirects_are_not_followed(status: int) -> None:
    async def main() -> None:
        with Receiver() as receiver, Receiver() as other:
            receiver.script(Answer(status, headers={"Location": other.url}))
            async with gateway() as parts:
                await parts.webhooks.subscribe("bob", "a", receiver.url)
                await parts.publish(1)
                await parts.until_delivered()
            assert len(receiver.requests) == 2
            assert other.connections == 0

    run(main())


def test_a_receiver_that_does_not_answer_in_time_is_tried_again() -> None:
    async def main() -> None:
        with Receiver() as receiver:
            receiver.default = Answer(hangs=True)
            async with gateway(timeout_s=0.2) as parts:
                await parts.webhooks.subscribe("bob", "a", receiver.url)
                await parts.publish(1)
                await until(lambda: len(receiver.requests) >= 2)
                assert parts.view("bob").last_error == "no answer within 0.2 s"
                receiver.default = Answer()
                await parts.until_delivered()
            assert len(set(receiver.delivery_ids)) == 1

    run(main())


def test_a_receiver_that_is_not_there_gets_its_messages_when_it_comes() -> None:
    async def main() -> None:
        with socket.create_server(("127.0.0.1", 0)) as probe:
            port = probe.getsockname()[1]
        async with gateway() as parts:
            await parts.webhooks.subscribe("bob", "a", f"http://127.0.0.1:{port}/hook")
            await parts.publish(1, 2)
            await until(lambda: parts.view("bob").attempts_failed >= 3)
            assert parts.view("bob").last_error == "connection refused"
            with Receiver(port=port) as receiver:
                await parts.until_delivered()
                assert receiver.messages == [1, 2]
                assert int(receiver.requests[0].headers["jsonbus-attempt"]) > 3

    run(main())


def test_a_kept_connection_that_the_receiver_closed_is_replaced_without_a_pause() -> None:
    async def main() -> None:
        with Receiver() as receiver:
            # Closed when the next request comes, unanswered: what a server does whose keep-alive
            # time is over just then. The pause after a failure would be an hour.
            receiver.script(Answer(), Answer(closes_before=True))
            async with gateway() as parts:
                await parts.webhooks.subscribe("bob", "a", receiver.url)
                await parts.publish(1)
                await parts.until_delivered()
                await parts.publish(2)
                await parts.until_delivered()
                assert parts.webhooks.stats()["attempts_failed"] == 0
            assert receiver.messages == [1, 2, 2]
            assert receiver.delivery_ids[1] == receiver.delivery_ids[2]
            assert [each.connection for each in receiver.requests] == [1, 1, 2]

    run(main())


def test_an_answer_of_any_length_is_enough_but_is_not_read_whole() -> None:
    async def main() -> None:
        with Receiver() as receiver:
            receiver.script(Answer(endless=True), Answer(body=b"x" * 60_000))
            async with gateway() as parts:
                await parts.webhooks.subscribe("bob", "a", receiver.url)
                for number in range(3):
                    await parts.publish(number)
                    await parts.until_delivered()
                # The endless one is cut off; the long one is read, and its connection kept.
                await until(lambda: receiver.open_connections == 1)
            assert receiver.messages == [0, 1, 2]
            assert [each.connection for each in receiver.requests] == [1, 2, 2]
            assert receiver.bytes_sent < 50_000_000  # what the sockets' buffers hold, at most

    run(main())


def test_retry_after_is_honoured_up_to_the_cap() -> None:
    async def main() -> None:
        with Receiver() as receiver:
            receiver.default = Answer(503, headers={"Retry-After": "7200"})
            async with gateway(retry_s_max=3600.0) as parts:
                await parts.webhooks.subscribe("bob", "a", receiver.url)
                await parts.publish(1)
                await until(lambda: parts.view("bob").retry_at)
                view = parts.view("bob")
                assert view.last_error == "the answer was 503, not 200"
                assert view.retry_at is not None and view.last_error_at is not None
                assert 3500 < view.retry_at - view.last_error_at <= 3601

    run(main())


# ---- One subscriber and the others


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


def test_a_moved_subscriber_is_tried_at_its_new_url_at_once_even_in_a_long_pause() -> None:
    async def main() -> None:
        with Receiver() as old, Receiver() as new:
            old.default = Answer(503, headers={"Retry-After": "3600"})
            async with gateway(retry_s_max=3600.0) as parts:
                await parts.webhooks.subscribe("bob", "a", old.url)
                await parts.publish(1)
                await until(lambda: parts.view("bob").retry_at)
                await parts.webhooks.subscribe("bob", "a", old.url)  # no move: it waits on
                assert (await parts.webhooks.subscribe("bob", "a", new.url)).has_moved
                await parts.until_delivered()
            assert old.delivery_ids == new.delivery_ids
            assert [each.headers["jsonbus-attempt"] for each in new.requests] == ["2"]

    run(main())


def test_a_moved_subscriber_does_not_wait_for_the_answer_at_its_old_url() -> None:
    async def main() -> None:
        with Receiver() as old, Receiver() as new:
            old.default = Answer(hangs=True)
            async with gateway(timeout_s=3600.0, retry_s_max=3600.0) as parts:
                await parts.webhooks.subscribe("bob", "a", old.url)
                await parts.publish(1)
                await until(lambda: old.requests)
                await parts.webhooks.subscribe("bob", "a", new.url)
                await parts.until_delivered()
                await until(lambda: old.open_connections == 0)
                assert parts.webhooks.stats()["attempts_failed"] == 0
            assert new.messages == [1]
            assert old.delivery_ids == new.delivery_ids

    run(main())


@pytest.mark.parametrize(
    "answer", [Answer(hangs=True), Answer(503, headers={"Retry-After": "3600"})]
)
def test_unsubscribing_ends_what_goes_on(answer: Answer) -> None:
    async def main() -> None:
        with Receiver() as receiver:
            receiver.default = answer
            async with gateway(timeout_s=3600.0, retry_s_max=3600.0) as parts:
                await parts.webhooks.subscribe("bob", "a", receiver.url)
                await parts.webhooks.subscribe("bob", "b", receiver.url)
                await parts.publish(1)
                await until(lambda: answer.hangs or parts.view("bob").retry_at)
                await until(lambda: receiver.requests)
                assert await parts.webhooks.unsubscribe("bob", "a") == ["a"]
                assert "webhook bob" in courier_tasks()  # what waits is still to be delivered
                assert await parts.webhooks.unsubscribe("bob") == ["b"]
                assert "webhook bob" not in courier_tasks()
                assert parts.webhooks.stats()["delivering"] == 0
                await until(lambda: receiver.open_connections == 0)
                assert await parts.webhooks.unsubscribe("bob") == []
                # The same name again is a new subscriber, with nothing of the old one.
                receiver.default = Answer()
                await parts.webhooks.subscribe("bob", "a", receiver.url)
                await parts.publish(2)
                await parts.until_delivered()
            assert receiver.messages == [1, 2]

    run(main())


# ---- Ends and restarts


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
                assert courier_tasks() == []
            await until(lambda: receiver.open_connections == 0)

    run(main())


def test_a_request_that_is_answered_soon_after_the_end_began_is_not_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("jsonbus.gateway.webhooks.GRACE_S", 60.0)  # for a machine that is busy
    monkeypatch.setattr("jsonbus.gateway.webhooks.CLOSE_S", 60.0)

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


# ---- Where the messages come from


def test_messages_of_other_nodes_arrive_and_own_ones_arrive_once() -> None:
    async def main() -> None:
        with Receiver() as receiver:
            async with gateway() as parts, jsonbus.AsyncBus(port=parts.bus_port) as other:
                await parts.webhooks.subscribe("bob", "a/**", receiver.url)
                await parts.webhooks.subscribe("eve", "a/b", receiver.url)
                await other.wait_until_sure(30)
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


def test_a_subscription_goes_on_if_the_one_who_asked_is_cancelled() -> None:
    async def main() -> None:
        with Receiver() as receiver:
            async with gateway() as parts:
                asking = asyncio.create_task(parts.webhooks.subscribe("bob", "a", receiver.url))
                await until(lambda: parts.hub.stats()["patterns_wanted"])
                asking.cancel()
                await until(lambda: parts.ledger.subscribers())
                assert parts.hub.stats()["patterns_wanted"] == 1
                await parts.publish(1)
                await parts.until_delivered()
            assert receiver.messages == [1]

    run(main())


# ---- Addresses


def test_the_connection_goes_to_the_checked_address_and_the_host_header_is_the_name() -> None:
    async def main() -> None:
        targets = Targets(
            ["127.0.0.1"], is_loopback_gateway=False, look_up=names(hook=["127.0.0.1"])
        )
        with Receiver() as receiver:
            async with gateway(targets=targets) as parts:
                url = f"http://hook.example:{receiver.port}/x"
                await parts.webhooks.subscribe("bob", "a", url)
                await parts.publish(1)
                await parts.until_delivered()
            assert receiver.requests[0].headers["host"] == f"hook.example:{receiver.port}"

    run(main())


def test_a_name_that_means_loopback_at_the_delivery_is_not_connected_to() -> None:
    async def main() -> None:
        look_up = names(hook=[["93.184.216.34"], ["127.0.0.1"]])
        targets = Targets(is_loopback_gateway=False, look_up=look_up)
        with Receiver() as receiver:
            async with gateway(targets=targets) as parts:
                url = f"http://hook.example:{receiver.port}/x"
                await parts.webhooks.subscribe("bob", "a", url)
                await parts.publish(1)
                await until(lambda: parts.view("bob").attempts_failed >= 3)
                assert "is a loopback address" in str(parts.view("bob").last_error)
            assert receiver.connections == 0

    run(main())


def test_a_name_with_several_addresses_is_delivered_to_at_the_one_that_answers() -> None:
    async def main() -> None:
        look_up = names(hook=["127.0.0.77", "127.0.0.78", "127.0.0.1"])
        targets = Targets(is_loopback_gateway=True, look_up=look_up)
        with Receiver() as receiver:
            async with gateway(targets=targets) as parts:
                url = f"http://hook.example:{receiver.port}/x"
                await parts.webhooks.subscribe("bob", "a", url)
                for number in range(3):
                    await parts.publish(number)
                    await parts.until_delivered()
                assert parts.view("bob").attempts_failed == 0
            assert receiver.messages == [0, 1, 2]
            assert receiver.connections == 1

    run(main())


def test_a_name_that_is_not_known_yet_is_accepted_and_tried_again() -> None:
    async def main() -> None:
        known: list[str] = []

        async def look_up(host: str, port: int) -> list[str]:
            if not known:
                raise OSError("nobody knows it")
            return known

        targets = Targets(is_loopback_gateway=True, look_up=look_up)
        with Receiver() as receiver:
            async with gateway(targets=targets) as parts:
                url = f"http://hook.example:{receiver.port}/x"
                await parts.webhooks.subscribe("bob", "a", url)
                await parts.publish(1)
                await until(lambda: parts.view("bob").attempts_failed)
                error = parts.view("bob").last_error
                assert error == "the name cannot be looked up: nobody knows it"
                known.append("127.0.0.1")
                await parts.until_delivered()

    run(main())


def test_proxies_of_the_environment_are_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        with Receiver() as receiver, Receiver() as proxy:
            for variable in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
                monkeypatch.setenv(variable, f"http://127.0.0.1:{proxy.port}")
            monkeypatch.delenv("NO_PROXY", raising=False)
            monkeypatch.delenv("no_proxy", raising=False)
            async with gateway() as parts:
                await parts.webhooks.subscribe("bob", "a", receiver.url)
                await parts.publish(1)
                await parts.until_delivered()
            assert proxy.connections == 0

    run(main())


# ---- What is logged


def test_logs_hold_no_path_query_or_body_and_one_warning_per_subscriber(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG)

    async def main() -> None:
        with Receiver() as receiver:
            receiver.script(*[Answer(500)] * 5, Answer(closes_before=True), Answer(), Answer(500))
            async with gateway() as parts:
                url = f"http://127.0.0.1:{receiver.port}/pathsecret?token=querysecret"
                await parts.webhooks.subscribe("bob", "a", url)
                for _ in range(3):
                    await parts.publish("bodysecret")
                    await parts.until_delivered()
                address = f"http://127.0.0.1:{receiver.port}"
        assert not [record for record in caplog.records if "secret" in record.getMessage()]
        ours = [each for each in caplog.records if each.name == "jsonbus.gateway.webhooks"]
        warnings = [each.getMessage() for each in ours if each.levelno >= logging.WARNING]
        assert len(warnings) == 1
        assert warnings[0].startswith(
            f"'bob' at {address} did not take its webhook: the answer was"
        )
        infos = [each.getMessage() for each in ours if each.levelno == logging.INFO]
        assert infos[0] == f"'bob' takes its webhooks again, at {address}"

    run(main())


def test_an_attempt_that_fails_is_shown_with_its_time() -> None:
    async def main() -> None:
        before = time.time()
        with Receiver() as receiver:
            receiver.script(Answer(500))
            async with gateway() as parts:
                await parts.webhooks.subscribe("bob", "a", receiver.url)
                await parts.publish(1)
                await parts.until_delivered()
                view = parts.view("bob")
        assert view.last_error == "the answer was 500, not 200"
        assert view.last_error_at is not None and before <= view.last_error_at <= time.time()
        assert view.retry_at is None

    run(main())
