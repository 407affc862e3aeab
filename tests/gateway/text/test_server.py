"""The text server as its clients see it: real sockets, every command and reply."""

from __future__ import annotations

import asyncio
import socket
import struct

import pytest

from jsonbus.errors import (
    BacklogFullError,
    ClosedError,
    LocalError,
    PayloadTooLargeError,
    StoreError,
    TransportError,
)
from jsonbus.gateway.text import client as text_client
from jsonbus.gateway.text import server as text_server
from jsonbus.gateway.text.server import TextServer
from tests.gateway.text.clients import (
    HandHub,
    Tokens,
    connect,
    connected,
    message,
    serving,
    subscribed,
    until,
)

# Replies.


def test_every_command_has_its_reply() -> None:
    async def scenario() -> None:
        async with serving() as (server, hub), connected(server) as client:
            assert client.greeting == "connection_ack 1"
            assert await client.ask("subscribe a/b") == "subscribe_ack a/b"
            assert await client.ask("subscribe a/b") == "error already subscribed to a/b"
            assert await client.ask("publish a/b hello world") == "a/b hello world"
            assert await client.ask('publish a/b {"t": 21.50}') == 'a/b {"t":21.5}'
            assert await client.ask("publish a/b") == "a/b "
            assert await client.ask("unsubscribe a/b") == "unsubscribe_ack a/b"
            assert await client.ask("unsubscribe a/b") == "error not subscribed to a/b"
            client.send("publish a/b nobody gets it", "quit")
            assert await client.rest() == []
            assert hub.published[-1] == ("a/b", "nobody gets it")
            assert hub.wanted == {}
        assert server.stats()["clients"] == 0

    asyncio.run(scenario())


def test_clients_have_different_ids() -> None:
    async def scenario() -> None:
        async with serving() as (server, _), connected(server) as one, connected(server) as two:
            assert one.greeting == "connection_ack 1"
            assert two.greeting == "connection_ack 2"

    asyncio.run(scenario())


def test_pattern_gets_what_it_matches_once_and_spaces_are_quoted() -> None:
    async def scenario() -> None:
        async with serving() as (server, _):
            client = await subscribed(server, ["hall/*", "hall/**", '"hall 2/door"'])
            async with connected(server) as publisher:
                publisher.send("publish hall/door open", "publish hall/x/y 1", "publish other 1")
                publisher.send('publish "hall 2/door" shut', 'publish hall "two\\nlines"')
                assert await client.lines(4) == [
                    "hall/door open",
                    "hall/x/y 1",
                    '"hall 2/door" shut',
                    'hall "two\\nlines"',
                ]
            assert await client.ask("unsubscribe hall/**") == "unsubscribe_ack hall/**"
            assert server.stats()["patterns"] == 2
            client.close()

    asyncio.run(scenario())


def test_retained_values_come_behind_the_reply_and_for_that_client_alone() -> None:
    async def scenario() -> None:
        async with serving() as (server, hub):
            first = await subscribed(server, ["a"])
            hub.retained = [message("a", "kept"), message("a", {1}), message("a", 2)]
            second = await connect(server)
            second.send("subscribe a")
            assert await second.lines(3) == ["subscribe_ack a", "a kept", "a 2"]
            assert await first.ask("publish a live") == "a live"
            first.close()
            second.close()

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("error", "reply"),
    [
        (BacklogFullError("10,000 messages wait"), "error try again later: 10,000 messages wait"),
        (
            StoreError("/secret/path"),
            "error try again later: the gateway cannot write to its store",
        ),
        (TransportError("send failed"), "error try again later: send failed"),
        (ClosedError("the bus is closed"), "error the gateway is closing: connect again later"),
        (LocalError("too many patterns"), "error too many patterns"),
        (PayloadTooLargeError("a", 20, 10), "error the value for 'a' takes 20 bytes"),
        (RuntimeError("secret detail"), "error try again later: the gateway failed, see its log"),
    ],
)
def test_what_the_hub_refuses_is_told_and_the_client_goes_on(error: Exception, reply: str) -> None:
    async def scenario() -> None:
        async with serving() as (server, hub), connected(server) as client:
            hub.error = error
            assert (await client.ask("publish a 1")).startswith(reply)
            assert (await client.ask("subscribe a")).startswith(reply)
            hub.error = None
            assert hub.wanted == {}
            assert await client.ask("subscribe a") == "subscribe_ack a"
            assert server.stats()["commands_failed"] == 2

    asyncio.run(scenario())


# Lines that are no commands.


def test_bad_lines_get_errors_in_order_and_the_client_goes_on() -> None:
    async def scenario() -> None:
        async with serving() as (server, hub), connected(server) as client:
            client.writer.write(
                b"SUBSCRIBE a\n\x00\xff\xfe junk\nsubscribe\nsubscribe a//b\r\npublish a/* 1\n"
                b"\r\n\npublish jsonbus.x 1\npublish " + b"x" * 70_000 + b"\nsubscribe a\r\n"
            )
            replies = await client.lines(8)
            assert replies[0].startswith("error unknown command")
            assert replies[1].startswith("error a line must be UTF-8")
            assert replies[2].startswith("error subscribe needs a topic")
            assert replies[3].startswith("error 'a//b' is not valid here")
            assert replies[4].startswith("error 'a/*' is not valid here")
            assert replies[5].startswith("error 'jsonbus.x' is not valid here")
            assert replies[6].startswith("error line too long, at most 65,536 bytes")
            assert replies[7] == "subscribe_ack a"
            assert hub.published == []

    asyncio.run(scenario())


def test_a_line_without_an_end_is_answered_at_the_limit_and_then_closed() -> None:
    async def scenario() -> None:
        async with serving() as (server, _), connected(server) as client:
            client.writer.write(b"x" * 65_600)
            assert (await client.line()).startswith("error line too long, at most 65,536 bytes")
            client.writer.write(b"x" * (1 << 20))
            assert (await client.line()).startswith("error line without an end")
            assert await client.reader.read() == b""

    asyncio.run(scenario())


def test_byte_by_byte_is_the_same_as_at_once() -> None:
    async def scenario() -> None:
        async with serving() as (server, _), connected(server) as client:
            for byte in b"subscribe a\r\npublish a \xc3\xb6\n":
                client.writer.write(bytes((byte,)))
                await client.writer.drain()
                await asyncio.sleep(0)
            assert await client.lines(2) == ["subscribe_ack a", "a ö"]

    asyncio.run(scenario())


def test_very_many_lines_in_one_piece_are_all_executed_in_order() -> None:
    async def scenario() -> None:
        async with serving(commands=10) as (server, hub), connected(server) as client:
            client.writer.write(
                b"\n" * 50_000 + b"".join(b"publish a %d\n" % i for i in range(9_000))
            )
            await until(lambda: len(hub.published) == 9_000)
            assert [value for _, value in hub.published] == list(range(9_000))
            assert server._buffer.held_most == 10

    asyncio.run(scenario())


@pytest.mark.parametrize(
    "first", [b"GET / HTTP/1.1", b"POST /" + b"x" * 70_000 + b" HTTP/1.1", b"\x16\x03\x01\x00"]
)
def test_browser_is_told_off_and_its_body_is_not_executed(first: bytes) -> None:
    async def scenario() -> None:
        async with serving() as (server, hub), connected(server) as client:
            client.writer.write(first + b"\r\nHost: x\r\n\r\npublish a 1\n")
            (reply,) = await client.rest()
            assert reply.startswith("error this is the text port")
            client.writer.write(b"publish a 2\n")
            client.close()
            await until(lambda: server.stats()["clients"] == 0)
            assert hub.published == []

    asyncio.run(scenario())


# Ends.


def test_end_of_input_finishes_the_commands_but_not_half_a_line() -> None:
    async def scenario() -> None:
        async with serving() as (server, hub), connected(server) as client:
            hub.gate.clear()
            client.send("publish a 1", "subscribe a", "publish a 2")
            client.writer.write(b"publish a 3")
            client.writer.write_eof()
            await until(lambda: hub.waiting)
            hub.gate.set()
            *lines, last = await client.rest()
            assert lines == ["subscribe_ack a", "a 2"]
            assert last.startswith("error the input ended within a line")
            assert hub.published == [("a", 1), ("a", 2)]
            assert hub.wanted == {}

    asyncio.run(scenario())


def test_who_sends_and_closes_without_reading_has_published() -> None:
    async def scenario() -> None:
        async with serving(commands=3) as (server, hub):
            hub.gate.clear()
            for number in range(20):
                with socket.create_connection(server.address) as sock:
                    sock.sendall(b"publish a %d\npublish b %d\nsubscribe c\n" % (number, number))
                    if number % 2:  # a reset instead of an orderly end
                        sock.setsockopt(
                            socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0)
                        )
                        await until(lambda seen=number: server.stats()["clients_accepted"] > seen)
                        await until(lambda: server.stats()["commands_waiting"])
            hub.gate.set()
            await until(lambda: len(hub.published) >= 38)
            await until(lambda: not server._clients)
            for number in range(0, 20, 2):
                assert hub.published.index(("a", number)) < hub.published.index(("b", number))
            assert hub.wanted == {}

    asyncio.run(scenario())


def test_disconnect_ends_subscriptions_also_of_a_command_that_still_runs() -> None:
    async def scenario() -> None:
        async with serving() as (server, hub):
            client = await subscribed(server, ["a", "b/**"])
            other = await subscribed(server, ["a"])
            assert hub.wanted == {"a": 2, "b/**": 1}
            hub.gate.clear()
            client.send("subscribe c")
            await until(lambda: hub.waiting == 1)
            client.reset()
            await until(lambda: hub.wanted == {"a": 1})
            hub.gate.set()
            await until(lambda: not hub.waiting)
            await until(lambda: len(server._clients) == 1)
            assert hub.wanted == {"a": 1}
            assert server._store.patterns() == ("a",)
            other.close()
            await until(lambda: hub.wanted == {})

    asyncio.run(scenario())


def test_too_many_clients_are_turned_away() -> None:
    async def scenario() -> None:
        async with serving(clients=2) as (server, hub):
            one, two = await connect(server), await connect(server)
            three = await connect(server)
            assert three.greeting.startswith("error too many clients, at most 2 are allowed")
            assert await three.rest() == []
            three.close()
            with socket.create_connection(server.address) as sock:
                sock.sendall(b"publish a 1\n")
                await until(lambda: server.stats()["clients_refused"] == 2)
            one.close()
            await until(lambda: server.stats()["clients"] == 1)
            four = await connect(server)
            assert four.greeting == "connection_ack 3"
            await until(lambda: server.stats()["commands"] == 1)  # the end of one
            assert hub.published == []
            two.close()
            four.close()

    asyncio.run(scenario())


@pytest.mark.slow
def test_close_tells_the_clients_and_waits_for_no_stalled_one() -> None:
    async def scenario() -> None:
        hub = HandHub()
        server = TextServer(hub, Tokens())
        hub.add_sink(server.take)
        await server.start("127.0.0.1", 0)
        reading = await subscribed(server, ["a"])
        stalled = await subscribed(server, ["a"])
        stalled.reader._transport.pause_reading()  # type: ignore[attr-defined]
        stuck = await connect(server)
        hub.gate.clear()
        stuck.send("publish a 1", "publish a 2")
        await until(lambda: hub.waiting == 1)
        async with asyncio.timeout(30):
            await server.close()
        assert await reading.rest() == ["error the gateway is closing: connect again later"]
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection(*server.address)
        assert hub.wanted == {}
        assert server.stats()["clients"] == 0
        for client in (reading, stalled, stuck):
            client.close()

    asyncio.run(scenario())


def test_close_executes_what_came_before() -> None:
    async def scenario() -> None:
        async with serving() as (server, hub), connected(server) as client:
            client.send(*(f"publish a {number}" for number in range(100)))
            await until(lambda: server.stats()["commands_waiting"] or hub.published)
        assert len(hub.published) == 100

    asyncio.run(scenario())


def test_close_waits_no_longer_than_it_takes_the_clients(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text_server, "CLOSE_CLIENTS_S", 3_600.0)
    monkeypatch.setattr(text_client, "FINISH_S_MAX", 3_600.0)

    async def scenario() -> None:
        async with asyncio.timeout(60), serving() as (server, _):
            quitting, reading = await connect(server), await connect(server)
            quitting.send("quit")
            assert await quitting.rest() == []
            closing = asyncio.create_task(server.close())
            assert await reading.rest() == ["error the gateway is closing: connect again later"]
            quitting.close()
            reading.close()
            await closing

    asyncio.run(scenario())


def test_commands_leave_the_event_loop_to_others_now_and_then() -> None:
    async def scenario() -> None:
        async with serving() as (server, hub), connected(server) as client:
            client.send(*("publish a 1" for _ in range(3_000)))
            seen = longest = 0
            while seen < 3_000:
                await asyncio.sleep(0)
                longest = max(longest, len(hub.published) - seen)
                seen = len(hub.published)
            assert longest <= 5 * text_server.COMMANDS_PER_TURN

    asyncio.run(scenario())


def test_port_in_use_is_a_transport_error() -> None:
    async def scenario() -> None:
        async with serving() as (server, hub):
            host, port = server.address
            with pytest.raises(TransportError, match=f"on {host}:{port}: address already in use; "):
                await TextServer(hub, Tokens()).start(host, port)

    asyncio.run(scenario())


def test_clients_sockets_send_small_lines_at_once_and_notice_dead_peers() -> None:
    async def scenario() -> None:
        async with serving() as (server, _), connected(server):
            (client,) = server._clients
            assert client._transport is not None
            sock = client._transport.get_extra_info("socket")
            assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
            assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)

    asyncio.run(scenario())


def test_of_many_clients_each_gives_less_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text_server, "CLIENTS_MANY", 3)

    async def scenario() -> None:
        async with serving() as (server, hub):
            clients = [await connect(server) for _ in range(2)]
            assert len(server.receive_buffer) == 65_536
            clients.append(await connect(server))
            assert len(server.receive_buffer) == 8_192
            clients[0].send(*[f"publish a {'x' * 5_000}"] * 12)
            await until(lambda: hub.published == [("a", "x" * 5_000)] * 12)
            clients.pop().close()
            await until(lambda: len(server.receive_buffer) == 65_536)
            for client in clients:
                client.close()

    asyncio.run(scenario())
