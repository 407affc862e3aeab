"""How fast datagrams may leave."""

from __future__ import annotations

import itertools
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jsonbus.core.pacing import (
    BLIND_BYTES,
    BLIND_S,
    BURST_S,
    CHARGE_PER_BYTE,
    CHARGE_PER_DATAGRAM,
    FREE_BYTES,
    PROGRESS_SHARE,
    RETRY_S,
    STUCK_S,
    Fill,
    Pacer,
)
from tests.core.generated import unhurried

START = 1000.0
LIMIT = 425_984  # what Linux gives by default to who asks for more
LARGEST = 65_507


class Sender:
    """Whoever uses a pacer, as the head of pacing.py tells it to, under a hand-held clock."""

    def __init__(self, pacer: Pacer) -> None:
        self.pacer = pacer
        self.now = START
        self.allowance = 0.0
        self.sent: list[tuple[float, int]] = []

    def send(self, size_bytes: int, fill: Fill | None = None) -> bool:
        """Send a datagram if that is allowed now."""
        if self.allowance <= 0:
            self.allowance = self.pacer.allowance(self.allowance, self.now, fill)
        if self.allowance <= 0:
            return False
        self.allowance -= self.pacer.per_datagram + self.pacer.per_byte * size_bytes
        self.sent.append((self.now, size_bytes))
        return True

    def send_all(self, sizes: Iterable[int]) -> None:
        """Send each as soon as it is allowed."""
        for size in sizes:
            while not self.send(size):
                self.now += self.pacer.retry_s


# --- Rate ----------------------------------------------------------------------------------------


def test_without_limit_and_buffers_much_is_allowed_at_once_and_nothing_ever_waits() -> None:
    sender = Sender(Pacer(None))
    assert all(sender.send(1400) for _ in range(10_000))
    assert sender.pacer.waits == 0
    assert Pacer(None).allowance(0, START, None) == FREE_BYTES


@pytest.mark.parametrize("rate", [1_000, 64_000, 10_000_000, 1_000_000_000])
@pytest.mark.parametrize("size", [106, 1_400, LARGEST])
def test_a_flood_leaves_at_the_rate_that_was_asked_for(rate: int, size: int) -> None:
    sender = Sender(Pacer(rate))
    count = 100 + int(10 * sender.pacer.burst_bytes / size)
    sender.send_all([size] * count)
    # The first burst is free, and the debt of the last datagram is still to be paid.
    paid = rate * (sender.now - START)
    assert count * size == pytest.approx(paid, abs=2 * sender.pacer.burst_bytes + size)


def test_a_datagram_larger_than_a_burst_leaves_and_is_paid_for_before_the_next() -> None:
    rate = 10_000
    sender = Sender(Pacer(rate))
    assert sender.send(LARGEST)
    assert not sender.send(1)
    assert sender.pacer.retry_s == pytest.approx(LARGEST / rate, rel=0.01)
    sender.now += 0.9 * LARGEST / rate
    assert not sender.send(1)
    sender.now += sender.pacer.retry_s
    assert sender.send(1)
    assert sender.pacer.waits == 2


def test_what_was_not_sent_for_long_is_not_made_up_for() -> None:
    rate = 1_000_000
    sender = Sender(Pacer(rate))
    sender.now += 3600
    sent = sum(1 for _ in itertools.takewhile(lambda _: sender.send(100), range(10_000)))
    assert sent * 100 <= 2 * rate * BURST_S + 100


def test_what_is_left_of_an_answer_is_not_lost() -> None:
    """A full buffer cuts an answer short; the rest stays in the bucket."""
    pacer = Pacer(10_000_000)
    cut = pacer.allowance(0, START, Fill(LIMIT // 2 - 1, LIMIT))
    assert 0 < cut < pacer.burst_bytes
    assert pacer.allowance(0, START, None) == pytest.approx(pacer.burst_bytes - cut)
    assert pacer.allowance(0, START, None) == 0


steps = st.lists(st.tuples(st.floats(0, 0.05), st.integers(1, LARGEST)), min_size=1, max_size=60)


@unhurried
@given(rate=st.floats(1_000, 1e9), steps=steps)
def test_no_window_sees_more_than_rate_and_bursts_allow(
    rate: float, steps: list[tuple[float, int]]
) -> None:
    sender = Sender(Pacer(rate))
    for pause_s, size in steps:
        sender.now += pause_s
        sender.send(size)
    burst = 2 * sender.pacer.burst_bytes + LARGEST
    for first, (begin, _) in enumerate(sender.sent):
        total = 0
        for end, size in sender.sent[first:]:
            total += size
            assert total <= (rate * (end - begin) + burst) * (1 + 1e-9)


@pytest.mark.slow
@unhurried
@given(rate=st.floats(1_000, 1e9), sizes=st.lists(st.integers(1, LARGEST), max_size=30))
def test_whoever_waits_as_told_sends_at_the_second_try(rate: float, sizes: list[int]) -> None:
    sender = Sender(Pacer(rate))
    for size in sizes:
        if not sender.send(size):
            assert sender.pacer.retry_s > 0
            sender.now += sender.pacer.retry_s
            assert sender.send(size)


# --- Buffers -------------------------------------------------------------------------------------


def test_a_safe_part_of_the_room_is_allowed() -> None:
    empty = Pacer(None).allowance(0, START, Fill(0, LIMIT))
    half_empty = Pacer(None).allowance(0, START, Fill(LIMIT // 4, LIMIT))
    assert 0 < half_empty < empty
    # Two may be asking at once.
    assert empty * 2 <= LIMIT * 3 / 4
    assert half_empty * 2 <= LIMIT * 2 / 4
    assert empty >= 10 * (CHARGE_PER_DATAGRAM + 1400 * CHARGE_PER_BYTE)  # asking costs as much


#: What Linux charges a buffer on loopback, measured, for the smallest datagram of each step.
CHARGES = {105: 832, 200: 1280, 700: 2304, 3000: 4352, 8000: 16640, 16000: 16640, 65507: 66339}


@pytest.mark.parametrize("size", CHARGES)
@pytest.mark.parametrize("rate", [None, 1e9])
def test_a_datagram_takes_at_least_what_buffers_are_charged(size: int, rate: float | None) -> None:
    room = Pacer(None).allowance(0, START, Fill(0, LIMIT))
    pacer = Pacer(rate)
    datagrams = pacer.allowance(0, START, Fill(0, LIMIT)) / (
        pacer.per_datagram + pacer.per_byte * size
    )
    assert datagrams * CHARGES[size] <= room


def test_a_full_buffer_is_waited_for_until_it_was_read() -> None:
    pacer = Pacer(None)
    assert pacer.allowance(0, START, Fill(LIMIT // 2, LIMIT)) == 0
    assert pacer.retry_s == RETRY_S
    assert pacer.allowance(0, START + RETRY_S, Fill(LIMIT // 2 - 1, LIMIT)) > 0
    assert (pacer.waits, pacer.given_up) == (1, 0)


def test_a_buffer_that_is_read_slowly_is_waited_for_as_long_as_it_takes() -> None:
    pacer, now, queued = Pacer(None), START, LIMIT
    while queued >= LIMIT / 2:
        assert pacer.allowance(0, now, Fill(queued, LIMIT)) == 0
        now += STUCK_S * 0.9
        queued -= int(LIMIT * PROGRESS_SHARE) + 1
    assert pacer.allowance(0, now, Fill(queued, LIMIT)) > 0
    assert pacer.given_up == 0


@pytest.mark.parametrize("read_bytes", [0, LIMIT // 1000])
def test_a_receiver_that_hardly_reads_is_given_up_and_looked_at_again(read_bytes: int) -> None:
    pacer = Pacer(None)
    full, now = LIMIT, START
    for _ in range(3):
        given_up = pacer.given_up
        while pacer.allowance(0, now, Fill(full, LIMIT)) == 0:
            full -= read_bytes // 100
            now += RETRY_S
        assert pacer.given_up == given_up + 1
        began = now
        while pacer.allowance(0, now, Fill(full, LIMIT)) > 0:
            now += RETRY_S
        assert BLIND_S <= now - began <= BLIND_S + 2 * RETRY_S
    assert STUCK_S / RETRY_S <= pacer.waits / 3 <= STUCK_S / RETRY_S + 3


def test_a_receiver_that_reads_again_is_spared_again() -> None:
    pacer = Pacer(None)
    assert pacer.allowance(0, START, Fill(LIMIT, LIMIT)) == 0
    assert pacer.allowance(0, START + STUCK_S, Fill(LIMIT, LIMIT)) == BLIND_BYTES
    back = START + STUCK_S + BLIND_S / 10
    assert pacer.allowance(0, back, Fill(LIMIT, LIMIT)) == BLIND_BYTES
    assert 0 < pacer.allowance(0, back, Fill(0, LIMIT)) < BLIND_BYTES
    # The next wait begins at once, with a patience of its own.
    assert pacer.allowance(0, back, Fill(LIMIT, LIMIT)) == 0
    assert pacer.allowance(0, back + STUCK_S / 2, Fill(LIMIT, LIMIT)) == 0
    assert pacer.given_up == 1


fills = st.none() | st.builds(Fill, st.integers(0, 1 << 32), st.integers(0, 1 << 32))


@pytest.mark.slow
@unhurried
@given(rate=st.none() | st.floats(1_000, 1e9), fills=st.lists(fills, max_size=50))
def test_no_fill_whatsoever_stops_a_sender_for_ever(
    rate: float | None, fills: list[Fill | None]
) -> None:
    """Whatever was told before, then a buffer that stays as it is: something leaves in time."""
    sender = Sender(Pacer(rate))
    for fill in fills:
        sender.send(1400, fill)
        sender.now += sender.pacer.retry_s
    for fill in {*fills, Fill(0, 0), Fill(1 << 40, 1)}:
        debt_s = 0.0 if rate is None else 1400 / rate + BURST_S
        deadline = sender.now + debt_s + 2 * STUCK_S
        while not sender.send(1400, fill):
            sender.now += sender.pacer.retry_s
            assert sender.now < deadline


def test_rate_and_buffers_hold_together() -> None:
    pacer = Pacer(1_000_000)
    assert pacer.allowance(0, START, Fill(LIMIT, LIMIT)) == 0
    assert pacer.retry_s == RETRY_S
    assert pacer.allowance(0, START, Fill(0, LIMIT)) == pacer.burst_bytes
    # Nobody is given up while the rate is what stops the sender.
    left = -1_000_000.0
    for number in range(5):
        assert pacer.allowance(left, START + number * STUCK_S, Fill(LIMIT, LIMIT)) == 0
        left = 0.0
    assert pacer.given_up == 0
