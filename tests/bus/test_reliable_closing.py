"""A publisher that closes right after its last reliable message."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from jsonbus.transport import MemoryNetwork
from tests.bus.conftest import OpenBus
from tests.sync.transports import RecordingTransport


class ForgetfulTransport(RecordingTransport):
    """Loses the first datagrams that hold these bytes."""

    def __init__(self, network: MemoryNetwork, text: bytes, times: int = 1) -> None:
        super().__init__(network)
        self.text = text
        self.times = times

    def send(self, run: Sequence[bytes]) -> bool:
        for datagram in run:
            if self.times and self.text in datagram:
                self.times -= 1
            elif not super().send((datagram,)):
                return False
        return True


@pytest.mark.slow
def test_what_was_lost_of_the_last_messages_is_repaired_before_the_bus_is_gone(
    network: MemoryNetwork, open_over: OpenBus
) -> None:
    reader = open_over(network.open())
    subscription = reader.subscribe("t")
    transport = ForgetfulTransport(network, b'"the last one"', times=2)
    with open_over(transport, reliable=True) as publisher:
        assert publisher.wait_for_subscribers("t", timeout=30)
        assert publisher.publish("t", "first")
        assert subscription.get(timeout=30).value == "first"
        assert publisher.publish("t", "the last one")
    assert publisher.is_closed
    assert transport.times == 0
    assert subscription.get(timeout=30).value == "the last one"
    assert reader.stats()["messages_lost"] == 0
