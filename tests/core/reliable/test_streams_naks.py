"""Requests for repairs in as few datagrams as hold them."""

from __future__ import annotations

import json

from jsonbus.core.limits import NAK_BYTES_MAX, NAK_RANGES_MAX
from jsonbus.core.reliable.streams import pack_naks


def test_topics_of_a_publisher_share_a_nak() -> None:
    missing = [
        (("n", 1, "a"), [(1, 2)]),
        (("m", 1, "a"), [(5, 5)]),
        (("n", 1, "b"), [(3, 3), (7, 9)]),
        (("n", 2, "a"), [(4, 4)]),
    ]
    assert pack_naks(missing, NAK_BYTES_MAX) == [
        ("n", 1, [("a", [(1, 2)], []), ("b", [(3, 3), (7, 9)], [])]),
        ("m", 1, [("a", [(5, 5)], [])]),
        ("n", 2, [("a", [(4, 4)], [])]),
    ]
    assert pack_naks([], NAK_BYTES_MAX) == []


def test_ranges_of_a_nak_are_bounded_and_none_is_lost() -> None:
    ranges = [(number, number) for number in range(0, 400, 2)]
    naks = pack_naks([(("n", 1, "a"), ranges)], 1 << 20)
    assert [len(nak.topics[0].ranges) for nak in naks] == [NAK_RANGES_MAX] * 3 + [20]
    assert [each for nak in naks for each in nak.topics[0].ranges] == ranges


def test_bytes_of_a_nak_are_bounded() -> None:
    ranges = [(2**52 + each, 2**53) for each in range(5)]
    missing = [(("n", 1, f'{number}/"ä\\' * 9), ranges) for number in range(100)]
    naks = pack_naks(missing, NAK_BYTES_MAX)
    assert sum(len(missing.ranges) for nak in naks for missing in nak.topics) == 500
    for nak in naks:
        topics = [(missing.topic, missing.ranges) for missing in nak.topics]
        text = json.dumps(topics, ensure_ascii=False, separators=(",", ":"))
        assert len(text.encode()) <= NAK_BYTES_MAX


def test_one_range_is_a_nak_however_long_its_topic() -> None:
    naks = pack_naks([(("n", 1, "x" * 255), [(1, 2), (4, 4)])], 100)
    assert [nak.topics[0].ranges for nak in naks] == [[(1, 2)], [(4, 4)]]
