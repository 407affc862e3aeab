"""From datagram bytes to a frame, or to a DatagramError; format.py describes the bytes.

Nothing here trusts its input, or costs more than the datagram's size allows. Of the input, only the
last lists are kept, with their frames: a list takes 4 µs per entry to decode, and in a process with
a hundred nodes each of them receives it.
Checks are by exact type, `type(x) is int`: to isinstance, True is an integer. Messages are the
hot path: one `loads`, one header, no look inside the payload.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from jsonbus.core.wire import codec
from jsonbus.core.wire.decode_control import DECODERS, decode_plain_list
from jsonbus.core.wire.frames import Frame, Header, MessagesFrame
from jsonbus.core.wire.names import (
    BATCH,
    DATAGRAM_BYTES_MAX,
    INTEGER_MAX,
    KEY_COUNTER,
    KEY_FIRST_MESSAGE,
    KEY_INCARNATION,
    KEY_NODE,
    KEY_RETAINED,
    KEY_SENT_US,
    KEY_SEQUENCE,
    NESTING_LEVELS_MAX,
    RESERVED_PREFIX,
    SEALED_START,
    TOPICS,
    is_node_id,
)
from jsonbus.errors import DatagramError

# Why a datagram was refused: DatagramError.cause, and the names of the counters.
CAUSES = (
    "not_json",
    "sealed",  # encrypted (jsonbus/sealed), and this bus has no key
    "not_object",  # JSON, but not an object
    "no_topic",
    "no_payload",
    "bad_topic",  # not a string
    "bad_header",  # `jb` is not an object, lacks something, or is missing where it must be
    "bad_list",  # a subscription list with wrong types, ids, names, patterns or indexes
    "bad_fields",  # another control datagram with wrong types or values
    "too_deep",
    "too_large",
    "unknown_reserved",  # a topic that starts with "jsonbus." and is none that we know
)

# Lists that are remembered: those that are under way while many nodes join, each not larger than a
# datagram that any network carries. With their frames they take some 2 MB, if ever so many come.
LISTS_KEPT_MAX = 256
LIST_KEPT_BYTES_MAX = 1400

# The shortest text whose value is nested too deeply, all brackets.
DEEP_BYTES_MIN = 2 * (NESTING_LEVELS_MAX + 1)


def decode(data: bytes) -> Frame:
    """Return the frame of a datagram; raise DatagramError with one of CAUSES if it has none."""
    return decode_body(parse(data), data)


def parse(data: bytes) -> Any:
    """The datagram's JSON."""
    if len(data) > DATAGRAM_BYTES_MAX:
        raise DatagramError("too_large", f"{len(data):,} bytes, at most {DATAGRAM_BYTES_MAX:,}")
    try:
        return codec.loads(data)
    except ValueError as error:
        # orjson's own limit, 1,024 levels; the words around "depth" differ between its releases.
        if data[:1] == SEALED_START:
            raise DatagramError("sealed", "this bus has no key file") from None
        cause = "too_deep" if "depth" in str(error) else "not_json"
        raise DatagramError(cause, str(error)) from None


def may_be_deep(data: bytes) -> bool:
    """Return whether the datagram has enough brackets to be nested too deeply."""
    if len(data) < DEEP_BYTES_MIN:
        return False
    return data.count(b"[") + data.count(b"{") > NESTING_LEVELS_MAX


def decode_body(body: Any, data: bytes) -> Frame:
    """Return the frame of a datagram that was parsed to `body`.

    Topics of messages need only be strings, and the items of a batch are not checked: the node
    looks every topic up anyway, and checks those it does not find.
    """
    try:
        topic = body["topic"]
        payload = body["payload"]
    except (KeyError, TypeError):
        raise _missing_key(body) from None
    if type(topic) is not str:
        raise DatagramError("bad_topic", f"the topic is a {type(topic).__name__}, not a string")
    if len(data) >= DEEP_BYTES_MIN and may_be_deep(data):
        _refuse_deep(topic, payload)
    is_reserved = topic.startswith(RESERVED_PREFIX)
    if is_reserved and topic != BATCH and topic not in DECODERS:
        raise DatagramError("unknown_reserved", repr(topic[:80]))
    if "jb" not in body:
        if topic == TOPICS:
            return decode_plain_list(payload)
        if is_reserved:
            raise DatagramError("bad_header", f"{topic} without jb")
        return MessagesFrame(None, [[topic, payload]])
    if topic == TOPICS and 0 < len(data) <= LIST_KEPT_BYTES_MAX:
        return _decode_list(data)
    jb = body["jb"]
    header = _decode_header(jb)
    if not is_reserved:
        return MessagesFrame(header, [single_item(topic, payload, jb)])
    if topic == BATCH:
        if type(payload) is not list:
            raise DatagramError("bad_fields", "the payload of a batch must be an array")
        return MessagesFrame(header, payload)
    try:
        return DECODERS[topic](header, payload, jb)
    except ValueError as error:
        cause = "bad_list" if topic == TOPICS else "bad_fields"
        raise DatagramError(cause, f"{topic}: {error}") from None


@lru_cache(LISTS_KEPT_MAX)
def _decode_list(data: bytes) -> Frame:
    """Decode a list, the dearest of all datagrams, once for all nodes of the process."""
    return decode_body(codec.loads(data), b"")  # it was looked at for brackets already


def single_item(topic: str, payload: Any, jb: dict[str, Any]) -> list[Any]:
    """Return the message of a datagram with a single one in the form of a batch's item."""
    if KEY_RETAINED in jb:
        return [topic, payload, jb.get(KEY_SEQUENCE), jb[KEY_RETAINED]]
    if KEY_SEQUENCE in jb:
        return [topic, payload, jb[KEY_SEQUENCE]]
    return [topic, payload]


def _decode_header(jb: Any) -> Header:
    try:
        node = jb[KEY_NODE]
        incarnation = jb[KEY_INCARNATION]
        counter = jb[KEY_COUNTER]
        first_message = jb[KEY_FIRST_MESSAGE]
        sent_us = jb[KEY_SENT_US]
    except (KeyError, TypeError):
        raise DatagramError("bad_header", "jb is not an object with n, i, q, m and t") from None
    if (
        type(incarnation) is not int
        or type(counter) is not int
        or type(first_message) is not int
        or type(sent_us) is not int
        or not 0 <= incarnation <= INTEGER_MAX
        or not 0 <= counter <= INTEGER_MAX
        or not 0 <= first_message <= INTEGER_MAX
        or not 0 <= sent_us <= INTEGER_MAX
    ):
        raise DatagramError("bad_header", "i, q, m and t of jb must be integers up to 2**53")
    if not is_node_id(node):
        raise DatagramError("bad_header", "n of jb must be 1 to 64 printable ASCII characters")
    return Header(node, incarnation, counter, first_message, sent_us)


def _missing_key(body: Any) -> DatagramError:
    if type(body) is not dict:
        return DatagramError("not_object", f"the datagram is a {type(body).__name__}")
    return DatagramError("no_payload" if "topic" in body else "no_topic")


def _refuse_deep(topic: str, payload: Any) -> None:
    """Raise DatagramError if the payload is nested too deeply; most brackets are side by side."""
    if not codec.nests_too_deeply(payload):
        return
    if topic == BATCH and type(payload) is list:
        # The array and the pairs around the values are levels of the batch, not of the values.
        values = [value for item in payload for value in (item if type(item) is list else [item])]
        if not any(codec.nests_too_deeply(value) for value in values):
            return
    raise DatagramError("too_deep", f"nested more than {NESTING_LEVELS_MAX} levels deep")
