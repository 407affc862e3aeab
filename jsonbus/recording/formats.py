"""In which formats messages are recorded, and how a file tells its own."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import IO

from jsonbus.errors import ConfigError, RecordingError

#: The end of a file's name, which is also what the format is called, without its dot.
SUFFIXES = (".jsonl", ".jsonl.gz", ".mcap")
FORMATS = tuple(each[1:] for each in SUFFIXES)

MCAP_MAGIC = b"\x89MCAP0\r\n"
GZIP_MAGIC = b"\x1f\x8b"


def format_of(path: Path, wanted: str | None = None) -> str:
    """The format to record in; raises ConfigError if neither wish nor name tells one."""
    if wanted is not None:
        if wanted not in FORMATS:
            raise ConfigError(f"there is no format {wanted!r}: use {_listed(FORMATS)}")
        return wanted
    for suffix, name in zip(SUFFIXES, FORMATS, strict=True):
        if path.name.endswith(suffix):
            return name
    raise ConfigError(
        f"the name {path.name!r} tells no format: it has to end in {_listed(SUFFIXES)}, "
        "or choose the format"
    )


def split_suffix(path: Path) -> tuple[str, str]:
    """A file's name in two: what people called it, and the suffix, which may have two dots."""
    for suffix in (".jsonl.gz", ".jsonl", ".mcap"):
        if path.name.endswith(suffix):
            return path.name.removesuffix(suffix), suffix
    return path.stem, path.suffix


def detect(head: bytes) -> str:
    """The format of a file that begins like this, whatever it is called."""
    # A recording that was torn in its first bytes is one, too.
    for magic, name in ((GZIP_MAGIC, "jsonl.gz"), (MCAP_MAGIC, "mcap")):
        if head and head[: len(magic)] == magic[: len(head)]:
            return name
    return "jsonl"


def peek(stream: IO[bytes], count: int) -> bytes:
    """The first bytes of a buffered stream, which stay there to be read."""
    return stream.peek(count)[:count]  # type: ignore[attr-defined,no-any-return]


def check_installed(path: Path, name: str) -> None:
    """Raises RecordingError, with what to do about it, if the format needs what is not there."""
    if name == "mcap" and importlib.util.find_spec("mcap") is None:
        raise RecordingError(str(path), "MCAP needs mcap: python3 -m pip install 'jsonbus[mcap]'")


def _listed(names: tuple[str, ...]) -> str:
    return f"{', '.join(names[:-1])} or {names[-1]}"
