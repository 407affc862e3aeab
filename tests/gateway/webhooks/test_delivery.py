"""One subscriber: only 200 counts, everything else is tried again; moves, ends, logs."""

from __future__ import annotations

import asyncio
import gc
import logging
import socket
import time
import tracemalloc
from urllib.parse import unquote

import pytest

from jsonbus.errors import StoreError
from jsonbus.gateway.webhooks import delivery
from jsonbus.gateway.webhooks.commands import Batch
from jsonbus.gateway.webhooks.ledger import WebhookLedger
from jsonbus.gateway.webhooks.targets import Targets
from tests.gateway.receiver import Answer, Receiver, run, until
from tests.gateway.webhooks.parts import delivery_tasks, gateway, names


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
            # time is over just then.
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
                assert "webhook bob" in delivery_tasks()  # what waits is still to be delivered
                assert await parts.webhooks.unsubscribe("bob") == ["b"]
                assert "webhook bob" not in delivery_tasks()
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


def test_a_name_is_looked_up_again_after_a_failure_and_not_for_every_delivery() -> None:
    async def main() -> None:
        asked = 0

        async def look_up(host: str, port: int) -> list[str]:
            nonlocal asked
            asked += 1
            return ["127.0.0.1"]

        targets = Targets(is_loopback_gateway=True, look_up=look_up)
        with Receiver() as receiver:
            receiver.script(*[Answer()] * 5, Answer(500))
            async with gateway(targets=targets) as parts:
                url = f"http://hook.example:{receiver.port}/x"
                await parts.webhooks.subscribe("bob", "a", url)
                for number in range(5):
                    await parts.publish(number)
                    await parts.until_delivered()
                assert asked == 2  # at the subscription, and at the first delivery
                await parts.publish(5)
                await parts.until_delivered()
                assert asked == 3

    run(main())


def test_a_name_that_is_not_known_yet_is_accepted_and_tried_again() -> None:
    async def main() -> None:
        known: list[str] = []

        async def look_up(host: str, port: int) -> list[str]:
            if not known:
                raise socket.gaierror(socket.EAI_NONAME, "nobody knows it")
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
        ours = [each for each in caplog.records if each.name == "jsonbus.gateway.webhooks.webhooks"]
        warnings = [each.getMessage() for each in ours if each.levelno >= logging.WARNING]
        assert len(warnings) == 1
        assert warnings[0].startswith(
            f"'bob' at {address} did not take its webhook: the answer was"
        )
        infos = [each.getMessage() for each in ours if each.levelno == logging.INFO]
        assert infos[0] == f"'bob' at {address} takes its webhooks again"

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


def test_the_body_of_a_batch_takes_no_memory_while_its_delivery_pauses() -> None:
    async def main() -> None:
        with Receiver() as receiver:
            receiver.default = Answer(503)
            async with gateway(retry_s_max=300.0) as parts:
                for number in range(5):
                    await parts.webhooks.subscribe(f"bob {number}", "a", receiver.url)
                tracemalloc.start()
                try:
                    await parts.publish("x" * 2_000_000)
                    await until(lambda: parts.webhooks.stats()["attempts_failed"] >= 5)
                    receiver.requests.clear()
                    await until(lambda: parts.webhooks.stats()["bodies_bytes"] == 0)
                    gc.collect()
                    used_bytes, _ = tracemalloc.get_traced_memory()
                finally:
                    tracemalloc.stop()
                assert used_bytes < 5_000_000  # once in the thread that stored it; not five times
                receiver.default = Answer(200)
                for number in range(5):
                    await parts.webhooks.subscribe(f"bob {number}", "a", receiver.url + "/moved")
                await parts.until_delivered()
                assert parts.webhooks.stats()["bodies_loaded"] >= 5
                assert parts.webhooks.stats()["bodies_bytes"] == 0
                assert receiver.messages[-5:] == ["x" * 2_000_000] * 5

    run(main())


def test_a_subscriber_that_goes_gives_the_room_of_its_body_back() -> None:
    async def main() -> None:
        with Receiver() as receiver:
            receiver.default = Answer(waits=True)
            async with gateway() as parts:
                await parts.webhooks.subscribe("bob", "a", receiver.url)
                await parts.publish("first", "second")
                await until(lambda: receiver.requests)
                assert parts.webhooks.stats()["bodies_bytes"] > 0
                await parts.webhooks.unsubscribe("bob")
                assert parts.webhooks.stats()["bodies_bytes"] == 0

    run(main())


def test_a_store_that_cannot_be_read_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delivery, "READ_AGAIN_S", 0.01)

    body_of = WebhookLedger.body_of
    asked = 0

    async def fail_twice(ledger: WebhookLedger, batch: Batch) -> bytes | None:
        nonlocal asked
        asked += 1
        await asyncio.sleep(0)
        if asked <= 2:
            raise StoreError("the disk is gone")
        return await body_of(ledger, batch)

    monkeypatch.setattr(WebhookLedger, "body_of", fail_twice)

    async def main() -> None:
        with Receiver() as receiver:
            receiver.script(Answer(503))
            async with gateway() as parts:
                await parts.webhooks.subscribe("bob", "a", receiver.url)
                await parts.publish("first")
                await parts.until_delivered()
                assert asked == 3
            assert receiver.messages == ["first", "first"]

    run(main())
