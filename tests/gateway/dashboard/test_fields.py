"""The numbers in a value."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jsonbus.gateway.dashboard.fields import FIELDS_MAX, field_at, find_fields, name_field

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


def names(value: Any) -> dict[str, float]:
    return {name_field(path): number for path, number in find_fields(value).items()}


def test_numbers_are_found_in_objects_and_arrays() -> None:
    value = {"load": 3, "pos": {"axes": [1.5, "x", {"z": 2}]}, "on": True, "a.b": 4, "9": 5}
    assert names(value) == {
        "load": 3,
        "pos.axes[0]": 1.5,
        "pos.axes[2].z": 2,
        '["a.b"]': 4,
        '["9"]': 5,
    }
    assert names(21.5) == {"value": 21.5}


@pytest.mark.parametrize("value", ["x", None, True, [], {}, float("inf"), float("nan"), 10**400])
def test_what_cannot_be_drawn_is_none(value: Any) -> None:
    assert find_fields(value) == {}
    assert field_at(value, ()) is None


def test_the_search_is_bounded() -> None:
    assert len(find_fields(list(range(10_000)))) == FIELDS_MAX
    assert find_fields(["x"] * 1_000_000 + [1]) == {}
    deep: Any = 1
    for _ in range(5_000):
        deep = [deep]
    assert find_fields(deep) == {}


def test_a_field_may_be_missing_or_something_else_next_time() -> None:
    path = ("pos", "axes", 1)
    assert field_at({"pos": {"axes": [1, 2]}}, path) == 2
    for value in ({"pos": {"axes": [1]}}, {"pos": {"axes": {"1": 2}}}, {"pos": [1, 2]}, [], "x", 7):
        assert field_at(value, path) is None


@pytest.mark.slow
@given(JSON)
def test_every_field_is_found_again_by_its_path(value: Any) -> None:
    fields = find_fields(value)
    for path, number in fields.items():
        assert field_at(value, path) == number
    assert len({name_field(path) for path in fields}) == len(fields)
