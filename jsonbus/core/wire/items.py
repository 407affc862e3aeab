"""Items: messages that wait in the outbox, and how they are written into datagrams.

An item is the JSON of a message without its last bracket: `["topic",payload`. A reliable one has a
comma before it, `,["topic",payload`, and nothing else of an item begins like that. It has no
sequence yet: sequences are given, and messages kept for repairs, when a datagram is packed. So a
flood of reliable messages takes the same short way as any other (fast_publish.py), and messages of
one topic that follow each other in a datagram are numbered, kept and written in one step.
"""

from __future__ import annotations

from collections.abc import Callable

from jsonbus.core.wire.codec import loads
from jsonbus.core.wire.encode_messages import encode_marks

#: What a reliable message begins with: in a batch it separates it from the one before.
RELIABLE_START = b","
_RELIABLE = RELIABLE_START[0]
_TOPIC_START = len(b',["')

#: What marks a retained message, behind its sequence.
RETAINED_MARK = b",1"

#: Keeps messages of a topic for repairs: their items, the number of the first, the time, and
#: RETAINED_MARK or nothing. Returns the sequence of the first.
Keep = Callable[[str, tuple[bytes, ...], int, float, bytes], int]


class Item(bytes):
    """An item, retained or with an escaped topic, that knows its parts."""

    parts: tuple[bytes, bytes]  # topic and payload, as JSON
    is_retained: bool


def make_item(prefix: bytes, payload: bytes, *, is_reliable: bool, is_retained: bool) -> bytes:
    """Return the item of a message, by its topic's prefix: `["topic",`."""
    text = RELIABLE_START + prefix + payload if is_reliable else prefix + payload
    if not is_retained and b"\\" not in prefix:
        return text
    if is_retained:
        text += RETAINED_MARK if is_reliable else encode_marks(None, is_retained)[0]
    item = Item(text)
    item.parts, item.is_retained = (prefix[1:-1], payload), is_retained
    return item


def split_item(item: bytes) -> tuple[bytes, bytes, bool]:
    """Return topic and payload, as JSON, and whether the message is retained."""
    if isinstance(item, Item):
        return *item.parts, item.is_retained
    start = item.index(b'"')
    end = item.index(b'"', start + 1) + 1  # a topic without escapes
    return item[start:end], item[end + 1 :], False


def lacks_sequence(item: bytes) -> bool:
    """Whether the message is reliable."""
    return item[0] == _RELIABLE


def number_item(item: bytes, number: int, keep: Keep, now: float) -> tuple[bytes, int, bytes]:
    """Keep one reliable message; return what it begins with, its sequence, and its mark."""
    if type(item) is Item:
        text, mark = b",[%b,%b" % item.parts, RETAINED_MARK if item.is_retained else b""
        topic = loads(item.parts[0])
    else:
        text, mark = item, b""
        topic = item[_TOPIC_START : item.index(b'"', _TOPIC_START)].decode()
    return text, keep(topic, (text,), number, now, mark), mark


def write_items(items: list[bytes], first: int, keep: Keep, now: float) -> bytes:
    """Return the items of a batch, the first with that number, and with all sequences."""
    written: list[bytes] = []
    start, count = 0, len(items)
    while start < count:
        item, end = items[start], start + 1
        if item[0] != _RELIABLE:
            written.append(b",%b]" % item)
        elif type(item) is Item:
            written.append(b"%b,%d%b]" % number_item(item, first + start, keep, now))
        else:
            end_of_topic = item.index(b'"', _TOPIC_START)
            prefix = item[: end_of_topic + 2]
            while end < count and items[end].startswith(prefix) and type(items[end]) is bytes:
                end += 1
            texts = tuple(items[start:end])
            topic = item[_TOPIC_START:end_of_topic].decode()
            sequence = keep(topic, texts, first + start, now, b"")
            if end == start + 1:
                written.append(b"%b,%d]" % (item, sequence))
            else:
                pairs: list[bytes | int] = [0] * (2 * len(texts))
                pairs[::2], pairs[1::2] = texts, range(sequence, sequence + len(texts))
                written.append(b"%b,%d]" * len(texts) % tuple(pairs))
        start = end
    return b"".join(written)[1:]
