"""A disk that is really full: a small file system of its own, in memory."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

DISK_BYTES = 2 << 20


@contextmanager
def small_disk(mount_point: Path, size_bytes: int = DISK_BYTES) -> Iterator[Path]:
    """Mount a file system of that size; skip the test where that is not possible."""
    if os.geteuid() != 0:
        pytest.skip("only root may mount a small file system")
    options = ["-t", "tmpfs", "-o", f"size={size_bytes}", "jsonbus-test", str(mount_point)]
    made = subprocess.run(["mount", *options], capture_output=True, text=True)
    if made.returncode:
        pytest.skip(f"a small file system cannot be mounted here: {made.stderr.strip()}")
    try:
        yield mount_point
    finally:
        subprocess.run(["umount", "--lazy", str(mount_point)], check=True)
