from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from jsonbus.gateway.webhooks.undo import UndoLog

KEYS = st.integers(0, 5)
CHANGES = st.lists(st.tuples(KEYS, st.none() | st.integers()))


def change(log: UndoLog, mapping: dict[int, int], changes: list[tuple[int, int | None]]) -> None:
    for key, value in changes:
        if value is None:
            log.forget(mapping, key)
        else:
            log.set(mapping, key, value)


@given(st.dictionaries(KEYS, st.integers()), CHANGES, CHANGES)
def test_what_is_not_kept_is_undone_and_nothing_else(
    mapping: dict[int, int],
    kept: list[tuple[int, int | None]],
    undone: list[tuple[int, int | None]],
) -> None:
    log = UndoLog()
    change(log, mapping, kept)
    log.keep()
    expected = dict(mapping)
    change(log, mapping, undone)
    log.undo()
    assert mapping == expected
    log.undo()  # again is nothing
    assert mapping == expected
