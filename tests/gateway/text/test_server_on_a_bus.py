"""The text server with its real neighbours: the hub, tokens, and buses on loopback."""

from __future__ import annotations

from jsonbus.gateway.http.access import Access, read_token
from jsonbus.gateway.hub import Hub
from tests.aio.running import asynctest, buses
from tests.gateway.text.clients import connect, connected, serving, subscribed, until


@asynctest
async def test_text_clients_and_nodes_of_the_bus_hear_each_other() -> None:
    async with buses() as open_bus:
        bus, node = open_bus(), open_bus()
        async with serving(Hub(bus)) as (server, _):
            one = await subscribed(server, ["door/*"])
            two = await subscribed(server, ["door/**"])
            heard: list[object] = []
            node.subscribe("door/hall", lambda message: heard.append(message.value))
            assert await node.wait_for_subscribers("door/hall", timeout=30)
            assert await bus.wait_for_subscribers("door/hall", timeout=30)
            for number in range(100):
                await node.publish("door/hall", number)
            lines = [f"door/hall {number}" for number in range(100)]
            assert await one.lines(100) == lines
            assert await two.lines(100) == lines
            one.send(*(f'publish door/hall {{"n": {number}}}' for number in range(100)))
            lines = [f'door/hall {{"n":{number}}}' for number in range(100)]
            assert await one.lines(100) == lines
            assert await two.lines(100) == lines
            await until(lambda: heard == [*range(100), *({"n": number} for number in range(100))])
            one.close()
            two.close()


@asynctest
async def test_newcomer_gets_retained_values_behind_its_reply() -> None:
    async with buses() as open_bus:
        bus, node = open_bus(), open_bus()
        async with serving(Hub(bus)) as (server, _):
            one = await subscribed(server, ["state/**"])
            assert await node.wait_for_subscribers("state/lamp", timeout=30)
            await node.publish("state/lamp", "on", retain=True)
            assert await one.line() == "state/lamp on"
            two = await connect(server)
            two.send("subscribe state/lamp")
            assert await two.lines(2) == ["subscribe_ack state/lamp", "state/lamp on"]
            await node.publish("state/lamp", "off", retain=True)
            assert await one.line() == "state/lamp off"
            assert await two.line() == "state/lamp off"
            one.close()
            two.close()


@asynctest
async def test_who_subscribes_publishes_and_ends_in_one_breath_gets_its_own_message() -> None:
    async with buses() as open_bus, serving(Hub(open_bus())) as (server, hub):
        for last in (b"quit\n", b""):
            async with connected(server) as client:
                client.writer.write(b"subscribe a\npublish a 1\npublish a 2\n" + last)
                client.writer.write_eof()
                assert await client.rest() == ["subscribe_ack a", "a 1", "a 2"]
        await until(lambda: not server._clients)
        assert hub.stats()["patterns_wanted"] == 0


@asynctest
async def test_patterns_leave_the_bus_with_their_last_client() -> None:
    async with buses() as open_bus:
        bus = open_bus()
        hub = Hub(bus)
        async with serving(hub) as (server, _):
            clients = [await subscribed(server, ["a", f"b/{number}"]) for number in range(10)]
            assert hub.stats()["patterns_wanted"] == 11
            clients[0].reset()
            clients[1].close()
            clients[2].send("quit")
            assert await clients[2].rest() == []
            await until(lambda: hub.stats()["patterns_wanted"] == 8)
            for client in clients:
                client.close()
            await until(lambda: hub.stats()["patterns_wanted"] == 0)


@asynctest
async def test_bad_topics_and_values_are_told_as_the_bus_tells_them() -> None:
    async with buses() as open_bus:
        hub = Hub(open_bus(value_bytes_max=1_000))
        async with serving(hub) as (server, _), connected(server) as client:
            assert "is not valid here" in await client.ask("publish a/* 1")
            assert "is not valid here" in await client.ask("subscribe a/b*")
            assert await client.ask("subscribe a") == "subscribe_ack a"
            assert "at most 1,000 are allowed" in await client.ask(f"publish a {'x' * 2_000}")
            assert await client.ask("publish a fits") == "a fits"


@asynctest
async def test_tokens_of_the_gateway_give_text_clients_their_rights() -> None:
    access = Access([read_token("publish=w-1"), read_token("subscribe=r-1"), read_token("all-1")])
    async with buses() as open_bus:
        async with serving(Hub(open_bus()), access) as (server, _), connected(server) as client:
            assert (await client.ask("subscribe a")).startswith("error this needs a token")
            assert await client.ask("auth nonsense") == "error wrong token"
            assert await client.ask("auth r-1") == "auth_ack"
            assert await client.ask("subscribe a") == "subscribe_ack a"
            assert (await client.ask("publish a 1")).startswith("error this needs a token")
            assert await client.ask("auth all-1") == "auth_ack"
            assert await client.ask("publish a 1") == "a 1"


@asynctest
async def test_closed_bus_is_told_and_closing_goes_on() -> None:
    async with buses() as open_bus:
        bus = open_bus()
        async with serving(Hub(bus)) as (server, _), connected(server) as client:
            assert await client.ask("subscribe a") == "subscribe_ack a"
            await bus.close()
            assert await client.ask("publish a 1") == (
                "error the gateway is closing: connect again later"
            )
