"""Clients that do anything at any time leave nothing behind."""

from __future__ import annotations

import asyncio
import random

import pytest

from jsonbus.gateway.text.server import TextServer
from tests.gateway.text.clients import HandHub, Tokens, connect, serving, subscribed, until

LINES = [
    b"subscribe a\n",
    b"subscribe a/*\r\n",
    b"subscribe **\n",
    b"unsubscribe a\n",
    b"unsubscribe **\n",
    b"publish a " + b"x" * 3_000 + b"\n",
    b"publish a/b 1\n",
    b"publish a/* 1\n",
    b"nonsense \x00\xff\n",
    b"\n\n\n",
    b"auth x\n",
    b"publish half",
    b"y" * 70_000 + b"\n",
]
LAST_LINES = [b"quit\n", b"\nGET / HTTP/1.1\r\n\r\npublish evil 1\n", b""]


async def misbehave(server: TextServer, dice: random.Random) -> None:
    client = await connect(server)
    if dice.random() < 0.3:
        client.writer.transport.pause_reading()  # type: ignore[attr-defined]
    for _ in range(dice.randrange(12)):
        if client.writer.is_closing():
            break
        client.writer.write(dice.choice(LINES) * dice.choice([1, 1, 1, 30]))
        for _ in range(dice.randrange(3)):
            await asyncio.sleep(0)
    client.writer.write(dice.choice(LAST_LINES))
    await asyncio.sleep(0)
    match dice.randrange(3):
        case 0:
            client.reset()
        case 1:
            client.close()
        case 2:
            client.writer.write_eof()
            if client.writer.transport.is_reading():  # type: ignore[attr-defined]
                assert await client.is_cut_off()
            client.close()


@pytest.mark.parametrize("seed", range(3))
def test_whatever_clients_do_nothing_of_them_is_left(seed: int) -> None:
    dice = random.Random(seed)
    buffer = dice.choice([1, 7, 1_000])

    async def sometimes_stop(hub: HandHub) -> None:
        while True:
            hub.gate.clear()
            await asyncio.sleep(0.002)
            hub.gate.set()
            await asyncio.sleep(0.005)

    async def scenario() -> None:
        options = {"commands": buffer, "backlog_lines": 100, "backlog_bytes": 100_000}
        async with serving(None, Tokens(), **options) as (server, hub):
            witness = await subscribed(server, ["witness"])
            stopping = asyncio.create_task(sometimes_stop(hub))
            await asyncio.gather(*(misbehave(server, dice) for _ in range(60)))
            stopping.cancel()
            await asyncio.gather(stopping, return_exceptions=True)
            hub.gate.set()
            await until(lambda: len(server._clients) == 1)
            assert hub.wanted == {"witness": 1}
            assert server._store.patterns() == ("witness",)
            stats = server.stats()
            assert stats["commands_waiting"] == 0
            assert server._buffer.held_most <= buffer
            assert stats["clients_accepted"] == 61
            assert all(topic != "evil" for topic, _ in hub.published)
            assert await witness.ask("publish witness alive") == "witness alive"
            witness.close()

    asyncio.run(scenario())
