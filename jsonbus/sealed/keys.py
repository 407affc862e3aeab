"""The keys of a sealed bus, as its key file has them:

    {"jsonbus-key": 1, "bus": "brave-otter", "keys": [
        {"id": "k1", "secret": "…32 random bytes in base64…", "from": "2026-11-18T00:00:00Z"}]}

A node opens what was sealed with any of these keys, and seals with the newest whose `from` has
passed. So keys change without a pause: add one that begins later, copy the file, drop the old
one.

A key may be for some topics alone: `"topics": ["doors/**"]`. The keys with the same topics make a
*compartment*, those without any, the *common* keys, another one. The ring of a compartment seals
and opens what belongs to it, and knows the wire ids of the other keys, to tell them from those of
strangers. No topic belongs to two compartments.

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
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from itertools import combinations, product
from pathlib import Path
from typing import Any

from jsonbus.core.routing.matching import overlaps
from jsonbus.core.wire.topics import check_pattern
from jsonbus.errors import ConfigError, InvalidTopicError
from jsonbus.sealed.derivation import derive

_log = logging.getLogger("jsonbus.sealed")

#: The version of the file format: the value of "jsonbus-key".
FORMAT_VERSION = 1

SECRET_BYTES = 32
WIRE_ID_BYTES = 4
NAME_BYTES_MAX = 64

#: Keys of one file. Two overlap while they change; far more are a mistake.
KEYS_MAX = 100

#: Patterns of all keys, those of keys with the same topics counted once: all are compared with each
#: other.
TOPICS_MAX = 300

#: Far more than KEYS_MAX keys take.
FILE_BYTES_MAX = 1 << 16

_KEY_FIELDS = frozenset({"id", "secret", "from", "topics"})

#: What a key is for: patterns, in alphabetical order; none: all topics that no other key is for.
Topics = tuple[str, ...]

COMMON: Topics = ()


@dataclass(frozen=True, slots=True)
class Key:
    """A secret that everybody shares who may read and publish certain topics."""

    id: str
    secret: bytes = field(repr=False)
    #: From when on it seals, in seconds since 1970. It opens at any time.
    usable_from: float
    topics: Topics = COMMON


@dataclass(frozen=True, slots=True)
class KeyRing:
    """The keys of one bus. Raises ConfigError if they cannot be told apart."""

    bus: str
    keys: tuple[Key, ...]
    #: The wire ids of the bus's other keys, in the ring of one compartment.
    others: frozenset[bytes] = frozenset()
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

    @property
    def compartments(self) -> tuple[Topics, ...]:
        """What its keys are for, each once, without the common topics."""
        return tuple(dict.fromkeys(key.topics for key in self.keys if key.topics))

    def only(self, topics: Topics) -> KeyRing:
        """Return the ring of one compartment; it may have no key."""
        keys = tuple(key for key in self.keys if key.topics == topics)
        others = frozenset(self.wire_id(key) for key in self.keys if key.topics != topics)
        return KeyRing(self.bus, keys, others)

    def sealing_keys(self, wall: float) -> tuple[Key, ...]:
        """Return the key that seals now of each compartment, and of the common topics."""
        rings = (self.only(topics) for topics in (COMMON, *self.compartments))
        return tuple(ring.sealing_key(wall) for ring in rings if ring.keys)

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
    _check_apart({key.topics: key.id for key in ring if key.topics})
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
            **({"topics": list(key.topics)} if key.topics else {}),
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
    """Where the keys of a compartment come from: a file, which may change, or what one holds.

    Raises ConfigError. `renew` belongs to one thread; any thread may read `ring`.
    """

    def __init__(
        self,
        key_file: str | os.PathLike[str] | Mapping[str, Any],
        topics: Topics = COMMON,
    ) -> None:
        self._topics = topics
        # Absolute, because a program may change its folder before the file is read again.
        self._path = None if isinstance(key_file, Mapping) else Path(key_file).absolute()
        self._key_file = self._path or key_file
        self._mark: object = None
        self._complaint = ""
        self._is_outdated = False  # and was told so
        if self._path is None:
            whole = parse_ring(key_file)
        else:
            self._mark = _mark(self._path)
            whole = read_ring(self._path)
        #: What the file has keys for, besides the common ones, when it was read first.
        self.compartments = whole.compartments
        self.ring = self._own_part(whole)

    def for_topics(self, topics: Topics) -> KeySource:
        """Return the source of the keys of another compartment."""
        return KeySource(self._key_file, topics)

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
            whole = read_ring(self._path)
            if whole.bus != self.ring.bus:
                raise ConfigError(
                    f"{self._path} is for bus {whole.bus!r}, and this is bus {self.ring.bus!r}"
                )
            ring = self._keep_compartments(whole)
        except ConfigError as error:
            if str(error) != self._complaint:
                _log.warning("%s; the keys from before stay in use", error)
            self._complaint = str(error)
            return False
        self._complaint = ""
        has_changed = ring != self.ring
        self.ring = ring
        return has_changed

    def _own_part(self, whole: KeyRing) -> KeyRing:
        """Return the keys for the topics of this source. Raises ConfigError if there is none."""
        ring = whole.only(self._topics)
        if ring.keys:
            return ring
        place = self._path or "the key file"
        if self._topics:
            raise ConfigError(f"{place} has no key for {', '.join(self._topics)} any more")
        raise ConfigError(
            f"{place} has keys for some topics only: a node needs one for all others, too"
        )

    def _keep_compartments(self, whole: KeyRing) -> KeyRing:
        """Return the keys to use from now on, for the compartments that were found at first."""
        is_same = set(whole.compartments) == set(self.compartments)
        if is_same or self._topics == COMMON:
            ring = self._own_part(whole)
        else:
            ring = whole.only(self._topics)
        if is_same:
            return ring
        if self._topics == COMMON and not self._is_outdated:
            self._is_outdated = True
            _log.warning(
                "%s has keys for other topics than before: start this program again to use them; "
                "until then it keeps to the topics from before",
                self._path,
            )
        # Other buses of this program go on with keys that the file has no more.
        return replace(
            ring, keys=ring.keys or self.ring.keys, others=ring.others | self.ring.others
        )

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
    if not parsed.keys() <= _KEY_FIELDS:
        # What it says may narrow what the key is good for, so it must not be passed over.
        raise ConfigError(f"{place} has a field that this version of jsonbus does not know")
    check_key_name(f'"id" of {place}', parsed.get("id"))
    secret = _parse_secret(place, parsed.get("secret"))
    topics = _parse_topics(place, parsed["topics"]) if "topics" in parsed else COMMON
    return Key(parsed["id"], secret, _parse_from(place, parsed), topics)


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


def _parse_topics(place: str, parsed: object) -> Topics:
    if not isinstance(parsed, list | tuple) or not parsed:
        raise ConfigError(f'"topics" of {place} must be a list of topics and patterns')
    try:
        return tuple(sorted(set(map(check_pattern, parsed))))
    except (InvalidTopicError, TypeError):
        pass  # the error would show what is there, which may be a secret
    raise ConfigError(f'"topics" of {place} has something that is neither a topic nor a pattern')


def _check_apart(ids: Mapping[Topics, str]) -> None:
    """Raise ConfigError if a topic belongs to two compartments; `ids` has one key of each."""
    if sum(map(len, ids)) > TOPICS_MAX:
        raise ConfigError(f"the keys are for more than {TOPICS_MAX} topics and patterns in all")
    for one, other in combinations(ids, 2):
        if any(overlaps(ours, theirs) for ours, theirs in product(one, other)):
            raise ConfigError(
                f"keys {ids[one]!r} and {ids[other]!r} have some topics in common, and others not: "
                "give both the same topics, or none in common"
            )
