"""From what a node says besides messages to datagram bytes; core/wire.py describes the format."""

from __future__ import annotations

import math
from base64 import b64encode
from collections.abc import Sequence
from typing import Any

from jsonbus.core.wire import codec
from jsonbus.core.wire.encode_messages import Stamp, longest
from jsonbus.core.wire.frames import (
    ALL_BUCKETS,
    BUCKETS,
    UNTOLD,
    About,
    Digest,
    Entry,
    MissingOfTopic,
    Totals,
)
from jsonbus.core.wire.names import (
    AGE_MS_MAX,
    BEAT,
    BYE,
    COVERS_ALL,
    DATAGRAM_BYTES_MAX,
    ERROR_CHARS_MAX,
    FLAG_BASIC,
    FLAG_GONE,
    FLAG_IS_MASTER,
    FLAG_LEFT,
    FLAG_MASTER_MODE,
    INTEGER_MAX,
    KEY_ANSWER,
    KEY_BEAT,
    KEY_CHANNELS,
    KEY_COVERS,
    KEY_DIGEST,
    KEY_ENTRIES,
    KEY_ERROR,
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
    KEY_TOTALS,
    KEY_VERSION,
    KEY_WHO,
    LIST_PARTS_MAX,
    LIST_PATTERNS_MAX,
    NAK,
    PING,
    PONG,
    PRESENCE,
    REPLY,
    REQUEST,
    RETAINED,
    SUMS_BYTES,
    TOPICS,
    WHERE,
)


def encode_list(
    stamp: Stamp,
    first_message: int,
    sent_us: int,
    *,
    entries: Sequence[tuple[Entry, float]],
    digest: Digest | None,
    sums: int | None,
    covers: int | None,
    part: tuple[int, int] = (0, 1),
    settled: bool,
    receive_buffer_bytes: int | None = None,
    about: About = UNTOLD,
) -> bytes:
    """A list, or a part of one: whole entries, each with the seconds since its node was heard."""
    union = {pattern for entry, _ in entries for pattern in _patterns_sent(entry)}
    payload = [TOPICS, *sorted(union)]
    index_of = {pattern: index for index, pattern in enumerate(payload)}
    fields: dict[str, Any] = {
        KEY_ENTRIES: {entry.node: _entry_fields(entry, age_s, index_of) for entry, age_s in entries}
    }
    _add_digest(fields, digest, sums)
    if covers is not None:
        fields[KEY_COVERS] = (
            COVERS_ALL if covers == ALL_BUCKETS else covers.to_bytes(BUCKETS // 8, "big").hex()
        )
    if part != (0, 1):
        fields[KEY_PART] = part
    if settled:
        fields[KEY_SETTLED] = 1
    if receive_buffer_bytes is not None:
        assert covers is None  # it takes a part of the room that LIST_OVERHEAD_BYTES has for them
        fields[KEY_RECEIVE_BUFFER] = receive_buffer_bytes
    _add_about(fields, about)
    return _encode_control(stamp, first_message, sent_us, TOPICS, codec.dumps(payload), fields)


def entry_size_bytes(entry: Entry) -> int:
    """What an entry adds to a list's datagram, at most."""
    patterns = _patterns_sent(entry)
    # As if no other entry had any of its patterns, and all its indexes were the longest.
    indexes = dict.fromkeys(patterns, LIST_PATTERNS_MAX)
    fields = codec.dumps({entry.node: _entry_fields(entry, math.inf, indexes)})
    return len(fields) + len(codec.dumps(patterns))  # two pairs of brackets pay for two commas


def about_size_bytes(about: About) -> int:
    """What it adds to a datagram."""
    fields: dict[str, Any] = {}
    _add_about(fields, about)
    return len(codec.dumps(fields)) - 1 if fields else 0  # a comma for two braces


def encode_presence(
    stamp: Stamp,
    first_message: int,
    sent_us: int,
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
    about: About = UNTOLD,
    is_answer: bool = False,
    totals: Totals | None = None,
) -> bytes:
    """I am here, and this is my digest."""
    fields: dict[str, Any] = {KEY_VERSION: version, KEY_NAME: name, KEY_MODE: mode}
    if is_master:
        fields[KEY_IS_MASTER] = 1
    if settled:
        fields[KEY_SETTLED] = 1
    _add_digest(fields, digest, sums)
    if suspects:
        fields[KEY_SUSPECTS] = suspects
    if receive_buffer_bytes is not None:
        fields[KEY_RECEIVE_BUFFER] = receive_buffer_bytes
    _add_about(fields, about)
    if is_answer:
        fields[KEY_ANSWER] = 1
    if totals is not None:
        fields[KEY_TOTALS] = [*totals]
    return _encode_control(stamp, first_message, sent_us, PRESENCE, b"null", fields)


def encode_bye(stamp: Stamp, first_message: int, sent_us: int, *, version: int) -> bytes:
    """I leave; `version` is my entry's last."""
    fields = {KEY_VERSION: version}
    return _encode_control(stamp, first_message, sent_us, BYE, b"null", fields)


def encode_request(
    stamp: Stamp,
    first_message: int,
    sent_us: int,
    *,
    topic: str,
    payload: bytes,
    request_id: int,
    timeout_ms: int,
) -> bytes:
    """A value, as JSON, for whoever serves the topic."""
    fields = {KEY_REQUEST: [topic, request_id, timeout_ms]}
    return _encode_control(stamp, first_message, sent_us, REQUEST, payload, fields)


def encode_reply(
    stamp: Stamp,
    first_message: int,
    sent_us: int,
    *,
    to: str,
    request_id: int,
    payload: bytes,
    error: str | None,
) -> bytes:
    """The answer, as JSON, to a request of node `to`; a long error text is cut."""
    fields: dict[str, Any] = {KEY_REPLY: [to, request_id]}
    if error is not None:
        if len(error) > ERROR_CHARS_MAX:
            error = error[: ERROR_CHARS_MAX - 1] + "…"
        # An exception's text may hold anything, and a failure must not fail to be reported.
        fields[KEY_ERROR] = error.encode(errors="replace").decode()
    return _encode_control(stamp, first_message, sent_us, REPLY, payload, fields)


def encode_nak(
    stamp: Stamp,
    first_message: int,
    sent_us: int,
    *,
    node: str,
    incarnation: int,
    topics: Sequence[MissingOfTopic],
) -> bytes:
    """I miss these messages of that node's reliable topics."""
    listed: list[list[Any]] = []
    for topic, ranges, slices in topics:
        listed.append([topic, ranges])
        if slices:
            listed[-1].append([[each[0], each[1], _bits_text(each[2])] for each in slices])
    fields = {KEY_NAK: [node, incarnation, listed]}
    return _encode_control(stamp, first_message, sent_us, NAK, b"null", fields)


def encode_beat(
    stamp: Stamp, first_message: int, sent_us: int, *, beats: Sequence[tuple[str, int, int]]
) -> bytes:
    """My reliable topics are that far."""
    return _encode_control(stamp, first_message, sent_us, BEAT, b"null", {KEY_BEAT: beats})


def encode_retained(
    stamp: Stamp, first_message: int, sent_us: int, *, items: bytes, to: Sequence[str]
) -> bytes:
    """Last values for these nodes: the JSON of `[topic,value,number,sent_us]`, with commas."""
    return _encode_control(stamp, first_message, sent_us, RETAINED, b"[%b]" % items, {KEY_TO: to})


def encode_ping(stamp: Stamp, first_message: int, sent_us: int, *, ping_id: int) -> bytes:
    """Who hears this?"""
    return _encode_control(stamp, first_message, sent_us, PING, b"null", {KEY_PING: ping_id})


def encode_pong(
    stamp: Stamp,
    first_message: int,
    sent_us: int,
    *,
    to: str,
    ping_id: int,
    about: About = UNTOLD,
    totals: Totals | None = None,
) -> bytes:
    """I heard the ping of node `to`."""
    fields: dict[str, Any] = {KEY_PING: ping_id, KEY_TO: to}
    _add_about(fields, about)
    if totals is not None:
        fields[KEY_TOTALS] = [*totals]
    return _encode_control(stamp, first_message, sent_us, PONG, b"null", fields)


def encode_where(stamp: Stamp, first_message: int, sent_us: int, *, who: str) -> bytes:
    """Where is the node with this id or name?"""
    return _encode_control(stamp, first_message, sent_us, WHERE, b"null", {KEY_WHO: who})


def _bits_text(bits: int) -> str:
    return b64encode(bits.to_bytes((bits.bit_length() + 7) // 8, "big")).decode()


def _encode_control(
    stamp: Stamp,
    first_message: int,
    sent_us: int,
    topic: str,
    payload: bytes,
    fields: dict[str, Any],
) -> bytes:
    # The fields come first: if they cannot be written, no datagram was made, none is counted.
    fields_json = codec.dumps(fields)
    tail = stamp.tail(first_message, sent_us)
    return b'{"topic":"%b","payload":%b%b,%b}' % (topic.encode(), payload, tail, fields_json[1:])


def _add_digest(fields: dict[str, Any], digest: Digest | None, sums: int | None) -> None:
    if digest is not None:
        fields[KEY_DIGEST] = [digest.nodes, f"{digest.hash:016x}"]
    if sums is not None:
        fields[KEY_SUMS] = b64encode(sums.to_bytes(SUMS_BYTES, "big")).decode()


def _add_about(fields: dict[str, Any], about: About) -> None:
    if about.host is not None:
        fields[KEY_HOST] = about.host
    if about.version is not None:
        fields[KEY_SOFTWARE] = about.version
    if about.channel_port is not None:
        fields[KEY_CHANNELS] = about.channel_port


def _patterns_sent(entry: Entry) -> tuple[str, ...]:
    """Who is no longer there wants nothing, whatever it wanted once."""
    return entry.patterns if entry.is_alive else ()


def _entry_fields(entry: Entry, age_s: float, index_of: dict[str, int]) -> list[Any]:
    flags = (
        FLAG_LEFT * entry.left
        | FLAG_GONE * entry.gone
        | FLAG_BASIC * (entry.mode == "basic")
        | FLAG_MASTER_MODE * (entry.mode == "master")
        | FLAG_IS_MASTER * entry.is_master
    )
    return [
        entry.incarnation,
        entry.version,
        round(min(max(0.0, age_s * 1000), AGE_MS_MAX)),
        entry.name,
        flags,
        [index_of[pattern] for pattern in _patterns_sent(entry)],
    ]


# What encode_list adds to its entries, at most: with digest and covers, without sums. (The receive
# buffer of an announcement takes less than the covers that it has not.)
LIST_OVERHEAD_BYTES = len(
    encode_list(
        longest,
        INTEGER_MAX,
        INTEGER_MAX,
        entries=[],
        digest=Digest(INTEGER_MAX, 0),
        sums=None,
        covers=0,
        part=(LIST_PARTS_MAX, LIST_PARTS_MAX),
        settled=True,
    )
)

# What the sums add to that: base64, the key and the quotes.
SUMS_SIZE_BYTES = len(f',"{KEY_SUMS}":""') + 4 * -(-SUMS_BYTES // 3)

# What one entry may take, so that every node can pass it on, whatever its own id.
ENTRY_BYTES_MAX = DATAGRAM_BYTES_MAX - LIST_OVERHEAD_BYTES
