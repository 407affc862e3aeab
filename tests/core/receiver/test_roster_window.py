"""The window of repeats, and the short way to the next datagram, against a plain set."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jsonbus.core.limits import DUPLICATE_WINDOW
from jsonbus.core.roster import Peer
from jsonbus.core.wire.encode_messages import Stamp, encode_message
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


def datagram(
    counter: int, first: int, *, node: str = "k3v9", incarnation: int = 7, payload: bytes = b"1"
) -> bytes:
    stamp = Stamp(node, incarnation)
    stamp.counter = counter - 1
    return encode_message(stamp, b'"t"', payload, first, SENT_US)


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


# --- The next one, recognized by its last bytes --------------------------------------------------


@pytest.mark.parametrize("node", ["k3v9", "a%d", "%", "%%b%s", "50%,", "{}", "n" * 64])
@pytest.mark.parametrize("incarnation", [0, 7, 1_731_715_200_123])
def test_next_datagram_is_told_by_its_last_bytes_whatever_the_node_is_called(
    node: str, incarnation: int
) -> None:
    peer = make_peer(node, incarnation, 1)
    for number in range(2, 120):
        data = datagram(number, number, node=node, incarnation=incarnation)
        assert peer.is_next(data)
        peer.go_on(1)
        assert not peer.is_next(data)
    assert (peer.top, peer.next_message, peer.received) == (119, 120, 119)


@pytest.mark.parametrize(
    "data",
    [
        datagram(FIRST, FIRST + 1),
        datagram(FIRST + 2, FIRST + 1),
        datagram(FIRST + 1, FIRST),
        datagram(FIRST + 1, FIRST + 2),
        datagram(FIRST + 1, FIRST + 10),
        datagram(FIRST + 1, 10 * FIRST + 10),
        datagram(FIRST + 1, FIRST + 1, node="k3v"),
        datagram(FIRST + 1, FIRST + 1, node="k3v99"),
        datagram(FIRST + 1, FIRST + 1, node="xk3v9"),
        datagram(FIRST + 1, FIRST + 1, incarnation=8),
        datagram(FIRST + 1, FIRST + 1, incarnation=77),
        datagram(FIRST + 1, FIRST + 1)[:-1],
        datagram(FIRST + 1, FIRST + 1) + b" ",
        datagram(FIRST + 9, FIRST + 9, payload=datagram(FIRST + 1, FIRST + 1)),
        b"",
        b"}}",
    ],
)
def test_anything_else_is_not_taken_for_the_next_datagram(data: bytes) -> None:
    peer = make_peer()
    assert not peer.is_next(data)
    assert peer.is_next(datagram(FIRST + 1, FIRST + 1))


def test_payload_does_not_matter_to_the_next_datagram() -> None:
    peer = make_peer()
    payload = datagram(FIRST + 5, FIRST + 5)
    assert peer.is_next(datagram(FIRST + 1, FIRST + 1, payload=payload))


def test_next_datagram_is_not_taken_for_granted_while_another_incarnation_is_heard() -> None:
    peer = make_peer()
    peer.challenger = make_peer(incarnation=8)
    assert not peer.is_next(datagram(FIRST + 1, FIRST + 1))
