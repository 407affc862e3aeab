"""Subscription lists and presence to frames."""

from __future__ import annotations

from typing import Any

from jsonbus.core.routing.topics import is_valid_pattern
from jsonbus.core.wire.fields import (
    read_about,
    read_array,
    read_digest,
    read_flag,
    read_hex,
    read_integer,
    read_items,
    read_name,
    read_receive_buffer,
    read_sums,
    read_totals,
)
from jsonbus.core.wire.frames import (
    ALL_BUCKETS,
    BUCKETS,
    Entry,
    Header,
    ListFrame,
    PresenceFrame,
)
from jsonbus.core.wire.limits import LIST_PARTS_MAX
from jsonbus.core.wire.names import (
    COVERS_ALL,
    FLAG_BASIC,
    FLAG_GONE,
    FLAG_IS_MASTER,
    FLAG_LEFT,
    FLAG_MASTER_MODE,
    KEY_ANSWER,
    KEY_COVERS,
    KEY_ENTRIES,
    KEY_IS_MASTER,
    KEY_MODE,
    KEY_NAME,
    KEY_PART,
    KEY_SETTLED,
    KEY_SUSPECTS,
    KEY_VERSION,
    MODES,
    RESERVED_PREFIX,
    TOPICS,
    is_listed_id,
)
from jsonbus.errors import DatagramError


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


def decode_list(header: Header, payload: Any, jb: dict[str, Any]) -> ListFrame:
    for index, pattern in enumerate(read_array(payload, "the payload")):
        if not (is_valid_pattern(pattern) or (index == 0 and pattern == TOPICS)):
            raise ValueError(f"pattern {index} is not valid")
    subs = jb.get(KEY_ENTRIES)
    if type(subs) is not dict:
        raise ValueError(f"{KEY_ENTRIES} must be an object")
    return ListFrame(
        header=header,
        topics=[pattern for pattern in payload if pattern != TOPICS],
        entries=[_entry(node, fields, payload) for node, fields in subs.items()],
        digest=read_digest(jb),
        sums=read_sums(jb),
        covers=_covers(jb.get(KEY_COVERS)),
        part=_part(jb.get(KEY_PART)),
        settled=read_flag(jb, KEY_SETTLED),
        receive_buffer_bytes=read_receive_buffer(jb),
        about=read_about(jb),
    )


def _entry(node: str, fields: Any, patterns: list[str]) -> tuple[Entry, float]:
    """One entry of a list, and the seconds since its node was heard."""
    if not is_listed_id(node):
        raise ValueError("an entry's node id is not valid")
    incarnation, version, age_ms, name, flags, indexes = read_items(fields, 6, "an entry")
    read_integer(flags, "flags")
    if flags & FLAG_BASIC and flags & FLAG_MASTER_MODE:
        raise ValueError("an entry has two modes")
    mode = "basic" if flags & FLAG_BASIC else "master" if flags & FLAG_MASTER_MODE else "delayed"
    is_alive = not flags & (FLAG_LEFT | FLAG_GONE)
    entry = Entry(
        node=node,
        incarnation=read_integer(incarnation, "incarnation"),
        version=read_integer(version, "version"),
        name=read_name(name),
        patterns=_indexed(indexes, patterns) if is_alive else (),
        mode=mode,
        is_master=bool(flags & FLAG_IS_MASTER),
        left=bool(flags & FLAG_LEFT),
        gone=bool(flags & FLAG_GONE),
    )
    return entry, read_integer(age_ms, "age") / 1000


def _indexed(indexes: Any, patterns: list[str]) -> tuple[str, ...]:
    """The patterns at the indexes, in their order: a plain entry's hash depends on it."""
    if not all(type(index) is int for index in read_array(indexes, "an entry's indexes")):
        raise ValueError("an entry's indexes must be integers")
    if indexes and not 1 <= min(indexes) <= max(indexes) < len(patterns):
        raise ValueError("an entry's index is outside the list")
    indexed = tuple([patterns[index] for index in indexes])
    if len(set(indexed)) < len(indexed):
        raise ValueError("an entry repeats a pattern")
    return indexed


def decode_presence(header: Header, payload: Any, jb: dict[str, Any]) -> PresenceFrame:
    mode = jb.get(KEY_MODE)
    if mode not in MODES:
        raise ValueError("unknown mode")
    return PresenceFrame(
        header=header,
        version=read_integer(jb.get(KEY_VERSION), "version"),
        name=read_name(jb.get(KEY_NAME)),
        mode=mode,
        is_master=read_flag(jb, KEY_IS_MASTER),
        settled=read_flag(jb, KEY_SETTLED),
        digest=read_digest(jb),
        sums=read_sums(jb),
        suspects=_suspects(jb.get(KEY_SUSPECTS)),
        receive_buffer_bytes=read_receive_buffer(jb),
        about=read_about(jb),
        is_answer=read_flag(jb, KEY_ANSWER),
        totals=read_totals(jb),
    )


def _suspects(value: Any) -> tuple[tuple[str, int], ...]:
    if value is None:
        return ()
    suspects = []
    for pair in read_array(value, "suspects"):
        node, incarnation = read_items(pair, 2, "a suspect")
        if not is_listed_id(node):
            raise ValueError("a suspect's node id is not valid")
        suspects.append((node, read_integer(incarnation, "incarnation")))
    return tuple(suspects)


def _covers(value: Any) -> int | None:
    if value is None:
        return None
    return ALL_BUCKETS if value == COVERS_ALL else read_hex(value, BUCKETS // 8, "covers")


def _part(value: Any) -> tuple[int, int]:
    if value is None:
        return (0, 1)
    index, count = read_items(value, 2, "a part")
    if read_integer(index, "part") < read_integer(count, "parts") <= LIST_PARTS_MAX:
        return (index, count)
    raise ValueError(f"part {index} of {count} is out of range")
