"""Rights and tokens, and limits of one client."""

from __future__ import annotations

import asyncio
import logging

import pytest

from jsonbus.gateway.text import commands as text_commands
from tests.gateway.text.clients import Tokens, connected, serving, until

TOKENS = {
    "writer-secret": frozenset(("publish",)),
    "reader-secret": frozenset(("subscribe",)),
    "boss-secret": frozenset(("admin",)),
}


def test_without_a_token_nothing_but_auth_is_done() -> None:
    async def scenario() -> None:
        async with serving(access=Tokens(TOKENS)) as (server, hub), connected(server) as client:
            assert client.greeting == "connection_ack 1"
            for line in ("publish a 1", "subscribe a"):
                word = line.split()[0]
                assert await client.ask(line) == (
                    f"error this needs a token with the right '{word}': send auth TOKEN first"
                )
            assert await client.ask("unsubscribe a") == "error not subscribed to a"
            assert hub.published == []
            assert hub.wanted == {}

    asyncio.run(scenario())


def test_token_gives_its_rights_and_a_later_one_replaces_it() -> None:
    async def scenario() -> None:
        async with serving(access=Tokens(TOKENS)) as (server, hub), connected(server) as client:
            assert await client.ask("auth reader-secret") == "auth_ack"
            assert await client.ask("subscribe a") == "subscribe_ack a"
            assert await client.ask("publish a 1") == (
                "error this needs a token with the right 'publish': your token has other rights"
            )
            assert await client.ask("auth writer-secret") == "auth_ack"
            assert await client.ask("publish a 1") == "a 1"
            assert (await client.ask("subscribe b")).startswith("error this needs a token")
            assert await client.ask("auth boss-secret") == "auth_ack"
            assert await client.ask("subscribe b") == "subscribe_ack b"
            assert hub.published == [("a", 1)]

    asyncio.run(scenario())


def test_third_wrong_token_ends_the_client_and_what_it_sent_behind_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario() -> None:
        async with serving(access=Tokens(TOKENS)) as (server, hub):
            for _ in range(2):
                async with connected(server) as client:
                    client.send("auth wrong-1", "auth wrong-2", "auth wrong-3", "auth boss-secret")
                    client.send("publish a 1")
                    assert await client.rest() == ["error wrong token"] * 3
            await until(lambda: not server._clients)
            assert hub.published == []

    with caplog.at_level(logging.DEBUG):
        asyncio.run(scenario())
    warnings = [each.getMessage() for each in caplog.records if each.levelname == "WARNING"]
    assert len(warnings) == 1
    assert "sent 3 wrong tokens" in warnings[0]
    assert "wrong-" not in caplog.text
    assert "secret" not in caplog.text


def test_token_of_an_open_gateway_is_taken_whatever_it_is() -> None:
    async def scenario() -> None:
        async with serving() as (server, _), connected(server) as client:
            assert await client.ask("auth anything") == "auth_ack"
            assert (await client.ask("auth")).startswith("error auth needs a token")

    asyncio.run(scenario())


def test_token_must_come_in_time_but_is_not_asked_for_again() -> None:
    async def scenario() -> None:
        access = Tokens(TOKENS)
        async with serving(access=access, auth_s=0.05) as (server, _):
            async with connected(server) as silent:
                assert await silent.rest() == ["error no token came in time: send auth TOKEN first"]
            server._auth_timeout_s = 60.0
            async with connected(server) as client:
                (served,) = (each for each in server._clients if not each.is_finishing)
                assert served._deadline is not None
                assert await client.ask("auth reader-secret") == "auth_ack"
                assert served._deadline is None

    asyncio.run(scenario())


def test_one_client_may_have_only_so_many_subscriptions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text_commands, "PATTERNS_PER_CLIENT_MAX", 2)

    async def scenario() -> None:
        async with serving() as (server, hub), connected(server) as client:
            assert await client.ask("subscribe a") == "subscribe_ack a"
            assert await client.ask("subscribe b") == "subscribe_ack b"
            assert (await client.ask("subscribe c")).startswith(
                "error a client may have at most 2 subscriptions"
            )
            assert await client.ask("unsubscribe a") == "unsubscribe_ack a"
            assert await client.ask("subscribe c") == "subscribe_ack c"
            assert hub.wanted == {"b": 1, "c": 1}

    asyncio.run(scenario())
