"""Who is executed when, and what waits meanwhile."""

from __future__ import annotations

import asyncio
import random
from collections import deque
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from jsonbus.gateway.text.buffer import CommandBuffer
from jsonbus.gateway.text.wire import Command
from tests.gateway.text.clients import HandHub, connect, connected, serving, until


class Source:
    """A client with so many commands to come."""

    def __init__(self, name: str, count: int) -> None:
        self.name = name
        self.unread = deque(Command("publish", name, number) for number in range(count))
        self.commands: deque[Command] = deque()
        self.has_turn = False
        self.waits_for_room = False
        self.is_receiving = True

    def next_command(self) -> Command | None:
        return self.unread.popleft() if self.unread else None

    def pause_receiving(self) -> None:
        self.is_receiving = False

    def resume_receiving(self) -> None:
        self.is_receiving = True


def test_clients_take_turns_however_many_commands_one_of_them_sent() -> None:
    async def scenario() -> None:
        buffer: CommandBuffer = CommandBuffer(100)
        many, few = Source("many", 50), Source("few", 2)
        buffer.fill(many)
        buffer.fill(few)
        order = []
        while buffer.held:
            client, command = await buffer.take()
            order.append((client.name, command.value))
            buffer.done(client)
        assert order[:5] == [("many", 0), ("few", 0), ("many", 1), ("few", 1), ("many", 2)]
        assert [value for name, value in order if name == "many"] == list(range(50))

    asyncio.run(scenario())


def test_room_is_given_in_turns_so_that_nobody_fills_the_buffer_alone() -> None:
    async def scenario() -> None:
        buffer: CommandBuffer = CommandBuffer(3)
        first, second = Source("first", 100), Source("second", 3)
        buffer.fill(first)
        buffer.fill(second)
        buffer.fill(first)  # more bytes, or the end of the connection: no second place in line
        assert (buffer.held, len(first.unread), len(second.unread)) == (3, 97, 3)
        assert not first.is_receiving
        assert not second.is_receiving
        order = []
        for number in range(1, 7):
            client, _ = await buffer.take()
            order.append(client.name)
            buffer.done(client)
            assert buffer.held == 3
            assert len(first.unread) == 97 - (number + 1) // 2
            assert len(second.unread) == 3 - number // 2
        for _ in range(2):
            client, _ = await buffer.take()
            order.append(client.name)
            buffer.done(client)
        assert order.count("second") == 3
        assert second.is_receiving

    asyncio.run(scenario())


@settings(deadline=None)
@given(
    st.lists(st.integers(0, 30), min_size=1, max_size=6),
    st.integers(1, 12),
    st.integers(1, 5),
    st.integers(0, 1 << 32),
)
def test_nothing_is_lost_and_the_bound_holds(
    counts: list[int], commands_max: int, handlers: int, seed: int
) -> None:
    dice = random.Random(seed)

    async def handle(buffer: CommandBuffer, done: list[tuple[str, Any]]) -> None:
        running: set[str] = set()
        while True:
            client, command = await buffer.take()
            assert client.name not in running
            running.add(client.name)
            for _ in range(dice.randrange(3)):
                await asyncio.sleep(0)
            done.append((client.name, command.value))
            running.discard(client.name)
            buffer.done(client)

    async def scenario() -> None:
        buffer: CommandBuffer = CommandBuffer(commands_max)
        done: list[tuple[str, Any]] = []
        tasks = [asyncio.create_task(handle(buffer, done)) for _ in range(handlers)]
        sources = [Source(str(number), count) for number, count in enumerate(counts)]
        for source in sources:
            buffer.fill(source)
        await buffer.is_empty.wait()
        assert buffer.held_most <= commands_max
        assert all(source.is_receiving and not source.has_turn for source in sources)
        for source, count in zip(sources, counts, strict=True):
            assert [value for name, value in done if name == source.name] == list(range(count))
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    asyncio.run(scenario())


# The same with real sockets.


class UnevenHub(HandHub):
    """Each publish takes another number of rounds of the event loop."""

    def __init__(self) -> None:
        super().__init__()
        self.dice = random.Random(7)

    async def publish(self, topic: str, value: Any) -> None:
        self.waiting += 1
        self.waiting_most = max(self.waiting_most, self.waiting)
        for _ in range(self.dice.randrange(8)):
            await asyncio.sleep(0)
        self.waiting -= 1
        await super().publish(topic, value)


def test_each_clients_commands_are_executed_in_order_by_five_handlers() -> None:
    async def scenario() -> None:
        async with serving(UnevenHub()) as (server, hub):
            clients = [await connect(server) for _ in range(8)]
            for number in range(100):
                for client in clients:
                    client.send(f"publish {client.greeting.split()[1]} {number}")
            await until(lambda: len(hub.published) == 800)
            for client in clients:
                name = client.greeting.split()[1]
                assert [value for topic, value in hub.published if topic == name] == list(
                    range(100)
                )
                client.close()
            assert hub.waiting_most == 5

    asyncio.run(scenario())


def test_no_more_handlers_work_than_there_are() -> None:
    async def scenario() -> None:
        async with serving(handlers=2) as (server, hub):
            hub.gate.clear()
            clients = [await connect(server) for _ in range(5)]
            for client in clients:
                client.send("publish a 1")
            await until(lambda: server.stats()["commands_waiting"] == 5)
            assert hub.waiting == 2
            hub.gate.set()
            await until(lambda: len(hub.published) == 5)
            for client in clients:
                client.close()

    asyncio.run(scenario())


def test_full_buffer_makes_the_sender_wait_and_drops_nothing() -> None:
    async def scenario() -> None:
        async with serving(commands=20) as (server, hub), connected(server) as client:
            hub.gate.clear()
            text = "x" * 1_000
            transport = client.writer.transport
            transport.set_write_buffer_limits(high=100_000)
            sent = 0
            # Until the kernel takes no more, though the event loop, and so the server, runs on.
            idle_rounds = 0
            while idle_rounds < 50:
                size = transport.get_write_buffer_size()
                if size < 100_000:
                    client.send(*(f"publish a {text}{number}" for number in range(sent, sent + 50)))
                    sent += 50
                    idle_rounds = 0
                idle_rounds += 1
                await asyncio.sleep(0.002)
            assert hub.published == []
            stats = server.stats()
            assert (stats["commands_waiting"], server._buffer.held_most) == (20, 20)
            (served,) = server._clients
            assert served._reader.unread_bytes <= 2 * 65_536
            assert sent > 200
            hub.gate.set()
            await until(lambda: len(hub.published) == sent)
            assert [value for _, value in hub.published] == [f"{text}{n}" for n in range(sent)]
            assert server._buffer.held_most == 20

    asyncio.run(scenario())


def test_other_clients_get_their_turn_while_one_floods() -> None:
    async def scenario() -> None:
        async with serving(commands=10, handlers=1) as (server, hub):
            hub.gate.clear()
            flooder, other = await connect(server), await connect(server)
            flooder.send(*("publish flood x" for _ in range(1_000)))
            await until(lambda: server.stats()["commands_waiting"] == 10)
            other.send("publish other 1")
            await until(lambda: sum(each.waits_for_room for each in server._clients) == 2)
            hub.gate.set()
            await until(lambda: len(hub.published) == 1_001)
            # Behind what was held already, and one more for the room it waited for.
            assert hub.published.index(("other", 1)) <= 12
            flooder.close()
            other.close()

    asyncio.run(scenario())
