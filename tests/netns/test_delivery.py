"""Reliable messages in the lab: whatever the network does, each arrives once and in order."""

from __future__ import annotations

import pytest

from tests.netns.commands import TIMEOUT_S, values
from tests.netns.conftest import MakeLab
from tools.lab.delivery import Delivery, Load
from tools.lab.host import Host
from tools.lab.process import Process
from tools.lab.shape import Shape

# Arguments: how many numbers, seconds between two. Publishes them reliably to "tick" once somebody
# wants them, and stays.
TICKER = """
import sys, time, jsonbus
count, pause_s = int(sys.argv[1]), float(sys.argv[2])
with jsonbus.Bus(name="ticker", reliable=True) as bus:
    assert bus.wait_for_subscribers("tick", timeout=60)
    while not any(pong.name == "reader" for pong in bus.ping(0.3)):
        pass
    for number in range(count):
        bus.publish("tick", number)
        time.sleep(pause_s)
    print("done", flush=True)
    time.sleep(3600)
"""

# Argument: bytes. Publishes one value of that size reliably to "large", and stays.
LARGE = """
import sys, time, jsonbus
with jsonbus.Bus(name="writer") as bus:
    assert bus.wait_for_subscribers("large", timeout=60)
    while not any(pong.name == "reader" for pong in bus.ping(0.3)):
        pass
    bus.publish("large", "x" * int(sys.argv[1]), reliable=True)
    time.sleep(3600)
"""

# Prints the length of each value of "large".
LARGE_READER = """
import jsonbus
with jsonbus.Bus(name="reader") as bus:
    for message in bus.subscribe("large"):
        print(len(message.value), flush=True)
"""

# Retains a value that nobody wants yet, and stays.
KEEPER = """
import time, jsonbus
with jsonbus.Bus(name="keeper") as bus:
    bus.publish("door", "open", retain=True)
    print("kept", flush=True)
    time.sleep(3600)
"""


@pytest.mark.parametrize("loss", [0.01, 0.05, 0.2])
def test_everything_arrives_once_and_in_order_on_a_bad_network(lab: MakeLab, loss: float) -> None:
    shape = Shape(loss, delay_ms=10, jitter_ms=10, repeat=0.01, reorder=0.05)
    load = Load(publishers=3, subscribers=5, topics=2, count=500)
    outcome = Delivery(lab(8, shape), load).wait(2 * TIMEOUT_S)
    assert outcome.delivered == load.expected
    assert (outcome.late, outcome.repeated, outcome.given_up) == (0, 0, 0)
    assert outcome.repaired > 0 and outcome.naks > 0


def start_ticking(writer: Host, reader: Host, count: int) -> tuple[Process, Process]:
    listener = reader.start("sub", "tick", "--name", "reader")
    ticker = writer.start_script(TICKER, str(count), "0.01")
    assert listener.wait_until(lambda p: len(values(p)) > 20, TIMEOUT_S), ticker.report()
    return ticker, listener


def test_a_host_that_was_cut_off_for_three_seconds_misses_nothing(lab: MakeLab) -> None:
    one, two = lab(2).hosts
    ticker, listener = start_ticking(two, one, 600)
    one.set_link(False)
    heard = len(values(listener))
    # The span is what is tried here: within the history's age, far beyond the time of a NAK.
    watch = two.start_script("import time; time.sleep(3)")
    assert watch.wait(TIMEOUT_S) == 0
    assert len(values(listener)) <= heard + 20
    one.set_link(True)
    assert listener.wait_until(lambda p: len(values(p)) == 600, TIMEOUT_S), ticker.report()
    assert values(listener) == list(range(600))


def test_a_publisher_whose_interface_went_down_and_up_loses_nothing(lab: MakeLab) -> None:
    one, two = lab(2).hosts
    _, listener = start_ticking(two, one, 300)
    two.set_link(False)
    two.set_link(True)
    assert listener.wait_until(lambda p: len(values(p)) == 300, TIMEOUT_S)
    assert values(listener) == list(range(300))


def test_a_value_of_a_million_bytes_arrives_at_five_percent_loss(lab: MakeLab) -> None:
    one, two = lab(2, Shape(0.05, delay_ms=2, jitter_ms=2)).hosts
    reader = one.start_script(LARGE_READER)
    two.start_script(LARGE, "1000000")
    assert reader.wait_until(lambda p: p.lines() == ["1000000"], 2 * TIMEOUT_S), reader.report()


def test_a_late_subscriber_on_a_bad_network_gets_the_retained_value(lab: MakeLab) -> None:
    one, two, three = lab(3, Shape(0.05, delay_ms=5, jitter_ms=5)).hosts
    keeper = one.start_script(KEEPER)
    assert keeper.wait_until(lambda p: p.lines() == ["kept"], TIMEOUT_S), keeper.report()
    for host in (two, three):
        late = host.start("sub", "door")
        assert late.wait_until(lambda p: values(p) == ["open"], TIMEOUT_S), late.report()
