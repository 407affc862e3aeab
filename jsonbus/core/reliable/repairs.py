"""Repairs: sends kept messages again, in as few datagrams as hold them, and beats."""

from __future__ import annotations

from collections.abc import Sequence

from jsonbus.core.limits import PARTIAL_MAX
from jsonbus.core.outbox import Outbox, group_items
from jsonbus.core.reliable.history import Beat
from jsonbus.core.reliable.kept import HistoryRecord
from jsonbus.core.wire.encode import encode_beat, encode_repair
from jsonbus.core.wire.frames import MissingOfTopic
from jsonbus.core.wire.items import RELIABLE_START
from jsonbus.core.wire.names import NAK_SLICES_MAX


class Repairs:
    """Answers of the publisher to NAKs, by the outbox."""

    def __init__(self, outbox: Outbox) -> None:
        self._outbox = outbox
        #: Slices to send again of own messages that are not asked for whole, by topic and sequence.
        self._wanted_slices: dict[tuple[str, int], set[int]] = {}

    def note_slices(self, missing: MissingOfTopic) -> None:
        """Note of which messages a subscriber needs only some slices."""
        wanted = self._wanted_slices
        if not (missing.slices or wanted):
            return
        named = {sequence: (start, bits) for sequence, start, bits in missing.slices}
        for topic, sequence in [key for key in wanted if key[0] == missing.topic]:
            if sequence not in named and any(a <= sequence <= b for a, b in missing.ranges):
                del wanted[topic, sequence]  # another subscriber needs all of it
        if len(wanted) > PARTIAL_MAX:
            wanted.clear()
        for sequence, (start, bits) in named.items():
            indexes = {start + bit for bit in range(NAK_SLICES_MAX) if bits >> bit & 1}
            wanted.setdefault((missing.topic, sequence), set()).update(indexes)

    def send(self, records: Sequence[HistoryRecord], now: float) -> None:
        """Answer to everybody with these messages."""
        items: list[bytes] = []
        room = self._outbox.room_bytes
        for record in records:
            marks = (record.sequence, record.number, record.mark)
            item = b"%b,%d,%d%b]" % (record.text[len(RELIABLE_START) :], *marks)
            if len(item) < room:
                items.append(item)
            else:
                self._repair_large(record, now)
        for group in group_items(items, len, room):
            self._outbox.put_control(encode_repair(group), now, counts_as_heartbeat=False)

    def _repair_large(self, record: HistoryRecord, now: float) -> None:
        # Byte for byte what was sent first: slices of both make up the message.
        text = record.text[len(RELIABLE_START) :]
        text = b"%b,%d%b]" % (text, record.sequence, record.mark)
        wanted = self._wanted_slices.pop((record.topic, record.sequence), None)
        if record.number < 0:  # slices need a number of their own
            self._outbox.put_text(text, now, record.sequence)
            record.stretch.number = self._outbox.messages_sent
            return
        is_wanted = None if wanted is None else wanted.__contains__
        self._outbox.put_slices(text, record.number, record.sequence, now, is_wanted)

    def send_beats(self, beats: Sequence[Beat], now: float) -> None:
        """Tell everybody how far these topics are."""
        for group in group_items(beats, _beat_bytes, self._outbox.room_bytes):
            self._outbox.put_control(encode_beat(group), now, counts_as_heartbeat=False)


def _beat_bytes(beat: Beat) -> int:
    """Return the bytes that a beat takes at most, should all of its topic be escaped."""
    topic, last, first = beat
    return 2 * len(topic.encode()) + len(f'["",{last},{first}],')
