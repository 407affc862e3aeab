"""Cutting a message into slices, and putting it together again, within bounds."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jsonbus.core.limits import (
    FRAGMENT_AGE_S,
    FRAGMENTS_DONE_MAX,
    FRAGMENTS_OPEN_MAX,
    FRAGMENTS_SENDERS_MAX,
)
from jsonbus.core.values import fragments
from jsonbus.core.values.fragments import Fragments, cut
from jsonbus.core.wire.codec import dumps, loads
from jsonbus.core.wire.names import SLICES_MAX
from tests.core.generated import unhurried

NOW = 1000.0
KEY = ("a", 1, 7)
VALUE_MAX = 1 << 20


def make() -> Fragments:
    return Fragments(VALUE_MAX, 4 * VALUE_MAX)


def texts(slices: list[bytes]) -> list[str]:
    """What a receiver's parser makes of them."""
    return [loads(b'"%b"' % each) for each in slices]


values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=30,
)


@pytest.mark.slow
@unhurried
@given(value=values, room=st.integers(8, 60), seed=st.integers(0, 2**32))
def test_any_message_survives_cutting_and_joining_in_any_order(
    value: Any, room: int, seed: int
) -> None:
    text = dumps(["t", value])
    slices = cut(text, room)
    assert all(0 < len(each) <= room for each in slices)
    places = list(enumerate(texts(slices)))
    random.Random(seed).shuffle(places)
    together, whole = make(), []
    for index, piece in places:
        whole.append(together.add(KEY, index, len(slices), piece, NOW))
    assert whole[:-1] == [None] * (len(slices) - 1)
    assert loads(whole[-1].encode()) == ["t", value]  # type: ignore[union-attr]
    assert len(together) == 0
    assert together.size_bytes == 0


@pytest.mark.parametrize("text", ['["t","' + "\\" * 4000 + '"]', '["t","' + "€" * 2000 + '"]'])
def test_no_cut_falls_into_an_escape_or_a_character(text: str) -> None:
    json.loads(text)
    for room in range(8, 40):
        assert "".join(texts(cut(text.encode(), room))) == text


def test_a_slice_that_comes_again_changes_nothing() -> None:
    together = make()
    assert together.add(KEY, 0, 2, "ab", NOW) is None
    size = together.size_bytes
    assert together.add(KEY, 0, 2, "ab", NOW) is None
    assert together.size_bytes == size
    assert together.add(KEY, 1, 2, "cd", NOW) == "abcd"
    assert together.add(KEY, 1, 2, "cd", NOW) is None
    assert together.add(KEY, 0, 2, "ab", NOW) is None
    assert len(together) == 0


def test_messages_of_different_senders_incarnations_and_numbers_do_not_mix() -> None:
    together = make()
    keys = [("a", 1, 7), ("b", 1, 7), ("a", 2, 7), ("a", 1, 8)]
    for key in keys:
        assert together.add(key, 0, 2, f"{key}", NOW) is None
    for key in keys:
        assert together.add(key, 1, 2, "!", NOW) == f"{key}!"


@pytest.mark.parametrize(
    ("index", "count"), [(-1, 2), (2, 2), (0, 0), (5, 3), (0, SLICES_MAX + 1), (0, 2**53)]
)
def test_a_slice_that_contradicts_itself_is_refused_and_leaves_nothing(
    index: int, count: int
) -> None:
    together = make()
    with pytest.raises(ValueError, match="slice"):
        together.add(KEY, index, count, "x", NOW)
    assert len(together) == 0
    assert together.size_bytes == 0


def test_a_slice_that_contradicts_another_is_refused() -> None:
    together = make()
    together.add(KEY, 0, 3, "x", NOW)
    with pytest.raises(ValueError, match="slice 1 of 2, of a message that has 3"):
        together.add(KEY, 1, 2, "y", NOW)
    assembly = together.get(KEY)
    assert assembly is not None
    assert assembly.missing() == [1, 2]


def test_a_message_without_new_slices_is_given_up_in_time() -> None:
    together = make()
    together.add(("a", 1, 1), 0, 2, "x", NOW)
    together.add(("a", 1, 2), 0, 3, "x", NOW + 1)
    together.add(("a", 1, 1), 1, 3 - 1, "x", NOW + 2)  # complete: no longer waited for
    together.add(("a", 1, 3), 0, 3, "x", NOW + 3)
    together.add(("a", 1, 2), 1, 3, "x", NOW + 4)
    assert together.timer_at() == NOW + 3 + FRAGMENT_AGE_S
    together.handle_timer(NOW + 3 + FRAGMENT_AGE_S, NOW + 3 + FRAGMENT_AGE_S)
    assert (len(together), together.dropped) == (1, 1)
    together.handle_timer(NOW + 4 + FRAGMENT_AGE_S, NOW + 4 + FRAGMENT_AGE_S)
    assert (len(together), together.dropped, together.size_bytes) == (0, 2, 0)
    assert together.timer_at() == float("inf")
    # What was given up is not begun anew by its late slices.
    assert together.add(("a", 1, 2), 2, 3, "x", NOW + 60) is None
    assert len(together) == 0


def test_one_sender_is_bounded_and_its_oldest_message_makes_room() -> None:
    together = make()
    text = "x" * 1000
    together.add(("b", 1, 1), 0, 2, text, NOW)
    for index in range(5 * VALUE_MAX // 1000):
        together.add(("a", 1, index // 100), index % 100, 101, text, NOW)
        assert together.size_bytes <= 2 * VALUE_MAX + 3000
    assert together.dropped > 0
    assert together.get(("b", 1, 1)) is not None
    assert together.get(("a", 1, 0)) is None


def test_one_sender_may_have_only_so_many_messages_open() -> None:
    together = make()
    for number in range(FRAGMENTS_OPEN_MAX + 10):
        together.add(("a", 1, number), 0, 2, "x", NOW)
    assert len(together) == FRAGMENTS_OPEN_MAX
    assert together.dropped == 10
    assert together.get(("a", 1, 9)) is None
    assert together.get(("a", 1, 10)) is not None


def test_all_senders_together_are_bounded() -> None:
    together = make()
    text = "x" * 10_000
    for number in range(1000):
        together.add((f"node{number}", 1, 1), 0, 2, text, NOW)
        assert together.size_bytes <= 4 * VALUE_MAX
    assert together.get(("node999", 1, 1)) is not None
    assert together.get(("node0", 1, 1)) is None


def test_invented_senders_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fragments, "FRAGMENTS_SENDERS_MAX", 10)
    assert FRAGMENTS_SENDERS_MAX > 10
    together = make()
    for number in range(100):
        together.add((f"node{number}", 1, 1), 0, 2, "x", NOW)
    assert len(together) == 10
    assert together.dropped == 90


def test_a_node_that_left_takes_its_slices_along() -> None:
    together = make()
    together.add(("a", 1, 1), 0, 2, "x", NOW)
    together.add(("b", 1, 1), 0, 2, "x", NOW)
    together.forget("a")
    together.forget("never heard")
    assert together.get(("a", 1, 1)) is None
    assert together.get(("b", 1, 1)) is not None


def test_only_so_many_finished_messages_are_remembered() -> None:
    together = make()
    for number in range(FRAGMENTS_DONE_MAX + 1):
        assert together.add(("a", 1, number), 0, 1, "x", NOW) == "x"
    assert together.add(("a", 1, 1), 0, 1, "x", NOW) is None
    assert together.add(("a", 1, 0), 0, 1, "x", NOW) == "x"
