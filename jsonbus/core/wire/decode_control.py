"""Control datagrams to frames: the cold half of decoding.

Decoders raise ValueError with what is wrong (fields.py); decode.py makes a DatagramError of it.
"""

from __future__ import annotations

from binascii import a2b_base64
from collections.abc import Callable
from typing import Any

from jsonbus.core.wire import names
from jsonbus.core.wire.fields import (
    read_about,
    read_array,
    read_digest,
    read_flag,
    read_hex,
    read_integer,
    read_items,
    read_name,
    read_node,
    read_receive_buffer,
    read_sums,
    read_totals,
)
from jsonbus.core.wire.frames import (
    ALL_BUCKETS,
    BUCKETS,
    BeatFrame,
    ByeFrame,
    EchoedFrame,
    EchoFrame,
    Entry,
    FragmentFrame,
    Frame,
    Header,
    ListFrame,
    MissingOfTopic,
    MissingSlices,
    NakFrame,
    PingFrame,
    PongFrame,
    PresenceFrame,
    RepairFrame,
    ReplyFrame,
    RequestFrame,
    RetainedFrame,
    WhereFrame,
)
from jsonbus.core.wire.topics import is_valid_pattern, is_valid_topic
from jsonbus.errors import DatagramError


def decode_plain_list(payload: Any) -> ListFrame:
    """Return the frame of a list without `jb`: just topics, as the first implementation sends it.

    Topics that no node of jsonbus can publish are left out instead of refusing the list: the
    sender misses nothing, and the rest counts.
    """
    if type(payload) is not list or not all(type(topic) is str for topic in payload):
        raise DatagramError("bad_list", "the payload of a list must be an array of strings")
    topics = [
        topic
        for topic in payload
        if not topic.startswith(names.RESERVED_PREFIX) and is_valid_pattern(topic)
    ]
    return ListFrame(None, topics, [], None, None, None, (0, 1), False)


def _decode_list(header: Header, payload: Any, jb: dict[str, Any]) -> ListFrame:
    for index, pattern in enumerate(read_array(payload, "the payload")):
        if not (is_valid_pattern(pattern) or (index == 0 and pattern == names.TOPICS)):
            raise ValueError(f"pattern {index} is not valid")
    subs = jb.get(names.KEY_ENTRIES)
    if type(subs) is not dict:
        raise ValueError(f"{names.KEY_ENTRIES} must be an object")
    return ListFrame(
        header=header,
        topics=[pattern for pattern in payload if pattern != names.TOPICS],
        entries=[_entry(node, fields, payload) for node, fields in subs.items()],
        digest=read_digest(jb),
        sums=read_sums(jb),
        covers=_covers(jb.get(names.KEY_COVERS)),
        part=_part(jb.get(names.KEY_PART)),
        settled=read_flag(jb, names.KEY_SETTLED),
        receive_buffer_bytes=read_receive_buffer(jb),
        about=read_about(jb),
    )


def _entry(node: str, fields: Any, patterns: list[str]) -> tuple[Entry, float]:
    """Return an entry of a list, and the seconds since its node was heard."""
    if not names.is_listed_id(node):
        raise ValueError("an entry's node id is not valid")
    incarnation, version, age_ms, name, flags, indexes = read_items(fields, 6, "an entry")
    read_integer(flags, "flags")
    if flags & names.FLAG_BASIC and flags & names.FLAG_MASTER_MODE:
        raise ValueError("an entry has two modes")
    mode = (
        "basic"
        if flags & names.FLAG_BASIC
        else "master"
        if flags & names.FLAG_MASTER_MODE
        else "delayed"
    )
    is_alive = not flags & (names.FLAG_LEFT | names.FLAG_GONE)
    entry = Entry(
        node=node,
        incarnation=read_integer(incarnation, "incarnation"),
        version=read_integer(version, "version"),
        name=read_name(name),
        patterns=_indexed(indexes, patterns) if is_alive else (),
        mode=mode,
        is_master=bool(flags & names.FLAG_IS_MASTER),
        left=bool(flags & names.FLAG_LEFT),
        gone=bool(flags & names.FLAG_GONE),
        is_coarse=bool(flags & names.FLAG_COARSE),
    )
    return entry, read_integer(age_ms, "age") / 1000


def _indexed(indexes: Any, patterns: list[str]) -> tuple[str, ...]:
    """Return the patterns at the indexes, in that order, on which a plain entry's hash depends."""
    if not all(type(index) is int for index in read_array(indexes, "an entry's indexes")):
        raise ValueError("an entry's indexes must be integers")
    if indexes and not 1 <= min(indexes) <= max(indexes) < len(patterns):
        raise ValueError("an entry's index is outside the list")
    indexed = tuple([patterns[index] for index in indexes])
    if len(set(indexed)) < len(indexed):
        raise ValueError("an entry repeats a pattern")
    return indexed


def _decode_presence(header: Header, payload: Any, jb: dict[str, Any]) -> PresenceFrame:
    mode = jb.get(names.KEY_MODE)
    if mode not in names.MODES:
        raise ValueError("unknown mode")
    return PresenceFrame(
        header=header,
        version=read_integer(jb.get(names.KEY_VERSION), "version"),
        name=read_name(jb.get(names.KEY_NAME)),
        mode=mode,
        is_master=read_flag(jb, names.KEY_IS_MASTER),
        settled=read_flag(jb, names.KEY_SETTLED),
        digest=read_digest(jb),
        sums=read_sums(jb),
        suspects=_suspects(jb.get(names.KEY_SUSPECTS)),
        receive_buffer_bytes=read_receive_buffer(jb),
        about=read_about(jb),
        is_answer=read_flag(jb, names.KEY_ANSWER),
        totals=read_totals(jb),
    )


def _suspects(value: Any) -> tuple[tuple[str, int], ...]:
    if value is None:
        return ()
    suspects = []
    for pair in read_array(value, "suspects"):
        node, incarnation = read_items(pair, 2, "a suspect")
        if not names.is_listed_id(node):
            raise ValueError("a suspect's node id is not valid")
        suspects.append((node, read_integer(incarnation, "incarnation")))
    return tuple(suspects)


def _covers(value: Any) -> int | None:
    if value is None:
        return None
    return ALL_BUCKETS if value == names.COVERS_ALL else read_hex(value, BUCKETS // 8, "covers")


def _part(value: Any) -> tuple[int, int]:
    if value is None:
        return (0, 1)
    index, count = read_items(value, 2, "a part")
    if read_integer(index, "part") < read_integer(count, "parts") <= names.LIST_PARTS_MAX:
        return (index, count)
    raise ValueError(f"part {index} of {count} is out of range")


def _decode_fragment(header: Header, payload: Any, jb: dict[str, Any]) -> FragmentFrame:
    if type(payload) is not str:
        raise ValueError("a slice must be a string")
    place = read_array(jb.get(names.KEY_FRAGMENT), "a fragment")
    number, index, count = read_items(place, 3, "a fragment")
    read_integer(number, "number")
    sequence = read_integer(place[3], "sequence") if len(place) > 3 else None
    if not read_integer(index, "index") < read_integer(count, "count") <= names.SLICES_MAX:
        raise ValueError(f"slice {index} of {count}")
    return FragmentFrame(header, number, index, count, payload, sequence)


def _decode_nak(header: Header, payload: Any, jb: dict[str, Any]) -> NakFrame:
    node, incarnation, listed = read_items(jb.get(names.KEY_NAK), 3, "a NAK")
    topics = [_missing_of_topic(each) for each in read_array(listed, "topics")]
    return NakFrame(header, read_node(node), read_integer(incarnation, "incarnation"), topics)


def _missing_of_topic(value: Any) -> MissingOfTopic:
    topic, listed = read_items(value, 2, "a topic")
    if not is_valid_topic(topic):
        raise ValueError("a topic is not valid")
    ranges = []
    for each in read_array(listed, "ranges"):
        if type(each) is not list or len(each) < 2:
            raise ValueError("a range must be an array of 2")
        first, last = each[:2]
        if not (type(first) is type(last) is int and 1 <= first <= last <= names.INTEGER_MAX):
            raise ValueError("a range must have a first and a last sequence")
        ranges.append((first, last))
    slices = read_array(value[2], "slices") if len(value) > 2 else []
    return MissingOfTopic(topic, ranges, [_missing_slices(each) for each in slices])


def _decode_beat(header: Header, payload: Any, jb: dict[str, Any]) -> BeatFrame:
    beats = []
    for each in read_array(jb.get(names.KEY_BEAT), "beats"):
        topic, last, first = read_items(each, 3, "a beat")
        if not is_valid_topic(topic):
            raise ValueError("a topic is not valid")
        beats.append((topic, read_integer(last, "last"), read_integer(first, "first")))
    return BeatFrame(header, beats)


def _missing_slices(value: Any) -> MissingSlices:
    sequence, start, text = read_items(value, 3, "slices")
    if type(text) is not str or len(text) > 2 * names.NAK_SLICES_MAX // 8:
        raise ValueError("slices must be in base64")
    bits = int.from_bytes(a2b_base64(text, strict_mode=True), "big")
    return MissingSlices(read_integer(sequence, "sequence"), read_integer(start, "start"), bits)


def _decode_request(header: Header, payload: Any, jb: dict[str, Any]) -> RequestFrame:
    topic, request_id, timeout_ms = read_items(jb.get(names.KEY_REQUEST), 3, "a request")
    if not is_valid_topic(topic):
        raise ValueError("the request's topic is not valid")
    return RequestFrame(
        header, topic, payload, read_integer(request_id, "id"), read_integer(timeout_ms, "timeout")
    )


def _decode_reply(header: Header, payload: Any, jb: dict[str, Any]) -> ReplyFrame:
    to, request_id = read_items(jb.get(names.KEY_REPLY), 2, "a reply")
    error = jb.get(names.KEY_ERROR)
    if error is not None and (type(error) is not str or len(error) > names.ERROR_CHARS_MAX):
        raise ValueError(f"an error must be a string of at most {names.ERROR_CHARS_MAX} characters")
    return ReplyFrame(header, read_node(to), read_integer(request_id, "id"), payload, error)


def _decode_pong(header: Header, payload: Any, jb: dict[str, Any]) -> PongFrame:
    to, ping_id = read_node(jb.get(names.KEY_TO)), read_integer(jb.get(names.KEY_PING), "id")
    return PongFrame(header, to, ping_id, read_about(jb), read_totals(jb))


def _decode_where(header: Header, payload: Any, jb: dict[str, Any]) -> WhereFrame:
    who = read_name(jb.get(names.KEY_WHO))
    if not who:
        raise ValueError("no node is asked for")
    return WhereFrame(header, who)


def _decode_echoed(header: Header, payload: Any, jb: dict[str, Any]) -> EchoedFrame:
    heard, repeated = read_items(jb.get(names.KEY_HEARD), 2, "what was heard")
    return EchoedFrame(
        header,
        read_node(jb.get(names.KEY_TO)),
        read_integer(jb.get(names.KEY_PING), "id"),
        read_integer(heard, "heard"),
        read_integer(repeated, "repeated"),
        read_name(jb.get(names.KEY_NAME, "")),
    )


#: By topic. Each takes the header, the payload and the `jb` of a datagram.
DECODERS: dict[str, Callable[[Header, Any, dict[str, Any]], Frame]] = {
    names.TOPICS: _decode_list,
    names.FRAGMENT: _decode_fragment,
    names.NAK: _decode_nak,
    names.BEAT: _decode_beat,
    names.REPAIR: lambda header, payload, jb: RepairFrame(
        header, read_array(payload, "the payload")
    ),
    names.RETAINED: lambda header, payload, jb: RetainedFrame(
        header,
        tuple([read_node(node) for node in read_array(jb.get(names.KEY_TO), "to")]),
        read_array(payload, "the payload"),
    ),
    names.PRESENCE: _decode_presence,
    names.BYE: lambda header, payload, jb: ByeFrame(
        header, read_integer(jb.get(names.KEY_VERSION), "version")
    ),
    names.REQUEST: _decode_request,
    names.REPLY: _decode_reply,
    names.PING: lambda header, payload, jb: PingFrame(
        header, read_integer(jb.get(names.KEY_PING), "id")
    ),
    names.PONG: _decode_pong,
    names.WHERE: _decode_where,
    names.ECHO: lambda header, payload, jb: EchoFrame(
        header, read_integer(jb.get(names.KEY_PING), "id")
    ),
    names.ECHOED: _decode_echoed,
}
