"""Values that no datagram holds, through real sockets on loopback."""

from __future__ import annotations

import pytest

from jsonbus.errors import PayloadTooLargeError
from tests.bus.conftest import OpenBus

MB = 1_000_000


@pytest.mark.slow
@pytest.mark.parametrize("datagram_bytes_max", [None, 1_400])
def test_values_of_many_megabytes_arrive_among_small_ones_in_order(
    open_bus: OpenBus, datagram_bytes_max: int | None
) -> None:
    publisher, reader = open_bus(datagram_bytes_max=datagram_bytes_max), open_bus()
    subscription = reader.subscribe("t")
    assert publisher.wait_for_subscribers("t", timeout=30)
    sizes = [10, 100_000, 20, MB, 30, 10 * MB, 40]
    for number, size in enumerate(sizes):
        assert publisher.publish("t", {"number": number, "text": "x" * size})
    for number, size in enumerate(sizes):
        value = subscription.get(timeout=60).value
        assert (value["number"], len(value["text"])) == (number, size)
    stats = reader.stats()
    assert stats["messages_lost"] == stats["kernel_drops"] == stats["messages_incomplete"] == 0
    assert stats["fragments_received"] > 100


def test_the_bound_of_a_value_can_be_set(open_bus: OpenBus) -> None:
    publisher, reader = open_bus(value_bytes_max=200_000), open_bus()
    subscription = reader.subscribe("t")
    assert publisher.wait_for_subscribers("t", timeout=30)
    assert publisher.publish("t", "x" * 199_998)
    for _ in range(2):  # on the long way, and on the short one
        with pytest.raises(PayloadTooLargeError, match="takes 200,001 bytes, at most 200,000 are"):
            publisher.publish("t", "x" * 199_999)
    assert publisher.publish("t", "after")
    assert len(subscription.get(timeout=30).value) == 199_998
    assert subscription.get(timeout=30).value == "after"
