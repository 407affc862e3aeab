"""The window of repeats, and the short way to the next datagram, against a plain set."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jsonbus.core.limits import DUPLICATE_WINDOW
from jsonbus.core.roster import Peer
from jsonbus.core.wire.frames import Header
from tests.core.generated import unhurried

ADDRESS = ("10.0.0.1", 2416)
FIRST = 5_000  # so that there is something before it
SENT_US = 1_731_715_200_123_456


def make_peer(node: str = "k3v9", incarnation: int = 7, first: int = FIRST) -> Peer:
    peer = Peer(Header(node, incarnation, first, first, SENT_US), ADDRESS)
    assert peer.admit(first)
    peer.count_messages(first, 1)
    return peer


class Model:
    """Which of the last 1,024 datagrams were heard."""

    def __init__(self) -> None:
        self.top = FIRST
        self.heard = {FIRST}

    def admit(self, counter: int) -> bool:
        is_new = counter > self.top - DUPLICATE_WINDOW and counter not in self.heard
        if is_new:
            self.heard.add(counter)
            self.top = max(self.top, counter)
        return is_new


ways = st.sampled_from(["admit", "go_on"])
distances = (
    st.integers(-5, 5)
    | st.integers(-1_100, 1_100)
    | st.sampled_from([-1_025, -1_024, -1_023, 1_023, 1_024, 1_025, 40_000])
)
steps = st.lists(
    st.tuples(ways, st.integers(1, 5) | st.sampled_from([1_022, 1_023, 1_024, 1_025, 2_500]))
    | st.tuples(st.just("hear"), distances),
    max_size=30,
)


@pytest.mark.slow
@settings(unhurried, max_examples=200)
@given(steps)
def test_every_datagram_is_admitted_once_by_whichever_way_the_next_ones_come(
    script: list[tuple[str, int]],
) -> None:
    peer, model = make_peer(), Model()
    for step, number in script:
        if step == "hear":
            counter = model.top + number
            assert peer.admit(counter) == model.admit(counter)
            assert not peer.admit(counter)
        else:
            for _ in range(number):
                assert take_next(peer, step)
                assert model.admit(peer.top)
        assert peer.top == model.top
    for counter in range(model.top - DUPLICATE_WINDOW - 2, model.top + 1):
        assert peer.admit(counter) == model.admit(counter)


def take_next(peer: Peer, way: str) -> bool:
    if way == "admit":
        return peer.admit(peer.top + 1)
    peer.go_on(1)
    return True


@settings(unhurried, max_examples=100)
@given(
    st.lists(
        st.tuples(st.sampled_from(["count", "go_on", "lose"]), st.integers(0, 9)),
        max_size=40,
    )
)
def test_messages_are_counted_alike_by_whichever_way_they_come(
    script: list[tuple[str, int]],
) -> None:
    peer = make_peer()
    number, received, lost = FIRST + 1, 1, 0
    counter = FIRST
    for step, count in script:
        counter += 1
        if step == "lose":
            number += count
            lost += count
            count = 1
        if step == "go_on":
            peer.go_on(count)
        else:  # something is missing, perhaps: only the long way tells
            assert peer.admit(counter)
            peer.count_messages(number, count)
        number += count
        received += count
        assert (peer.top, peer.next_message) == (counter, number)
        assert (peer.received, peer.lost) == (received, lost)
