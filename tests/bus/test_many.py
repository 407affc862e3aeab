"""Many buses in one process, as tests and simulators of applications have them."""

from __future__ import annotations

import pytest

from tests.bus.conftest import OpenBus
from tests.helpers import wait_until

BUSES = 100


@pytest.mark.slow
def test_a_hundred_buses_in_one_process_find_each_other_and_talk(open_bus: OpenBus) -> None:
    buses = [open_bus(name=f"bus-{number}") for number in range(BUSES)]
    readers = [bus.subscribe(f"to/{number}") for number, bus in enumerate(buses)]
    for bus in buses:
        assert bus.wait_until_sure(timeout=60)
        assert wait_until(lambda bus=bus: len(bus.nodes()) == BUSES, timeout_s=60)
    for number, bus in enumerate(buses):
        to = f"to/{(number + 1) % BUSES}"
        assert bus.wait_for_subscribers(to, timeout=60)
        assert bus.publish(to, number, reliable=True)
    for number, reader in enumerate(readers):
        assert reader.get(timeout=60).value == (number - 1) % BUSES
    # Wait for doubts to pass: a busy machine may be slow to hear a node that is here.
    assert wait_until(lambda: all(bus.state == "sure" for bus in buses), timeout_s=60)
    assert buses[0].publish("to/nobody", 1) is False
