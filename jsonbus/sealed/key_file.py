"""Key files as `jsonbus keygen` makes and changes them.

A file is written beside its place, flushed to the disk, and moved there: a node that reads it
meanwhile finds the old keys or the new ones, and a crash leaves one of them.
"""

from __future__ import annotations

import json
import os
import secrets
import stat
import tempfile
import time
from collections.abc import Collection
from pathlib import Path

from jsonbus.errors import ConfigError
from jsonbus.sealed.keys import (
    SECRET_BYTES,
    Key,
    KeyRing,
    check_key_name,
    format_ring,
    parse_ring,
    read_time,
)

#: The id of the first key of a bus; the next ones are numbered.
FIRST_ID = "bus"

_ADJECTIVES = "amber bold brave bright calm clear cosy early fair glad green kind quick quiet warm"
_ANIMALS = "badger bear crane fox hare heron lark lynx moose otter owl raven seal stork swan wolf"


def make_ring(bus: str | None, key_id: str | None, from_time: str | None) -> KeyRing:
    """Return a ring with one new key; without a name, the bus gets one. Raises ConfigError."""
    if bus is None:
        words = [secrets.choice(words.split()) for words in (_ADJECTIVES, _ANIMALS)]
        bus = f"{'-'.join(words)}-{secrets.randbelow(1000)}"
    check_key_name("the name of a bus", bus)
    return _checked(bus, [_draw(key_id or FIRST_ID, from_time)])


def add_key(ring: KeyRing, key_id: str | None, from_time: str | None) -> KeyRing:
    """Return the ring with one more key, which seals from that time on, or now."""
    known = {key.id for key in ring.keys}
    if key_id is None:
        number = len(known) + 1
        while f"{FIRST_ID}-{number}" in known:
            number += 1
        key_id = f"{FIRST_ID}-{number}"
    return _checked(ring.bus, [*ring.keys, _draw(key_id, from_time)])


def drop_key(ring: KeyRing, key_id: str) -> KeyRing:
    """Return the ring without that key."""
    _check_known(ring, [key_id])
    if len(ring.keys) == 1:
        raise ConfigError(f"{key_id!r} is the only key: add another one first")
    return KeyRing(ring.bus, tuple(key for key in ring.keys if key.id != key_id))


def choose_keys(ring: KeyRing, key_ids: Collection[str]) -> KeyRing:
    """Return the ring with these keys only."""
    _check_known(ring, key_ids)
    return KeyRing(ring.bus, tuple(key for key in ring.keys if key.id in key_ids))


def create(path: Path, ring: KeyRing) -> None:
    """Write a new file, which only its owner may read. Raises ConfigError if there is one."""
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        raise ConfigError(
            f"{path} exists already, and its keys would be lost: name another file, or use --add"
        ) from None
    except OSError as error:
        raise _cannot_write(path, error) from error
    try:
        _write(descriptor, ring)
        _flush_folder(path)
    except OSError as error:
        path.unlink(missing_ok=True)
        raise _cannot_write(path, error) from error


def replace(path: Path, ring: KeyRing) -> None:
    """Put other keys into a file; its owner stays."""
    path = path.resolve()  # of a link, the file it leads to
    temporary = ""
    try:
        owner = path.stat()
        descriptor, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
        if hasattr(os, "fchown"):
            # Before anything is in it. Changed by root, it still belongs to who runs the node.
            os.fchown(descriptor, owner.st_uid, owner.st_gid)
        _write(descriptor, ring)
        os.replace(temporary, path)
        _flush_folder(path)
    except OSError as error:
        if temporary:
            Path(temporary).unlink(missing_ok=True)
        raise _cannot_write(path, error) from error


def as_text(ring: KeyRing) -> str:
    """Return what a file has, secrets included."""
    return json.dumps(format_ring(ring), indent=1, ensure_ascii=False) + "\n"


def protect(descriptor: int) -> None:
    """Let only its owner read the file that standard output goes to, if it is a file."""
    if os.name == "posix" and stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.fchmod(descriptor, 0o600)


def _draw(key_id: str, from_time: str | None) -> Key:
    try:
        usable_from = int(time.time()) if from_time is None else read_time(from_time)
    except (ValueError, OverflowError, OSError):
        raise ConfigError(
            f"{from_time!r} is no time: write it like 2026-11-18T08:00:00Z; without Z it is UTC"
        ) from None
    return Key(key_id, secrets.token_bytes(SECRET_BYTES), usable_from)


def _checked(bus: str, keys: list[Key]) -> KeyRing:
    """Return the ring if a file with these keys would be read. Raises ConfigError."""
    return parse_ring(format_ring(KeyRing(bus, tuple(keys))))


def _check_known(ring: KeyRing, key_ids: Collection[str]) -> None:
    known = [key.id for key in ring.keys]
    for each in key_ids:
        if each not in known:
            raise ConfigError(f"there is no key {each!r}: there are {', '.join(known)}")


def _write(descriptor: int, ring: KeyRing) -> None:
    with open(descriptor, "w", encoding="utf-8") as file:
        file.write(as_text(ring))
        file.flush()
        os.fsync(file.fileno())


def _flush_folder(path: Path) -> None:
    """Make sure that the name is on the disk as well."""
    if os.name != "posix":
        return
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _cannot_write(path: Path, error: OSError) -> ConfigError:
    return ConfigError(f"cannot write {path}: {error.strerror}")
