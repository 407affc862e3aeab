"""A subscriber that hears nothing for a while: it gets what it missed, or the exact number."""

from __future__ import annotations

import contextlib
import itertools
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

import pytest

from tests.helpers import wait_until
from tests.netns.commands import TIMEOUT_S, names_known
from tests.netns.conftest import MakeLab
from tools.lab.host import Host
from tools.lab.network import Lab
from tools.lab.process import Process
from tools.lab.shape import Shape

RATE_PER_S = 50
#: Of what is published in this time, a third is kept no more when it is asked for.
DEAF_S = 15.0

DEAF_RULES = (
    "add table inet deaf; "
    "add chain inet deaf input { type filter hook input priority 0; }; "
    "add rule inet deaf input udp dport 2416 drop"
)

Deafen = Callable[[Lab, Host], AbstractContextManager[None]]


@contextlib.contextmanager
def by_nftables(network: Lab, host: Host) -> Iterator[None]:
    """The host's own kernel throws away what comes to the port."""
    if shutil.which("nft") is None:
        pytest.skip("needs the command nft (package nftables); the relay covers the same behaviour")
    host.namespace.run("nft", DEAF_RULES)
    yield
    host.namespace.run("nft", "delete table inet deaf")


@contextlib.contextmanager
def by_the_relay(network: Lab, host: Host) -> Iterator[None]:
    """Every frame to the host is lost."""
    network.hub.shape(Shape(loss=1), host.name)
    yield
    network.hub.shape(Shape())


@pytest.mark.parametrize("deafen", [by_nftables, by_the_relay])
def test_who_was_deaf_for_longer_than_is_kept_gets_the_rest_and_is_told_the_number(
    lab: MakeLab, deafen: Deafen
) -> None:
    network = lab(2, hub="relay")
    subscriber, publisher = network.hosts
    reader = subscriber.start("sub", "--gaps", "steps", "--name", "reader")
    writer = publisher.start("pub", "--reliable", "--wait", "60", "steps", is_fed=True)
    assert wait_until(lambda: "reader" in names_known(publisher), TIMEOUT_S)
    steps = itertools.count()
    writer.feed(str(next(steps)))
    assert reader.wait_until(lambda p: count_known(p) == 1, TIMEOUT_S), reader.report()

    with deafen(network, subscriber):
        # The span is what is tried here: longer than a publisher keeps its messages.
        for _ in range(int(DEAF_S * RATE_PER_S)):
            writer.feed(str(next(steps)))
            time.sleep(1 / RATE_PER_S)
        assert count_known(reader) == 1
    last = next(steps)
    writer.feed(str(last))

    assert reader.wait_until(lambda p: count_known(p) > last, TIMEOUT_S), reader.report()
    came = values(reader)
    told = [number for gap in gaps(reader) for number in range(gap["first"] - 1, gap["last"])]
    assert came == sorted(came) and came[-1] == last
    # Each came once, or was counted once; and what was still kept was not given up.
    assert sorted(came + told) == list(range(last + 1))
    assert told == list(range(1, len(told) + 1)) and 0 < len(told) < last - 1


def values(process: Process) -> list[int]:
    return [each["value"] for each in process.objects() if "value" in each]


def gaps(process: Process) -> list[dict[str, Any]]:
    return [each["jsonbus.gap"] for each in process.objects() if "jsonbus.gap" in each]


def count_known(process: Process) -> int:
    """Return how many messages came or were told as missing."""
    return len(values(process)) + sum(gap["count"] for gap in gaps(process))
