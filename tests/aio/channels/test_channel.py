"""Messages on a channel: what may be sent, in which order it comes, what is too large."""

from __future__ import annotations

from tests.aio.channels.channel_pair import InTask, open_pair
from tests.aio.running import asynctest, buses
from tests.channel_peers import LONG_S


@asynctest
async def test_many_tasks_share_a_channel_and_each_message_is_received_once() -> None:
    async with buses() as open_bus:
        here, there, *_ = await open_pair(open_bus)
        count = 500
        got: list[list[tuple[int, int]]] = [[] for _ in range(4)]

        async def send(sender: int) -> None:
            for number in range(count):
                await here.send([sender, number])

        async def receive(receiver: int) -> None:
            async for sender, number in there:
                got[receiver].append((sender, number))

        receivers = [InTask(receive(each)) for each in range(4)]
        senders = [InTask(send(each)) for each in range(4)]
        for each in senders:
            await each.result()
        assert await here.close(LONG_S)
        for each in receivers:
            await each.result()
        assert sorted(sum(got, [])) == [(s, n) for s in range(4) for n in range(count)]
        for messages in got:
            for sender in range(4):
                numbers = [number for who, number in messages if who == sender]
                assert numbers == sorted(numbers)
