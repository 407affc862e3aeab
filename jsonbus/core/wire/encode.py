"""Datagrams without messages, from what a node says to bytes; format.py describes them."""

from __future__ import annotations

import math
from base64 import b64encode
from collections.abc import Sequence
from typing import Any, NamedTuple

from jsonbus.core.wire import codec, names
from jsonbus.core.wire.encode_messages import TAIL, Stamp, longest
from jsonbus.core.wire.frames import (
    ABOUT_UNKNOWN,
    ALL_BUCKETS,
    BUCKETS,
    About,
    Digest,
    Entry,
    MissingOfTopic,
    Totals,
)

# A comma in the payload; a comma and the index in the entry.
_PATTERN_EXTRA_BYTES = 2 + len(str(names.LIST_PATTERNS_MAX))

_CONTROL = b'{"topic":"%b","payload":%b' + TAIL + b"%b}}"

#: How a presence begins; its header follows.
PRESENCE_START = b'{"topic":"%b","payload":null' % names.PRESENCE.encode()


class Control(NamedTuple):
    """A datagram without messages, complete but for its header."""

    topic: str
    fields: dict[str, Any]  # further keys of `jb`
    payload: bytes = b"null"  # JSON

    def encode(self, stamp: Stamp, first_message: int, sent_us: int) -> bytes:
        # The fields come first: if they cannot be written, no datagram was made, none is counted.
        fields = b"," + codec.dumps(self.fields)[1:-1] if self.fields else b""
        stamp.counter = counter = stamp.counter + 1
        tail = (stamp.start, counter, first_message, sent_us, fields)
        return _CONTROL % (self.topic.encode(), self.payload, *tail)


def encode_list(
    *,
    entries: Sequence[tuple[Entry, float]],
    digest: Digest | None,
    sums: int | None,
    covers: int | None,
    part: tuple[int, int] = (0, 1),
    settled: bool,
    receive_buffer_bytes: int | None = None,
    about: About = ABOUT_UNKNOWN,
    patterns: Sequence[str] = (),
) -> Control:
    """A list, or a part of one: whole entries, each with the seconds since its node was heard.

    `patterns` are named beside those of entries.
    """
    union = {pattern for entry, _ in entries for pattern in _patterns_sent(entry)}
    union.update(patterns)
    payload = [names.TOPICS, *sorted(union)]
    index_of = {pattern: index for index, pattern in enumerate(payload)}
    subs = {entry.node: _entry_fields(entry, age_s, index_of) for entry, age_s in entries}
    fields: dict[str, Any] = {names.KEY_ENTRIES: subs, **_digest_fields(digest, sums)}
    if covers is not None:
        is_full = covers == ALL_BUCKETS
        bits = names.COVERS_ALL if is_full else covers.to_bytes(BUCKETS // 8, "big").hex()
        fields[names.KEY_COVERS] = bits
    if part != (0, 1):
        fields[names.KEY_PART] = part
    if settled:
        fields[names.KEY_SETTLED] = 1
    if receive_buffer_bytes is not None:
        assert covers is None  # it takes a part of the room that LIST_OVERHEAD_BYTES has for them
        fields[names.KEY_RECEIVE_BUFFER] = receive_buffer_bytes
    return Control(names.TOPICS, fields | _about_fields(about), codec.dumps(payload))


def entry_size_bytes(entry: Entry) -> int:
    """Return the bytes that an entry adds to a list's datagram, at most."""
    patterns = _patterns_sent(entry)
    # As if no other entry had any of its patterns, and all its indexes were the longest.
    indexes = dict.fromkeys(patterns, names.LIST_PATTERNS_MAX)
    fields = codec.dumps({entry.node: _entry_fields(entry, math.inf, indexes)})
    return len(fields) + len(codec.dumps(patterns))  # two pairs of brackets pay for two commas


def pattern_size_bytes(pattern: str) -> int:
    """Return the bytes of them that one pattern takes."""
    return len(codec.dumps(pattern)) + _PATTERN_EXTRA_BYTES


def about_size_bytes(about: About) -> int:
    """Return the bytes that it adds to a datagram."""
    fields = _about_fields(about)
    return len(codec.dumps(fields)) - 1 if fields else 0  # a comma for two braces


def encode_presence(
    *,
    version: int,
    name: str,
    mode: str,
    is_master: bool,
    settled: bool,
    digest: Digest | None,
    sums: int | None,
    suspects: Sequence[tuple[str, int]] = (),
    receive_buffer_bytes: int | None = None,
    about: About = ABOUT_UNKNOWN,
    is_answer: bool = False,
    totals: Totals | None = None,
) -> Control:
    """I am here, and this is my digest."""
    fields: dict[str, Any] = {
        names.KEY_VERSION: version,
        names.KEY_NAME: name,
        names.KEY_MODE: mode,
    }
    if is_master:
        fields[names.KEY_IS_MASTER] = 1
    if settled:
        fields[names.KEY_SETTLED] = 1
    fields |= _digest_fields(digest, sums)
    if suspects:
        fields[names.KEY_SUSPECTS] = suspects
    if receive_buffer_bytes is not None:
        fields[names.KEY_RECEIVE_BUFFER] = receive_buffer_bytes
    fields |= _about_fields(about)
    if is_answer:
        fields[names.KEY_ANSWER] = 1
    return Control(names.PRESENCE, fields | _totals_fields(totals))


def encode_bye(version: int) -> Control:
    """I leave; `version` is my entry's last."""
    return Control(names.BYE, {names.KEY_VERSION: version})


def encode_request(topic: str, payload: bytes, request_id: int, timeout_ms: int) -> Control:
    """A value, as JSON, for whoever serves the topic."""
    return Control(names.REQUEST, {names.KEY_REQUEST: [topic, request_id, timeout_ms]}, payload)


def encode_reply(to: str, request_id: int, payload: bytes, error: str | None) -> Control:
    """The answer, as JSON, to a request of node `to`; a long error text is cut.

    If `to` is the sender itself, it cancels its request.
    """
    fields: dict[str, Any] = {names.KEY_REPLY: [to, request_id]}
    if error is not None:
        if len(error) > names.ERROR_CHARS_MAX:
            error = error[: names.ERROR_CHARS_MAX - 1] + "…"
        # An exception's text may hold anything, and a failure must not fail to be reported.
        fields[names.KEY_ERROR] = error.encode(errors="replace").decode()
    return Control(names.REPLY, fields, payload)


def encode_nak(node: str, incarnation: int, topics: Sequence[MissingOfTopic]) -> Control:
    """I miss these messages of that node's reliable topics."""
    listed: list[list[Any]] = []
    for topic, ranges, slices in topics:
        listed.append([topic, ranges])
        if slices:
            listed[-1].append([[each[0], each[1], _bits_text(each[2])] for each in slices])
    return Control(names.NAK, {names.KEY_NAK: [node, incarnation, listed]})


def encode_beat(beats: Sequence[tuple[str, int, int]]) -> Control:
    """My reliable topics are that far."""
    return Control(names.BEAT, {names.KEY_BEAT: beats})


def encode_repair(items: Sequence[bytes]) -> Control:
    """Messages sent again, each as the JSON of `[topic,value,sequence,number]`."""
    return Control(names.REPAIR, {}, b"[%b]" % b",".join(items))


def encode_retained(items: Sequence[bytes], to: Sequence[str]) -> Control:
    """Last values for these nodes, each as the JSON of `[topic,value,number,sent_us]`."""
    return Control(names.RETAINED, {names.KEY_TO: to}, b"[%b]" % b",".join(items))


def encode_ping(ping_id: int) -> Control:
    """Who hears this?"""
    return Control(names.PING, {names.KEY_PING: ping_id})


def encode_pong(
    to: str, ping_id: int, about: About = ABOUT_UNKNOWN, totals: Totals | None = None
) -> Control:
    """I heard the ping of node `to`."""
    fields = {names.KEY_PING: ping_id, names.KEY_TO: to}
    return Control(names.PONG, fields | _about_fields(about) | _totals_fields(totals))


def encode_where(who: str) -> Control:
    """Where is the node with this id or name?"""
    return Control(names.WHERE, {names.KEY_WHO: who})


def _bits_text(bits: int) -> str:
    return b64encode(bits.to_bytes((bits.bit_length() + 7) // 8, "big")).decode()


def _digest_fields(digest: Digest | None, sums: int | None) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    if digest is not None:
        fields[names.KEY_DIGEST] = [digest.nodes, f"{digest.hash:016x}"]
    if sums is not None:
        fields[names.KEY_SUMS] = b64encode(sums.to_bytes(names.SUMS_BYTES, "big")).decode()
    return fields


def _about_fields(about: About) -> dict[str, Any]:
    keys = (names.KEY_HOST, names.KEY_SOFTWARE, names.KEY_CHANNELS)
    return {key: value for key, value in zip(keys, about, strict=True) if value is not None}


def _totals_fields(totals: Totals | None) -> dict[str, Any]:
    return {} if totals is None else {names.KEY_TOTALS: [*totals]}


def _patterns_sent(entry: Entry) -> tuple[str, ...]:
    """Return the patterns that are sent: none for a node that is no longer there."""
    return entry.patterns if entry.is_alive else ()


def _entry_fields(entry: Entry, age_s: float, index_of: dict[str, int]) -> list[Any]:
    flags = (
        names.FLAG_LEFT * entry.left
        | names.FLAG_GONE * entry.gone
        | names.FLAG_BASIC * (entry.mode == "basic")
        | names.FLAG_MASTER_MODE * (entry.mode == "master")
        | names.FLAG_IS_MASTER * entry.is_master
        | names.FLAG_COARSE * entry.is_coarse
    )
    return [
        entry.incarnation,
        entry.version,
        round(min(max(0.0, age_s * 1000), names.AGE_MS_MAX)),
        entry.name,
        flags,
        [index_of[pattern] for pattern in _patterns_sent(entry)],
    ]


# What encode_list adds to its entries, at most: with digest and covers, without sums. (The receive
# buffer of an announcement takes less than the covers that it has not.)
_LONGEST_LIST = encode_list(
    entries=[],
    digest=Digest(names.INTEGER_MAX, 0),
    sums=None,
    covers=0,
    part=(names.LIST_PARTS_MAX, names.LIST_PARTS_MAX),
    settled=True,
)
LIST_OVERHEAD_BYTES = len(_LONGEST_LIST.encode(longest, names.INTEGER_MAX, names.INTEGER_MAX))

# What the sums add to that: base64, the key and the quotes.
SUMS_SIZE_BYTES = len(f',"{names.KEY_SUMS}":""') + 4 * -(-names.SUMS_BYTES // 3)

# What one entry may take, so that every node can pass it on, whatever its own id.
ENTRY_BYTES_MAX = names.DATAGRAM_BYTES_MAX - LIST_OVERHEAD_BYTES
