"""A channel that is given up looks to the other side as one that was lost."""

from __future__ import annotations

from typing import Any

import pytest

from jsonbus.errors import ChannelClosedError
from tests.bus.conftest import OpenBus
from tests.helpers import wait_until


def connected(open_bus: OpenBus) -> tuple[Any, Any]:
    binding = open_bus(name="garage").bind("files")
    channel = open_bus().connect("garage", "files", timeout=30)
    return channel, binding.accept(timeout=30)


def test_a_channel_that_is_given_up_is_lost_to_the_other_side(open_bus: OpenBus) -> None:
    ours, theirs = connected(open_bus)
    ours.send(1)
    assert theirs.receive(timeout=30) == 1
    ours.abort()
    with pytest.raises(ChannelClosedError, match="is gone") as there:
        theirs.receive(timeout=30)
    assert there.value.is_lost
    with pytest.raises(ChannelClosedError, match="it was given up here"):
        ours.receive(timeout=30)
    assert (ours.close(), theirs.close()) == (False, False)


def test_a_channel_that_is_given_up_while_it_closes_is_not_confirmed(open_bus: OpenBus) -> None:
    ours, theirs = connected(open_bus)
    while theirs.try_send(bytes(1 << 16)):
        pass  # it is stuck: what is behind cannot be read
    assert not theirs.close(timeout=0)
    theirs.abort()
    assert wait_until(lambda: theirs.state == "closed")
    assert not theirs.close()


def test_a_channel_is_given_up_before_it_opens(open_bus: OpenBus) -> None:
    channel = open_bus().connect("nobody", "files", timeout=30, retry=True, wait=False)
    channel.abort()
    assert channel.is_closed
    with pytest.raises(ChannelClosedError):
        channel.send(1)


def test_who_closed_it_first_is_told(open_bus: OpenBus) -> None:
    ours, theirs = connected(open_bus)
    assert ours.close(timeout=30)
    for channel, is_closed_here in ((ours, True), (theirs, False)):
        with pytest.raises(ChannelClosedError) as closed:
            channel.receive(timeout=30)
        assert (closed.value.is_closed_here, closed.value.is_lost) == (is_closed_here, False)


def test_a_block_that_fails_gives_its_channel_up(open_bus: OpenBus) -> None:
    ours, theirs = connected(open_bus)
    with pytest.raises(ZeroDivisionError), ours:
        ours.send(1)
        assert theirs.receive(timeout=30) == 1
        _ = 1 / 0
    with pytest.raises(ChannelClosedError) as there:
        theirs.receive(timeout=30)
    assert there.value.is_lost
