"""Outbox: queues messages, packs them into datagrams, and keeps the datagrams until they are sent.

Messages get their numbers, and datagrams their counters, in the order in which they are packed, and
both leave in that order. A control datagram therefore first packs the messages that wait, so that a
goodbye never overtakes the last message.

Other threads may add messages to `FastPublish.queued` at any time; everything else here is done by
one thread at a time.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import TypeVar

from jsonbus.core.fast_publish import BATCH_MESSAGES_MAX, ESCAPE, FastPublish
from jsonbus.core.limits import RECORD_OVERHEAD_BYTES
from jsonbus.core.values.fragments import cut
from jsonbus.core.wire.encode import LIST_OVERHEAD_BYTES, Control
from jsonbus.core.wire.encode_messages import (
    BATCH_OVERHEAD_BYTES,
    FRAGMENT_OVERHEAD_BYTES,
    MESSAGE_OVERHEAD_BYTES,
    Stamp,
    encode_batch,
    encode_fragment,
    encode_marks,
    encode_message,
)
from jsonbus.core.wire.items import (
    Keep,
    lacks_sequence,
    make_item,
    number_item,
    split_item,
    write_items,
)
from jsonbus.core.wire.names import DATAGRAM_BYTES_MAX, RESERVED_PREFIX

T = TypeVar("T")

#: A payload larger than this fraction of a batch is not left queued without a flush: sizes are
#: known only when messages are packed, and the queue should stay small until then.
_SIZE_SHARE = 4

# A plain peer understands whole messages only, so they travel in one datagram, which IP fragments.
_WHOLE_ROOM_MAX = DATAGRAM_BYTES_MAX - MESSAGE_OVERHEAD_BYTES

#: More messages in a batch of several datagrams would overflow small mailboxes.
_BATCH_MESSAGES_MAX = 150

#: So much may be queued, with what keeping it for repairs takes, before each reliable message looks
#: for room in the history.
RELIABLE_BYTES_MAX = 1 << 19

#: Share of the size of the largest from which on a datagram is filled up.
_NEARLY_FULL = 0.75
_RESERVED_START = b'{"topic":"' + RESERVED_PREFIX.encode()

_SEPARATOR_BYTES = 2  # between messages of a batch: a bracket and a comma


#: Sequences take few bytes more than this lets expect: so many messages never wait together.
_SEQUENCES_AHEAD = 1000


class Outbox:
    """Packs messages into datagrams, and cuts messages that fit no datagram into slices."""

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
        self.fast_publish = fast_publish
        self._per_datagram = BATCH_MESSAGES_MAX  # messages like the last ones that fill one
        self.allow_bytes(datagram_bytes_max)
        self._queued = fast_publish.queued
        self._measured = self._measured_bytes = 0  # measured part of the queue: messages, bytes
        self._ready: list[bytes] = []
        self._ready_bytes = 0
        self._unbatched_until = -math.inf if batching else math.inf
        self.wall_offset_s = wall_offset_s
        self.datagrams_sent = 0
        self.messages_sent = 0
        #: When the last datagram that counts as a heartbeat was sent.
        self.last_sent_at = -math.inf
        self._silent = 0  # datagrams in `_ready` that do not count as a heartbeat
        self._keep: Keep | None = None
        self._item_bytes = _SEPARATOR_BYTES  # what an item takes besides its own bytes, at most

    @property
    def has_output(self) -> bool:
        return bool(self._queued or self._ready)

    @property
    def typical_count(self) -> int:
        """The number of messages like the last ones that make a full batch."""
        return self._per_datagram * self.batch_datagrams

    @property
    def has_full_batch(self) -> bool:
        """True if a datagram is ready, or the queued messages leave hardly any room in a batch."""
        count = len(self._queued)
        return (
            bool(self._ready)
            or count >= self.typical_count
            or (count > 1 and self._measure() * (count + 1) > self._batch_room * count)
        )

    @property
    def size_bytes(self) -> int:
        """The bytes that wait to be sent, separators included."""
        return self._measure() + self._ready_bytes

    @property
    def messages_put(self) -> int:
        return self.messages_sent + len(self._queued)

    @property
    def queued(self) -> tuple[int, int]:
        """How many messages wait to be packed, and their bytes."""
        return len(self._queued), self._measure()

    @property
    def is_at_ease(self) -> bool:
        """Whether so little is queued that reliable messages need not look for room each."""
        count, size = self.queued
        return size + RECORD_OVERHEAD_BYTES * count <= RELIABLE_BYTES_MAX

    def keep_by(self, keep: Keep) -> None:
        """From now on there are reliable messages, kept by this."""
        if self._keep is None:
            self._keep = keep
            self.expect_sequences(0)

    def expect_sequences(self, top: int) -> int:
        """Leave room for sequences that go on from there; return when to call this again."""
        expected = 2 * top + _SEQUENCES_AHEAD
        self._item_bytes = _SEPARATOR_BYTES + len(str(expected))
        return expected // 2

    def fill_datagrams(self, count: int) -> None:
        """Let so many datagrams make a batch, unless they would hold too many messages."""
        #: How many datagrams a batch fills: in a flood, several leave together.
        self.batch_datagrams = max(1, min(count, _BATCH_MESSAGES_MAX // self._per_datagram))
        self._batch_room = self.room_bytes * self.batch_datagrams
        self.fast_publish.size_max = min(self._batch_room // _SIZE_SHARE, self.room_bytes)

    def list_room_bytes(self, datagram_bytes_max: int) -> int:
        """Return the bytes that the entries of a list may take in one datagram of this node."""
        return datagram_bytes_max - LIST_OVERHEAD_BYTES + self._stamp.id_bytes_saved

    def allow_bytes(self, datagram_bytes_max: int, whole_bytes_max: int | None = None) -> None:
        """Set the size limits: of datagrams with several messages or a slice, and with one message.

        Larger messages are cut, so `whole_bytes_max` is what the network carries in one piece.
        """
        saved = self._stamp.id_bytes_saved
        whole_bytes_max = max(datagram_bytes_max, whole_bytes_max or 0)
        #: The bytes that messages or other items may take in one datagram.
        self.room_bytes = datagram_bytes_max - BATCH_OVERHEAD_BYTES + saved
        self._slice_room = datagram_bytes_max - FRAGMENT_OVERHEAD_BYTES + saved
        self._whole_room = whole_bytes_max - MESSAGE_OVERHEAD_BYTES + saved
        self.fast_publish.whole_max = self._whole_room
        self.fast_publish.alone_min = self.room_bytes // 2
        self.fill_datagrams(1)

    def shares(self, now: float) -> bool:
        """Return whether messages may be batched in one datagram now."""
        return now >= self._unbatched_until

    def put_message(
        self,
        prefix: bytes,
        payload: bytes,
        now: float,
        *,
        is_reliable: bool = False,
        is_retained: bool = False,
    ) -> int:
        """Add a message and return its number. The prefix is the topic's: `["topic",`."""
        item = prefix + payload
        if is_reliable or is_retained or ESCAPE in prefix:
            item = make_item(prefix, payload, is_reliable=is_reliable, is_retained=is_retained)
        if self._is_large(item, now):
            self.pack(now)
            self.messages_sent = number = self.messages_sent + 1
            self._add_large(item, number, now)
            return number
        size = len(item) + self._item_bytes
        if self._measure() + size > self._batch_room or now < self._unbatched_until:
            self.pack(now)
        queued = self._queued
        queued.append(item)
        place = len(queued) - 1
        while queued[place] is not item:
            place -= 1  # another thread added a message after this one
        number = self.messages_sent + 1 + place
        if self._measure() + size > self._batch_room or now < self._unbatched_until:
            self.pack(now)  # no room for another message of this size, so do not wait
        return number

    def put_text(self, text: bytes, now: float, sequence: int | None = None) -> None:
        """Add a message that is encoded already, in slices, however large it is."""
        self.pack(now)
        self.messages_sent += 1
        self.put_slices(text, self.messages_sent, sequence, now)

    def _is_large(self, item: bytes, now: float) -> bool:
        """Whether a message has to be cut."""
        size = len(item) + self._item_bytes
        return size > self._whole_room and (size > _WHOLE_ROOM_MAX or self.shares(now))

    def _add_large(self, item: bytes, number: int, now: float) -> None:
        """Add the slices of a message, whose number is taken already.

        Nothing is packed in between: another thread may just have queued a message, which would
        take its number, or overtake it in their topic.
        """
        text, sequence = item, None
        if self._keep is not None and lacks_sequence(item):
            start, sequence, mark = number_item(item, number, self._keep, now)
            text = b"%b,%d%b" % (start[1:], sequence, mark)
        self.put_slices(text + b"]", number, sequence, now)

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
        sent_us, count = self._sent_us(now), len(slices)
        # A message that is sent again adds no new message number.
        first = number if number == self.messages_sent else self.messages_sent + 1
        for index, each in enumerate(slices):
            if is_wanted is None or is_wanted(index):
                place = (number, index, count, sequence)
                self._add(encode_fragment(self._stamp, each, place, first, sent_us))

    def make_single(self, prefix: bytes, payload: bytes, now: float) -> bytes | None:
        """Return a datagram with this message, to be sent at once; None if others wait."""
        if self._queued or self._ready:
            return None
        self.messages_sent = number = self.messages_sent + 1
        self.datagrams_sent += 1
        self.last_sent_at = now
        sent_us = int((now + self.wall_offset_s) * 1_000_000)
        return encode_message(self._stamp, prefix[1:-1], payload, number, sent_us)

    def put_control(
        self, control: Control, now: float, *, counts_as_heartbeat: bool = True
    ) -> None:
        """Add a datagram that holds no message.

        What follows from messages does not count as a heartbeat: NAKs, repairs, beats, retained
        values. Beats go on for seconds after the last message; if they counted, a group would
        compare its lists that much later.
        """
        if self._queued:
            self.pack(now)
        self._add(control.encode(self._stamp, self.messages_sent + 1, self._sent_us(now)))
        self._silent += not counts_as_heartbeat

    def send_unbatched(self, until: float) -> None:
        """Send one message per datagram until then: a plain peer is here and reads no batches."""
        self._unbatched_until = max(self._unbatched_until, until)
        self.fast_publish.forget()

    def take(self, now: float, *, keeps_rest: bool = False) -> list[bytes]:
        """Return all datagrams, in the order in which they must be sent.

        With `keeps_rest`, messages that do not fill another datagram stay queued.
        """
        if self._queued:
            self.pack(now, keeps_rest=keeps_rest)
        datagrams = self._ready
        if datagrams:
            self._ready = []
            self._ready_bytes = 0
            self.datagrams_sent += len(datagrams)
            if len(datagrams) > self._silent:
                self.last_sent_at = now
            self._silent = 0
            if len(datagrams) > 1:
                _equalize(datagrams)
            return datagrams
        return []

    def _measure(self) -> int:
        """Return the bytes that the queued messages take in a datagram."""
        queued, measured = self._queued, self._measured
        count = len(queued)
        if measured < count:
            self._measured_bytes += sum(map(len, queued[measured:count]))
            self._measured_bytes += self._item_bytes * (count - measured)
            self._measured = count
        return self._measured_bytes

    def pack(self, now: float, *, keeps_rest: bool = False) -> None:
        size = self._measure()
        count = self._measured
        if not count:
            return
        items = self._queued[:count]
        del self._queued[:count]
        self._measured = self._measured_bytes = 0
        if size <= self.room_bytes + 1 and count <= BATCH_MESSAGES_MAX:  # no comma at the end
            self._add_messages(items, now)
        else:
            self._pack_parts(items, now, keeps_rest=keeps_rest)
        self._per_datagram = max(1, min(BATCH_MESSAGES_MAX, self.room_bytes * count // size))

    def _pack_parts(self, items: list[bytes], now: float, *, keeps_rest: bool) -> None:
        """Pack messages that do not fit into one datagram."""
        start, room = 0, self.room_bytes
        for place, item in enumerate(items):
            size = len(item) + self._item_bytes
            if place > start and (size > room or place - start == BATCH_MESSAGES_MAX):
                self._add_messages(items[start:place], now)
                start, room = place, self.room_bytes
            room -= size
        rest = items[start:]
        if keeps_rest and start:
            self._queued[:0] = rest
        else:
            self._add_messages(rest, now)

    def _add_messages(self, items: list[bytes], now: float) -> None:
        """Make a datagram of messages."""
        first = self.messages_sent + 1
        self.messages_sent += len(items)
        sent_us = self._sent_us(now)
        if len(items) > 1:
            # The separator adds the closing bracket that each item lacks.
            if self._keep is None:
                body = b"],".join(items) + b"]"
            else:
                body = write_items(items, first, self._keep, now)
            self._add(encode_batch(self._stamp, body, first, sent_us))
            return
        item, sequence = items[0], None
        # The short way measures payloads only; and datagrams may have become smaller meanwhile.
        if self._is_large(item, now):
            self._add_large(item, first, now)
            return
        if self._keep is not None and lacks_sequence(item):
            _, sequence, _ = number_item(item, first, self._keep, now)
        topic, payload, is_retained = split_item(item)
        is_marked = is_retained or sequence is not None
        marks = encode_marks(sequence, is_retained)[1] if is_marked else b""
        self._add(encode_message(self._stamp, topic, payload, first, sent_us, marks))

    def _add(self, datagram: bytes) -> None:
        self._ready.append(datagram)
        self._ready_bytes += len(datagram)

    def _sent_us(self, now: float) -> int:
        return int((now + self.wall_offset_s) * 1_000_000)


def group_items(items: Iterable[T], size_of: Callable[[T], int], room_bytes: int) -> list[list[T]]:
    """Return the items in groups that fit one datagram each, with a comma after every item."""
    groups: list[list[T]] = []
    room = 0
    for item in items:
        size = size_of(item) + 1
        if size > room:
            groups.append([])
            room = room_bytes + 1
        groups[-1].append(item)
        room -= size
    return groups


def _equalize(datagrams: list[bytes]) -> None:
    """Fill nearly full datagrams up with spaces: a run of equal ones leaves in one system call.

    Not single messages: they are recognized by their last bytes.
    """
    size = max(map(len, datagrams))
    for place, datagram in enumerate(datagrams):
        if size * _NEARLY_FULL <= len(datagram) < size and datagram.startswith(_RESERVED_START):
            datagrams[place] = datagram.ljust(size)
