from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from jsonbus.cli.top.preview import preview

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=10,
)


@given(VALUES, st.integers(1, 60))
def test_a_preview_is_the_beginning_of_the_json(value: Any, length: int) -> None:
    whole = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    shown = preview(value, length)
    assert shown == (whole if len(whole) <= length else f"{whole[: length - 1]}…")


def test_a_value_of_megabytes_is_not_written_to_its_end() -> None:
    class Rest(list[int]):
        def __iter__(self) -> Any:
            yield from range(100)
            raise AssertionError("nobody shows this")

    assert preview({"a": Rest([1])}, 20) == '{"a":[0,1,2,3,4,5,6…'


def test_a_value_as_deep_as_the_bus_allows_can_be_shown() -> None:
    value: list[Any] = []
    for _ in range(250):
        value = [value]
    assert preview(value, 1_000) == "[" * 251 + "]" * 251
