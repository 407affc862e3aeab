"""Reads meta.json, which describes a log; and creates a log, of which that file is the last step.

So a directory without it has no log, or one whose creation was interrupted before the first row.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from ..errors import LogCorruptError, LogError
from .disk import replace_file
from .partition import create_partition, is_unused

META_NAME = "meta.json"
VERSION = 1
PARTITIONS_DEFAULT = 4
#: Each partition has open files and syncs of its own: a larger number is a mistake.
PARTITIONS_MAX = 1024


class Meta(NamedTuple):
    """The content of meta.json."""

    id: str  # random: offsets of one log mean nothing in another
    version: int
    partitions: int
    created_at: float


def load_or_create(directory: Path, partitions: int | None, now: Callable[[], float]) -> Meta:
    """Load or create the log in a locked directory. Raises LogError, or OSError from the disk."""
    path = directory / META_NAME
    if not path.exists():
        return _create(directory, PARTITIONS_DEFAULT if partitions is None else partitions, now)
    meta = _load(path)
    if meta.version != VERSION:
        raise LogError(
            f"the log in {directory} has version {meta.version}, and this software reads only "
            f"{VERSION}: use the software that wrote it, or another directory"
        )
    if partitions is not None and partitions != meta.partitions:
        raise LogError(
            f"the log in {directory} has {meta.partitions} partitions, not {partitions}: their "
            f"number is fixed when a log is created; leave it out, or use another directory"
        )
    return meta


def _load(path: Path) -> Meta:
    try:
        meta = Meta(**json.loads(path.read_bytes()))
        if type(meta.id) is str and type(meta.version) is int and type(meta.partitions) is int:
            return meta
    except (ValueError, TypeError):
        pass
    raise LogCorruptError(f"{path} is damaged: bring it back from a copy")


def _create(directory: Path, partitions: int, now: Callable[[], float]) -> Meta:
    if not 1 <= partitions <= PARTITIONS_MAX:
        raise LogError(f"a log has 1 to {PARTITIONS_MAX} partitions, not {partitions}")
    for found in directory.glob("partition-*"):
        if not is_unused(found):
            raise LogCorruptError(
                f"{directory} has rows of a log but no {META_NAME}: bring that back from a copy, "
                f"or use another directory"
            )
    for number in range(partitions):
        create_partition(directory / f"partition-{number}")
    meta = Meta(uuid.uuid4().hex, VERSION, partitions, now())
    replace_file(directory / META_NAME, json.dumps(meta._asdict(), indent=2).encode() + b"\n")
    return meta
