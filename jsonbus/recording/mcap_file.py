"""MCAP, as Foxglove and PlotJuggler open it: both ways. The only place that imports mcap.

A channel of the file is what one publisher sent to one topic. The messages are JSON; `log_time` is
when they were received here, `publish_time` when they were sent. All have the same schema, which
says no more than that they are objects: MCAP needs none, but PlotJuggler 3 opens no file without,
and Foxglove none whose schema lacks the list of properties, be it empty. What MCAP has no field for
is in the channel's metadata:

    jsonbus         the version of this list, "1"
    node, name, incarnation      the publisher
    retained        "true": given as a last value
    sequence_high   the upper 32 bits of the messages' sequences, of which MCAP has room for the
                    lower ones; absent if they have none
    wrapped         "true": the values are no objects, which viewers cannot open, and each is
                    written as {"value": …}
    whole           "true": a message is the line that a file of JSON lines would have

The last is for the channel MORE_TOPIC: a file has at most 65,535 channels, and what would need
more of them goes there. Losses are metadata records of the file, called LOSSES_KEY.

Messages are written in compressed chunks of at most CHUNK_BYTES, each with an index. A flush ends
the chunk. A chunk of which a part is missing is not read, and nothing behind it is there.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from io import BytesIO
from typing import IO, Any

from mcap.data_stream import ReadDataStream
from mcap.exceptions import McapError
from mcap.opcode import Opcode
from mcap.reader import SeekingReader
from mcap.records import Channel, Chunk, Metadata
from mcap.stream_reader import get_chunk_data_stream
from mcap.writer import Writer

import jsonbus

from .formats import MCAP_MAGIC
from .output_file import OutputFile
from .values import (
    LOSSES_KEY,
    Bad,
    Losses,
    dumps,
    loads,
    make_message,
    message_to_line,
    parse_line,
    read_losses,
    wrap,
)

#: What a crash may cost, and a reader has to unpack for one message. Chunks of 1 MB are an eighth
#: smaller.
CHUNK_BYTES = 128 << 10

#: A chunk that has less is not worth its overhead.
CHUNK_BYTES_MIN = 16 << 10

VERSION = "1"
SCHEMA = b'{"type":"object","properties":{}}'
CHANNELS_MAX = 65_000
MORE_TOPIC = "jsonbus.recording/more"

#: Bytes beside the data: of a message with its index; of a chunk with its index, without what it
#: has for each of its channels; of a channel's statistics and place; of header, statistics, footer.
MESSAGE_EXTRA = 47
CHUNK_EXTRA = 160
CHANNEL_EXTRA = 40
FILE_EXTRA = 500

_MESSAGE_HEAD = struct.Struct("<HIQQ")
_RECORD_HEAD = struct.Struct("<BQ")
_NANO = 1_000_000_000
_LOWER = 0xFFFF_FFFF

#: topic; node, name, incarnation, is_retained; upper sequence; whether it is wrapped.
Key = tuple[str, str, str, int, bool, int | None, bool]


class McapSink:
    """Messages as MCAP."""

    def __init__(self, output: OutputFile) -> None:
        self._output = output
        self._writer = Writer(output, chunk_size=CHUNK_BYTES)  # type: ignore[arg-type]
        self._writer.start(library=f"jsonbus {jsonbus.__version__}")
        self._schema = self._writer.register_schema("jsonbus", "jsonschema", SCHEMA)
        self._channels: dict[Key, int] = {}
        self._more: int | None = None
        self._chunk_bytes = 0  # of the chunk in progress, not compressed
        self._chunk_channels: set[int] = set()
        self._summary_bytes = FILE_EXTRA  # what is written at the end

    @property
    def size(self) -> int:
        """How many bytes the file would have, were it closed now; or somewhat fewer."""
        return self._output.tell() + self._chunk_bytes + self._summary_bytes

    @property
    def is_on_disk(self) -> bool:
        """Whether all that was written survives the end of this process."""
        return not (self._chunk_bytes or self._output.has_pending)

    def write(self, messages: Sequence[jsonbus.Message], size_max: int | None = None) -> int:
        """Add messages as long as the file does not get larger than that; returns how many."""
        # All of them first: if one has no JSON, none is added.
        encoded = [
            dumps(each.value) if type(each.value) is dict else wrap(each.value) for each in messages
        ]
        for count, (message, data) in enumerate(zip(messages, encoded, strict=True)):
            sequence, origin = message.sequence, message.origin
            if size_max is not None and not self._has_room(len(data), size_max):
                return count
            key = (
                message.topic,
                origin.node,
                origin.name,
                origin.incarnation,
                origin.is_retained,
                None if sequence is None else sequence >> 32,
                type(message.value) is not dict,
            )
            channel = self._channels.get(key)
            if channel is None:
                if len(self._channels) < CHANNELS_MAX:
                    channel = self._channels[key] = self._register(message.topic, _metadata(key))
                else:
                    channel, data = self._channel_for_more(), message_to_line(message)
            self._count(channel, len(data))
            self._writer.add_message(
                channel,
                _to_nanoseconds(origin.received_at),
                data,
                _to_nanoseconds(origin.sent_at),
                0 if sequence is None else sequence & _LOWER,
            )
        return len(messages)

    def _has_room(self, size: int, size_max: int) -> bool:
        size += MESSAGE_EXTRA + CHANNEL_EXTRA
        if self.size + size > size_max and self._chunk_bytes >= CHUNK_BYTES_MIN:
            self.flush()  # compressed, the chunk may leave room
        return self.size + size <= size_max

    def note_losses(self, losses: Losses) -> None:
        self.flush()
        fields = {"at": losses.at, "lost": losses.lost}
        fields |= {"given_up": losses.given_up, "dropped": losses.dropped}
        self._writer.add_metadata(LOSSES_KEY, {key: str(each) for key, each in fields.items()})
        self._summary_bytes += CHANNEL_EXTRA
        self._output.flush()

    def flush(self) -> None:
        """What was written so far survives the end of this process."""
        if self._chunk_bytes:
            self._end_chunk()
            self._writer.flush()  # type: ignore[no-untyped-call]
        self._output.flush()

    def finish(self) -> None:
        """Nothing more will come."""
        self._writer.finish()  # type: ignore[no-untyped-call]
        self._output.flush()

    def _register(self, topic: str, metadata: dict[str, str]) -> int:
        size = 40 + len(topic.encode())
        size += sum(8 + len(key) + len(each.encode()) for key, each in metadata.items())
        self._chunk_bytes += size
        self._summary_bytes += size + CHANNEL_EXTRA
        return self._writer.register_channel(topic, "json", self._schema, metadata)

    def _channel_for_more(self) -> int:
        if self._more is None:
            self._more = self._register(MORE_TOPIC, {"jsonbus": VERSION, "whole": "true"})
        return self._more

    def _count(self, channel: int, size: int) -> None:
        if self._chunk_bytes > CHUNK_BYTES:  # the writer has just ended the chunk
            self._end_chunk()
        self._chunk_bytes += size + MESSAGE_EXTRA
        self._chunk_channels.add(channel)

    def _end_chunk(self) -> None:
        self._summary_bytes += CHUNK_EXTRA + 10 * len(self._chunk_channels)
        self._chunk_bytes = 0
        self._chunk_channels.clear()


class McapSource:
    """The messages of an MCAP file, also of one that nobody finished, or that others wrote.

    `bad` is called with the place and the reason of what cannot be read.
    """

    def __init__(self, stream: IO[bytes], size: int, bad: Bad) -> None:
        self._stream = stream
        self._size = size
        self._bad = bad
        self.is_torn = False
        self.position = 0
        self._channels: dict[int, _ChannelReader] = {}
        self._refused: set[int] = set()
        self._summary: Any = None

    def __iter__(self) -> Iterator[jsonbus.Message | Losses]:
        if self._read(len(MCAP_MAGIC)) != MCAP_MAGIC:
            self.is_torn = True
            return
        while True:
            begins_at = self.position
            head = self._read(_RECORD_HEAD.size)
            if len(head) < _RECORD_HEAD.size:
                self.is_torn = True  # a file that was finished has a DataEnd
                return
            opcode, length = _RECORD_HEAD.unpack(head)
            if opcode == Opcode.DATA_END:
                return
            if length > self._size - self.position:
                if not self._skip_to_next_chunk(begins_at):
                    return
                continue
            yield from self._read_record(opcode, self._read(length), begins_at)

    def _read_record(
        self, opcode: int, data: bytes, begins_at: int
    ) -> Iterator[jsonbus.Message | Losses]:
        place = f"byte {begins_at:,}"
        try:
            if opcode == Opcode.CHUNK:
                chunk = Chunk.read(ReadDataStream(BytesIO(data)))
                stream, length = get_chunk_data_stream(chunk, validate_crc=True)
                yield from self._read_chunk(stream.read(length), place)
            elif opcode == Opcode.CHANNEL:
                self._add_channel(data)
            elif opcode == Opcode.MESSAGE:
                yield from self._read_message(memoryview(data), place)
            elif opcode == Opcode.METADATA:
                metadata = Metadata.read(ReadDataStream(BytesIO(data)))
                if metadata.name == LOSSES_KEY:
                    yield read_losses(metadata.metadata)
        except Exception as error:  # the decompressors have errors of their own
            self._bad(place, f"{type(error).__name__}: {error}")

    def _read_chunk(self, data: bytes, place: str) -> Iterator[jsonbus.Message]:
        view, position, size = memoryview(data), 0, len(data)
        while position < size:
            opcode, length = _RECORD_HEAD.unpack_from(data, position)
            position += _RECORD_HEAD.size
            if opcode == Opcode.MESSAGE:
                yield from self._read_message(view[position : position + length], place)
            elif opcode == Opcode.CHANNEL:
                self._add_channel(data[position : position + length])
            position += length

    def _read_message(self, record: memoryview, place: str) -> Iterator[jsonbus.Message]:
        number, sequence, log_time, publish_time = _MESSAGE_HEAD.unpack_from(record)
        channel = self._channels.get(number) or self._find_channel(number)
        if channel is None or not channel.is_json:
            self._refuse(number, channel, place)
            return
        try:
            yield channel.read(record[_MESSAGE_HEAD.size :], sequence, log_time, publish_time)
        except ValueError as error:
            self._bad(place, str(error))

    def _add_channel(self, data: bytes) -> None:
        channel = Channel.read(ReadDataStream(BytesIO(data)))
        self._channels.setdefault(channel.id, _ChannelReader(channel))

    def _find_channel(self, number: int) -> _ChannelReader | None:
        """One whose record was in a chunk that cannot be read is told again at the end."""
        summary = self._read_summary()
        channel = summary.channels.get(number) if summary else None
        if channel is not None:
            self._channels[number] = _ChannelReader(channel)
        return self._channels.get(number)

    def _refuse(self, number: int, channel: _ChannelReader | None, place: str) -> None:
        if channel is None:
            reason = f"a message of a channel that is not there, {number}"
        else:
            reason = f"{channel.topic!r} is not JSON but {channel.encoding!r}"
        self._bad(place, reason, is_told=number not in self._refused)
        self._refused.add(number)

    def _skip_to_next_chunk(self, begins_at: int) -> bool:
        """A record is longer than the file: its length is wrong, or the file is torn here."""
        summary = self._read_summary()
        if not summary:
            self.is_torn = True
            return False
        self._bad(f"byte {begins_at:,}", "a record that is longer than the file")
        offsets = [
            each.chunk_start_offset
            for each in summary.chunk_indexes
            if each.chunk_start_offset > begins_at
        ]
        if not offsets:
            return False
        self.position = self._stream.seek(min(offsets))
        return True

    def _read_summary(self) -> Any:
        """What the end of the file tells about the rest; False if it has none."""
        if self._summary is None:
            try:
                self._stream.seek(0)
                self._summary = SeekingReader(self._stream).get_summary() or False
            except (McapError, OSError, ValueError, EOFError, struct.error):
                self._summary = False
            self._stream.seek(self.position)
        return self._summary

    def _read(self, length: int) -> bytes:
        data = self._stream.read(length)
        self.position += len(data)
        return data


class _ChannelReader:
    """Makes messages of a channel's records."""

    def __init__(self, channel: Channel) -> None:
        facts = channel.metadata if channel.metadata.get("jsonbus") == VERSION else {}
        self.topic = channel.topic
        self.encoding = channel.message_encoding
        self.is_json = channel.message_encoding == "json"
        self._node = facts.get("node", "")
        self._name = facts.get("name", self._node)
        self._incarnation = int(facts.get("incarnation", "0"))
        self._is_retained = facts.get("retained") == "true"
        high = facts.get("sequence_high", None if facts else "0")
        self._high = None if high is None else int(high) << 32
        self._is_wrapped = facts.get("wrapped") == "true"
        self._is_whole = facts.get("whole") == "true"

    def read(
        self, data: memoryview, sequence: int, log_time: int, publish_time: int
    ) -> jsonbus.Message:
        """Raises ValueError."""
        if self._is_whole:
            message = parse_line(bytes(data))
            if isinstance(message, Losses):
                raise ValueError("it is no message")
            return message
        value = loads(data)
        if self._is_wrapped:
            if type(value) is not dict or "value" not in value:
                raise ValueError('it is no object {"value": …}')
            value = value["value"]
        origin = jsonbus.Origin(
            self._node,
            self._name,
            self._incarnation,
            publish_time / _NANO,
            log_time / _NANO,
            self._is_retained,
        )
        number = None if self._high is None else self._high | sequence
        return make_message(self.topic, value, number, origin)


def _metadata(key: Key) -> dict[str, str]:
    _, node, name, incarnation, is_retained, high, is_wrapped = key
    facts = {"jsonbus": VERSION, "node": node, "name": name, "incarnation": str(incarnation)}
    if high is not None:
        facts["sequence_high"] = str(high)
    if is_retained:
        facts["retained"] = "true"
    if is_wrapped:
        facts["wrapped"] = "true"
    return facts


def _to_nanoseconds(at: float) -> int:
    """Exact to the nanosecond, so that division gives the same float back.

    `at * 1e9` would be wrong by up to 128 ns, half of what two floats of today differ by.
    """
    seconds = int(at)
    return max(0, seconds * _NANO + round((at - seconds) * _NANO))
