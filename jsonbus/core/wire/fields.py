"""Fields of control datagrams: each function returns a field, or raises ValueError with the fault.

Arrays may be longer than expected, and objects may have more keys: later versions need the room.
"""

from __future__ import annotations

from binascii import a2b_base64
from typing import Any

from jsonbus.core.wire import names
from jsonbus.core.wire.frames import ABOUT_UNKNOWN, About, Digest, Totals


def read_integer(value: Any, what: str) -> int:
    if type(value) is int and 0 <= value <= names.INTEGER_MAX:
        return value
    raise ValueError(f"{what} must be an integer up to 2**53")


def read_flag(jb: dict[str, Any], key: str) -> bool:
    """Return a flag, which is 1 or absent; 0 is accepted, too."""
    value = jb.get(key, 0)
    if type(value) is int and value in (0, 1):
        return bool(value)
    raise ValueError(f"{key} must be 0 or 1")


def read_array(value: Any, what: str) -> list[Any]:
    if type(value) is list:
        return value
    raise ValueError(f"{what} must be an array")


def read_items(value: Any, count: int, what: str) -> list[Any]:
    """Return the first items of an array that must have at least that many."""
    if type(value) is list and len(value) >= count:
        return value[:count]
    raise ValueError(f"{what} must be an array of {count}")


def read_node(value: Any) -> str:
    if names.is_node_id(value):
        return str(value)
    raise ValueError("a node id is not valid")


def read_name(value: Any) -> str:
    if names.is_node_name(value):
        return str(value)
    raise ValueError("a name must be a string of at most 255 bytes without control characters")


def read_hex(text: Any, length_bytes: int, what: str) -> int:
    if type(text) is str and len(text) == 2 * length_bytes:
        raw = bytes.fromhex(text)  # skips blanks, but then there are too few digits
        if len(raw) == length_bytes:
            return int.from_bytes(raw, "big")
    raise ValueError(f"{what} must have {2 * length_bytes} hexadecimal digits")


def read_digest(jb: dict[str, Any]) -> Digest | None:
    value = jb.get(names.KEY_DIGEST)
    if value is None:
        return None
    count, digits = read_items(value, 2, "a digest")
    return Digest(read_integer(count, "count"), read_hex(digits, 8, "a digest"))


def read_sums(jb: dict[str, Any]) -> int | None:
    text = jb.get(names.KEY_SUMS)
    if text is None:
        return None
    if type(text) is str:
        raw = a2b_base64(text, strict_mode=True)
        if len(raw) == names.SUMS_BYTES:
            return int.from_bytes(raw, "big")
    raise ValueError(f"bucket sums must be {names.SUMS_BYTES} bytes in base64")


def read_receive_buffer(jb: dict[str, Any]) -> int | None:
    value = jb.get(names.KEY_RECEIVE_BUFFER)
    return None if value is None else read_integer(value, "a receive buffer")


def read_totals(jb: dict[str, Any]) -> Totals | None:
    value = jb.get(names.KEY_TOTALS)
    if value is None:
        return None
    items = read_items(value, len(Totals._fields), "totals")
    return Totals(*[read_integer(each, "a total") for each in items])


def read_about(jb: dict[str, Any]) -> About:
    host, version, port = (
        jb.get(names.KEY_HOST),
        jb.get(names.KEY_SOFTWARE),
        jb.get(names.KEY_CHANNELS),
    )
    if host is None and version is None and port is None:
        return ABOUT_UNKNOWN
    if host is not None and not names.is_host_name(host):
        raise ValueError("a host must be text of 1 to 64 bytes without control characters")
    if version is not None and not names.is_software_version(version):
        raise ValueError("a version must be text of 1 to 32 bytes without control characters")
    if port is not None and not 1 <= read_integer(port, "a port") <= names.PORT_MAX:
        raise ValueError(f"{port} is no TCP port")
    return About(host, version, port)
