"""The numbered files of a recording that is written in several: run.00000.jsonl, run.00001.jsonl, …

Five digits sort as text for as long as most recordings last; beyond 99,999 a number has more of
them, and is still in its place here, where files are sorted by number.
"""

from __future__ import annotations

import re
from pathlib import Path

from jsonbus.errors import RecordingError

from .formats import split_suffix

DIGITS = 5


def numbered(path: Path, number: int) -> Path:
    """The file with that number."""
    stem, suffix = split_suffix(path)
    return path.with_name(f"{stem}.{number:0{DIGITS}d}{suffix}")


def find_series(path: Path) -> list[tuple[int, Path]]:
    """The files of `path` that are there, with their numbers and by them."""
    stem, suffix = split_suffix(path)
    is_numbered = re.compile(
        rf"{re.escape(stem)}\.(\d{{{DIGITS},}}){re.escape(suffix)}", re.ASCII
    ).fullmatch
    try:
        names = [each.name for each in path.parent.iterdir()]
    except OSError:
        return []
    found = [
        (int(match[1]), path.with_name(match[0])) for match in map(is_numbered, names) if match
    ]
    return sorted(found)


def delete(path: Path) -> None:
    """Make room for another file; raises RecordingError: to go on would fill the disk."""
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        raise RecordingError(str(path), f"cannot be deleted: {error.strerror}") from error
