"""Lines out: shared, bounded, and what becomes of a client that does not read."""

from __future__ import annotations

import asyncio
import logging
import resource
import socket
from collections.abc import Iterator

import pytest

from jsonbus.gateway.text import client as text_client
from jsonbus.gateway.text.backlog import PIECE_BYTES
from jsonbus.gateway.text.server import TextServer
from tests.gateway.text.clients import (
    LineClient,
    connect,
    message,
    serving,
    subscribed,
    until,
)


@pytest.fixture
def many_files() -> Iterator[None]:
    """Two sockets for each of a thousand clients, both in this process."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(4_096, hard), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.slow
@pytest.mark.usefixtures("many_files")
def test_a_thousand_clients_of_one_topic_get_every_message_in_order() -> None:
    async def scenario() -> None:
        async with serving() as (server, hub):
            clients = await asyncio.gather(*(subscribed(server, ["a"]) for _ in range(1_000)))
            assert hub.wanted == {"a": 1_000}
            publisher = await connect(server)
            publisher.send(*(f"publish a {number}" for number in range(30)))
            batch = [message("a", number) for number in range(30, 60)]
            await until(lambda: len(hub.published) == 30)
            server.take(batch)
            expected = "".join(f"a {number}\n" for number in range(60)).encode()
            async with asyncio.timeout(60):
                for client in clients:
                    assert await client.reader.readexactly(len(expected)) == expected
            assert server.stats()["deliveries"] == 60_000
            for client in (*clients, publisher):
                client.close()
            await until(lambda: hub.wanted == {})

    asyncio.run(scenario())


def test_batches_of_mixed_topics_reach_each_client_in_order() -> None:
    async def scenario() -> None:
        async with serving() as (server, _):
            all_of_it = await subscribed(server, ["**"])
            some = await subscribed(server, ["a", "c/*"])
            one = await subscribed(server, ["b"])
            topics = ["a", "a", "b", "c/1", "c/2", "b", "a", "d", "c/3"] * 40
            batch = [message(topic, number) for number, topic in enumerate(topics)]
            server.take(batch)
            lines = [f"{topic} {number}" for number, topic in enumerate(topics)]
            assert await all_of_it.lines(len(lines)) == lines
            of_some = [line for line in lines if line[0] in "ac"]
            assert await some.lines(len(of_some)) == of_some
            of_one = [line for line in lines if line[0] == "b"]
            assert await one.lines(len(of_one)) == of_one
            for client in (all_of_it, some, one):
                client.close()

    asyncio.run(scenario())


def test_value_that_cannot_be_written_costs_only_itself() -> None:
    async def scenario() -> None:
        async with serving() as (server, _):
            client = await subscribed(server, ["**"])
            server.take([message("a", 1), message("a", {2}), message("a", 3)])
            assert await client.lines(2) == ["a 1", "a 3"]
            assert server.stats()["messages_unwritable"] == 1
            client.close()

    asyncio.run(scenario())


async def subscribed_deaf(server: TextServer, pattern: str) -> LineClient:
    """A client that subscribes and then reads no more, with little room in the kernel."""
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
    sock.connect(server.address)
    reader, writer = await asyncio.open_connection(sock=sock)
    client = LineClient(reader, writer)
    client.greeting = await client.line()
    assert await client.ask(f"subscribe {pattern}") == f"subscribe_ack {pattern}"
    writer.transport.pause_reading()
    return client


@pytest.mark.parametrize(
    ("limits", "reached"),
    [
        ({"backlog_bytes": 100_000}, "backlog_bytes"),
        ({"backlog_lines": 200}, "lines_waiting"),
    ],
)
def test_who_stops_reading_is_cut_off_while_others_go_on(
    limits: dict[str, int], reached: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        async with serving(**limits) as (server, hub):
            deaf = [await subscribed_deaf(server, "a") for _ in range(2)]
            good = await subscribed(server, ["a"])
            text = "x" * 1_000
            most = number = 0
            while server.stats()["clients_dropped"] < 2:
                number += 1
                assert number < 100_000
                server.take([message("a", f"{text}{number}")])
                assert await good.line() == f"a {text}{number}"
                most = max(most, server.stats()[reached])
            limit = next(iter(limits.values()))
            assert limit / 2 < most <= 2 * limit
            stats = server.stats()
            assert (stats["lines_waiting"], stats["backlog_bytes"]) == (0, 0)
            assert (stats["clients"], hub.wanted) == (1, {"a": 1})
            await until(lambda: len(server._clients) == 1)
            for client in deaf:
                client.writer.transport.resume_reading()
                assert await client.is_cut_off()
                client.close()
            good.close()

    with caplog.at_level(logging.INFO, logger="jsonbus.gateway"):
        asyncio.run(scenario())
    assert sum("was cut off" in record.message for record in caplog.records) == 1


def test_who_reads_again_in_time_gets_everything_in_order() -> None:
    async def scenario() -> None:
        async with serving() as (server, _):
            client = await subscribed_deaf(server, "a")
            text = "x" * 500
            count = 0
            while server.stats()["lines_waiting"] < 500:
                server.take([message("a", f"{text}{count + extra}") for extra in range(5)])
                count += 5
                await asyncio.sleep(0)
            (served,) = server._clients
            assert served._transport is not None
            # Copied for this client is no more than the rest of one write.
            assert served._transport.get_write_buffer_size() <= PIECE_BYTES + 510
            client.writer.transport.resume_reading()
            assert await client.lines(count) == [f"a {text}{n}" for n in range(count)]
            stats = server.stats()
            assert (stats["lines_waiting"], stats["backlog_bytes"]) == (0, 0)
            assert stats["clients_dropped"] == 0
            client.close()

    asyncio.run(scenario())


def test_line_larger_than_the_backlog_may_wait_alone() -> None:
    async def scenario() -> None:
        async with serving(backlog_bytes=1_000) as (server, _):
            client = await subscribed_deaf(server, "a")
            (served,) = server._clients
            large = "x" * 8_000_000  # more than the kernel takes
            server.take([message("a", large)])
            assert not served.is_writable
            server.take([message("a", large)])
            assert server.stats()["lines_waiting"] == 1
            client.writer.transport.resume_reading()
            async with asyncio.timeout(60):
                received = await client.reader.readexactly(2 * (len(large) + 3))
            assert received == f"a {large}\na {large}\n".encode()
            client.close()

    asyncio.run(scenario())


@pytest.mark.parametrize("last", [b"quit\n", b""])
def test_backlog_is_sent_before_the_end(last: bytes, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        async with serving() as (server, hub):
            client = await subscribed_deaf(server, "a")
            text = "x" * 1_000
            count = 0
            while server.stats()["lines_waiting"] < 100:
                server.take([message("a", text)])
                count += 1
            client.writer.write(last)
            client.writer.write_eof()
            await until(lambda: hub.wanted == {})
            client.writer.transport.resume_reading()
            assert await client.rest() == [f"a {text}"] * count
            client.close()
            await until(lambda: not server._clients)

    asyncio.run(scenario())
    assert [record.message for record in caplog.records if record.name == "asyncio"] == []


def test_who_never_reads_its_rest_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text_client, "FINISH_S_MAX", 0.01)

    async def scenario() -> None:
        async with serving() as (server, _):
            client = await subscribed_deaf(server, "a")
            while server.stats()["lines_waiting"] < 100:
                server.take([message("a", "x" * 1_000)])
            client.send("quit")
            await until(lambda: not server._clients)
            client.close()

    asyncio.run(scenario())


def test_broken_connection_is_written_to_no_more(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        async with serving() as (server, hub):
            client = await subscribed(server, ["a"])
            client.reset()
            await asyncio.sleep(0)  # the client's side of the event loop; then only ours runs
            for number in range(50):
                server.take([message("a", number)])
            await until(lambda: hub.wanted == {})
            assert server.stats()["clients_dropped"] == 0

    asyncio.run(scenario())
    assert [record.message for record in caplog.records if record.name == "asyncio"] == []


def test_errors_that_nobody_reads_are_bounded_as_well() -> None:
    async def scenario() -> None:
        async with serving(backlog_lines=50) as (server, _):
            client = await subscribed_deaf(server, "a")
            for _ in range(1_000):
                if server.stats()["clients_dropped"]:
                    break
                client.writer.write(b"x\n" * 5_000)
                await asyncio.sleep(0.001)
            await until(lambda: server.stats()["clients_dropped"] == 1)
            client.close()

    asyncio.run(scenario())


@pytest.mark.slow
def test_when_all_together_have_too_much_unread_the_furthest_behind_is_cut_off() -> None:
    async def scenario() -> None:
        async with serving() as (server, _):
            behind = await subscribed_deaf(server, "behind")
            text = "x" * 10_000
            while server.stats()["backlog_bytes"] < 400_000:
                server.take([message("behind", text)])
                await asyncio.sleep(0)
            newer = await subscribed_deaf(server, "newer")
            server.budget.bytes_max = server.budget.bytes + 50_000
            while not server.stats()["clients_dropped_for_all"]:
                assert server.stats()["deliveries"] < 10_000
                server.take([message("newer", text)])
                await asyncio.sleep(0)
            # Not the one that grew, which has little unread.
            [left] = [client for client in server._clients if not client.is_lost]
            assert server._store.patterns_of(left) == ("newer",)
            assert server.stats()["clients_dropped"] == 1
            for client in (behind, newer):
                client.close()

    asyncio.run(scenario())


def test_clients_behind_on_the_same_topic_cost_what_one_does() -> None:
    async def scenario() -> None:
        async with serving(total_backlog_bytes=1_500_000) as (server, _):
            deaf = [await subscribed_deaf(server, "a") for _ in range(8)]
            text = "x" * 1_000
            for _ in range(50_000):
                server.take([message("a", text)])
                if min(client.backlog.bytes for client in server._clients) > 700_000:
                    break
                await asyncio.sleep(0)
            assert sum(client.backlog.bytes for client in server._clients) > 5_000_000
            assert server.stats()["backlog_bytes"] < 1_500_000
            assert server.stats()["clients_dropped"] == 0
            for client in deaf:
                client.close()

    asyncio.run(scenario())


@pytest.mark.slow
def test_what_asyncio_keeps_of_a_write_counts_as_well() -> None:
    async def scenario() -> None:
        async with serving(total_backlog_bytes=10_000_000) as (server, _):
            deaf = await subscribed_deaf(server, "a")
            server.take([message("a", "x" * 20_000_000)])
            assert server.stats()["clients_dropped_for_all"] == 1
            assert server.stats()["backlog_bytes"] == 0
            deaf.close()

    asyncio.run(scenario())


def test_more_retained_values_than_a_backlog_may_hold_cut_nobody_off() -> None:
    async def scenario() -> None:
        async with serving(backlog_lines=100, backlog_bytes=100_000) as (server, hub):
            hub.retained = [message(f"r/{number}", "x" * 10_000) for number in range(1_000)]
            client = await connect(server)
            client.send("subscribe **")
            await until(lambda: server.stats()["patterns"] == 1)
            server.take([message("live", 1)])
            assert await client.line() == "subscribe_ack **"
            lines = await client.lines(1_001)
            assert [line.split(" ")[0] for line in lines[:-1]] == [
                each.topic for each in hub.retained
            ]
            assert lines[-1] == "live 1"
            assert server.stats()["clients_dropped"] == 0
            client.close()

    asyncio.run(scenario())


def test_half_lines_of_all_clients_are_bounded_together() -> None:
    async def scenario() -> None:
        async with serving(total_backlog_bytes=100_000) as (server, hub):
            clients = [await connect(server) for _ in range(3)]
            clients[0].writer.write(b"publish a " + b"x" * 40_000)
            await until(lambda: server.stats()["backlog_bytes"] >= 40_000)
            clients[1].writer.write(b"publish a " + b"x" * 50_000)
            await until(lambda: server.stats()["backlog_bytes"] >= 90_000)
            clients[2].writer.write(b"publish a " + b"x" * 30_000)
            await until(lambda: server.stats()["clients_dropped_for_all"] == 1)
            assert await clients[1].is_cut_off()
            for client in (clients[0], clients[2]):
                client.writer.write(b"\n")
                assert (await client.line()).startswith("error message has")
            await until(lambda: server.stats()["backlog_bytes"] == 0)
            for client in clients:
                client.close()

    asyncio.run(scenario())


def test_what_waits_for_room_in_the_command_buffer_cuts_nobody_off() -> None:
    async def scenario() -> None:
        async with serving(commands=1, handlers=1, total_backlog_bytes=1_000) as (server, hub):
            hub.gate.clear()
            clients = [await connect(server) for _ in range(5)]
            for client in clients:
                client.send(*[f"publish a {'x' * 500}"] * 100)
            await until(lambda: len(server._buffer._waiting_for_room) >= 4)
            hub.gate.set()
            await until(lambda: len(hub.published) == 500)
            assert server.stats()["clients_dropped"] == 0
            for client in clients:
                client.close()

    asyncio.run(scenario())
