"""Messages for many clients: at once on a calm bus, and in few writes on a busy one."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from jsonbus.gateway.text import fan_out
from jsonbus.gateway.text.backlog import LineBudget
from jsonbus.gateway.text.fan_out import HELD_BYTES_MAX, FanOut
from jsonbus.gateway.text.outlet import Outlet
from jsonbus.gateway.text.wire import format_delivery
from tests.aio.running import asynctest, until
from tests.gateway.text.clients import connect, message, serving, subscribed


class Wire(asyncio.Transport):
    """A transport that takes everything, and keeps each write apart."""

    def __init__(self) -> None:
        super().__init__()
        self.writes: list[bytes] = []

    def write(self, data: Any) -> None:
        self.writes.append(bytes(data))

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def is_closing(self) -> bool:
        return False


class Reader(Outlet):
    def __init__(self, fan: FanOut[Reader], *patterns: str) -> None:
        super().__init__(LineBudget(1 << 20), 1_000, 1 << 20)
        self.wire = Wire()
        self.open(self.wire)
        for pattern in patterns:
            fan.store.subscribe(pattern, self)

    def cut_off(self) -> None:
        raise AssertionError("it has room")

    def keep_budget(self) -> None:
        raise AssertionError("it has room")

    def has_sent_all(self) -> None:
        pass


@pytest.fixture
def long_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pause that does not end by itself."""
    monkeypatch.setattr(fan_out, "PAUSE_S_PER_CLIENT", 600.0)
    monkeypatch.setattr(fan_out, "PAUSE_S_MAX", 600.0)


def make_fan_out() -> FanOut[Reader]:
    return FanOut(format_delivery)


@asynctest
async def test_a_message_after_a_pause_leaves_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fan_out, "PAUSE_S_MAX", 0.0)
    fan = make_fan_out()
    readers = [Reader(fan, "a") for _ in range(100)]
    for number in range(3):
        fan.take([message("a", number)])
        assert all(each.wire.writes[number:] == [b"a %d\n" % number] for each in readers)


@asynctest
async def test_what_comes_in_a_pause_leaves_in_one_write_at_its_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(fan_out, "PAUSE_S_MAX", 0.2)
    monkeypatch.setattr(fan_out, "PAUSE_S_PER_CLIENT", 0.2)
    fan = make_fan_out()
    readers = [Reader(fan, "a") for _ in range(100)]
    fan.take([message("a", 0)])
    for number in range(1, 50):
        fan.take([message("a", number)])
    assert await until(lambda: fan.deliveries == 5_000)
    for each in readers:
        assert b"".join(each.wire.writes) == b"".join(b"a %d\n" % n for n in range(50))
        assert len(each.wire.writes) < 10  # two, unless this machine stood still meanwhile
        assert each.lines_sent == 50


@pytest.mark.usefixtures("long_pause")
@asynctest
async def test_lines_of_different_topics_leave_in_one_write_for_each_client() -> None:
    fan = make_fan_out()
    every, some = Reader(fan, "**"), Reader(fan, "a", "c/*")
    fan.take([message("x", 0)])
    for number, topic in enumerate(("a", "b", "c/1", "b", "c/2")):
        fan.take([message(topic, number)])
    assert (every.wire.writes, some.wire.writes) == ([b"x 0\n"], [])
    fan.flush()
    assert every.wire.writes[1:] == [b"a 0\nb 1\nc/1 2\nb 3\nc/2 4\n"]
    assert some.wire.writes == [b"a 0\nc/1 2\nc/2 4\n"]


@pytest.mark.usefixtures("long_pause")
@asynctest
async def test_what_is_held_goes_to_those_who_wanted_it_when_it_came() -> None:
    fan = make_fan_out()
    old = Reader(fan, "a")
    fan.take([message("a", 0)])
    fan.take([message("a", 1)])
    new = Reader(fan, "a")
    fan.take([message("a", 2)])
    fan.store.remove(old)
    fan.take([message("a", 3)])
    fan.flush()
    assert b"".join(old.wire.writes) == b"a 0\na 1\na 2\n"
    assert b"".join(new.wire.writes) == b"a 2\na 3\n"


@pytest.mark.usefixtures("long_pause")
@asynctest
async def test_no_pause_holds_more_than_its_limit() -> None:
    fan = make_fan_out()
    reader = Reader(fan, "a")
    text = "x" * 1_000
    given = 0
    fan.take([message("a", text)])
    for _ in range(1_000):
        fan.take([message("a", text)])
        given += len(text) + 3
        assert given - sum(map(len, reader.wire.writes[1:])) < HELD_BYTES_MAX
    # Neither do many at once.
    fan.take([message("a", text)] * 1_000)
    given += 1_000 * (len(text) + 3)
    assert given - sum(map(len, reader.wire.writes[1:])) < HELD_BYTES_MAX


@pytest.mark.usefixtures("long_pause")
@asynctest
async def test_no_reply_overtakes_what_is_held() -> None:
    async with serving() as (server, _):
        client = await subscribed(server, ["a"])
        server.take([message("a", 1)])
        server.take([message("a", 2)])
        client.send("unsubscribe a")
        assert await client.lines(3) == ["a 1", "a 2", "unsubscribe_ack a"]
        assert await client.ask("subscribe a") == "subscribe_ack a"
        server.take([message("a", 3)])
        client.send("nonsense")
        assert await client.line() == "a 3"
        assert (await client.line()).startswith("error unknown command")
        server.take([message("a", 4)])
        client.send("quit")
        assert await client.rest() == ["a 4"]
        client.close()


@pytest.mark.usefixtures("long_pause")
@asynctest
async def test_what_is_held_comes_before_the_server_closes() -> None:
    async with serving() as (server, _):
        client = await subscribed(server, ["a"])
        server.take([message("a", 1)])
        server.take([message("a", 2)])
        await server.close()
        assert await client.lines(2) == ["a 1", "a 2"]
        assert (await client.line()).startswith("error the gateway is closing")
        client.close()


@pytest.mark.usefixtures("long_pause")
@asynctest
async def test_a_newcomer_gets_its_greeting_though_others_wait() -> None:
    async with serving() as (server, _):
        client = await subscribed(server, ["a"])
        server.take([message("a", 1)])
        server.take([message("a", 2)])
        newcomer = await connect(server)
        assert newcomer.greeting == "connection_ack 2"
        assert await client.lines(2) == ["a 1", "a 2"]
        client.close()
        newcomer.close()
