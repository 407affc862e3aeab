"""Control datagrams to frames: lists, presence, requests, replies; the cold half of decoding.

The helpers at the end return what they were given if it is right, and raise ValueError with what
is wrong; `decode_control` turns that into a DatagramError in one place. Arrays may be longer than
expected, as objects may have more keys: both are room for later versions.
"""

from __future__ import annotations

from binascii import a2b_base64
from collections.abc import Callable
from typing import Any

from jsonbus.core.frames import (
    ALL_BUCKETS,
    BUCKETS,
    UNTOLD,
    About,
    BeatFrame,
    ByeFrame,
    Digest,
    EchoedFrame,
    EchoFrame,
    Entry,
    FragmentFrame,
    Frame,
    Header,
    ListFrame,
    NakFrame,
    PingFrame,
    PongFrame,
    PresenceFrame,
    RepairFrame,
    ReplyFrame,
    RequestFrame,
    RetainedFrame,
)
from jsonbus.core.topics import is_valid_pattern, is_valid_topic
from jsonbus.core.wire_limits import (
    ERROR_CHARS_MAX,
    INTEGER_MAX,
    LIST_PARTS_MAX,
    SLICES_MAX,
    SUMS_BYTES,
)
from jsonbus.core.wire_names import (
    BEAT,
    BYE,
    COVERS_ALL,
    ECHO,
    ECHOED,
    FLAG_BASIC,
    FLAG_GONE,
    FLAG_IS_MASTER,
    FLAG_LEFT,
    FLAG_MASTER_MODE,
    FRAGMENT,
    KEY_BEAT,
    KEY_COVERS,
    KEY_DIGEST,
    KEY_ENTRIES,
    KEY_ERROR,
    KEY_FRAGMENT,
    KEY_HEARD,
    KEY_HOST,
    KEY_IS_MASTER,
    KEY_MODE,
    KEY_NAK,
    KEY_NAME,
    KEY_PART,
    KEY_PING,
    KEY_RECEIVE_BUFFER,
    KEY_REPLY,
    KEY_REQUEST,
    KEY_SETTLED,
    KEY_SOFTWARE,
    KEY_SUMS,
    KEY_SUSPECTS,
    KEY_TO,
    KEY_VERSION,
    MODES,
    NAK,
    PING,
    PONG,
    PRESENCE,
    REPAIR,
    REPLY,
    REQUEST,
    RESERVED_PREFIX,
    RETAINED,
    TOPICS,
    is_host_name,
    is_listed_id,
    is_node_id,
    is_node_name,
    is_software_version,
)
from jsonbus.errors import DatagramError


def decode_control(topic: str, header: Header, payload: Any, jb: dict[str, Any]) -> Frame:
    """The frame of a datagram under one of CONTROL_TOPICS; DatagramError if it has none."""
    try:
        return _DECODERS[topic](header, payload, jb)
    except ValueError as error:
        cause = "bad_list" if topic == TOPICS else "bad_fields"
        raise DatagramError(cause, f"{topic}: {error}") from None


def decode_plain_list(payload: Any) -> ListFrame:
    """A list without `jb`: just topics, as the first implementation's nodes send it.

    Names that no node of ours can publish under are left out instead of refusing the list: its
    sender misses nothing by it, and keeps the rest.
    """
    if type(payload) is not list or not all(type(topic) is str for topic in payload):
        raise DatagramError("bad_list", "the payload of a list must be an array of strings")
    topics = [
        topic
        for topic in payload
        if not topic.startswith(RESERVED_PREFIX) and is_valid_pattern(topic)
    ]
    return ListFrame(None, topics, [], None, None, None, (0, 1), False)


def _decode_list(header: Header, payload: Any, jb: dict[str, Any]) -> ListFrame:
    for index, pattern in enumerate(_array(payload, "the payload")):
        if not (is_valid_pattern(pattern) or (index == 0 and pattern == TOPICS)):
            raise ValueError(f"pattern {index} is not valid")
    subs = jb.get(KEY_ENTRIES)
    if type(subs) is not dict:
        raise ValueError(f"{KEY_ENTRIES} must be an object")
    return ListFrame(
        header=header,
        topics=[pattern for pattern in payload if pattern != TOPICS],
        entries=[_entry(node, fields, payload) for node, fields in subs.items()],
        digest=_digest(jb),
        sums=_sums(jb),
        covers=_covers(jb.get(KEY_COVERS)),
        part=_part(jb.get(KEY_PART)),
        settled=_flag(jb, KEY_SETTLED),
        receive_buffer_bytes=_receive_buffer(jb),
        about=_about(jb),
    )


def _entry(node: str, fields: Any, patterns: list[str]) -> tuple[Entry, float]:
    """One entry of a list, and the seconds since its node was heard."""
    if not is_listed_id(node):
        raise ValueError("an entry's node id is not valid")
    incarnation, version, age_ms, name, flags, indexes = _items(fields, 6, "an entry")
    _integer(flags, "flags")
    if flags & FLAG_BASIC and flags & FLAG_MASTER_MODE:
        raise ValueError("an entry has two modes")
    mode = "basic" if flags & FLAG_BASIC else "master" if flags & FLAG_MASTER_MODE else "delayed"
    is_alive = not flags & (FLAG_LEFT | FLAG_GONE)
    entry = Entry(
        node=node,
        incarnation=_integer(incarnation, "incarnation"),
        version=_integer(version, "version"),
        name=_name(name),
        patterns=_indexed(indexes, patterns) if is_alive else (),
        mode=mode,
        is_master=bool(flags & FLAG_IS_MASTER),
        left=bool(flags & FLAG_LEFT),
        gone=bool(flags & FLAG_GONE),
    )
    return entry, _integer(age_ms, "age") / 1000


def _indexed(indexes: Any, patterns: list[str]) -> tuple[str, ...]:
    """The patterns at the indexes, in their order: a plain entry's hash depends on it."""
    if not all(type(index) is int for index in _array(indexes, "an entry's indexes")):
        raise ValueError("an entry's indexes must be integers")
    if indexes and not 1 <= min(indexes) <= max(indexes) < len(patterns):
        raise ValueError("an entry's index is outside the list")
    indexed = tuple([patterns[index] for index in indexes])
    if len(set(indexed)) < len(indexed):
        raise ValueError("an entry repeats a pattern")
    return indexed


def _decode_fragment(header: Header, payload: Any, jb: dict[str, Any]) -> FragmentFrame:
    if type(payload) is not str:
        raise ValueError("a slice must be a string")
    place = _array(jb.get(KEY_FRAGMENT), "a fragment")
    number, index, count = _items(place, 3, "a fragment")
    _integer(number, "number")
    sequence = _integer(place[3], "sequence") if len(place) > 3 else None
    if not _integer(index, "index") < _integer(count, "count") <= SLICES_MAX:
        raise ValueError(f"slice {index} of {count}")
    return FragmentFrame(header, number, index, count, payload, sequence)


def _decode_nak(header: Header, payload: Any, jb: dict[str, Any]) -> NakFrame:
    node, incarnation, listed = _items(jb.get(KEY_NAK), 3, "a NAK")
    topics = []
    for topic, ranges in (_items(each, 2, "a topic") for each in _array(listed, "topics")):
        if not is_valid_topic(topic):
            raise ValueError("a topic is not valid")
        topics.append((topic, [_range(each) for each in _array(ranges, "ranges")]))
    return NakFrame(header, _node(node), _integer(incarnation, "incarnation"), topics)


def _decode_beat(header: Header, payload: Any, jb: dict[str, Any]) -> BeatFrame:
    beats = []
    for each in _array(jb.get(KEY_BEAT), "beats"):
        topic, last, first = _items(each, 3, "a beat")
        if not is_valid_topic(topic):
            raise ValueError("a topic is not valid")
        beats.append((topic, _integer(last, "last"), _integer(first, "first")))
    return BeatFrame(header, beats)


def _decode_repair(header: Header, payload: Any, jb: dict[str, Any]) -> RepairFrame:
    return RepairFrame(header, _array(payload, "the payload of a repair"))


def _decode_retained(header: Header, payload: Any, jb: dict[str, Any]) -> RetainedFrame:
    to = tuple([_node(node) for node in _array(jb.get(KEY_TO), "to")])
    return RetainedFrame(header, to, _array(payload, "the payload of retained values"))


def _range(value: Any) -> tuple[int, int]:
    first, last = _items(value, 2, "a range")
    if not 1 <= _integer(first, "first") <= _integer(last, "last"):
        raise ValueError("a range is empty")
    return first, last


def _decode_presence(header: Header, payload: Any, jb: dict[str, Any]) -> PresenceFrame:
    mode = jb.get(KEY_MODE)
    if mode not in MODES:
        raise ValueError("unknown mode")
    return PresenceFrame(
        header=header,
        version=_integer(jb.get(KEY_VERSION), "version"),
        name=_name(jb.get(KEY_NAME)),
        mode=mode,
        is_master=_flag(jb, KEY_IS_MASTER),
        settled=_flag(jb, KEY_SETTLED),
        digest=_digest(jb),
        sums=_sums(jb),
        suspects=_suspects(jb.get(KEY_SUSPECTS)),
        receive_buffer_bytes=_receive_buffer(jb),
        about=_about(jb),
    )


def _suspects(value: Any) -> tuple[tuple[str, int], ...]:
    if value is None:
        return ()
    suspects = []
    for pair in _array(value, "suspects"):
        node, incarnation = _items(pair, 2, "a suspect")
        if not is_listed_id(node):
            raise ValueError("a suspect's node id is not valid")
        suspects.append((node, _integer(incarnation, "incarnation")))
    return tuple(suspects)


def _decode_bye(header: Header, payload: Any, jb: dict[str, Any]) -> ByeFrame:
    return ByeFrame(header, _integer(jb.get(KEY_VERSION), "version"))


def _decode_request(header: Header, payload: Any, jb: dict[str, Any]) -> RequestFrame:
    topic, request_id, timeout_ms = _items(jb.get(KEY_REQUEST), 3, "a request")
    if not is_valid_topic(topic):
        raise ValueError("the request's topic is not valid")
    return RequestFrame(
        header, topic, payload, _integer(request_id, "id"), _integer(timeout_ms, "timeout")
    )


def _decode_reply(header: Header, payload: Any, jb: dict[str, Any]) -> ReplyFrame:
    to, request_id = _items(jb.get(KEY_REPLY), 2, "a reply")
    error = jb.get(KEY_ERROR)
    if error is not None and (type(error) is not str or len(error) > ERROR_CHARS_MAX):
        raise ValueError(f"an error must be a string of at most {ERROR_CHARS_MAX} characters")
    return ReplyFrame(header, _node(to), _integer(request_id, "id"), payload, error)


def _decode_ping(header: Header, payload: Any, jb: dict[str, Any]) -> PingFrame:
    return PingFrame(header, _integer(jb.get(KEY_PING), "id"))


def _decode_pong(header: Header, payload: Any, jb: dict[str, Any]) -> PongFrame:
    to, ping_id = _node(jb.get(KEY_TO)), _integer(jb.get(KEY_PING), "id")
    return PongFrame(header, to, ping_id, _about(jb))


def _decode_echo(header: Header, payload: Any, jb: dict[str, Any]) -> EchoFrame:
    return EchoFrame(header, _integer(jb.get(KEY_PING), "id"))


def _decode_echoed(header: Header, payload: Any, jb: dict[str, Any]) -> EchoedFrame:
    heard, repeated = _items(jb.get(KEY_HEARD), 2, "what was heard")
    return EchoedFrame(
        header,
        _node(jb.get(KEY_TO)),
        _integer(jb.get(KEY_PING), "id"),
        _integer(heard, "heard"),
        _integer(repeated, "repeated"),
        _name(jb.get(KEY_NAME, "")),
    )


_DECODERS: dict[str, Callable[[Header, Any, dict[str, Any]], Frame]] = {
    TOPICS: _decode_list,
    FRAGMENT: _decode_fragment,
    NAK: _decode_nak,
    BEAT: _decode_beat,
    REPAIR: _decode_repair,
    RETAINED: _decode_retained,
    PRESENCE: _decode_presence,
    BYE: _decode_bye,
    REQUEST: _decode_request,
    REPLY: _decode_reply,
    PING: _decode_ping,
    PONG: _decode_pong,
    ECHO: _decode_echo,
    ECHOED: _decode_echoed,
}
CONTROL_TOPICS = frozenset(_DECODERS)


def _integer(value: Any, what: str) -> int:
    if type(value) is int and 0 <= value <= INTEGER_MAX:
        return value
    raise ValueError(f"{what} must be an integer up to 2**53")


def _flag(jb: dict[str, Any], key: str) -> bool:
    """Flags are 1 or absent; 0 is understood too."""
    value = jb.get(key, 0)
    if type(value) is int and value in (0, 1):
        return bool(value)
    raise ValueError(f"{key} must be 0 or 1")


def _array(value: Any, what: str) -> list[Any]:
    if type(value) is list:
        return value
    raise ValueError(f"{what} must be an array")


def _items(value: Any, count: int, what: str) -> list[Any]:
    """The first items of an array that must have at least that many."""
    if type(value) is list and len(value) >= count:
        return value[:count]
    raise ValueError(f"{what} must be an array of {count}")


def _node(value: Any) -> str:
    if is_node_id(value):
        return str(value)
    raise ValueError("a node id is not valid")


def _name(value: Any) -> str:
    if is_node_name(value):
        return str(value)
    raise ValueError("a name must be a string of at most 255 bytes without control characters")


def _hex(text: Any, length_bytes: int, what: str) -> int:
    if type(text) is str and len(text) == 2 * length_bytes:
        raw = bytes.fromhex(text)  # skips blanks, but then there are too few digits
        if len(raw) == length_bytes:
            return int.from_bytes(raw, "big")
    raise ValueError(f"{what} must have {2 * length_bytes} hexadecimal digits")


def _digest(jb: dict[str, Any]) -> Digest | None:
    value = jb.get(KEY_DIGEST)
    if value is None:
        return None
    count, digits = _items(value, 2, "a digest")
    return Digest(_integer(count, "count"), _hex(digits, 8, "a digest"))


def _sums(jb: dict[str, Any]) -> int | None:
    text = jb.get(KEY_SUMS)
    if text is None:
        return None
    if type(text) is str:
        raw = a2b_base64(text, strict_mode=True)
        if len(raw) == SUMS_BYTES:
            return int.from_bytes(raw, "big")
    raise ValueError(f"bucket sums must be {SUMS_BYTES} bytes in base64")


def _receive_buffer(jb: dict[str, Any]) -> int | None:
    value = jb.get(KEY_RECEIVE_BUFFER)
    return None if value is None else _integer(value, "a receive buffer")


def _about(jb: dict[str, Any]) -> About:
    host, version = jb.get(KEY_HOST), jb.get(KEY_SOFTWARE)
    if host is None and version is None:
        return UNTOLD
    if host is not None and not is_host_name(host):
        raise ValueError("a host must be text of 1 to 64 bytes without control characters")
    if version is not None and not is_software_version(version):
        raise ValueError("a version must be text of 1 to 32 bytes without control characters")
    return About(host, version)


def _covers(value: Any) -> int | None:
    if value is None:
        return None
    return ALL_BUCKETS if value == COVERS_ALL else _hex(value, BUCKETS // 8, "covers")


def _part(value: Any) -> tuple[int, int]:
    if value is None:
        return (0, 1)
    index, count = _items(value, 2, "a part")
    if _integer(index, "part") < _integer(count, "parts") <= LIST_PARTS_MAX:
        return (index, count)
    raise ValueError(f"part {index} of {count} is out of range")
