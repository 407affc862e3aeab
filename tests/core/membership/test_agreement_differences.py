"""Echoes of a moment ago, and real differences."""

from __future__ import annotations

import math

import pytest

from jsonbus.core.limits import (
    DIFFERENCE_GRACE_S,
    DIFFERENCES_PENDING_MAX,
    DIGESTS_REMEMBERED,
    DIGESTS_REMEMBERED_S,
)
from jsonbus.core.membership.agreement import Differences
from jsonbus.core.wire.frames import ALL_BUCKETS, Digest, Header, ListFrame

NOW = 1000.0
OLD = Digest(3, 7)
OTHER = Digest(3, 8)
HEADER = Header("a", 1, 1, 1, 0)


def list_with(digest: Digest) -> ListFrame:
    return ListFrame(HEADER, [], [], digest, None, ALL_BUCKETS, (0, 1), True)


def test_own_digest_of_a_moment_ago_is_recognized_for_a_while() -> None:
    differences = Differences()
    assert not differences.is_behind(OLD, NOW)
    differences.leave_behind(OLD, NOW)
    assert differences.is_behind(OLD, NOW + DIGESTS_REMEMBERED_S)
    assert not differences.is_behind(OLD, NOW + DIGESTS_REMEMBERED_S + 0.1)
    assert not differences.is_behind(OTHER, NOW)


def test_remembered_digests_are_bounded() -> None:
    differences = Differences()
    for number in range(DIGESTS_REMEMBERED + 1):
        differences.leave_behind(Digest(1, number), NOW)
    assert not differences.is_behind(Digest(1, 0), NOW)
    assert differences.is_behind(Digest(1, 1), NOW)


def test_difference_is_due_after_the_grace() -> None:
    differences = Differences()
    assert differences.timer_at() == math.inf
    frame = list_with(OTHER)
    differences.note("a", frame, NOW)
    assert differences.timer_at() == pytest.approx(NOW + DIFFERENCE_GRACE_S)
    assert differences.take_due(NOW + DIFFERENCE_GRACE_S / 2) == []
    (difference,) = differences.take_due(NOW + DIFFERENCE_GRACE_S)
    assert (difference.sender, difference.frame) == ("a", frame)
    assert differences.timer_at() == math.inf


def test_newest_word_of_a_sender_counts_and_the_grace_began_with_its_first() -> None:
    differences = Differences()
    newest = list_with(OTHER)
    differences.note("a", list_with(OLD), NOW)
    differences.note("a", newest, NOW + 0.09)
    (difference,) = differences.take_due(NOW + DIFFERENCE_GRACE_S)
    assert difference.frame is newest


def test_sender_that_agrees_is_forgotten() -> None:
    differences = Differences()
    differences.note("a", list_with(OTHER), NOW)
    differences.note("b", list_with(OTHER), NOW)
    differences.forget("a")
    differences.forget("nobody")
    assert [d.sender for d in differences.take_due(NOW + 1)] == ["b"]


def test_pending_differences_are_bounded() -> None:
    differences = Differences()
    for number in range(DIFFERENCES_PENDING_MAX + 5):
        differences.note(f"n{number}", list_with(OTHER), NOW)
    assert len(differences.take_due(NOW + 1)) == DIFFERENCES_PENDING_MAX


def test_cleared_differences_want_no_timer() -> None:
    differences = Differences()
    differences.note("a", list_with(OTHER), NOW)
    differences.clear()
    assert differences.timer_at() == math.inf
