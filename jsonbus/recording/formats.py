"""The formats of recordings, and the names of their files.

A recording may be written in several numbered files: run.00000.jsonl, run.00001.jsonl, … Five
digits sort as text for as long as most recordings last; beyond 99,999 a number has more digits, and
files are sorted by number here.
"""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from typing import IO

from jsonbus.errors import ConfigError, RecordingError

#: The suffix of a file's name; without its dot, the name of the format.
SUFFIXES = (".jsonl", ".jsonl.gz", ".mcap")
FORMATS = tuple(each[1:] for each in SUFFIXES)

MCAP_MAGIC = b"\x89MCAP0\r\n"
GZIP_MAGIC = b"\x1f\x8b"

#: Of the number of a file.
DIGITS = 5


def format_of(path: Path, wanted: str | None = None) -> str:
    """Return the format to record in: the one wanted, or that of the name. Raises ConfigError."""
    if wanted is not None:
        if wanted not in FORMATS:
            raise ConfigError(f"there is no format {wanted!r}: use {_listed(FORMATS)}")
        return wanted
    for suffix, name in zip(SUFFIXES, FORMATS, strict=True):
        if path.name.endswith(suffix):
            return name
    raise ConfigError(
        f"the name {path.name!r} does not say the format: it has to end in {_listed(SUFFIXES)}, "
        "or choose the format (--format, format=)"
    )


def split_suffix(path: Path) -> tuple[str, str]:
    """Split a file's name into stem and suffix, which may have two dots."""
    for suffix in (".jsonl.gz", ".jsonl", ".mcap"):
        if path.name.endswith(suffix):
            return path.name.removesuffix(suffix), suffix
    return path.stem, path.suffix


def detect(head: bytes) -> str:
    """Return the format of a file that begins with these bytes, whatever its name."""
    # A file that was cut off within its first bytes is a recording, too.
    for magic, name in ((GZIP_MAGIC, "jsonl.gz"), (MCAP_MAGIC, "mcap")):
        if head and head[: len(magic)] == magic[: len(head)]:
            return name
    return "jsonl"


def peek(stream: IO[bytes], count: int) -> bytes:
    """Return the first bytes of a buffered stream without reading them."""
    return stream.peek(count)[:count]  # type: ignore[attr-defined,no-any-return]


def check_installed(path: Path, name: str) -> None:
    """Raise RecordingError, with the remedy, if the format needs a package that is missing."""
    if name == "mcap" and importlib.util.find_spec("mcap") is None:
        raise RecordingError(str(path), "MCAP needs mcap: python3 -m pip install 'jsonbus[mcap]'")


def numbered(path: Path, number: int) -> Path:
    """Return the name of the file with that number."""
    stem, suffix = split_suffix(path)
    return path.with_name(f"{stem}.{number:0{DIGITS}d}{suffix}")


def find_series(path: Path) -> list[tuple[int, Path]]:
    """Return the existing numbered files of `path`, as (number, file), sorted by number."""
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
    """Delete a file to make room. Raises RecordingError, since continuing would fill the disk."""
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        raise RecordingError(str(path), f"cannot be deleted: {error.strerror}") from error


def _listed(names: tuple[str, ...]) -> str:
    return f"{', '.join(names[:-1])} or {names[-1]}"
