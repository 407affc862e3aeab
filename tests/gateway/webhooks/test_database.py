"""The database's undo log and its reserve on the disk."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jsonbus.gateway.webhooks.database import RESERVE_BYTES, RESERVE_NAME, Reserve, UndoLog
from tests.small_disk import small_disk

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
    log.undo()  # idempotent
    assert mapping == expected


def test_a_reserve_takes_real_blocks_and_gives_them_back(tmp_path: Path) -> None:
    reserve = Reserve(tmp_path)
    reserve.take()
    reserve.take()  # idempotent
    assert (tmp_path / RESERVE_NAME).stat().st_blocks * 512 >= RESERVE_BYTES
    assert reserve.release()
    assert not reserve.release()
    assert not (tmp_path / RESERVE_NAME).exists()


def test_a_reserve_of_an_earlier_run_can_be_used_at_once(tmp_path: Path) -> None:
    Reserve(tmp_path).take()
    assert Reserve(tmp_path).release()


def test_a_disk_without_room_for_a_reserve_keeps_no_part_of_it(tmp_path: Path) -> None:
    with small_disk(tmp_path, RESERVE_BYTES // 2) as disk:
        reserve = Reserve(disk)
        with pytest.raises(OSError) as caught:
            reserve.take()
        assert caught.value.errno == errno.ENOSPC
        assert list(disk.iterdir()) == []
        assert not reserve.release()


def test_in_memory_there_is_neither_a_reserve_nor_a_need_for_one() -> None:
    reserve = Reserve(None)
    reserve.take()
    assert not reserve.release()
