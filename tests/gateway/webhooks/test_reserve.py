from __future__ import annotations

import errno
from pathlib import Path

import pytest

from jsonbus.gateway.webhooks.reserve import FILE_NAME, RESERVE_BYTES, Reserve
from tests.small_disk import small_disk


def test_a_reserve_takes_real_blocks_and_gives_them_back(tmp_path: Path) -> None:
    reserve = Reserve(tmp_path)
    reserve.take()
    reserve.take()  # again is nothing
    assert (tmp_path / FILE_NAME).stat().st_blocks * 512 >= RESERVE_BYTES
    assert reserve.release()
    assert not reserve.release()
    assert not (tmp_path / FILE_NAME).exists()


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
