"""Messages on a channel: what may be sent, in which order it comes, what is too large."""

from __future__ import annotations

from tests.channel_peers import LONG_S
from tests.sync.channels.channel_pair import InThread, open_pair
from tests.sync.conftest import OpenBus


def test_many_threads_share_a_channel_and_each_message_is_received_once(open_bus: OpenBus) -> None:
    here, there, *_ = open_pair(open_bus)
    count = 500
    got: list[list[tuple[int, int]]] = [[] for _ in range(4)]

    def send(sender: int) -> None:
        for number in range(count):
            here.send([sender, number])

    def receive(receiver: int) -> None:
        for sender, number in there:
            got[receiver].append((sender, number))

    receivers = [InThread(receive, each) for each in range(4)]
    senders = [InThread(send, each) for each in range(4)]
    for each in senders:
        each.result()
    assert here.close(LONG_S)
    for each in receivers:
        each.result()
    assert sorted(sum(got, [])) == [(s, n) for s in range(4) for n in range(count)]
    for messages in got:
        for sender in range(4):
            numbers = [number for who, number in messages if who == sender]
            assert numbers == sorted(numbers)
