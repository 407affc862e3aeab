"""Server-sent events over real sockets."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest

from jsonbus.core.message import Message, Origin, make_message
from jsonbus.gateway.http.events import encode_event
from jsonbus.gateway.text import fan_out
from tests.aio.running import asynctest, until
from tests.gateway.site import Site, end, read_answer, site


class EventSource:
    """What a browser has: it reads events, as the standard says that they are written."""

    def __init__(self, status: int, headers: dict[str, str], lines: AsyncIterator[str]) -> None:
        self.status = status
        self.headers = headers
        self.retry_ms: int | None = None
        self.comments: list[str] = []
        self._lines = lines

    async def next(self) -> Any:
        """The data of the next event; EOFError at the end of the stream."""
        kind, data = "message", []
        async for line in self._lines:
            if not line:
                if data:
                    assert kind == "message"
                    return json.loads("\n".join(data))
                continue
            field, _, value = line.partition(":")
            value = value.removeprefix(" ")
            if field == "":
                self.comments.append(value)
            elif field == "event":
                kind = value
            elif field == "data":
                data.append(value)
            elif field == "retry":
                self.retry_ms = int(value)
        raise EOFError

    async def messages(self, count: int) -> list[tuple[str, Any]]:
        async with asyncio.timeout(30):
            events = [await self.next() for _ in range(count)]
        return [(event["topic"], event["message"]) for event in events]


@asynccontextmanager
async def listening(here: Site, *patterns: str, **more: Any) -> AsyncIterator[EventSource]:
    params = [("pattern", pattern) for pattern in patterns] + list(more.pop("query", {}).items())
    async with here.http.stream("GET", "/events", params=params, **more) as answer:
        yield EventSource(answer.status_code, dict(answer.headers), answer.aiter_lines())


@asynctest
async def test_messages_of_clients_and_of_other_nodes_arrive_in_order() -> None:
    async with site() as here, listening(here, "a/*") as source:
        assert source.status == 200
        assert source.headers["content-type"] == "text/event-stream; charset=utf-8"
        assert source.headers["cache-control"] == "no-store"
        await here.http.get("/publish?topic=a/b&message=21.5")
        event = await source.next()
        assert event == {"topic": "a/b", "message": 21.5, "node": here.bus.id, "retained": False}
        assert source.retry_ms == 1_000
        assert await here.other.wait_for_subscribers("a/c", timeout=30)
        for number in range(100):
            await here.other.publish("a/c", {"text": "zwei\nZeilen", "number": number})
        got = await source.messages(100)
        assert got == [("a/c", {"text": "zwei\nZeilen", "number": number}) for number in range(100)]


@asynctest
async def test_wildcards_of_other_systems_are_told_in_a_comment() -> None:
    async with site() as here, listening(here, "a/+", "a/*", "b/#") as source:
        await here.hub.publish("a/+", 1)
        assert await source.messages(1) == [("a/+", 1)]
        assert source.comments == [
            "a/+ has a wildcard of another system: did you mean a/*?",
            "b/# has a wildcard of another system: did you mean b/**?",
        ]


@asynctest
async def test_a_message_comes_once_however_many_patterns_fit() -> None:
    async with site() as here, listening(here, "a/*", "**", "a/b", "a/*") as source:
        for number in range(10):
            await here.hub.publish("a/b", number)
        await here.hub.publish("c", "last")
        got = await source.messages(11)
        assert got == [("a/b", number) for number in range(10)] + [("c", "last")]
        assert here.hub.stats()["patterns_wanted"] == 3


@asynctest
async def test_each_stream_gets_what_it_wants_and_no_more() -> None:
    async with site() as here, listening(here, "a") as first, listening(here, "b") as second:
        for topic in ("a", "b", "c", "a"):
            await here.hub.publish(topic, topic.upper())
        assert await first.messages(2) == [("a", "A"), ("a", "A")]
        assert await second.messages(1) == [("b", "B")]
        assert here.streams.stats()["events_sent"] == 3


@asynctest
async def test_retained_values_come_first_and_once() -> None:
    async with site() as here:
        await here.hub.publish("a/b", "kept", retain=True)
        await here.hub.publish("a/c", "too", retain=True)
        for _ in range(2):  # as after a browser's reconnect
            async with listening(here, "a/*", "a/b", "**") as source:
                await here.hub.publish("a/d", "live")
                got = [await source.next() for _ in range(3)]
                assert {(each["topic"], each["retained"]) for each in got[:2]} == {
                    ("a/b", True),
                    ("a/c", True),
                }
                assert (got[2]["message"], got[2]["retained"]) == ("live", False)
            assert await until(lambda: here.streams.stats()["streams"] == 0)


@asynctest
async def test_a_comment_comes_when_nothing_else_does() -> None:
    async with site(stream_options={"heartbeat_s": 0.01}) as here, listening(here, "a") as source:
        waiting = asyncio.create_task(source.next())
        assert await until(lambda: len(source.comments) >= 3)
        await here.hub.publish("a", 1)
        assert (await waiting)["message"] == 1


@asynctest
async def test_a_disconnect_gives_its_patterns_up() -> None:
    async with site() as here:
        async with listening(here, "a", "b/**"), listening(here, "a"):
            assert await until(lambda: here.hub.stats()["patterns_wanted"] == 2)
            assert here.streams.stats()["streams"] == 2
        assert await until(lambda: here.hub.stats()["patterns_wanted"] == 0)
        assert here.streams.stats()["streams"] == 0
        assert here.streams.stats()["streams_opened"] == 2


@asynctest
async def test_a_client_that_does_not_read_is_cut_off_and_counted() -> None:
    options = {"backlog_events_max": 50}
    async with site(stream_options=options) as here, listening(here, "**") as good:
        stalled = socket.socket()
        stalled.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        stalled.connect(here.server.address)
        stalled.sendall(b"GET /events?pattern=** HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert await until(lambda: here.streams.stats()["streams"] == 2)
        number = 0
        while not here.streams.stats()["streams_cut"]:
            await here.hub.publish("a", [number, "x" * 30_000])
            [(_, (got, _))] = await good.messages(1)  # it is not slowed down
            assert got == number
            assert here.streams.stats()["events_waiting"] <= 50
            number += 1
            assert number < 5_000
        assert await until(lambda: here.streams.stats()["streams"] == 1)
        stats = here.streams.stats()
        assert (stats["streams_cut"], stats["events_waiting"]) == (1, 0)
        assert here.hub.stats()["patterns_wanted"] == 1
        assert await until(lambda: here.server.stats()["connections_open"] == 1)  # not lingering
        stalled.close()


@asynctest
async def test_the_backlog_is_bounded_in_bytes_too() -> None:
    async with site(stream_options={"backlog_bytes_max": 10_000}) as here:
        stalled = await open_stalled(here, "a")
        given = 0

        def are_taken() -> bool:
            stats = here.streams.stats()
            return stats["streams_cut"] or given == stats["events_sent"] + stats["events_waiting"]

        while not here.streams.stats()["streams_cut"]:
            assert given < 10_000
            here.streams.take([here_message(here, "x" * 4_000)])
            given += 1
            assert await until(are_taken)
            assert here.streams.stats()["events_waiting"] <= 2
        assert await until(lambda: here.server.stats()["connections_open"] == 0)
        stalled.setblocking(False)
        received = b""
        with suppress(ConnectionError):
            while piece := await asyncio.get_running_loop().sock_recv(stalled, 1 << 16):
                received += piece
        assert not received.endswith(b"0\r\n\r\n")  # it did not end well
        stalled.close()


@asynctest
async def test_a_batch_of_several_topics_reaches_each_stream_in_order() -> None:
    async with site() as here:
        async with listening(here, "a") as some, listening(here, "**") as every:
            assert await until(lambda: here.streams.stats()["streams"] == 2)
            topics = "abaabba"
            here.streams.take([here_message(here, n, topic) for n, topic in enumerate(topics)])
            batch = list(zip(topics, range(len(topics)), strict=True))
            assert await every.messages(7) == batch
            assert await some.messages(4) == [each for each in batch if each[0] == "a"]
            assert await until(lambda: here.streams.stats()["events_sent"] == 11)


@asynctest
async def test_a_batch_longer_than_a_backlog_cuts_off_once_and_only_who_does_not_read() -> None:
    async with site(stream_options={"backlog_events_max": 5}) as here:
        stalled = await open_stalled(here, "**")
        while not here.streams.stats()["events_waiting"]:
            here.streams.take([here_message(here, "x" * 100_000, "b")])
            await asyncio.sleep(0)
        async with listening(here, "a") as source:
            assert await until(lambda: here.streams.stats()["streams"] == 2)
            batch = [here_message(here, number, "ab"[number % 2]) for number in range(40)]
            here.streams.take(batch)
            assert await source.messages(20) == [("a", number) for number in range(0, 40, 2)]
            stats = here.streams.stats()
            assert (stats["streams_cut"], stats["events_waiting"]) == (1, 0)
        stalled.close()


def here_message(here: Site, value: Any, topic: str = "a") -> Message:
    return make_message(topic, value, None, origin_of(here))


@asynctest
async def test_what_is_wrong_is_answered_before_a_stream_begins() -> None:
    async with site(tokens=["subscribe=s", "publish=p"]) as here:
        headers = {"authorization": "Bearer s"}
        for query, status, reason in (
            ("", 400, "the parameter pattern is missing"),
            ("?pattern=a//b", 400, "is not valid here"),
            ("?pattern=%ff", 400, "is not valid UTF-8"),
            ("?" + "&".join(f"pattern=a{number}" for number in range(101)), 400, "101 patterns"),
        ):
            answer = await here.http.get(f"/events{query}", headers=headers)
            assert answer.status_code == status
            assert reason in answer.json()["error"]
        assert (await here.http.get("/events?pattern=a")).status_code == 401
        assert (await here.http.get("/events?pattern=a&access_token=p")).status_code == 403
        assert (await here.http.get("/events?pattern=a&access_token=x")).status_code == 401
        answer = await here.http.get("/events?pattern=a&access_token=s&access_token=s")
        assert answer.status_code == 400
        assert here.hub.stats()["patterns_wanted"] == 0
        async with listening(here, "a", query={"access_token": "s"}) as source:
            assert source.status == 200
        async with listening(here, "a", headers=headers) as source:
            assert source.status == 200


@asynctest
async def test_no_more_streams_than_allowed_are_open() -> None:
    async with site(stream_options={"streams_max": 1}) as here:
        async with listening(here, "a"):
            assert await until(lambda: here.streams.stats()["streams"] == 1)
            answer = await here.http.get("/events?pattern=a")
            assert answer.status_code == 503
            assert answer.json()["error"].startswith("try again later: 1 streams are open")
        assert await until(lambda: here.streams.stats()["streams"] == 0)
        async with listening(here, "a") as source:
            assert source.status == 200


@asynctest
async def test_closing_sends_what_waits_and_ends_streams_properly() -> None:
    async with site() as here, listening(here, "a") as source:
        await here.hub.publish("a", 1)
        assert await until(lambda: here.streams.stats()["events_sent"] == 1)
        here.streams.close()
        await here.server.close()
        assert await source.messages(1) == [("a", 1)]
        with pytest.raises(EOFError):
            await source.next()
        assert here.streams.stats()["streams"] == 0


@asynctest
async def test_a_value_that_cannot_be_written_is_skipped_and_counted() -> None:
    async with site() as here, listening(here, "a") as source:
        assert await until(lambda: here.streams.stats()["streams"] == 1)
        deep: list[Any] = []
        for _ in range(300):
            deep = [deep]
        here.streams.take([here_message(here, deep), here_message(here, 1)])
        assert await source.messages(1) == [("a", 1)]
        assert here.streams.stats()["events_unwritable"] == 1


@asynctest
async def test_a_client_that_goes_while_its_stream_opens_leaves_nothing_behind() -> None:
    async with site() as here:
        _, writer = await here.connect()
        writer.write(b"GET /events?pattern=a HTTP/1.1\r\nHost: localhost\r\n\r\n")
        await end(writer)
        assert await until(lambda: here.streams.stats()["streams_opened"] == 1)
        assert await until(lambda: here.streams.stats()["streams"] == 0)
        assert here.hub.stats()["patterns_wanted"] == 0


async def open_stalled(here: Site, pattern: str) -> socket.socket:
    """A stream whose client reads nothing."""
    streams = here.streams.stats()["streams"]
    stalled = socket.socket()
    stalled.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
    stalled.connect(here.server.address)
    stalled.sendall(f"GET /events?pattern={pattern} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
    assert await until(lambda: here.streams.stats()["streams"] == streams + 1)
    return stalled


@asynctest
async def test_when_all_streams_together_have_too_much_the_furthest_behind_is_cut_off() -> None:
    options = {"total_backlog_bytes_max": 600_000}
    async with site(stream_options=options) as here:
        behind, newer = await open_stalled(here, "behind"), await open_stalled(here, "newer")
        for topic, least_bytes in (("behind", 400_000), ("newer", 600_000)):
            for _ in range(10_000):
                stats = here.streams.stats()
                if stats["backlog_bytes"] > least_bytes or stats["streams_cut_for_all"]:
                    break
                here.streams.take([make_message(topic, "x" * 10_000, None, origin_of(here))])
                await asyncio.sleep(0)
        # Not the one that grew, which has less.
        assert await until(lambda: here.hub.stats()["patterns_wanted"] == 1)
        assert here.hub._wanted == {"newer": 1}
        stats = here.streams.stats()
        assert (stats["streams_cut"], stats["streams_cut_for_all"]) == (1, 1)
        assert 0 < stats["backlog_bytes"] < 600_000
        behind.close()
        newer.close()
        assert await until(lambda: here.streams.stats()["backlog_bytes"] == 0)


@asynctest
async def test_streams_behind_on_the_same_topic_cost_what_one_does() -> None:
    async with site() as here:
        stalled = [await open_stalled(here, "a") for _ in range(5)]
        for _ in range(10_000):
            here.streams.take([here_message(here, "x" * 10_000)])
            await asyncio.sleep(0)
            if here.streams.stats()["events_waiting"] > 300:
                break
        assert here.streams.stats()["events_waiting"] * 10_000 > 3_000_000
        # What is on its way is each stream's own.
        assert here.streams.stats()["backlog_bytes"] < 5 * 200_000 + 800_000
        for each in stalled:
            each.close()
        assert await until(lambda: here.streams.stats()["backlog_bytes"] == 0)


@asynctest
async def test_more_retained_values_than_a_backlog_may_hold_cut_nobody_off() -> None:
    options = {"backlog_events_max": 10, "backlog_bytes_max": 10_000}
    async with site(stream_options=options) as here:
        values = [here_message(here, "x" * 10_000, f"r/{number}") for number in range(1_500)]

        async def want_many(pattern: str) -> list[Message]:
            return [*await want(pattern), *values]

        want, here.hub.want = here.hub.want, want_many  # type: ignore[method-assign]
        async with listening(here, "**") as source:  # it reads when it is asked to
            assert await until(lambda: here.streams.stats()["events_sent"] > 0)
            assert here.streams.stats()["events_waiting"] > 10
            here.streams.take([here_message(here, "live")])
            topics = [topic for topic, _ in await source.messages(1_501)]
            assert topics == [*(f"r/{number}" for number in range(1_500)), "a"]
            assert here.streams.stats()["streams_cut"] == 0


@asynctest
async def test_what_is_held_comes_before_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fan_out, "PAUSE_S_PER_CLIENT", 60.0)
    monkeypatch.setattr(fan_out, "PAUSE_S_MAX", 60.0)
    async with site() as here, listening(here, "a") as source:
        assert await until(lambda: here.streams.stats()["streams"] == 1)
        for number in range(3):
            here.streams.take([here_message(here, number)])
        assert here.streams.stats()["events_sent"] <= 1
        here.streams.close()
        assert await source.messages(3) == [("a", 0), ("a", 1), ("a", 2)]
        with pytest.raises(EOFError):
            await source.next()


@asynctest
async def test_the_head_announces_the_framing_once() -> None:
    """Streams write chunks of HTTP themselves: the server must not frame them again."""
    async with site() as here:
        reader, writer = await here.connect()
        writer.write(b"GET /events?pattern=a HTTP/1.1\r\nHost: localhost\r\n\r\n")
        async with asyncio.timeout(30):
            head = (await reader.readuntil(b"\r\n\r\n")).lower()
            assert head.count(b"transfer-encoding: chunked\r\n") == 1
            assert await reader.readexactly(18) == b"d\r\nretry: 1000\n\n\r\n"
            here.streams.take([here_message(here, 1)])
            size = int(await reader.readuntil(b"\r\n"), 16)
            event = await reader.readexactly(size + 2)
            assert event == encode_event(here_message(here, 1)) + b"\r\n"
            here.streams.close()
            assert await reader.readexactly(5) == b"0\r\n\r\n"
        # The connection serves the next request.
        writer.write(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert (await read_answer(reader)).status == 200
        await end(writer)


@asynctest
async def test_a_retained_value_that_cannot_be_written_is_left_out() -> None:
    """It must not end the stream, nor keep its place for ever."""
    async with site() as here:
        deep: list[Any] = []
        for _ in range(300):
            deep = [deep]
        want = here.hub.want

        async def want_deep(pattern: str) -> list[Message]:
            return [*await want(pattern), here_message(here, deep)]

        here.hub.want = want_deep  # type: ignore[method-assign]  # a foreign node may write deeper
        async with listening(here, "b") as source:
            assert source.status == 200
        assert await until(lambda: here.streams.stats()["streams"] == 0)
        assert here.hub.stats()["patterns_wanted"] == 0


def origin_of(here: Site) -> Origin:
    return Origin(here.other.id, "other", 0, 0.0, 0.0)
