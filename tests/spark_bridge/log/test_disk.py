from __future__ import annotations

import gc
import os
from pathlib import Path

import pytest

from spark_bridge.errors import LogLockedError
from spark_bridge.log.disk import LogFile, lock_directory, make_directory, replace_file


def test_a_directory_is_locked_for_one_and_free_after_release(tmp_path: Path) -> None:
    lock = lock_directory(tmp_path)
    with pytest.raises(LogLockedError, match=f"process {os.getpid()} .*{tmp_path}"):
        lock_directory(tmp_path)
    os.close(lock)
    os.close(lock_directory(tmp_path))


@pytest.mark.slow
def test_a_file_is_closed_when_nobody_refers_to_it(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"content")
    file = LogFile(path)
    fd = file.fileno()
    path.unlink()
    assert os.pread(fd, 100, 3) == b"tent"
    del file
    gc.collect()
    with pytest.raises(OSError):
        os.fstat(fd)


def test_directories_are_made_with_those_above_them(tmp_path: Path) -> None:
    make_directory(tmp_path / "a" / "b")
    make_directory(tmp_path / "a" / "b")
    assert (tmp_path / "a" / "b").is_dir()


def test_a_replaced_file_leaves_nothing_beside_it(tmp_path: Path) -> None:
    path = tmp_path / "file"
    replace_file(path, b"old")
    replace_file(path, b"new")
    assert path.read_bytes() == b"new"
    assert list(tmp_path.iterdir()) == [path]
