"""Control datagrams to frames: the cold half of decoding.

Decoders raise ValueError with what is wrong (fields.py); `decode_control` turns that into a
DatagramError in one place.
"""

from __future__ import annotations

from binascii import a2b_base64
from collections.abc import Callable
from typing import Any

from jsonbus.core.routing.topics import is_valid_topic
from jsonbus.core.wire.decode_lists import decode_list, decode_presence
from jsonbus.core.wire.fields import (
    read_about,
    read_array,
    read_integer,
    read_items,
    read_name,
    read_node,
    read_totals,
)
from jsonbus.core.wire.frames import (
    BeatFrame,
    ByeFrame,
    EchoedFrame,
    EchoFrame,
    FragmentFrame,
    Frame,
    Header,
    MissingOfTopic,
    MissingSlices,
    NakFrame,
    PingFrame,
    PongFrame,
    RepairFrame,
    ReplyFrame,
    RequestFrame,
    RetainedFrame,
    WhereFrame,
)
from jsonbus.core.wire.limits import (
    ERROR_CHARS_MAX,
    INTEGER_MAX,
    NAK_SLICES_MAX,
    SLICES_MAX,
)
from jsonbus.core.wire.names import (
    BEAT,
    BYE,
    ECHO,
    ECHOED,
    FRAGMENT,
    KEY_BEAT,
    KEY_ERROR,
    KEY_FRAGMENT,
    KEY_HEARD,
    KEY_NAK,
    KEY_NAME,
    KEY_PING,
    KEY_REPLY,
    KEY_REQUEST,
    KEY_TO,
    KEY_VERSION,
    KEY_WHO,
    NAK,
    PING,
    PONG,
    PRESENCE,
    REPAIR,
    REPLY,
    REQUEST,
    RETAINED,
    TOPICS,
    WHERE,
)
from jsonbus.errors import DatagramError


def decode_control(topic: str, header: Header, payload: Any, jb: dict[str, Any]) -> Frame:
    """The frame of a datagram under one of CONTROL_TOPICS; DatagramError if it has none."""
    try:
        return _DECODERS[topic](header, payload, jb)
    except ValueError as error:
        cause = "bad_list" if topic == TOPICS else "bad_fields"
        raise DatagramError(cause, f"{topic}: {error}") from None


def _decode_fragment(header: Header, payload: Any, jb: dict[str, Any]) -> FragmentFrame:
    if type(payload) is not str:
        raise ValueError("a slice must be a string")
    place = read_array(jb.get(KEY_FRAGMENT), "a fragment")
    number, index, count = read_items(place, 3, "a fragment")
    read_integer(number, "number")
    sequence = read_integer(place[3], "sequence") if len(place) > 3 else None
    if not read_integer(index, "index") < read_integer(count, "count") <= SLICES_MAX:
        raise ValueError(f"slice {index} of {count}")
    return FragmentFrame(header, number, index, count, payload, sequence)


def _decode_nak(header: Header, payload: Any, jb: dict[str, Any]) -> NakFrame:
    node, incarnation, listed = read_items(jb.get(KEY_NAK), 3, "a NAK")
    topics = []
    for each in read_array(listed, "topics"):
        topic, ranges = read_items(each, 2, "a topic")
        if not is_valid_topic(topic):
            raise ValueError("a topic is not valid")
        slices = read_array(each[2], "slices") if len(each) > 2 else []
        found = MissingOfTopic(
            topic,
            _read_ranges(ranges),
            [_missing_slices(each) for each in slices] if slices else [],
        )
        topics.append(found)
    return NakFrame(header, read_node(node), read_integer(incarnation, "incarnation"), topics)


def _decode_beat(header: Header, payload: Any, jb: dict[str, Any]) -> BeatFrame:
    beats = []
    for each in read_array(jb.get(KEY_BEAT), "beats"):
        topic, last, first = read_items(each, 3, "a beat")
        if not is_valid_topic(topic):
            raise ValueError("a topic is not valid")
        beats.append((topic, read_integer(last, "last"), read_integer(first, "first")))
    return BeatFrame(header, beats)


def _decode_repair(header: Header, payload: Any, jb: dict[str, Any]) -> RepairFrame:
    return RepairFrame(header, read_array(payload, "the payload of a repair"))


def _decode_retained(header: Header, payload: Any, jb: dict[str, Any]) -> RetainedFrame:
    to = tuple([read_node(node) for node in read_array(jb.get(KEY_TO), "to")])
    return RetainedFrame(header, to, read_array(payload, "the payload of retained values"))


def _missing_slices(value: Any) -> MissingSlices:
    sequence, start, text = read_items(value, 3, "slices")
    if type(text) is not str or len(text) > 2 * NAK_SLICES_MAX // 8:
        raise ValueError("slices must be told in base64")
    bits = int.from_bytes(a2b_base64(text, strict_mode=True), "big")
    return MissingSlices(read_integer(sequence, "sequence"), read_integer(start, "start"), bits)


def _read_ranges(value: Any) -> list[tuple[int, int]]:
    """Read the ranges of a NAK. In one loop: a NAK may have many."""
    ranges = []
    for each in read_array(value, "ranges"):
        if type(each) is not list or len(each) < 2:
            raise ValueError("a range must be an array of 2")
        first, last = each[:2]
        if not (type(first) is type(last) is int and 1 <= first <= last <= INTEGER_MAX):
            raise ValueError("a range must have a first and a last sequence")
        ranges.append((first, last))
    return ranges


def _decode_bye(header: Header, payload: Any, jb: dict[str, Any]) -> ByeFrame:
    return ByeFrame(header, read_integer(jb.get(KEY_VERSION), "version"))


def _decode_request(header: Header, payload: Any, jb: dict[str, Any]) -> RequestFrame:
    topic, request_id, timeout_ms = read_items(jb.get(KEY_REQUEST), 3, "a request")
    if not is_valid_topic(topic):
        raise ValueError("the request's topic is not valid")
    return RequestFrame(
        header, topic, payload, read_integer(request_id, "id"), read_integer(timeout_ms, "timeout")
    )


def _decode_reply(header: Header, payload: Any, jb: dict[str, Any]) -> ReplyFrame:
    to, request_id = read_items(jb.get(KEY_REPLY), 2, "a reply")
    error = jb.get(KEY_ERROR)
    if error is not None and (type(error) is not str or len(error) > ERROR_CHARS_MAX):
        raise ValueError(f"an error must be a string of at most {ERROR_CHARS_MAX} characters")
    return ReplyFrame(header, read_node(to), read_integer(request_id, "id"), payload, error)


def _decode_ping(header: Header, payload: Any, jb: dict[str, Any]) -> PingFrame:
    return PingFrame(header, read_integer(jb.get(KEY_PING), "id"))


def _decode_pong(header: Header, payload: Any, jb: dict[str, Any]) -> PongFrame:
    to, ping_id = read_node(jb.get(KEY_TO)), read_integer(jb.get(KEY_PING), "id")
    return PongFrame(header, to, ping_id, read_about(jb), read_totals(jb))


def _decode_where(header: Header, payload: Any, jb: dict[str, Any]) -> WhereFrame:
    who = read_name(jb.get(KEY_WHO))
    if not who:
        raise ValueError("nobody is asked for")
    return WhereFrame(header, who)


def _decode_echo(header: Header, payload: Any, jb: dict[str, Any]) -> EchoFrame:
    return EchoFrame(header, read_integer(jb.get(KEY_PING), "id"))


def _decode_echoed(header: Header, payload: Any, jb: dict[str, Any]) -> EchoedFrame:
    heard, repeated = read_items(jb.get(KEY_HEARD), 2, "what was heard")
    return EchoedFrame(
        header,
        read_node(jb.get(KEY_TO)),
        read_integer(jb.get(KEY_PING), "id"),
        read_integer(heard, "heard"),
        read_integer(repeated, "repeated"),
        read_name(jb.get(KEY_NAME, "")),
    )


_DECODERS: dict[str, Callable[[Header, Any, dict[str, Any]], Frame]] = {
    TOPICS: decode_list,
    FRAGMENT: _decode_fragment,
    NAK: _decode_nak,
    BEAT: _decode_beat,
    REPAIR: _decode_repair,
    RETAINED: _decode_retained,
    PRESENCE: decode_presence,
    BYE: _decode_bye,
    REQUEST: _decode_request,
    REPLY: _decode_reply,
    PING: _decode_ping,
    PONG: _decode_pong,
    WHERE: _decode_where,
    ECHO: _decode_echo,
    ECHOED: _decode_echoed,
}
CONTROL_TOPICS = frozenset(_DECODERS)
