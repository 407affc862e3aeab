"""A list in parts: each fits a datagram, each can be merged alone."""

from __future__ import annotations

import math
import random

import pytest

from jsonbus.core.fast_publish import FastPublish
from jsonbus.core.limits import LIST_BURST_DATAGRAMS, LIST_BURST_PAUSE_S
from jsonbus.core.membership.list_sender import ListSender, encode_parts
from jsonbus.core.membership.subscription_list import FrozenList, SubscriptionList
from jsonbus.core.outbox import Outbox
from jsonbus.core.wire.decode import decode
from jsonbus.core.wire.encode_messages import Stamp
from jsonbus.core.wire.frames import ALL_BUCKETS, Entry, ListFrame

NOW = 1000.0
LEASE = 7.0


class Sending:
    """A sender with its outbox and clock."""

    def __init__(self, datagram_bytes_max: int = 1400) -> None:
        self.now = NOW
        self.outbox = Outbox(
            Stamp("own-id-of-a-node", 1),
            datagram_bytes_max,
            0.0,
            batching=True,
            fast_publish=FastPublish(),
        )
        self.sender = ListSender(self.outbox)
        self._room_bytes = self.outbox.list_room_bytes(datagram_bytes_max)
        self.bursts: list[list[bytes]] = []

    def start(self, entries: list[Entry], covers: int = ALL_BUCKETS) -> None:
        frozen = FrozenList(entries)
        parts = encode_parts(
            [(entry, 1.5) for entry in entries],
            self._room_bytes,
            digest=frozen.digest,
            sums=frozen.sums,
            covers=covers,
            settled=True,
        )
        self.sender.start(parts, self.now)
        self.bursts.append(self.outbox.take(self.now))

    def finish(self) -> list[bytes]:
        """All datagrams."""
        while self.sender.is_sending:
            self.now = self.sender.timer_at
            self.sender.send_burst(self.now)
            self.bursts.append(self.outbox.take(self.now))
        return [datagram for burst in self.bursts for datagram in burst]

    def send(self, entries: list[Entry], covers: int = ALL_BUCKETS) -> list[bytes]:
        self.start(entries, covers)
        return self.finish()


def decode_list(datagram: bytes) -> ListFrame:
    frame = decode(datagram)
    assert isinstance(frame, ListFrame)
    return frame


def make_entries(count: int, seed: int = 1, pattern_chars: int = 12) -> list[Entry]:
    dice = random.Random(seed)
    return [
        Entry(
            f"{number:016d}",
            1_731_715_200_123 + number,
            dice.randint(1, 40),
            f"node {number}",
            tuple(
                "/".join(dice.choice("abcdefgh") * pattern_chars for _ in range(2))
                for _ in range(dice.randint(0, 3))
            )[:1]
            + (f"own/{number}",),
        )
        for number in range(count)
    ]


def test_small_list_is_one_datagram() -> None:
    (datagram,) = Sending().send(make_entries(3))
    frame = decode_list(datagram)
    assert frame.part == (0, 1)
    assert [entry for entry, _ in frame.entries] == make_entries(3)
    assert frame.covers == ALL_BUCKETS
    assert frame.settled


@pytest.mark.parametrize("datagram_bytes_max", [1400, 1200, 8_000])
@pytest.mark.parametrize("pattern_chars", [3, 60, 120])
def test_every_part_fits_a_datagram(datagram_bytes_max: int, pattern_chars: int) -> None:
    datagrams = Sending(datagram_bytes_max).send(make_entries(120, pattern_chars=pattern_chars))
    assert len(datagrams) > 1
    assert max(map(len, datagrams)) <= datagram_bytes_max


def test_parts_that_must_be_small_fit_too() -> None:
    datagrams = Sending(600).send(make_entries(50, pattern_chars=3))
    with_sums = [datagram for datagram in datagrams if decode_list(datagram).sums is not None]
    rest = [datagram for datagram in datagrams if decode_list(datagram).sums is None]
    assert max(map(len, rest)) <= 600
    assert len(with_sums) <= 1  # the sums alone take more


def test_escaped_names_and_patterns_fit_too() -> None:
    awkward = [
        Entry(f"n{number}", 2**53, 2**53, '"\\' * 60, (('"\\' * 40) + f"{number}", "ü" * 60))
        for number in range(20)
    ]
    assert max(map(len, Sending().send(awkward))) <= 1400


def test_entry_too_large_for_a_datagram_travels_alone_and_whole() -> None:
    large = Entry("large", 1, 1, "large", tuple(f"{number:04d}/{'x' * 50}" for number in range(60)))
    entries = [*make_entries(2), large, *make_entries(9)[5:]]
    frames = [decode_list(datagram) for datagram in Sending().send(entries)]
    (alone,) = [frame for frame in frames if large in [entry for entry, _ in frame.entries]]
    assert len(alone.entries) == 1


def test_parts_are_well_filled() -> None:
    entries = make_entries(1_000)
    datagrams = Sending().send(entries)
    total = sum(map(len, datagrams))
    assert total / len(datagrams) > 1_000
    assert len(datagrams) < 120  # about 100 bytes an entry, ten entries a part


def test_parts_hold_every_entry_once_and_the_digest_of_the_whole() -> None:
    entries = make_entries(300)
    frames = [decode_list(datagram) for datagram in Sending().send(entries)]
    listed = [entry for frame in frames for entry, _ in frame.entries]
    assert listed == entries
    assert {frame.digest for frame in frames} == {FrozenList(entries).digest}
    assert [frame.part for frame in frames] == [
        (index, len(frames)) for index in range(len(frames))
    ]


def test_parts_carry_the_ages() -> None:
    frames = [decode_list(datagram) for datagram in Sending().send(make_entries(50))]
    assert {age_s for frame in frames for _, age_s in frame.entries} == {1.5}


def test_last_part_alone_has_the_sums() -> None:
    entries = make_entries(300)
    frames = [decode_list(datagram) for datagram in Sending().send(entries)]
    assert [frame.sums for frame in frames[:-1]] == [None] * (len(frames) - 1)
    assert frames[-1].sums == FrozenList(entries).sums


def test_every_part_can_be_merged_alone_and_in_any_order() -> None:
    entries = make_entries(300)
    frames = [decode_list(datagram) for datagram in Sending().send(entries)]
    random.Random(4).shuffle(frames)
    known = SubscriptionList()
    for done, frame in enumerate(frames, 1):
        for entry, age_s in frame.entries:
            known.merge(entry, age_s, NOW, LEASE)
        assert (known.digest == frame.digest) == (done == len(frames))


def test_parts_of_a_repair_say_what_they_cover() -> None:
    frames = [decode_list(d) for d in Sending().send(make_entries(40), covers=0b1010)]
    assert {frame.covers for frame in frames} == {0b1010}


def test_long_list_goes_out_in_bursts_with_pauses() -> None:
    sending = Sending()
    sending.start(make_entries(2_000))
    assert len(sending.bursts[0]) == LIST_BURST_DATAGRAMS
    assert sending.sender.timer_at == pytest.approx(NOW + LIST_BURST_PAUSE_S)
    sending.finish()
    assert {len(burst) for burst in sending.bursts[:-1]} == {LIST_BURST_DATAGRAMS}
    assert sending.now == pytest.approx(NOW + LIST_BURST_PAUSE_S * (len(sending.bursts) - 1))
    assert sending.sender.timer_at == math.inf


def test_stopped_sender_sends_no_more() -> None:
    sending = Sending()
    sending.start(make_entries(2_000))
    sending.sender.stop()
    assert not sending.sender.is_sending
    sending.sender.send_burst(NOW + 1)
    assert sending.outbox.take(NOW + 1) == []


def test_next_list_begins_at_its_beginning() -> None:
    sending = Sending()
    sending.send(make_entries(40))
    sending.bursts.clear()
    frames = [decode_list(datagram) for datagram in sending.send(make_entries(40))]
    assert [entry for frame in frames for entry, _ in frame.entries] == make_entries(40)


def test_empty_list_is_still_a_datagram() -> None:
    # Somebody may have to learn that a bucket is empty here.
    (datagram,) = Sending().send([], covers=1)
    assert decode_list(datagram).entries == []
