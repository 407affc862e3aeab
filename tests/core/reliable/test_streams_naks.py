"""Requests for repairs in as few datagrams as hold them."""

from __future__ import annotations

import json

from jsonbus.core.limits import NAK_BYTES_MAX, NAK_RANGES_MAX
from jsonbus.core.reliable.streams import NakPacker


def test_topics_of_a_publisher_share_a_nak() -> None:
    packer = NakPacker(NAK_BYTES_MAX)
    packer.add(("n", 1, "a"), [(1, 2)])
    packer.add(("m", 1, "a"), [(5, 5)])
    packer.add(("n", 1, "b"), [(3, 3), (7, 9)])
    packer.add(("n", 2, "a"), [(4, 4)])
    assert packer.take() == [
        ("n", 1, [("a", [(1, 2)]), ("b", [(3, 3), (7, 9)])]),
        ("m", 1, [("a", [(5, 5)])]),
        ("n", 2, [("a", [(4, 4)])]),
    ]
    assert packer.take() == []


def test_ranges_of_a_nak_are_bounded_and_none_is_lost() -> None:
    packer = NakPacker(1 << 20)
    ranges = [(number, number) for number in range(0, 400, 2)]
    packer.add(("n", 1, "a"), ranges)
    naks = packer.take()
    assert [len(nak.topics[0][1]) for nak in naks] == [NAK_RANGES_MAX] * 3 + [20]
    assert [each for nak in naks for each in nak.topics[0][1]] == ranges


def test_bytes_of_a_nak_are_bounded() -> None:
    packer = NakPacker(NAK_BYTES_MAX)
    for number in range(100):
        packer.add(("n", 1, f'{number}/"ä\\' * 9), [(2**52 + each, 2**53) for each in range(5)])
    naks = packer.take()
    assert sum(len(ranges) for nak in naks for _, ranges in nak.topics) == 500
    for nak in naks:
        text = json.dumps(nak.topics, ensure_ascii=False, separators=(",", ":"))
        assert len(text.encode()) <= NAK_BYTES_MAX


def test_one_range_is_a_nak_however_long_its_topic() -> None:
    packer = NakPacker(100)
    packer.add(("n", 1, "x" * 255), [(1, 2), (4, 4)])
    assert [nak.topics[0][1] for nak in packer.take()] == [[(1, 2)], [(4, 4)]]
