"""The keys of a sealed bus, as its key file has them:

    {"jsonbus-key": 1, "bus": "brave-otter", "keys": [
        {"id": "k1", "secret": "…32 random bytes in base64…", "from": "2026-11-18T00:00:00Z"}]}

A node opens what was sealed with any of these keys, and seals with the newest whose `from` has
passed. So keys change without a pause: add one that begins later, copy the file, drop the old one.

No secret leaves this module as text: errors tell the place of a wrong key, not what is in it,
because two values may have been swapped.
"""

from __future__ import annotations

import base64
import binascii
import json
import logging
import os
import shlex
import stat
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from jsonbus.errors import ConfigError
from jsonbus.sealed.derivation import derive

_log = logging.getLogger("jsonbus.sealed")

#: The version of the file format: the value of "jsonbus-key".
FORMAT_VERSION = 1

SECRET_BYTES = 32
WIRE_ID_BYTES = 4
NAME_BYTES_MAX = 64

#: Keys of one file. Two overlap while they change; far more are a mistake.
KEYS_MAX = 100

#: Far more than KEYS_MAX keys take.
FILE_BYTES_MAX = 1 << 16

_KEY_FIELDS = frozenset({"id", "secret", "from"})


@dataclass(frozen=True, slots=True)
class Key:
    """A secret that everybody on the bus shares."""

    id: str
    secret: bytes = field(repr=False)
    #: From when on it seals, in seconds since 1970. It opens at any time.
    usable_from: float


@dataclass(frozen=True, slots=True)
class KeyRing:
    """The keys of one bus. Raises ConfigError if they cannot be told apart."""

    bus: str
    keys: tuple[Key, ...]
    _by_wire_id: dict[bytes, Key] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        by_wire_id = {self.wire_id(key): key for key in self.keys}
        if len(by_wire_id) < len(self.keys):
            raise ConfigError("two keys have the same secret and id, or look alike: drop one")
        object.__setattr__(self, "_by_wire_id", by_wire_id)

    def wire_id(self, key: Key) -> bytes:
        """Return the four bytes by which datagrams and channels name the key."""
        parts = self.bus.encode(), key.id.encode()
        return derive(key.secret, b"", b"jsonbus key id 1", *parts, length=WIRE_ID_BYTES)

    def find(self, wire_id: bytes) -> Key | None:
        """Return the key of this bus that is named so."""
        return self._by_wire_id.get(wire_id)

    def sealing_key(self, wall: float) -> Key:
        """Return the newest key whose time has come; if none has, the one that is next."""
        begun = [key for key in self.keys if key.usable_from <= wall]
        if begun:
            return max(reversed(begun), key=lambda key: key.usable_from)
        return min(self.keys, key=lambda key: key.usable_from)


def parse_ring(parsed: object) -> KeyRing:
    """Return the keys of a key file that was parsed as JSON. Raises ConfigError."""
    if not isinstance(parsed, Mapping) or "jsonbus-key" not in parsed:
        raise ConfigError('this is not a key file, which has "jsonbus-key", "bus" and "keys"')
    version = parsed["jsonbus-key"]
    if type(version) is not int or version != FORMAT_VERSION:
        raise ConfigError(
            f'"jsonbus-key" must be {FORMAT_VERSION}: the keys are for another version of jsonbus'
        )
    bus, keys = parsed.get("bus"), parsed.get("keys")
    check_key_name('"bus"', bus)
    assert isinstance(bus, str)
    if not isinstance(keys, list | tuple) or not 1 <= len(keys) <= KEYS_MAX:
        raise ConfigError(f'"keys" must be a list of 1 to {KEYS_MAX} keys')
    ring = tuple(_parse_key(f"key {number}", each) for number, each in enumerate(keys, 1))
    if len({key.id for key in ring}) < len(ring):
        raise ConfigError("two keys have the same id: drop one, or give it another id")
    return KeyRing(bus, ring)


def check_key_name(what: str, name: object) -> None:
    """Raise ConfigError unless this may be the name of a bus or the id of a key."""
    if (
        not isinstance(name, str)
        or not name.isprintable()
        or any(char.isspace() or char == "," for char in name)
        or not 1 <= len(name.encode(errors="replace")) <= NAME_BYTES_MAX
    ):
        raise ConfigError(
            f"{what} must be 1 to {NAME_BYTES_MAX} bytes of text without spaces and commas"
        )


def format_ring(ring: KeyRing) -> dict[str, Any]:
    """Return the ring as its file has it, secrets included."""
    keys = [
        {
            "id": key.id,
            "secret": base64.b64encode(key.secret).decode("ascii"),
            "from": format_time(key.usable_from),
        }
        for key in ring.keys
    ]
    return {"jsonbus-key": FORMAT_VERSION, "bus": ring.bus, "keys": keys}


def format_time(wall: float) -> str:
    return datetime.fromtimestamp(wall, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def read_time(text: object) -> float:
    """Read a time such as 2026-11-18T00:00:00Z; raises ValueError. Without a zone it is UTC."""
    if not isinstance(text, str):
        raise ValueError("not a time")
    time = datetime.fromisoformat(text)
    wall = (time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp()
    format_time(wall)  # years beyond those of the format are refused here
    return wall


def read_ring(path: Path) -> KeyRing:
    """Read a key file. Raises ConfigError, also if others may read or change the file."""
    try:
        with path.open("rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            data = file.read(FILE_BYTES_MAX + 1)
    except OSError as error:
        raise ConfigError(f"cannot read the key file {path}: {error.strerror}") from error
    if os.name == "posix" and mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise ConfigError(
            f"others may read the key file {path}: run chmod 600 {shlex.quote(str(path))}"
        )
    parsed = None
    if len(data) <= FILE_BYTES_MAX:
        try:
            parsed = json.loads(data)
        except (ValueError, RecursionError):
            pass  # outside of this block, no error has the text, and its secrets, as its context
    try:
        return parse_ring(parsed)
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from None


class KeySource:
    """Where the keys of a bus come from: a file, which may change, or an object parsed from one.

    Raises ConfigError. `renew` belongs to one thread; any thread may read `ring`.
    """

    def __init__(self, key_file: str | os.PathLike[str] | Mapping[str, Any]) -> None:
        # Absolute, because a program may change its folder before the file is read again.
        self._path = None if isinstance(key_file, Mapping) else Path(key_file).absolute()
        self._mark: object = None
        self._complaint = ""
        self.ring: KeyRing
        if self._path is None:
            self.ring = parse_ring(key_file)
        else:
            self._mark = _mark(self._path)
            self.ring = read_ring(self._path)

    def renew(self) -> bool:
        """Read the file again if it has changed; return whether there are other keys now.

        A file that is wrong, or gone, changes nothing, and each cause is logged once.
        """
        if self._path is None:
            return False
        # Before the file is read: a change in between is found next time.
        mark = _mark(self._path)
        if mark == self._mark:
            return False
        self._mark = mark
        try:
            ring = read_ring(self._path)
            if ring.bus != self.ring.bus:
                raise ConfigError(
                    f"{self._path} is for bus {ring.bus!r}, and this is bus {self.ring.bus!r}"
                )
        except ConfigError as error:
            if str(error) != self._complaint:
                _log.warning("%s; the keys from before stay in use", error)
            self._complaint = str(error)
            return False
        self._complaint = ""
        has_changed = ring != self.ring
        self.ring = ring
        return has_changed

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._path or 'given'}, bus {self.ring.bus!r}>"


def _mark(path: Path) -> object:
    """Return what differs when the file was written, replaced, or given to others."""
    try:
        found = path.stat()
    except OSError as error:
        return error.errno
    return found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


def _parse_key(place: str, parsed: object) -> Key:
    if not isinstance(parsed, Mapping):
        raise ConfigError(f'{place} must be an object with "id", "secret" and "from"')
    if "topics" in parsed:
        raise ConfigError(f"{place} is for some topics: keys for topics need a later version")
    if not parsed.keys() <= _KEY_FIELDS:
        # What it says may narrow what the key is good for, so it must not be passed over.
        raise ConfigError(f"{place} has a field that this version of jsonbus does not know")
    check_key_name(f'"id" of {place}', parsed.get("id"))
    return Key(parsed["id"], _parse_secret(place, parsed.get("secret")), _parse_from(place, parsed))


def _parse_secret(place: str, text: object) -> bytes:
    secret = b""
    if isinstance(text, str):
        try:
            secret = base64.b64decode(text, validate=True)
        except (binascii.Error, ValueError):
            pass
    if len(secret) != SECRET_BYTES:
        raise ConfigError(f'"secret" of {place} must be {SECRET_BYTES} bytes in base64')
    return secret


def _parse_from(place: str, parsed: Mapping[str, Any]) -> float:
    wall = None
    try:
        wall = read_time(parsed.get("from"))
    except (ValueError, OverflowError, OSError):
        pass
    if wall is None:
        raise ConfigError(f'"from" of {place} must be a time such as 2026-11-18T00:00:00Z')
    return wall
