"""Outbox: queues messages, packs them into datagrams, and keeps the datagrams until they are sent.

Messages get their numbers, and datagrams their counters, in the order in which they are packed, and
both leave in that order. A control datagram therefore first packs the messages that wait, so that a
goodbye never overtakes the last message.

Other threads may add messages to `FastPublish.queued` at any time; everything else here is done by
one thread at a time.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from jsonbus.core.fast_publish import BATCH_MESSAGES_MAX, FastPublish
from jsonbus.core.values.fragments import cut
from jsonbus.core.wire.encode import LIST_OVERHEAD_BYTES
from jsonbus.core.wire.encode_messages import (
    BATCH_OVERHEAD_BYTES,
    FRAGMENT_OVERHEAD_BYTES,
    MESSAGE_OVERHEAD_BYTES,
    Stamp,
    encode_batch,
    encode_fragment,
    encode_marked,
    encode_message,
)
from jsonbus.core.wire.names import DATAGRAM_BYTES_MAX

#: A payload larger than this fraction of a datagram is not left queued without a flush: sizes are
#: known only when messages are packed, and the queue should stay small until then.
_SIZE_SHARE = 4

# A plain peer understands whole messages only, so they travel in one datagram, which IP fragments.
_WHOLE_ROOM_MAX = DATAGRAM_BYTES_MAX - MESSAGE_OVERHEAD_BYTES

_SEPARATOR_BYTES = 2  # between messages of a batch: a bracket and a comma


class _Marked(bytes):
    """A reliable or retained message, `["topic",payload,sequence,1`, with its parts."""

    topic_json: bytes
    payload: bytes
    sequence: int | None
    is_retained: bool


class Outbox:
    """Packs messages into datagrams, and cuts messages that fit no datagram into slices."""

    __slots__ = (
        "_fast_publish",
        "_queued",
        "_measured",
        "_measured_bytes",
        "_ready",
        "_ready_bytes",
        "_room",
        "_slice_room",
        "_stamp",
        "_typical",
        "_asides",
        "_unbatched_until",
        "_whole_room",
        "datagrams_sent",
        "last_sent_at",
        "messages_sent",
        "wall_offset_s",
    )

    def __init__(
        self,
        stamp: Stamp,
        datagram_bytes_max: int,
        wall_offset_s: float,
        *,
        batching: bool,
        fast_publish: FastPublish,
    ) -> None:
        self._stamp = stamp
        self._fast_publish = fast_publish
        self.allow_bytes(datagram_bytes_max)
        self._queued = fast_publish.queued
        self._measured = self._measured_bytes = 0  # measured part of the queue: messages, bytes
        self._typical = BATCH_MESSAGES_MAX  # messages per datagram, judged by the last datagram
        self._ready: list[bytes] = []
        self._ready_bytes = 0
        self._unbatched_until = -math.inf if batching else math.inf
        self.wall_offset_s = wall_offset_s
        self.datagrams_sent = 0
        self.messages_sent = 0
        #: When the last datagram that counts as a heartbeat was sent.
        self.last_sent_at = -math.inf
        self._asides = 0  # queued datagrams that do not count as a heartbeat

    @property
    def has_output(self) -> bool:
        return bool(self._queued or self._ready)

    @property
    def has_full_datagram(self) -> bool:
        """True if a datagram is ready, or the queued messages leave hardly any room in one."""
        count = len(self._queued)
        return (
            bool(self._ready)
            or count >= self._typical
            or (count > 1 and self._measure() * (count + 1) > self._room * count)
        )

    @property
    def typical_count(self) -> int:
        """The number of messages like the last ones that fill a datagram."""
        return self._typical

    @property
    def size_bytes(self) -> int:
        """The bytes that wait to be sent, separators included."""
        return self._measure() + self._ready_bytes

    @property
    def repair_room_bytes(self) -> int:
        """The bytes that the items of a repair may take in one datagram."""
        return self._room

    @property
    def messages_put(self) -> int:
        return self.messages_sent + len(self._queued)

    def list_room_bytes(self, datagram_bytes_max: int) -> int:
        """Return the bytes that the entries of a list may take in one datagram of this node."""
        return datagram_bytes_max - LIST_OVERHEAD_BYTES + self._stamp.id_bytes_saved

    def allow_bytes(self, datagram_bytes_max: int, whole_bytes_max: int | None = None) -> None:
        """Set the size limits: of datagrams with several messages or a slice, and with one message.

        Larger messages are cut, so `whole_bytes_max` is what the network carries in one piece.
        """
        saved = self._stamp.id_bytes_saved
        whole_bytes_max = max(datagram_bytes_max, whole_bytes_max or 0)
        self._room = datagram_bytes_max - BATCH_OVERHEAD_BYTES + saved
        self._slice_room = datagram_bytes_max - FRAGMENT_OVERHEAD_BYTES + saved
        self._whole_room = whole_bytes_max - MESSAGE_OVERHEAD_BYTES + saved
        self._fast_publish.whole_max = self._whole_room
        self._fast_publish.size_max = self._room // _SIZE_SHARE
        self._fast_publish.alone_min = self._room // 2

    def shares(self, now: float) -> bool:
        """Return whether messages may be batched in one datagram now."""
        return now >= self._unbatched_until

    def put_message(self, prefix: bytes, payload: bytes, now: float) -> int:
        """Add a message and return its number. The prefix is the topic's: `["topic",`."""
        message = prefix + payload
        if self._is_cut(len(message), now):
            self._pack(now)
            self.messages_sent = number = self.messages_sent + 1
            self.put_slices(message + b"]", number, None, now)
            return number
        return self._put(message, now)

    def put_marked(
        self,
        prefix: bytes,
        payload: bytes,
        now: float,
        *,
        sequence: int | None = None,
        is_retained: bool = False,
    ) -> int:
        """Add a message of a reliable topic, or a retained one, and return its number."""
        marks = b",null" if sequence is None else b",%d" % sequence
        message = _Marked(prefix + payload + (marks + b",1" if is_retained else marks))
        message.topic_json, message.payload = prefix[1:-1], payload
        message.sequence, message.is_retained = sequence, is_retained
        if self._is_cut(len(message), now):
            self._pack(now)
            self.messages_sent = number = self.messages_sent + 1
            self.put_slices(message + b"]", number, sequence, now)
            return number
        return self._put(message, now)

    def put_text(self, text: bytes, now: float) -> None:
        """Add a message that is encoded already, in slices, however large it is."""
        self._pack(now)
        self.messages_sent += 1
        self.put_slices(text, self.messages_sent, None, now)

    def _is_cut(self, size: int, now: float) -> bool:
        """Return whether a message of this size has to travel in slices."""
        size += _SEPARATOR_BYTES
        return size > self._whole_room and (size > _WHOLE_ROOM_MAX or now >= self._unbatched_until)

    def _put(self, message: bytes, now: float) -> int:
        size = len(message) + _SEPARATOR_BYTES
        if self._measure() + size > self._room or now < self._unbatched_until:
            self._pack(now)
        queued = self._queued
        queued.append(message)
        place = len(queued) - 1
        while queued[place] is not message:
            place -= 1  # another thread added a message after this one
        number = self.messages_sent + 1 + place
        if self._measure() + size > self._room or now < self._unbatched_until:
            self._pack(now)  # no room for another message of this size, so do not wait
        return number

    def put_slices(
        self,
        text: bytes,
        number: int,
        sequence: int | None,
        now: float,
        is_wanted: Callable[[int], bool] | None = None,
    ) -> None:
        """Add the slices of a message: all, or only those for which `is_wanted` is true."""
        slices = cut(text, self._slice_room)
        stamp, sent_us, count = self._stamp, self._sent_us(now), len(slices)
        # A message that is sent again adds no new message number.
        first = number if number == self.messages_sent else self.messages_sent + 1
        for index, each in enumerate(slices):
            if is_wanted is not None and not is_wanted(index):
                continue
            self._add(
                encode_fragment(
                    stamp,
                    each,
                    first,
                    sent_us,
                    number=number,
                    index=index,
                    count=count,
                    sequence=sequence,
                )
            )

    def make_single(self, prefix: bytes, payload: bytes, now: float) -> bytes | None:
        """Return a datagram with this message, to be sent at once; None if others wait."""
        if self._queued or self._ready:
            return None
        self.messages_sent = number = self.messages_sent + 1
        self.datagrams_sent += 1
        self.last_sent_at = now
        sent_us = int((now + self.wall_offset_s) * 1_000_000)
        return encode_message(self._stamp, prefix[1:-1], payload, number, sent_us)

    def put_control(self, encode: Callable[..., bytes], now: float, **fields: Any) -> None:
        """Add a datagram that holds no message."""
        if self._queued:
            self._pack(now)
        self._add(encode(self._stamp, self.messages_sent + 1, self._sent_us(now), **fields))

    def put_aside(self, encode: Callable[..., bytes], now: float, **fields: Any) -> None:
        """Add a control datagram that follows from messages: a NAK, repair, beat or retained value.

        It does not count as a heartbeat. Beats go on for seconds after the last message; if they
        counted, a group would compare its lists that much later.
        """
        if self._queued:
            self._pack(now)
        self._asides += 1
        self._add(encode(self._stamp, self.messages_sent + 1, self._sent_us(now), **fields))

    def send_unbatched(self, until: float) -> None:
        """Send one message per datagram until then: a plain peer is here and reads no batches."""
        self._unbatched_until = max(self._unbatched_until, until)
        self._fast_publish.forget()

    def take(self, now: float, *, keeps_rest: bool = False) -> list[bytes]:
        """Return all datagrams, in the order in which they must be sent.

        With `keeps_rest`, messages that do not fill another datagram stay queued.
        """
        if self._queued:
            self._pack(now, keeps_rest=keeps_rest)
        datagrams = self._ready
        if datagrams:
            self._ready = []
            self._ready_bytes = 0
            self.datagrams_sent += len(datagrams)
            if len(datagrams) > self._asides:
                self.last_sent_at = now
            self._asides = 0
            return datagrams
        return []

    def _measure(self) -> int:
        """Return the bytes that the queued messages take in a datagram."""
        queued, measured = self._queued, self._measured
        count = len(queued)
        if measured < count:
            self._measured_bytes += sum(map(len, queued[measured:count]))
            self._measured_bytes += _SEPARATOR_BYTES * (count - measured)
            self._measured = count
        return self._measured_bytes

    def _pack(self, now: float, *, keeps_rest: bool = False) -> None:
        queued = self._queued
        count = len(queued)
        if not count:
            return
        messages = queued[:count]
        del queued[:count]
        self._measured = self._measured_bytes = 0
        body = _join(messages)
        if len(body) <= self._room and count <= BATCH_MESSAGES_MAX:
            self._add_messages(body, messages, now)
        else:
            self._pack_parts(messages, now, keeps_rest=keeps_rest)
        self._typical = max(1, min(BATCH_MESSAGES_MAX, self._room * count // (len(body) + 1)))

    def _pack_parts(self, messages: list[bytes], now: float, *, keeps_rest: bool) -> None:
        """Pack messages that do not fit into one datagram."""
        start = size = 0
        for place, message in enumerate(messages):
            added = len(message) + _SEPARATOR_BYTES
            if place > start and (size + added > self._room or place - start == BATCH_MESSAGES_MAX):
                part = messages[start:place]
                self._add_messages(_join(part), part, now)
                start, size = place, 0
            size += added
        rest = messages[start:]
        if keeps_rest and start:
            self._queued[:0] = rest
        else:
            self._add_messages(_join(rest), rest, now)

    def _add_messages(self, body: bytes, messages: list[bytes], now: float) -> None:
        first = self.messages_sent + 1
        self.messages_sent += len(messages)
        lone = messages[0] if len(messages) == 1 else None
        if isinstance(lone, _Marked):
            self._add(self._encode_marked(lone, first, now))
        elif lone is not None:
            topic_json, payload = _parts_of(lone)
            self._add(encode_message(self._stamp, topic_json, payload, first, self._sent_us(now)))
        else:
            self._add(encode_batch(self._stamp, body, first, self._sent_us(now)))

    def _encode_marked(self, message: _Marked, number: int, now: float) -> bytes:
        """Return a datagram with this message alone, which plain peers understand, too."""
        return encode_marked(
            self._stamp,
            message.topic_json,
            message.payload,
            number,
            self._sent_us(now),
            sequence=message.sequence,
            is_retained=message.is_retained,
        )

    def _add(self, datagram: bytes) -> None:
        self._ready.append(datagram)
        self._ready_bytes += len(datagram)

    def _sent_us(self, now: float) -> int:
        return int((now + self.wall_offset_s) * 1_000_000)


def _join(messages: list[bytes]) -> bytes:
    """Return the items of a batch; the separator adds the closing bracket that each item lacks."""
    return b"],".join(messages) + b"]"


def _parts_of(message: bytes) -> tuple[bytes, bytes]:
    """Return topic and payload, as JSON, of `["topic",payload`."""
    end = message.find(b'"', 2)
    while message[end - 1] == _BACKSLASH and _is_escaped(message, end):
        end = message.find(b'"', end + 1)
    return message[1 : end + 1], message[end + 2 :]


def _is_escaped(message: bytes, place: int) -> bool:
    start = place
    while message[start - 1] == _BACKSLASH:
        start -= 1
    return (place - start) % 2 == 1


_BACKSLASH = ord("\\")
